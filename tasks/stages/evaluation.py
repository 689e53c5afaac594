"""Evaluate a team on a split, with one cached task per checkpoint, so that only new checkpoints cost time."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline_lib import storage
from pipeline_lib.assembly.teams import base_team, sampling_of
from pipeline_lib.environment_api.metrics import with_reward
from pipeline_lib.environment_api.registry import find
from pipeline_lib.environments.make import make_environment
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.metrics import check_ranges
from pipeline_lib.evaluation.run import evaluate_subteams, evaluate_team, refuse_losses
from pipeline_lib.play import Player
from pipeline_lib.policies.store import team_digest
from pipeline_lib.problems.splits import load_manifest, load_split
from pipeline_lib.protocols import Protocol, make_protocol
from pipeline_lib.rollouts import make_engine
from pipeline_lib.settings import Params
from pipeline_lib.settings.base import result_settings
from pipeline_lib.settings.evaluate import SampleSettings
from pipeline_lib.training.checkpoint_folders import step_folder, steps_in
from pipeline_lib.training.checkpoints import load_checkpoint, read_checkpoint
from tasks.experiment.arms import BASE, PROBLEMS, environment_section, trained_folder
from tasks.experiment.protocols import protocol_of
from tasks.identity.stages import contents, playing
from tasks.runtime.caching import CachedTask, Identity

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Team
    from pipeline_lib.rollouts.engine import Engine

EVALUATE = CachedTask("evaluate", sys.modules[__name__])


@dataclass(slots=True)
class Evaluated:
    """Episodes of one team on one split, and the wall time it took when they were computed (seconds)."""

    episodes: list[EpisodeRecord]
    seconds: float


class Evaluator:
    """Plays one arm's teams on one split, with one sandbox, one team in memory and one engine for all of them.

    The engine starts when the first team is played; weights of another checkpoint are loaded into the team in memory
    and from there into the running engine, as training does.

    Args:
        params: the settings.
        arm: which arm.
        split: ``validation`` or ``test``.
        samples: episodes per problem, and their seed.
        keep_texts: keep the transcripts of all episodes.
    """

    def __init__(self, params: Params, arm: str, split: str, samples: SampleSettings, keep_texts: bool = False) -> None:
        self._params = params
        self._arm = arm
        self._samples, self._keep_texts = samples, keep_texts
        self._protocol = protocol_of(params, arm)
        self._section = environment_section(params, arm)
        self.problems: Sequence[Any] = load_split(PROBLEMS, split)
        self.manifest = load_manifest(PROBLEMS)["splits"][split]
        self._environment = make_environment(self._section, params.sandbox)
        self.reward_bounds = self._environment.episode_bounds
        self._metrics = with_reward(find(params.environment.kind).metrics(), *self.reward_bounds)
        self._team = self._untrained()
        self._base = team_digest(self._team)
        self._engine: Engine | None = None
        self._held: dict[str, int] = {}

    def close(self) -> None:
        """Stop engine and sandbox."""
        self._environment.close()
        if self._engine is not None:
            self._engine.close()

    def base(self, protocol: str = "") -> Evaluated:
        """Return the untrained team's episodes, as it is trained or by another protocol."""
        title = f"base, {protocol.replace('_', ' ')}" if protocol else "base"

        def put() -> None:
            if any(policy.version for policy in self._team.policies.values()):  # a checkpoint was put over it
                self._team, self._held = self._untrained(), {}

        played = make_protocol(protocol) if protocol else self._protocol
        return self._evaluate(put, self._base, f"{self._arm} {title}", played)

    def checkpoint(self, seed: int, step: int, subteams: int = 0) -> Evaluated:
        """Return the episodes of a checkpoint, which is verified by digest before it is used.

        With ``subteams`` > 0: so many episodes per problem of each of its subteams (`evaluate_subteams`).
        """
        folder = step_folder(trained_folder(self._arm, seed), step)
        digest = str(read_checkpoint(folder)["team"])

        def put() -> None:
            load_checkpoint(folder, self._team)

        title = f"{self._arm} {seed} step {step}{', subteams' if subteams else ''}"
        return self._evaluate(put, digest, title, self._protocol, subteams)

    def _untrained(self) -> Team:
        return base_team(self._params, BASE, self._environment, self.problems)

    def _engine_with_team(self) -> Engine:
        """Return the engine with the present weights of the team in memory."""
        policies = self._team.policies
        if self._engine is None:
            self._engine = make_engine(self._params.rollouts, self._params.policy)
        if not self._held:
            self._engine.load(self._team.sampled())
        for name, policy in policies.items():
            if self._held.get(name, policy.version) != policy.version:
                self._engine.update(policy)
        self._held = {name: policy.version for name, policy in policies.items()}
        return self._engine

    def _evaluate(
        self, put: Callable[[], None], digest: str, title: str, protocol: Protocol, subteams: int = 0
    ) -> Evaluated:
        """Return the episodes of the team with this digest; ``put`` loads its weights into memory.

        With ``subteams`` > 0: so many episodes per problem of each of its subteams.  Episodes of which the
        infrastructure lost too many are not remembered: EvaluationError.
        """
        params, samples = self._params, self._samples

        def compute() -> dict[str, Any]:
            started = time.perf_counter()
            put()
            engine = self._engine_with_team()
            player = Player(self._environment, self._team, engine, sampling_of(params), protocol)
            if subteams:
                records = evaluate_subteams(player, self.problems, subteams, samples.seed)
            else:
                records = evaluate_team(player, self.problems, samples.samples, samples.seed, self._keep_texts)
            refuse_losses(records, params.sandbox.infra_error_share, title)
            return {
                "episodes": [record.to_json() for record in records],
                "seconds": round(time.perf_counter() - started, 3),
            }

        identity = Identity(
            policy=self._depends_on(digest),
            problems=self.manifest["digest"],
            seed=samples.seed,
            settings={
                "samples": subteams or samples.samples,
                "subteams": bool(subteams),
                "texts": self._keep_texts,
                "protocol": protocol.name,
                "environment": result_settings(self._section),
                "playing": playing(params),
            },
        )
        value = EVALUATE(identity, compute, title)
        records = [EpisodeRecord.from_json(row) for row in value["episodes"]]
        check_ranges(records, self._metrics)
        return Evaluated(records, value["seconds"])

    def _depends_on(self, weights: str) -> str:
        """Return the digest of what determines a team's answers: trained weights, and the base that they adapt."""
        return storage.digest({"weights": weights, "base": contents().of(BASE)})


@contextlib.contextmanager
def evaluator(
    params: Params, arm: str, split: str, samples: SampleSettings, keep_texts: bool = False
) -> Iterator[Evaluator]:
    """Yield an `Evaluator` and stop its engine and sandbox afterwards."""
    made = Evaluator(params, arm, split, samples, keep_texts)
    try:
        yield made
    finally:
        made.close()


def checkpoint_steps(arm: str, seed: int) -> list[int]:
    """Return the steps of a run's checkpoints, step 0 (the untrained team) first."""
    return steps_in(trained_folder(arm, seed))
