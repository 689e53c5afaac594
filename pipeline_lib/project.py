"""Where a project keeps what its chain makes, as paths in its folder (dvc.yaml names the same); its selected team."""

from pathlib import Path

from pipeline_lib import storage

PROBLEMS = Path("data/problems")
BASE = Path("models/base")
TRAINED = Path("models/trained")
RESULTS = Path("results")

#: Beside the page of the report: the episodes that tracking records as traces.
TRACES = "traces.json"


class NotSelectedError(ValueError):
    """No checkpoint was selected yet; the message says what to do."""


def selected_checkpoint(project: Path = Path(), arm: str = "team") -> tuple[int, int]:
    """Return training seed and step of *the* selected team, as the stage `select` wrote it.

    It is the selected checkpoint with the best validation mean among those that pass the guards (among all if none
    does).  Everything that uses, shows, exports or tracks one team asks here, so that it is the team of the verdict.
    ``arm`` is ``team`` or ``single``.  NotSelectedError if nothing of this arm was selected yet.
    """
    path = project / RESULTS / "selection.json"
    if not path.exists():
        raise NotSelectedError(f"{path}: no checkpoint was selected yet; run `symposium run` first")
    found = storage.read_json(path).get(arm)
    if found is None:
        raise NotSelectedError(
            f"{path}: no checkpoint of the arm {arm} was selected; did it train (seeds.single_agent)?"
        )
    return int(found["champion_seed"]), int(found["champion_step"])
