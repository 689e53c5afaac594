"""Evaluating a team on a split: one cached task per checkpoint, so only what is new costs anything."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pipeline_lib.environments.make
import pipeline_lib.evaluation.run
import pipeline_lib.policies.load
import pipeline_lib.rollouts.make
from pipeline_lib.environments.make import make_environment
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.run import evaluate_team
from pipeline_lib.policies.store import team_digest
from pipeline_lib.problems.splits import load_manifest, load_split
from pipeline_lib.protocols import make_protocol
from pipeline_lib.rollouts import make_engine
from pipeline_lib.settings import Params
from pipeline_lib.settings.evaluate import SampleSettings
from pipeline_lib.training.checkpoints import load_checkpoint, read_checkpoint, step_folder, steps_in
from tasks.arms import PROBLEMS, environment_section, trained_folder
from tasks.caching import CachedTask, Identity
from tasks.sampling import sampling_of
from tasks.teams import base_team

if TYPE_CHECKING:
    from pipeline_lib.environments.environment import Environment
    from pipeline_lib.policies.policy import Team
    from pipeline_lib.rollouts.engine import Engine

#: How a team plays unless another protocol is asked for: as it is trained.
DECENTRALISED = "decentralised"

EVALUATE = CachedTask(
    "evaluate",
    pipeline_lib.evaluation.run,
    pipeline_lib.environments.make,
    pipeline_lib.rollouts.make,
    pipeline_lib.policies.load,
)


@dataclass(slots=True)
class Evaluated:
    """Episodes of one team on one split, and the wall time it took when they were computed (seconds)."""

    episodes: list[EpisodeRecord]
    seconds: float


class Evaluator:
    """Plays one arm's teams on one split; made once per stage, because engine and sandbox take time to start.

    Args:
        params: the settings.
        arm: which arm.
        split: ``validation`` or ``test``.
        samples: episodes per problem, and their seed.
    """

    def __init__(self, params: Params, arm: str, split: str, samples: SampleSettings) -> None:
        self._params = params
        self._arm = arm
        self._samples = samples
        self._section = environment_section(params, arm)
        self.problems: Sequence[Any] = load_split(PROBLEMS, split)
        self.manifest = load_manifest(PROBLEMS)["splits"][split]
        self._open: tuple[Environment[Any, Any], Engine] | None = None
        self._environment = make_environment(self._section, params.sandbox)
        self._team = base_team(params, self._environment, self.problems)

    def close(self) -> None:
        """Stop engine and sandbox."""
        self._environment.close()
        if self._open:
            self._open[1].close()

    def base(self, protocol: str = DECENTRALISED) -> Evaluated:
        """Return the untrained team's episodes, each agent by itself or by another protocol."""
        team = base_team(self._params, self._environment, self.problems)
        title = "base" if protocol == DECENTRALISED else f"base, {protocol.replace('_', ' ')}"
        return self._evaluate(team, team_digest(team), f"{self._arm} {title}", protocol)

    def checkpoint(self, seed: int, step: int) -> Evaluated:
        """Return the episodes of a checkpoint, which is verified by digest before it is used."""
        folder = step_folder(trained_folder(self._arm, seed), step)
        digest = str(read_checkpoint(folder)["team"])

        def team() -> Team:
            load_checkpoint(folder, self._team)
            return self._team

        return self._evaluate(team, digest, f"{self._arm} {seed} step {step}", DECENTRALISED)

    def _evaluate(
        self,
        team: Team | Callable[[], Team],
        digest: str,
        title: str,
        protocol: str,
    ) -> Evaluated:
        params, samples = self._params, self._samples

        def compute() -> dict[str, Any]:
            started = time.perf_counter()
            loaded = team() if callable(team) else team
            with contextlib.closing(make_engine(params.rollouts)) as engine:
                records = evaluate_team(
                    loaded,
                    self._environment,
                    self.problems,
                    engine,
                    sampling_of(params),
                    samples.samples,
                    samples.seed,
                    protocol=make_protocol(protocol),
                )
            return {
                "episodes": [record.to_json() for record in records],
                "seconds": round(time.perf_counter() - started, 3),
            }

        identity = Identity(
            policy=digest,
            problems=self.manifest["digest"],
            seed=samples.seed,
            settings={
                "samples": samples.samples,
                "protocol": protocol,
                "environment": self._section.model_dump(mode="json"),
                "rollouts": params.rollouts.model_dump(mode="json"),
                "limits": params.sandbox.limits.model_dump(mode="json"),
            },
        )
        value = EVALUATE(identity, compute, title)
        return Evaluated([EpisodeRecord.from_json(row) for row in value["episodes"]], value["seconds"])


@contextlib.contextmanager
def evaluator(params: Params, arm: str, split: str, samples: SampleSettings) -> Iterator[Evaluator]:
    """Yield an `Evaluator` and stop its engine and sandbox afterwards."""
    made = Evaluator(params, arm, split, samples)
    try:
        yield made
    finally:
        made.close()


def checkpoint_steps(arm: str, seed: int) -> list[int]:
    """Return the steps of a run's checkpoints, step 0 (the untrained team) first."""
    return steps_in(trained_folder(arm, seed))


def episodes_file(folder: Path, name: str) -> Path:
    """Return the file in which a team's episodes lie."""
    return folder / f"{name}.jsonl"
