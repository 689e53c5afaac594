"""The file of a study and the settings of its cells, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipeline_lib.settings import Params, SettingsError
from pipeline_lib.settings.base import result_settings
from pipeline_lib.settings.study import StudySettings, cell_params, cells_of, load_study

STUDIES = Path("conf/studies")


def read_study(asked: str) -> tuple[str, StudySettings, dict[str, Params]]:
    """Return the name of a study, what its file says, and the settings of its cells.

    Args:
        asked: a file, or the name of one in `STUDIES`.

    Raises:
        SettingsError: there is no such study, or its settings are wrong.
    """
    given = Path(asked)
    path = given if given.suffix == ".yaml" else STUDIES / f"{asked}.yaml"
    study, project = load_study(path), Path.cwd()
    settings = {cell: cell_params(study, cell, project / "params.yaml", project / "conf") for cell in cells_of(study)}
    same_yardstick(settings)
    return path.stem, study, settings


def same_yardstick(settings: Mapping[str, Params]) -> None:
    """Refuse cells that are not measured alike.

    Raises:
        SettingsError: a factor changes how teams are judged.
    """
    first, *others = settings.items()
    sections = ["evaluate", "verdict", "problems", "sandbox"]
    if first[1].evaluate.metric == "reward":
        sections.append("environment")  # another reward is another scale
    for section in sections:
        for name, params in others:
            if result_settings(getattr(params, section)) != result_settings(getattr(first[1], section)):
                raise SettingsError(
                    f"the cells '{first[0]}' and '{name}' differ in {section}; settings that judge teams must be "
                    "the same in all cells: put them under changes"
                )
