"""Evaluating a team's checkpoints: one engine, one base in memory, and the episodes of as many fresh engines."""

import dataclasses
import subprocess
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from flows import sweep, test
from pipeline_lib import storage
from pipeline_lib.assembly import teams
from pipeline_lib.assembly.teams import base_team
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.identity.code import code_of
from pipeline_lib.policies import computing
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.settings import Params
from pipeline_lib.settings.evaluate import SampleSettings
from pipeline_lib.training.checkpoints import write_checkpoint
from tasks.experiment.arms import BASE, PLAN_FILE, PROBLEMS, RESULTS, TEAM, environment_section, trained_folder
from tasks.experiment.plans import plan_of
from tasks.identity.stages import RUNTIME
from tasks.looks.records import LOOKS, SWEEPS, records
from tasks.runtime.caching import CachedTask, Identity
from tasks.stages import evaluation
from tasks.stages.evaluation import Evaluated, Evaluator

SAMPLES = SampleSettings(samples=2, seed=1000)
NOTHING = Identity("a" * 64, "b" * 64, 0, {})


@pytest.fixture(params=["{kind: none}", "{kind: lora, rank: 2, targets: [q_proj, down_proj]}"])
def params(
    request: pytest.FixtureRequest, philosophers: Callable[[str, str], Params], monkeypatch: pytest.MonkeyPatch
) -> Params:
    """A project with problems, a base, and checkpoints of the steps 0, 1 and 2; nothing is cached."""
    params = philosophers(request.param, "seeds: {train: [0], single_agent: []}\n")
    monkeypatch.setattr(evaluation, "EVALUATE", lambda identity, compute, title: compute())
    environment = make_environment(environment_section(params, TEAM), params.sandbox)
    team = base_team(params, BASE, environment, load_split(PROBLEMS, "train"))
    for step in range(3):
        write_checkpoint(trained_folder(TEAM, 0), step, team)
        for policy in team.policies.values():
            for _, weights in policy.trainable():
                weights.data += 0.1 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(step))
    return params


def played(found: Evaluated) -> list[dict[str, Any]]:
    return [record.to_json() for record in found.episodes]


def test_one_engine_and_one_base_serve_a_whole_stage(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = []
    for step in (None, 0, 1, 2):
        with Evaluator(params, TEAM, "test", SAMPLES) as fresh:
            alone.append(played(fresh.base() if step is None else fresh.checkpoint(0, step)))
    assert alone[0] == alone[1]
    assert len({str(episodes) for episodes in alone}) == 3, "the checkpoints play alike, so nothing is compared"
    calls: list[str] = []

    def counted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*arguments: Any, **more: Any) -> Any:
            calls.append(name)
            return real(*arguments, **more)

        monkeypatch.setattr(owner, name, call)

    counted(teams, "base_team")
    counted(teams, "make_engine")
    counted(TransformersEngine, "load")
    with Evaluator(params, TEAM, "test", SAMPLES) as team:
        assert played(team.base()) == alone[0]
        assert played(team.base("sequential_pipeline")) != alone[0]
        for step in (0, 2, 1, 2):
            assert played(team.checkpoint(0, step)) == alone[step + 1]
        assert calls == ["base_team", "make_engine", "load"]
        assert played(team.base()) == alone[0], "the base after a checkpoint has the checkpoint's weights"
    assert calls.count("make_engine") == 1


@pytest.mark.parametrize("params", ["{kind: none}"], indirect=True)
def test_values_outside_of_what_is_declared_are_not_remembered(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a cause that is removed, such as a judge that was down, would be met again in the cache."""
    remembered: list[Any] = []

    def keep(identity: Identity, compute: Callable[[], Any], title: str) -> Any:
        remembered.append(compute())
        return remembered[-1]

    monkeypatch.setattr(evaluation, "EVALUATE", keep)
    real = evaluation.evaluate_team

    def one_too_high(*arguments: Any) -> list[EpisodeRecord]:
        first, *others = real(*arguments)
        return [dataclasses.replace(first, reward=1e6), *others]

    with Evaluator(params, TEAM, "test", SAMPLES) as team:
        monkeypatch.setattr(evaluation, "evaluate_team", one_too_high)
        with pytest.raises(EvaluationError, match=r"'reward' of episode 0 of problem \S+ is 1000000"):
            team.base()
        assert not remembered
        monkeypatch.setattr(evaluation, "evaluate_team", real)
        assert len(team.base().episodes) == len(remembered[0]["episodes"])


#: What a sweep or the test runs beside playing: it decides what is asked for, and reads and records what came.
BESIDE_PLAYING = {
    "flows", "flows.sweep", "flows.test", "tasks.stages.champion",
    "tasks.experiment.left_out", "tasks.experiment.arms", "tasks.experiment.episode_files",
    "tasks.looks", "tasks.looks.looking",
    "tasks.looks.records", "pipeline_lib.project", "pipeline_lib.evaluation.clusters",
    "pipeline_lib.evaluation.looks", "pipeline_lib.evaluation.episodes", "pipeline_lib.evaluation.plan",
    "pipeline_lib.evaluation.results", "pipeline_lib.evaluation.table", "pipeline_lib.environment_api.metrics",
}  # fmt: skip


@pytest.mark.parametrize("flow", ["flows.sweep", "flows.test"])
def test_kept_episodes_depend_on_all_code_by_which_a_stage_gets_them(flow: str) -> None:
    kept = code_of(evaluation.__name__, without=RUNTIME)
    assert CachedTask("evaluate", evaluation).key(NOTHING) == evaluation.EVALUATE.key(NOTHING)
    assert set(code_of(flow, without=RUNTIME).files) - set(kept.files) <= BESIDE_PLAYING
    for name in ("tasks.stages.evaluation", "tasks.experiment.setups", "pipeline_lib.assembly.teams"):
        assert name in kept.files
    for name in ("training.checkpoints", "policies.store", "problems.splits", "play.player", "sandbox.judge"):
        assert f"pipeline_lib.{name}" in kept.files


def test_a_look_is_counted_before_the_first_episode_is_played_or_read(
    params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    plan_of(params).write(PLAN_FILE)
    storage.write_json(RESULTS / "selection.json", {TEAM: {"seeds": {"0": {"step": 1}}}})
    seen: list[list[dict[str, Any]]] = []

    def killed(identity: Identity, compute: Any, title: str) -> Any:
        seen.append(records(LOOKS))
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "EVALUATE", killed)
    run = MagicMock(params=params, arm=TEAM, seed=0)
    run.name = "brave-owl"
    with pytest.raises(KeyboardInterrupt):
        test.test_teams(run)
    assert len(seen) == 1 and len(seen[0]) == 1 and seen[0][0]["episodes"] == ""
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep_arm(run)
    assert len(records(SWEEPS)) == 1


def test_teams_are_played_with_the_threads_of_their_size(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large model has as many in sweep and test as in training (a sweep of SmolLM2 had one)."""
    monkeypatch.setattr(computing.os, "sched_getaffinity", lambda _process: {0, 1, 2})
    before = torch.get_num_threads()
    for limit, expected in ((computing.SMALL_MODEL, 1), (0, 3)):
        monkeypatch.setattr(computing, "SMALL_MODEL", limit)
        with Evaluator(params, TEAM, "test", SAMPLES):
            assert torch.get_num_threads() == expected
        assert torch.get_num_threads() == before
