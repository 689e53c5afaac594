"""The file of a study and the settings of its cells, checked before anything runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from pipeline_lib.settings import Params, SettingsError
from pipeline_lib.settings.base import result_settings
from pipeline_lib.settings.study import StudySettings, cell_params, cells_of, load_study
from tasks.experiment.check_run import check_reasons

STUDIES = Path("conf/studies")


def read_study(name_or_file: str) -> tuple[str, StudySettings, dict[str, Params]]:
    """Return the name of a study, the settings in its file, and the settings of its cells.

    Args:
        name_or_file: a file, or the name of one in `STUDIES`.

    Raises:
        SettingsError: there is no such study, or its settings are wrong.
    """
    given = Path(name_or_file)
    path = given if given.suffix == ".yaml" else STUDIES / f"{name_or_file}.yaml"
    study, project = load_study(path), Path.cwd()
    settings = {cell: cell_params(study, cell, project / "params.yaml", project / "conf") for cell in cells_of(study)}
    for params in settings.values():
        check_reasons(params)
    check_same_evaluation(settings)
    refuse_equal(settings)
    return path.stem, study, settings


def check_same_evaluation(settings: Mapping[str, Params]) -> None:
    """Check that all cells are evaluated with the same settings.

    Raises:
        SettingsError: a factor changes how teams are evaluated.
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


def refuse_equal(settings: Mapping[str, Params]) -> None:
    """Refuse cells whose results are the same by construction.

    Raises:
        SettingsError: two cells differ at most in settings of the machine.
    """
    for (one, its), (other, theirs) in itertools.combinations(settings.items(), 2):
        if result_settings(its) == result_settings(theirs):
            raise SettingsError(
                f"the cells '{one}' and '{other}' have the same settings, so there is nothing to compare; change a "
                "level, or remove it"
            )
