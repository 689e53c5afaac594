"""Evaluate a team on a split, with one cached task per checkpoint, so that only new checkpoints cost time."""

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from pipeline_lib import storage
from pipeline_lib.assembly.on_ray import Nodes
from pipeline_lib.environment_api.metrics import with_reward
from pipeline_lib.environment_api.registry import find
from pipeline_lib.evaluation.episodes import BASE_GUEST, EpisodeRecord, check_ranges, guests
from pipeline_lib.evaluation.run import evaluate_guest, evaluate_subteams, evaluate_team, refuse_losses, roots_of
from pipeline_lib.identity.code import version
from pipeline_lib.play import Player
from pipeline_lib.policies.computing import right_threads
from pipeline_lib.policies.policy import Team
from pipeline_lib.policies.store import team_digest
from pipeline_lib.problems.splits import load_manifest, load_split
from pipeline_lib.protocols import Protocol, make_protocol
from pipeline_lib.rollouts.engine import Engine
from pipeline_lib.settings import Params
from pipeline_lib.settings.base import result_settings
from pipeline_lib.settings.evaluate import RayNodes, SampleSettings
from pipeline_lib.training.checkpoint_folders import step_folder, steps_in
from pipeline_lib.training.checkpoints import load_checkpoint, read_checkpoint
from tasks.experiment.arms import BASE, PROBLEMS, trained_folder
from tasks.experiment.setups import setup_of
from tasks.identity.stages import playing, whole
from tasks.runtime.caching import CachedTask, Identity
from tasks.services.caches import contents

EVALUATE = CachedTask("evaluate", sys.modules[__name__])


@dataclass(slots=True)
class Evaluated:
    """Episodes of one team on one split, and the wall time it took when they were computed (seconds)."""

    episodes: list[EpisodeRecord]
    seconds: float


class Evaluator:
    """Plays one arm's teams on one split, with one sandbox, one team in memory and one engine for all of them.

    The engine starts when the first team is played; weights of another checkpoint are loaded into the team in memory
    and from there into the running engine, as training does.  Within ``with`` torch uses the right number of threads
    for the team; at its end engine and sandbox stop.

    Args:
        params, arm: the settings, and whose teams.
        split: ``validation`` or ``test``.
        samples: episodes per problem, and their seed.
        keep_texts: keep the transcripts of all episodes.
        nodes: a Ray cluster, whose nodes play the checkpoints that `begin` names.

    Raises:
        EvaluationError: there is no such cluster.
    """

    def __init__(
        self,
        params: Params,
        arm: str,
        split: str,
        samples: SampleSettings,
        keep_texts: bool = False,
        nodes: RayNodes | None = None,
    ) -> None:
        # Before a sandbox on Ray, whose connection would bring no code of the project.
        self._nodes = Nodes(nodes, Path.cwd()) if nodes else None
        self._params = params
        self._arm = arm
        self._samples, self._keep_texts = samples, keep_texts
        self._setup = setup_of(params, arm)
        self.problems: Sequence[Any] = load_split(PROBLEMS, split)
        self.manifest = load_manifest(PROBLEMS)["splits"][split]
        self._environment = self._setup.environment()
        self._environment.for_choice = split == "test" and params.evaluate.equal_effort > 0
        self.reward_bounds = self._environment.episode_bounds
        self._metrics = with_reward(find(params.environment.kind).metrics(), *self.reward_bounds)
        self.team = self._untrained()
        self._base = team_digest(self.team)
        self._engine: Engine | None = None
        self._held: dict[str, int] = {}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as until_then:
            until_then.callback(self._close)
            until_then.enter_context(right_threads(self.team))
            self._until = until_then.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._until.close()

    def _close(self) -> None:
        self._environment.close()
        if self._engine is not None:
            self._engine.close()

    def base(self, protocol: str = "") -> Evaluated:
        """Return the untrained team's episodes, as it is trained or by another protocol."""
        title = f"base, {protocol.replace('_', ' ')}" if protocol else "base"
        played = make_protocol(protocol) if protocol else self._setup.protocol

        def play() -> list[EpisodeRecord]:
            if any(policy.version for policy in self.team.policies.values()):  # a checkpoint was put over it
                self.team, self._held = self._untrained(), {}
            return self._whole_team(played)

        return self._evaluate(play, self._base, f"{self._arm} {title}", played)

    def begin(self, seed: int, steps: Sequence[int]) -> None:
        """Let the nodes of the cluster, if there is one, begin to play checkpoints that are not in the cache."""
        if self._nodes is None:
            return
        folders = [step_folder(trained_folder(self._arm, seed), step) for step in steps]
        identities = [self._identity(str(read_checkpoint(folder)["team"]), self._setup.protocol) for folder in folders]
        due = [folder for folder, one in zip(folders, identities, strict=True) if not EVALUATE.has(one)]
        setup = replace(self._setup, params=whole(self._params))
        played = playing(self._params)["versions"]  # with that of Python, which Ray compares, and of vLLM's interpreter
        versions = {name: found for name, found in played.items() if found == version(name)}
        self._nodes.begin(setup, due, self.problems, self._samples, versions)

    def checkpoint(self, seed: int, step: int, subteams: int = 0) -> Evaluated:
        """Return the episodes of a checkpoint, which is verified by digest before it is used.

        With ``subteams`` > 0: so many episodes per problem of each of its subteams (`evaluate_subteams`).
        """
        folder = step_folder(trained_folder(self._arm, seed), step)
        digest = str(read_checkpoint(folder)["team"])

        def play() -> list[EpisodeRecord]:
            if self._nodes is not None and not subteams and folder in self._nodes:
                return self._nodes.records(folder)
            load_checkpoint(folder, self.team)
            if subteams:
                return evaluate_subteams(self._player(), self.problems, subteams, self._samples.seed)
            return self._whole_team(self._setup.protocol)

        title = f"{self._arm} {seed} step {step}{', subteams' if subteams else ''}"
        more = {"samples": subteams, "subteams": True} if subteams else {}
        return self._evaluate(play, digest, title, self._setup.protocol, more)

    def with_guests(self, seed: int, step: int, others: Mapping[int, int]) -> Evaluated:
        """Return the episodes of a checkpoint with one agent of another run at a time.

        Args:
            seed, step: of the checkpoint.
            others: steps of the other runs' checkpoints by seed; empty: the guests are the base's.
        """
        own = step_folder(trained_folder(self._arm, seed), step)
        folders: dict[int | str, Path] = {
            other: step_folder(trained_folder(self._arm, other), at) for other, at in others.items()
        }
        folders = folders or {BASE_GUEST: step_folder(trained_folder(self._arm, seed), 0)}
        # An agent that nobody trained is the same in every run.
        trained = [name for name, policy in self.team.policies.items() if any(True for _ in policy.trainable())]
        invited = guests(trained, list(folders))
        digests = [str(read_checkpoint(folder)["team"]) for folder in (own, *folders.values())]
        samples = self._samples

        def play() -> list[EpisodeRecord]:
            records = []
            for guest in invited:
                load_checkpoint(own, self.team)
                load_checkpoint(folders[guest.run], self.team, {guest.agent})
                roots = roots_of(guest, invited, self._environment.agents, self.problems, samples.samples, samples.seed)
                records += evaluate_guest(self._player(), guest, roots)
            return records

        title = f"{self._arm} {seed} step {step}, {'guests' if others else 'guests of the base'}"
        return self._evaluate(play, storage.digest([digests, invited]), title, self._setup.protocol, {"guests": True})

    def _untrained(self) -> Team:
        return self._setup.team(self._environment, self.problems)

    def _engine_with_team(self) -> Engine:
        """Return the engine with the present weights of the team in memory."""
        policies = self.team.policies
        if self._engine is None:
            self._engine = self._setup.engine()
        if not self._held:
            self._engine.load(self.team.sampled())
        for name, policy in policies.items():
            if self._held.get(name, policy.version) != policy.version:
                self._engine.update(policy)
        self._held = {name: policy.version for name, policy in policies.items()}
        return self._engine

    def _player(self, protocol: Protocol | None = None) -> Player:
        """Return what plays the team in memory."""
        engine = self._engine_with_team()
        return self._setup.player(self._environment, self.team, engine, protocol)

    def _whole_team(self, protocol: Protocol) -> list[EpisodeRecord]:
        samples = self._samples
        return evaluate_team(self._player(protocol), self.problems, samples.samples, samples.seed, self._keep_texts)

    def _evaluate(
        self,
        play: Callable[[], list[EpisodeRecord]],
        digest: str,
        title: str,
        protocol: Protocol,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> Evaluated:
        """Return the episodes of the teams with this digest, which ``play`` loads into memory and plays.

        ``more`` says how, where they do not play as a whole team.  Episodes of which the infrastructure lost too many,
        or with values outside of what is declared, are not remembered: EvaluationError.
        """

        def compute() -> dict[str, Any]:
            started = time.perf_counter()
            records = play()
            refuse_losses(records, self._params.sandbox.infra_error_share, title)
            check_ranges(records, self._metrics)
            return {
                "episodes": [record.to_json() for record in records],
                "seconds": round(time.perf_counter() - started, 3),
            }

        value = EVALUATE(self._identity(digest, protocol, more), compute, title)
        return Evaluated([EpisodeRecord.from_json(row) for row in value["episodes"]], value["seconds"])

    def _identity(self, digest: str, protocol: Protocol, more: Mapping[str, Any] = MappingProxyType({})) -> Identity:
        params, samples = self._params, self._samples
        return Identity(
            policy=self._depends_on(digest),
            problems=self.manifest["digest"],
            seed=samples.seed,
            settings={
                "samples": samples.samples,
                "subteams": False,
                "texts": self._keep_texts,
                "protocol": protocol.name,
                "environment": result_settings(self._setup.section),
                "playing": playing(params),
                **({"for_choice": True} if self._environment.for_choice else {}),
                **more,
            },
        )

    def _depends_on(self, weights: str) -> str:
        """Return the digest of what determines a team's answers: trained weights, and the base that they adapt."""
        return storage.digest({"weights": weights, "base": contents().of(BASE)})


def checkpoint_steps(arm: str, seed: int) -> list[int]:
    """Return the steps of a run's checkpoints, step 0 (the untrained team) first."""
    return steps_in(trained_folder(arm, seed))
