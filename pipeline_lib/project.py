"""Where a project keeps what its chain makes, as paths in its folder (dvc.yaml names the same)."""

from pathlib import Path

PROBLEMS = Path("data/problems")
BASE = Path("models/base")
TRAINED = Path("models/trained")
RESULTS = Path("results")

#: Beside the page of the report: the episodes that tracking records as traces.
TRACES = "traces.json"
