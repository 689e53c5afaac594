"""Play checkpoints on the nodes of a Ray cluster, one task each, with the episodes that this machine would play.

A task brings everything with it: this library and the project's code (`connect`), settings, problems, base, and the
checkpoint, which is verified by digest on the node.  A node needs Ray and the libraries in the same versions, and
pretrained models, which a base only names.

Promises: what a lost node was playing is played again on another one; nodes that join are used; as many checkpoints
travel as the nodes have room for.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pipeline_lib.assembly.teams import Setup
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.evaluation.run import evaluate_team
from pipeline_lib.identity.code import version
from pipeline_lib.sandbox.ray_backend import connect
from pipeline_lib.settings.evaluate import RayNodes, SampleSettings
from pipeline_lib.training.checkpoints import load_checkpoint

_RETRIES = 3  # nodes that may be lost while they play a checkpoint
_LOOK_S = 5.0  # between two looks for nodes that have joined


@dataclass(frozen=True, slots=True)
class _Common:
    """What all tasks of a sweep need."""

    setup: Setup
    base: Mapping[str, bytes]
    problems: Sequence[Any]
    samples: SampleSettings
    threads: int
    versions: Mapping[str, str]


class Nodes:
    """The nodes of a Ray cluster, as players of checkpoints.

    Args:
        settings: which cluster, and what a checkpoint takes of it.
        project: folder with code of the project's own.

    Raises:
        EvaluationError: there is no such cluster.
    """

    def __init__(self, settings: RayNodes, project: Path) -> None:
        try:
            self._ray = connect(settings.address, project)
        except (ConnectionError, RuntimeError) as error:
            raise EvaluationError(f"evaluate.ray: no cluster at {settings.address!r}: {error}") from None
        self._takes = {"CPU": settings.cpus, "GPU": settings.gpus}
        self._task = self._ray.remote(num_cpus=settings.cpus, num_gpus=settings.gpus, max_retries=_RETRIES)(_play)
        self._due: deque[Path] = deque()
        self._running: dict[Any, Path] = {}
        self._played: dict[Path, list[EpisodeRecord]] = {}
        self._common: Any = None

    def begin(
        self,
        setup: Setup,
        checkpoints: Sequence[Path],
        problems: Sequence[Any],
        samples: SampleSettings,
        versions: Mapping[str, str],
    ) -> None:
        """Begin to play checkpoints.

        Args:
            setup: what the teams are made from.
            checkpoints: their folders, in the order in which `records` will ask for them.
            problems, samples: as for `evaluate_team`.
            versions: of the libraries that the nodes must have, by distribution.

        Raises:
            EvaluationError: no node has room for a checkpoint.
        """
        if not self._room():
            wanted = ", ".join(f"{amount} {kind}" for kind, amount in self._takes.items() if amount)
            raise EvaluationError(f"evaluate.ray: the cluster does not have {wanted}, which a checkpoint takes")
        common = _Common(setup, _contents(setup.base), problems, samples, torch.get_num_threads(), versions)
        self._common = self._ray.put(common)
        self._due.extend(checkpoints)
        self._start()

    def __contains__(self, checkpoint: Path) -> bool:
        return checkpoint in self._due or checkpoint in self._running.values() or checkpoint in self._played

    def records(self, checkpoint: Path) -> list[EpisodeRecord]:
        """Wait for the episodes of a checkpoint, and return them as `evaluate_team` does.

        Raises:
            EvaluationError: it could not be played; the message has the reason.
        """
        while checkpoint not in self._played:
            self._start()
            ended, _ = self._ray.wait(list(self._running), timeout=_LOOK_S)
            for task in ended:
                folder = self._running.pop(task)
                try:
                    self._played[folder] = self._ray.get(task)
                except self._ray.exceptions.RayError as error:
                    cause = getattr(error, "cause", None) or error
                    raise EvaluationError(f"{folder.name} could not be played on the Ray cluster: {cause}") from error
        return self._played.pop(checkpoint)

    def _start(self) -> None:
        """Send the nodes as many checkpoints as they have room for."""
        while self._due and len(self._running) < max(1, self._room()):
            checkpoint = self._due.popleft()
            task = self._task.remote(self._common, checkpoint.name, self._ray.put(_contents(checkpoint)))
            self._running[task] = checkpoint

    def _room(self) -> int:
        """Return how many checkpoints all nodes together can play at once."""
        there = self._ray.cluster_resources()
        return min(int(there.get(kind, 0) // amount) for kind, amount in self._takes.items() if amount)


def _play(common: _Common, name: str, checkpoint: Mapping[str, bytes]) -> list[EpisodeRecord]:
    """Play a checkpoint on a node; what it is read from lies beside the project, and goes with it."""
    here = {library: version(library) for library in common.versions}
    if other := [
        f"{library} {has}, not {common.versions[library]}"
        for library, has in here.items()
        if has != common.versions[library]
    ]:
        raise EvaluationError(f"a node has {', '.join(other)}; results would not be those of this machine")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        setup = replace(common.setup, base=_written(common.base, Path(folder, "base")))
        torch.set_num_threads(common.threads)  # another number would change sums by rounding
        with contextlib.closing(setup.environment()) as environment, contextlib.closing(setup.engine()) as engine:
            team = setup.team(environment, common.problems)
            load_checkpoint(_written(checkpoint, Path(folder, name)), team)
            engine.load(team.sampled())
            player, samples = setup.player(environment, team, engine), common.samples
            return evaluate_team(player, common.problems, samples.samples, samples.seed)


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _written(contents: Mapping[str, bytes], folder: Path) -> Path:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder
