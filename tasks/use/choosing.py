"""Finds the team and the problem that the words of a command line name.

Does not import torch, so that a page which only lists teams and problems (`offers`) stays small; `playing` opens teams.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_lib.environment_api.registry import find
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.splits import load_manifest, load_split
from pipeline_lib.project import NotSelectedError, selected_checkpoint
from pipeline_lib.settings import Params
from pipeline_lib.tracking.tracker import NoChampionError, find_champion
from pipeline_lib.training.checkpoint_folders import RECORD, read_record, step_folder
from tasks.experiment.arms import ARMS, PROBLEMS, SINGLE, TEAM, TRAINED, seeds_of, trained_folder
from tasks.identity.dvc_record import refuse_false_records
from tasks.runtime.arguments import ArgumentError, meant
from tasks.services.process_environment import places

TEAMS = "selected, champion, base, single, single-base, or the folder of a checkpoint"


class ChoiceError(ValueError):
    """There is no such team or problem yet, or it cannot be used; the message says why."""


class UnknownChoiceError(ChoiceError, ArgumentError):
    """The words name no team or problem that may be used; the message says what they may be."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen team."""

    title: str  #: name of the team in sentences
    arm: str  #: arm whose environment it acts in
    folder: Path | None  #: folder of its checkpoint; None for the base


def choose_team(params: Params, words: str) -> Choice:
    """Return the team that ``words`` name, one of `TEAMS`; ChoiceError if there is none, else as
    `refuse_false_records`.
    """
    refuse_false_records()
    if words in ("base", "single-base"):
        arm = TEAM if words == "base" else SINGLE
        return Choice("the base, untrained" if arm == TEAM else "a single agent, untrained", arm, None)
    if words in ("selected", "single"):
        arm = TEAM if words == "selected" else SINGLE
        try:
            seed, step = selected_checkpoint(arm=arm)
        except NotSelectedError as error:
            raise ChoiceError(str(error)) from None
        return Choice(_title(arm, seed, step), arm, step_folder(trained_folder(arm, seed), step))
    if words == "champion":
        return _champion(params)
    folder = Path(words)
    arm, _, seed_text = folder.absolute().parent.name.partition("-")
    if not (folder / RECORD).is_file():
        near = meant(words, ("selected", "champion", "base", "single", "single-base"))
        accepted = f"; accepted: {TEAMS}, such as {TRAINED}/team-0/step-00010"
        raise UnknownChoiceError(f"{words}: no such team{near or accepted}")
    if arm not in ARMS:
        raise UnknownChoiceError(f"{words}: not a folder of a trained team; expected a folder below {TRAINED}")
    return Choice(_title(arm, int(seed_text), int(read_record(folder / RECORD)["step"])), arm, folder)


def _title(arm: str, seed: int, step: int) -> str:
    who = "the team" if arm == TEAM else "a single agent"
    return f"{who} of training seed {seed} after {step} update{'s' if step != 1 else ''}"


def _champion(params: Params) -> Choice:
    """Return the champion's checkpoint, found by the digest of its weights among the checkpoints in this folder."""
    teams = {folder: str(read_record(folder / RECORD)["team"]) for folder in sorted(TRAINED.glob("*/step-*"))}
    try:
        found, folder = find_champion(params.environment.kind, places().tracking, teams)
    except NoChampionError as error:
        raise ChoiceError(str(error)) from None
    return Choice(f"the champion, {found}", TEAM, folder)


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


def choose_problem(params: Params, words: str | None) -> Any:
    """Return a problem by its id, from a file, or from its text; None means the first validation problem.

    A problem of the test split is refused: watching a team on it would be an uncounted look at that split.

    Raises:
        ChoiceError: there is no such problem, or it is a test problem.
        ProblemsError: nothing was prepared.
    """
    manifest = load_manifest(PROBLEMS)["splits"]
    known = ", ".join(manifest["validation"]["ids"][:3])
    if words is None:
        return named_problem("")
    if not words.strip():
        raise UnknownChoiceError(f"the problem is empty; give an id such as {known}, a file, or a text")
    if any(words in entry["ids"] for entry in manifest.values()):
        return named_problem(words)
    path = Path(words)
    if "\n" not in words and len(words) < 4096 and path.is_file():
        words = path.read_text(encoding="utf-8", errors="surrogateescape")
        rows = words.strip().splitlines()
        if len(rows) > 1 and all(row.startswith("{") for row in rows):
            raise UnknownChoiceError(f"{path} has {len(rows)} problems, one per line; give a file with one of them")
    elif "\n" not in words and not words.lstrip().startswith("{"):
        raise UnknownChoiceError(f"{words!r} is neither a problem nor a file; problems have ids such as {known}")
    return typed_problem(params, words)


def named_problem(name: str) -> Any:
    """Return a prepared problem by its id; "" means the first validation problem.  Raises as `choose_problem`."""
    if not name:
        return load_split(PROBLEMS, "validation")[0]
    for split, entry in load_manifest(PROBLEMS)["splits"].items():
        if name in entry["ids"]:
            if split == "test":
                raise UnknownChoiceError(
                    f"{name} is a problem of the test split; watching a team on it would be an uncounted look"
                )
            return load_split(PROBLEMS, split)[entry["ids"].index(name)]
    raise UnknownChoiceError(f"{name!r} is not the id of a prepared problem")


def typed_problem(params: Params, text: str) -> Any:
    """Return the problem that a text describes, JSON or the environment's form for people; its tests are trusted.

    Raises:
        ChoiceError: it cannot be understood, or is one of the test split; the message says why.
    """
    task = find(params.environment.kind)
    try:
        if text.lstrip().startswith("{"):
            row = json.loads(text)
            json.dumps(row, ensure_ascii=False).encode()  # a lone surrogate cannot be encoded
            problem = task.read_problem(row)
        else:
            problem = task.parse_problem(text)
        content = problem.content_hash  # also fails on values of the wrong type
    except (TypeError, AttributeError):
        raise UnknownChoiceError(
            f"this is not a problem of {params.environment.kind}: its keys and values are not like those of a line of "
            f"{PROBLEMS}/train.jsonl"
        ) from None
    except (ValueError, KeyError, RecursionError) as error:
        raise UnknownChoiceError(f"this is not a problem of {params.environment.kind}: {error}") from None
    if content in load_manifest(PROBLEMS)["splits"]["test"]["hashes"]:
        raise UnknownChoiceError(f"{problem.id} is a problem of the test split, which only the stage test may use")
    return problem


def untrusted_problem(params: Params, text: str) -> Any:
    """Return the problem that a text of an untrusted client describes, without code that would run as trusted.

    Raises:
        ChoiceError: as `typed_problem`.
    """
    return find(params.environment.kind).without_code(typed_problem(params, text))
