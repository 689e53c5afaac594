"""Which team is meant, and which problem: from words on a command line to weights and a problem in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib.environments.make import make_environment
from pipeline_lib.play import Player
from pipeline_lib.problems.splits import load_manifest, load_split
from pipeline_lib.rollouts import make_engine
from pipeline_lib.seam.registry import find
from pipeline_lib.storage import read_json
from pipeline_lib.training.checkpoint_folders import RECORD, read_record, step_folder
from pipeline_lib.training.checkpoints import load_checkpoint
from tasks.experiment.arms import ARMS, PROBLEMS, RESULTS, SINGLE, TEAM, TRAINED, environment_section, trained_folder
from tasks.experiment.sampling import protocol_of, sampling_of
from tasks.experiment.teams import base_team

if TYPE_CHECKING:
    from pipeline_lib.settings import Params

TEAMS = "selected, champion, base, single, single-base, or the folder of a checkpoint"


class ChoiceError(ValueError):
    """There is no such team or problem; the message says what there is."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A team that is meant.

    Attributes:
        title: what people call it.
        arm: whose environment it acts in.
        folder: its checkpoint; None: the base.
    """

    title: str
    arm: str
    folder: Path | None


def selected(arm: str = TEAM) -> tuple[int, int]:
    """Return seed and step of the selected checkpoint that did best on validation problems.

    Raises:
        ChoiceError: nothing was selected yet, or nothing of this arm.
    """
    path = RESULTS / "selection.json"
    if not path.exists():
        raise ChoiceError(f"{path}: nothing was selected yet; run `symposium run` first, or name a checkpoint")
    rows = [
        (row["mean"], -int(seed), row["step"]) for seed, row in read_json(path).get(arm, {"seeds": {}})["seeds"].items()
    ]
    if not rows:
        raise ChoiceError(f"{path}: no training run of the arm {arm} was selected from (seeds.single_agent is empty?)")
    _, seed, step = max(rows)
    return -seed, int(step)


def choose_team(params: Params, words: str) -> Choice:
    """Return the team that ``words`` name, one of `TEAMS`.

    Raises:
        ChoiceError: there is none.
    """
    if words in ("base", "single-base"):
        arm = TEAM if words == "base" else SINGLE
        return Choice("the base, untrained" if arm == TEAM else "a single agent, untrained", arm, None)
    if words in ("selected", "single"):
        arm = TEAM if words == "selected" else SINGLE
        seed, step = selected(arm)
        return Choice(_title(arm, seed, step), arm, step_folder(trained_folder(arm, seed), step))
    if words == "champion":
        return _champion(params)
    folder = Path(words)
    arm, _, seed_text = folder.absolute().parent.name.partition("-")
    if not (folder / RECORD).is_file():
        raise ChoiceError(f"{words}: no such team; accepted: {TEAMS}, such as {TRAINED}/team-0/step-00010")
    if arm not in ARMS:
        raise ChoiceError(f"{words}: its folder does not say whose it is; expected a folder below {TRAINED}")
    return Choice(_title(arm, int(seed_text), int(read_record(folder / RECORD)["step"])), arm, folder)


def _title(arm: str, seed: int, step: int) -> str:
    who = "the team" if arm == TEAM else "a single agent"
    return f"{who} of training seed {seed} after {step} updates"


def _champion(params: Params) -> Choice:
    """Return the champion's checkpoint among those that are here, found by its weights."""
    from pipeline_lib.tracking.champions import champion
    from tasks.services.process_environment import places
    from tasks.stages.crowning import registered_name

    name = registered_name(params)
    found = champion(places().tracking, name)
    if found is None:
        raise ChoiceError(f"{name} has no champion yet: no tested team has won that (the verdict says why)")
    for folder in sorted(TRAINED.glob("*/step-*")):
        if str(read_record(folder / RECORD)["team"]) == found.weights:
            return Choice(f"the champion, {found}", TEAM, folder)
    raise ChoiceError(f"the champion is {found}, whose weights are not here; `dvc exp apply {found.run}` brings them")


@contextmanager
def opened(params: Params, choice: Choice, problem: Any = None) -> Iterator[Player]:
    """Yield the team in its environment, ready to play, and close both afterwards.

    Args:
        params: the settings.
        choice: which team.
        problem: what it will play, if that is known: its agents must be the team's.

    Raises:
        ChoiceError: the team has no policy for an agent of the problem.
        ProblemsError: no problems were prepared.
    """
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # of loading, which takes a moment
    environment = make_environment(environment_section(params, choice.arm), params.sandbox)
    engine = make_engine(params.rollouts)
    try:
        team = base_team(params, environment, load_split(PROBLEMS, "train"))
        for agent in environment.agents(problem) if problem is not None else ():
            if team.uses.get(agent, "team") not in team.policies:
                raise ChoiceError(
                    f"problem {problem.id} has an agent {agent!r}, and the team knows: {', '.join(team.uses)}"
                )
        if choice.folder is not None:
            load_checkpoint(choice.folder, team)
        engine.load(team.policies)
        yield Player(environment, team, engine, sampling_of(params), protocol_of(params, choice.arm))
    finally:
        engine.close()
        environment.close()


def choose_problem(params: Params, words: str) -> Any:
    """Return a problem: by its id, from a file, or as it was typed; "" means the first validation problem.

    A problem of the test split is refused: watching a team on it would be a look at that split which nobody counts.

    Raises:
        ChoiceError: there is no such problem, or it is a test problem.
        ProblemsError: nothing was prepared.
    """
    if not words:
        return load_split(PROBLEMS, "validation")[0]
    splits = load_manifest(PROBLEMS)["splits"]
    for split, entry in splits.items():
        if words in entry["ids"]:
            if split == "test":
                raise ChoiceError(
                    f"{words} is a problem of the test split; to watch a team on it would be a look that nobody counts"
                )
            return load_split(PROBLEMS, split)[entry["ids"].index(words)]
    path = Path(words)
    if "\n" not in words and len(words) < 4096 and path.is_file():
        words = path.read_text(encoding="utf-8")
    elif "\n" not in words and not words.lstrip().startswith("{"):
        known = ", ".join(splits["validation"]["ids"][:3])
        raise ChoiceError(f"{words!r} is no problem and no file; problems are called {known}, ...")
    problem = problem_from_text(params, words)
    if problem.content_hash in splits["test"]["hashes"]:
        raise ChoiceError(f"{problem.id} is a problem of the test split, which is looked at by the stage test alone")
    return problem


def problem_of_stranger(params: Params, text: str) -> Any:
    """Return the problem that a text is, without code of it that would be run as trusted: for who serves others.

    Raises:
        ChoiceError: as `problem_from_text`.
    """
    return find(params.environment.kind).without_code(problem_from_text(params, text))


def problem_from_text(params: Params, text: str) -> Any:
    """Return the problem that a text is: its JSON, or what people type in this environment.

    Raises:
        ChoiceError: it cannot be understood; the message says why.
    """
    task = find(params.environment.kind)
    try:
        if text.lstrip().startswith("{"):
            return task.read_problem(json.loads(text))
        return task.type_problem(text)
    except (ValueError, TypeError, KeyError) as error:
        raise ChoiceError(f"this is no problem of {params.environment.kind}: {error}") from None
