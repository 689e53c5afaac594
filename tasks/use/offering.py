"""The choices on a page: teams, checkpoints, problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.splits import load_manifest
from pipeline_lib.training.checkpoint_folders import RECORD
from tasks.experiment.arms import PROBLEMS, SINGLE, TRAINED, seeds_of
from tasks.use.choosing import ChoiceError, choose_team

if TYPE_CHECKING:
    from pipeline_lib.settings import Params


def offers(params: Params) -> dict[str, Any]:
    """Return the teams and problems in this folder.

    Returns:
        ``teams``: value and title of each, named teams first, then every checkpoint; ``problems``: ids of the
        validation split; ``missing``: what is missing, and how to get it, a sentence each.
    """
    teams: list[tuple[str, str]] = []
    missing: list[str] = []
    single = ("single", "single-base") if seeds_of(params, SINGLE) else ()
    for words in ("selected", "base", *single):
        try:
            teams.append((words, choose_team(params, words).title))
        except ChoiceError as error:
            missing.append(str(error))
    # Whether there is a champion only MLflow's database knows, which takes seconds to open: it is asked when it plays.
    teams.append(("champion", "the champion: the best team that was tested"))
    folders = sorted(record.parent for record in TRAINED.glob(f"*/step-*/{RECORD}"))
    teams += [(str(folder), f"{folder.parent.name}, {folder.name}") for folder in folders]
    try:
        problems = load_manifest(PROBLEMS)["splits"]["validation"]["ids"]
    except ProblemsError as error:
        problems = []
        missing.append(str(error))
    return {"teams": teams, "problems": problems, "missing": list(dict.fromkeys(missing))}
