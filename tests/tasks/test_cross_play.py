"""Teams with an agent of another training run: who plays, with which weights, and what is said of it."""

from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch

from pipeline_lib.assembly.teams import base_team
from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.evaluation.episodes import BASE_GUEST, EpisodeRecord, Guest, guests
from pipeline_lib.evaluation.run import roots_of
from pipeline_lib.evaluation.tested_teams import cells
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.settings import Params, SettingsError, load_params
from pipeline_lib.settings.evaluate import SampleSettings
from pipeline_lib.training.checkpoint_folders import step_folder
from pipeline_lib.training.checkpoints import load_checkpoint, write_checkpoint
from tasks.experiment.arms import BASE, PROBLEMS, TEAM, environment_section, trained_folder
from tasks.experiment.plans import comparisons, family_size
from tasks.stages import evaluation
from tasks.stages.evaluation import Evaluator

ROOT = Path(__file__).parents[2]
SETTINGS = """
environment: philosophers
problems: {kind: scenarios, sizes: {train: 4, validation: 2, test: 3}, family: {philosophers: [3], held: 0.1}}
policy: {warm_start: {steps: 1, batch: 2}, adapter: {kind: lora, rank: 2, targets: [q_proj]}, parameters: separate}
seeds: {train: [0, 1, 2], single_agent: []}
evaluate: {cross_play: true}
"""
SAMPLES = SampleSettings(samples=4, seed=1000)


def settings(text: str = SETTINGS) -> Params:
    Path("params.yaml").write_text(text)
    return load_params(Path("params.yaml"), ROOT / "conf")


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A project with a checkpoint of step 0 and step 1 of three runs."""
    monkeypatch.chdir(tmp_path)
    params = settings()
    prepare(params.environment.kind, params.problems, PROBLEMS)
    build_base(params.policy, PROBLEMS, BASE)
    monkeypatch.setattr(evaluation, "EVALUATE", lambda identity, compute, title: compute())
    teams(params)
    return params


def teams(params: Params) -> None:
    """Write the checkpoints of step 0 and step 1 of every run."""
    environment = make_environment(environment_section(params, TEAM), params.sandbox)
    for seed in params.seeds.train:
        team = base_team(params, BASE, environment, load_split(PROBLEMS, "train"))
        write_checkpoint(trained_folder(TEAM, seed), 0, team)
        generator = torch.Generator().manual_seed(seed)
        for policy in team.policies.values():
            for _, weights in policy.trainable():
                weights.data += 0.5 * torch.randn(weights.shape, generator=generator)
        write_checkpoint(trained_folder(TEAM, seed), 1, team)


def test_every_episode_is_that_of_a_team_put_together_by_hand(params: Params) -> None:
    environment = make_environment(environment_section(params, TEAM), params.sandbox)
    problems = load_split(PROBLEMS, "test")
    by_hand: dict[Guest, dict[tuple[str, int], Any]] = {}
    for number, guest in enumerate(guests(["P0", "P1", "P2"], [1, 2, BASE_GUEST])):
        team = base_team(params, BASE, environment, problems)
        names = list(team.policies)
        guest = Guest(names[int(guest.agent[1])], guest.run)
        load_checkpoint(step_folder(trained_folder(TEAM, 0), 1), team)
        run, step = (0, 0) if guest.run == BASE_GUEST else (int(guest.run), 1)
        other = base_team(params, BASE, environment, problems)
        load_checkpoint(step_folder(trained_folder(TEAM, run), step), other)
        for (_, mine), (_, theirs) in zip(
            team.policies[guest.agent].trainable(), other.policies[guest.agent].trainable(), strict=True
        ):
            mine.data.copy_(theirs.data)
        write_checkpoint(trained_folder(TEAM, 10 + number), 1, team)
        with Evaluator(params, TEAM, "test", SAMPLES) as alone:
            played = alone.checkpoint(10 + number, 1).episodes
        by_hand[guest] = {(record.problem, record.sample): record for record in played}
    with Evaluator(params, TEAM, "test", SAMPLES) as teams:
        mixed = teams.with_guests(0, 1, {1: 1, 2: 1}).episodes
        beside_base = teams.with_guests(0, 1, {}).episodes
        own = teams.checkpoint(0, 1).episodes
    for found in (mixed, beside_base):
        assert sorted((r.problem, r.sample) for r in found) == sorted((r.problem, r.sample) for r in own)
        for record in found:
            expected = by_hand[Guest(**record.details["guest"])][record.problem, record.sample]
            assert (record.metrics, record.reward, record.tokens) == (
                expected.metrics,
                expected.reward,
                expected.tokens,
            )
    assert {Guest(**record.details["guest"]) for record in mixed} == {g for g in by_hand if g.run != BASE_GUEST}
    by_number = {(r.problem, r.sample): r.metrics for r in own}
    assert any(r.metrics != by_number[r.problem, r.sample] for r in mixed), "guests play like the team: nothing is seen"
    table = cells({0: [*own, *mixed]}, "meals_share", Metric("meals", share=True), 0.95)
    for cell in table:
        records = [r for r in mixed if r.details["guest"] == {"agent": cell.agent, "run": cell.run}] or own
        by_problem = {r.problem: [s.metrics["meals_share"] for s in records if s.problem == r.problem] for r in records}
        assert cell.mean.value == pytest.approx(mean(mean(values) for values in by_problem.values()))
    assert len(table) == 1 + 6


def test_the_interval_of_a_cell_holds_whatever_its_lost_episodes_would_have_shown() -> None:
    """Only the wrong episodes of guests are lost: the cell is no better for it."""
    metric, rng = Metric("tests", share=True), np.random.default_rng(3)
    played = [
        EpisodeRecord(
            f"p{n}", f"p{n}", k, float(right), 1, {}, {"tests": float(right)}, 1, {"guest": Guest("P0", 1)._asdict()}
        )
        for n, row in enumerate(rng.random((20, 4)) < 0.5)
        for k, right in enumerate(row)
    ]
    lossy = [replace(record, reward=None) if record.reward == 0 and record.sample else record for record in played]
    (whole,), (left,) = (cells({0: records}, "tests", metric, 0.95) for records in (played, lossy))
    assert whole.mean.value is not None and left.mean.value is not None and left.mean.value > whole.mean.value + 0.2
    assert (left.mean.low or 1.0) <= (whole.mean.low or 0.0) < (whole.mean.high or 0.0) < (left.mean.high or 0.0)
    gone = [replace(record, reward=None) for record in played]
    assert cells({0: gone}, "tests", metric, 0.95) == ()


@pytest.mark.parametrize(("agents", "samples"), [(4, 8), (3, 4), (6, 2), (1, 1)])
def test_guests_take_turns_and_share_all_episodes(agents: int, samples: int) -> None:
    problems: Any = [type("Problem", (), {"id": f"p{n}"})() for n in range(12)]
    invited = guests([f"P{seat}" for seat in range(agents)], [1])
    every: list[tuple[str, int]] = []
    for guest in invited:
        roots = roots_of(guest, invited, lambda _: [f"P{seat}" for seat in range(agents)], problems, samples, 7)
        assert abs(len(roots) - 12 * samples / agents) < 1, "the guests play as often as each other"
        every += [(root.problem.id, root.chance.sample) for root in roots]  # type: ignore[attr-defined]
    assert sorted(every) == sorted((f"p{n}", sample) for n in range(12) for sample in range(samples))


def test_every_guest_acts_at_its_table(params: Params) -> None:
    """A guest without a seat at a smaller table would play no part in an episode that counts as its own."""
    params = settings(SETTINGS.replace("philosophers: [3]", "philosophers: [3, 5]").replace("test: 3", "test: 8"))
    prepare(params.environment.kind, params.problems, PROBLEMS)
    environment = make_environment(environment_section(params, TEAM), params.sandbox)
    problems = {problem.id: problem for problem in load_split(PROBLEMS, "test")}
    seated = {name: environment.agents(problem) for name, problem in problems.items()}
    assert {len(found) for found in seated.values()} == {3, 5}
    teams(params)
    with Evaluator(params, TEAM, "test", SAMPLES) as played:
        records = played.with_guests(0, 1, {1: 1}).episodes
    assert len(records) == 4 * len(problems)
    assert all(record.details["guest"]["agent"] in seated[record.problem] for record in records)


def test_an_agent_that_nobody_trained_is_no_guest(params: Params) -> None:
    """It is the same in every run: its episodes would count as those of a team that needs no partners."""
    params = settings(SETTINGS.replace("parameters: separate", "parameters: separate, agents: {P1: {trained: false}}"))
    teams(params)
    with Evaluator(params, TEAM, "test", SAMPLES) as played:
        records = played.with_guests(0, 1, {1: 1, 2: 1}).episodes
    assert {record.details["guest"]["agent"] for record in records} == {"P0", "P2"}
    assert len(records) == 3 * SAMPLES.samples


def test_it_is_one_more_comparison_of_the_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with_guests, without = settings(), settings(SETTINGS.replace("cross_play: true", "cross_play: false"))
    assert set(comparisons(with_guests)) - set(comparisons(without)) == {"cross-play"}
    assert family_size(with_guests) == family_size(without) + 1
    for old, new, words in (
        ("train: [0, 1, 2]", "train: [0]", r"seeds.train has 1; give it two seeds or more"),
        ("parameters: separate", "parameters: shared", r"all agents are one policy; set policy.parameters to separate"),
    ):
        with pytest.raises(SettingsError, match=words):
            settings(SETTINGS.replace(old, new))
