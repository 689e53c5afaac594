"""Files with the episodes of the sweep and the test."""

from collections.abc import Iterable
from pathlib import Path

from pipeline_lib import storage
from pipeline_lib.environment_api.metrics import Metrics, with_reward
from pipeline_lib.environment_api.registry import find
from pipeline_lib.evaluation.episodes import EpisodeRecord
from tasks.experiment.arms import TESTED, sweep_folder

BOUNDS = "reward_bounds.json"


def read_episodes(path: Path) -> list[EpisodeRecord]:
    """Read one team's episodes.

    Raises:
        FileNotFoundError: the stage that writes them has not run.
        CorruptFileError: the file is damaged.
    """
    return [EpisodeRecord.from_json(row) for row in storage.read_jsonl(path)]


def write_bounds(arms: Iterable[tuple[float, float]]) -> None:
    """Write the range of an episode's reward, in which those of all ``arms`` lie, beside the episodes of the test."""
    lows, highs = zip(*arms, strict=True)
    storage.write_json(TESTED / BOUNDS, {"low": min(lows), "high": max(highs)})


def tested_metrics(kind: str, folder: Path = TESTED) -> Metrics:
    """Return the metrics of the environment ``kind`` with the range of the reward that `write_bounds` wrote."""
    bounds = storage.read_json(folder / BOUNDS)
    return with_reward(find(kind).metrics(), bounds["low"], bounds["high"])


def swept(arm: str, seed: int) -> dict[int, list[EpisodeRecord]]:
    """Return the validation episodes of a run by step; step 0 is the base."""
    files = sorted(sweep_folder(arm, seed).glob("step-*.jsonl"))
    return {int(path.stem.removeprefix("step-")): read_episodes(path) for path in files}


def tested_file(arm: str, which: str, seed: int | None = None) -> Path:
    """Return the file of a team's test episodes.

    ``which`` is ``base``, ``selected``, ``last``, the name of a protocol, or a variation of the selected team:
    ``subteams``, ``guests`` (an agent of another training run) or ``base-guests`` (an agent of the base).
    """
    return TESTED / (f"{arm}-{which}.jsonl" if seed is None else f"{arm}-{which}-{seed}.jsonl")
