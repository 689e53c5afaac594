"""Who is champion now, read from MLflow's registry.  Importing this module imports MLflow, which takes a second."""

from __future__ import annotations

from pathlib import Path

from pipeline_lib.tracking.addresses import tracking_uri
from pipeline_lib.tracking.championship import Contender
from pipeline_lib.tracking.destination import connect
from pipeline_lib.tracking.registry import champion_version


def champion(home: Path, registered: str) -> Contender | None:
    """Return the test of the champion, or None where there is none.

    Args:
        home: folder of the tracking database, where no server is named.
        registered: name of the registered model.
    """
    version = champion_version(connect(tracking_uri(home), home), registered)
    return Contender.from_tags(version.tags) if version else None
