"""Whole runs on toy environments: teams learn, stop, refuse and report."""

import json
import math
import os
import signal
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from pipeline_lib.policies.policy import Policy
from pipeline_lib.policies.store import team_digest
from pipeline_lib.protocols import make_protocol
from pipeline_lib.rollouts.engine import EngineError, Sampling
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.storage import folder_digest
from pipeline_lib.training import trainer, trainer_state
from pipeline_lib.training.optimiser import TrainingError
from pipeline_lib.training.stopping import TrainingStopped
from tests.training.conftest import (
    TOYS,
    WORDS,
    Agree,
    Toy,
    ToyState,
    make_model,
    make_settings,
    make_team,
    run_training,
)


def mean(steps: list[dict[str, float]], name: str = "reward/mean") -> float:
    return sum(step[name] for step in steps) / len(steps)


@pytest.mark.parametrize(
    ("agents", "shared", "lora"),
    [
        (("one", "two"), False, False),
        (("one", "two"), True, False),
        (("one", "two"), False, True),
        (("one", "two"), True, True),
        (("one",), False, False),
        (("one", "two", "three"), True, False),
    ],
)
def test_teams_learn(tmp_path: Path, agents: tuple[str, ...], shared: bool, lora: bool) -> None:
    """Two agents, one (GRPO), three; own or shared parameters; all weights or adapters."""
    settings = make_settings(steps=40, group_size=24, learning_rate=2e-2 if not lora else 3e-2)
    team = make_team(agents, shared, lora)
    before = team_digest(team)
    _, steps = run_training(tmp_path, team, Agree(agents), settings=settings)
    assert mean(steps[:5]) < 0.4
    assert mean(steps[-5:]) > 0.8
    assert mean(steps[-5:], "metrics/solved") > mean(steps[:5], "metrics/solved") + 0.5
    assert team_digest(team) != before


class Tell(Agree):
    """Both are to say the digit that stands for a colour; the first agent sees the colour, the second nothing."""

    def observe(self, state: ToyState, agent: int) -> str:
        return f"pick {state.problem.text}" if agent == 0 else "pick"

    def reward(self, problem: Toy, actions: Sequence[str]) -> float:
        return sum((action.split() or [""])[0] == str(TOYS.index(problem)) for action in actions) / 2


def test_a_protocol_in_which_agents_read_each_other_is_trained(tmp_path: Path) -> None:
    """By itself the second agent is right for one colour of three (2/3 in all); in a pipeline it reads the colour."""
    settings = make_settings(steps=40, checkpoint_every=40, group_size=24)
    team = make_team()
    _, alone = run_training(tmp_path, team, Tell(), settings=settings, scratch=tmp_path / "alone")
    assert 0.6 < mean(alone[-5:]) < 0.72
    team.policies["two"] = make_team(seed=1).policies["two"]  # the first knows its part now, the second nothing
    settings = make_settings(steps=60, checkpoint_every=60, group_size=48, learning_rate=4e-3)
    protocol = make_protocol("sequential_pipeline")
    _, reading = run_training(tmp_path, team, Tell(), settings=settings, protocol=protocol, seed=1)
    assert mean(reading[-5:]) > 0.9


def test_a_run_repeats_to_the_bit_and_seeds_differ(tmp_path: Path) -> None:
    """Also whatever ran before in this process, and whatever torch's global generator holds."""
    settings = make_settings(steps=6, checkpoint_every=3)
    digests = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.manual_seed(len(digests))
        team = make_team()
        result, _ = run_training(tmp_path, team, Agree(), settings=settings, seed=seed, scratch=tmp_path / name)
        digests.append([folder_digest(folder) for _, folder in result.checkpoints])
    assert digests[0] == digests[1] != digests[2]


def test_metrics_of_every_step(tmp_path: Path) -> None:
    settings = make_settings(steps=3, checkpoint_every=1)
    result, steps = run_training(tmp_path, make_team(), Agree(), settings=settings)
    lines = [json.loads(line) for line in result.metrics.read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert [{k: v for k, v in line.items() if k != "step"} for line in lines] == steps
    for name in [
        *("reward/mean", "reward/std", "terms/agreement", "metrics/solved"),
        *("groups/flat_share", "groups/advantage_std", "groups/masked_share", "executions/count", "executions/cells"),
        *("actions/count", "actions/tokens", "actions/length_mean", "actions/truncated_share", "actions/entropy"),
        *(f"actions/{name}/{policy}" for name in ("length_mean", "entropy") for policy in ("one", "two")),
        *("update/loss", "update/learning_rate", "update/rows", "update/skipped", "update/collapsed"),
        *("update/stale", "update/refused", "update/gradient_norm/one", "update/gradient_norm/two"),
        *("mismatch/max", "mismatch/mean", "memory/resident_mb", "update/tflop_per_s", "time/waiting_s"),
        *("time/generation_s", "time/execution_s", "time/update_s", "time/step_s", "time/tokens_per_s"),
    ]:
        assert math.isfinite(steps[0][name]), name
    first = steps[0]
    assert first["actions/count"] == 2 * 3 * 16
    assert first["update/rows"] + first["update/collapsed"] + first["update/skipped"] == 2 * 3 * 16
    assert first["terms/agreement"] == pytest.approx(first["reward/mean"])
    assert 0 < first["actions/entropy"] <= math.log(16) + 0.1


def test_strictly_on_policy(tmp_path: Path) -> None:
    """No buffer carries actions over a step; all turns of a batch go into one step (fault 1.3: staleness)."""
    team = make_team()
    settings = make_settings(steps=4, checkpoint_every=4, group_size=3)
    _, steps = run_training(tmp_path, team, Agree(turns=2), settings=settings)
    assert all(step["update/stale"] == 0 for step in steps)
    assert all(step["mismatch/max"] < 1e-4 for step in steps)
    assert {policy.version for policy in team.policies.values()} == {4}
    assert steps[0]["actions/count"] == 2 * 3 * (3 + 9)


def test_weights_of_this_step_are_sampled_from_in_the_next(tmp_path: Path) -> None:
    class Forgets(TransformersEngine):
        def update(self, policy: Any) -> None:
            if policy.version == 0:
                super().update(policy)

    with pytest.raises(Exception, match="rollout copy"):
        run_training(
            tmp_path, make_team(), Agree(), settings=make_settings(steps=2, checkpoint_every=2), engine=Forgets()
        )


@pytest.mark.parametrize(
    "change",
    [
        {"discount": 0.5},
        {"groups": "episodes"},
        {"credit": {"kind": "cross"}},
        {"credit": {"kind": "column"}},
        {"credit": {"kind": "pairings"}},
        {"credit": {"kind": "pairings", "per_action": 3}},
        {"advantage": {"scale": "group_std"}},
        {"advantage": {"baseline": "leave_one_out"}},
        {"advantage": {"baseline": "max"}},
        {"loss": {"normalisation": "sequences"}},
        {"loss": {"normalisation": "sequence_mean"}},
        {"loss": {"entropy": 0.05}},
        {"loss": {"epochs": 2, "clip": 0.2}},
        {"loss": {"mask_truncated": True}},
        {"schedule": "linear"},
        {"warmup_steps": 2},
        {"weight_decay": 0.1},
        {"betas": [0.5, 0.9]},
        {"gradient_clip": 0.01},
    ],
)
def test_every_setting_has_an_effect(tmp_path: Path, change: dict[str, Any]) -> None:
    """Nothing is accepted and ignored (the public code's discount was)."""
    digests = []
    for values in ({}, change):
        team = make_team()
        settings = make_settings(steps=2, checkpoint_every=2, group_size=4, **values)
        run_training(tmp_path, team, Agree(turns=2), settings=settings, scratch=tmp_path / str(len(digests)))
        digests.append(team_digest(team))
    assert digests[0] != digests[1]


def test_the_reward_of_a_turn_has_an_effect_and_needs_attempts(tmp_path: Path) -> None:
    class Retried(Agree):
        retries = True

    digests = []
    for number, kind in enumerate(("whole", "gain")):
        team = make_team()
        settings = make_settings(steps=2, checkpoint_every=2, group_size=4, turn_reward=kind)
        run_training(tmp_path, team, Retried(turns=2), settings=settings, scratch=tmp_path / str(number))
        digests.append(team_digest(team))
    assert digests[0] != digests[1]
    with pytest.raises(TrainingError, match="turn_reward: gain is for environments whose turns are attempts"):
        run_training(tmp_path, make_team(), Agree(turns=2), settings=settings, scratch=tmp_path / "no")


@pytest.mark.parametrize("groups", ["tree", "episodes"])
@pytest.mark.parametrize("crowded", [{1}, {0, 1}], ids=["one agent", "both agents"])
def test_a_later_turn_without_room_for_an_action_is_trained_without_it(
    tmp_path: Path, groups: str, crowded: set[int]
) -> None:
    class Growing(Agree):
        def observe(self, state: ToyState, agent: int) -> str:
            return "pick " * 2000 if state.turn and agent in crowded else super().observe(state, agent)

    settings = make_settings(steps=2, checkpoint_every=2, group_size=4, groups=groups)
    team = make_team()
    before = team_digest(team)
    _, steps = run_training(tmp_path, team, Growing(turns=2), settings=settings)
    assert all(math.isfinite(one["update/loss"]) and one["update/tokens"] > 0 for one in steps)
    assert team_digest(team) != before


def test_kl_needs_a_base_and_holds_the_team_near_it(tmp_path: Path) -> None:
    settings = make_settings(steps=12, checkpoint_every=12, loss={"kl": 5.0})
    with pytest.raises(TrainingError, match="kl needs the base"):
        run_training(tmp_path, make_team(), Agree(), settings=settings)
    held, steps = make_team(), []
    _, steps = run_training(tmp_path, held, Agree(), settings=settings, base=make_team(), scratch=tmp_path / "kl")
    assert steps[0]["update/kl"] == pytest.approx(0.0, abs=1e-6)
    _, free = run_training(tmp_path, make_team(), Agree(), settings=make_settings(steps=12), scratch=tmp_path / "free")
    assert mean(steps[-3:], "actions/entropy") > mean(free[-3:], "actions/entropy")
    with pytest.raises(TrainingError, match="full support"):
        run_training(tmp_path, held, Agree(), settings=settings, base=make_team(), sampling=Sampling(top_k=3))


def test_kl_of_an_adapter_is_to_the_model_below_it(tmp_path: Path) -> None:
    settings = make_settings(steps=4, checkpoint_every=4, loss={"kl": 0.1})
    alone, with_base = make_team(lora=True), make_team(lora=True)
    _, first = run_training(tmp_path, alone, Agree(), settings=settings, scratch=tmp_path / "a")
    _, second = run_training(
        tmp_path, with_base, Agree(), settings=settings, base=make_team(lora=True), scratch=tmp_path / "b"
    )
    assert [s["update/kl"] for s in first] == pytest.approx([s["update/kl"] for s in second], abs=1e-6)
    assert first[-1]["update/kl"] > 0


def test_infrastructure_failures_are_masked_and_too_many_stop_the_run(tmp_path: Path) -> None:
    settings = make_settings(steps=3, checkpoint_every=3)
    environment = Agree(fail=["toy/red"])
    _, steps = run_training(tmp_path, make_team(), environment, settings=settings, infra_error_share=1.0)
    assert steps[0]["groups/masked_share"] == pytest.approx(1 / 3)
    assert steps[0]["update/rows"] + steps[0]["update/collapsed"] + steps[0]["update/skipped"] == 2 * 2 * 16
    with pytest.raises(TrainingError, match=r"16 of 48 joint actions got no reward.*infra_error_share \(0.005\)"):
        run_training(tmp_path, make_team(), environment, settings=settings, scratch=tmp_path / "strict")


def test_a_few_failures_at_the_start_do_not_stop_a_run(tmp_path: Path) -> None:
    class Once(Agree):
        def step(self, states: Any, joint_actions: Any) -> Any:
            self.fail = {"toy/red"} if self.steps == 0 else set()
            return super().step(states, joint_actions)

    settings = make_settings(steps=2, checkpoint_every=2, group_size=4)
    _, steps = run_training(tmp_path, make_team(), Once(), settings=settings)
    assert [step["groups/masked_share"] for step in steps] == pytest.approx([1 / 3, 0.0])


@pytest.mark.parametrize("how", ["request", "sigterm"])
def test_a_stop_leaves_a_state_that_continues_to_the_same_bytes(tmp_path: Path, how: str) -> None:
    settings = make_settings(steps=8, checkpoint_every=2)
    whole, _ = run_training(tmp_path, make_team(), Agree(), settings=settings, scratch=tmp_path / "whole")
    asked: list[int] = []

    def after_five(step: int, metrics: dict[str, float]) -> None:
        if step == 5:
            asked.append(step)
            if how == "sigterm":
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(TrainingStopped, match="same command continues"):
        run_training(
            tmp_path,
            make_team(),
            Agree(),
            settings=settings,
            on_step=after_five,
            should_stop=lambda: how == "request" and bool(asked),
        )
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    seen: list[int] = []
    result, steps = run_training(
        tmp_path, make_team(), Agree(), settings=settings, on_checkpoint=lambda step, folder: seen.append(step)
    )
    assert result.resumed_from == 4
    assert len(steps) == 4
    assert seen == [0, 2, 4, 6, 8]
    assert [folder_digest(f) for _, f in result.checkpoints] == [folder_digest(f) for _, f in whole.checkpoints]
    lines = [json.loads(line)["step"] for line in result.metrics.read_text().splitlines()]
    assert lines == list(range(1, 9))


def test_a_killed_run_repeats_at_most_a_minute_of_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points between checkpoints hold weights, moments, the curriculum and counters; none of them is left over."""
    settings = make_settings(steps=9, checkpoint_every=6, warmup_steps=3)
    whole, _ = run_training(tmp_path, make_team(), Agree(), settings=settings, scratch=tmp_path / "whole")

    class Killed(BaseException):
        pass

    def until(last: int) -> Any:
        def on_step(step: int, metrics: dict[str, float]) -> None:
            if step == last:
                raise Killed

        return on_step

    again = {"settings": settings, "scratch": tmp_path / "again"}
    with pytest.raises(Killed):  # within the first minute
        run_training(tmp_path, make_team(), Agree(), on_step=until(3), **again)
    monkeypatch.setattr(trainer_state, "EVERY_S", 0.0)
    monkeypatch.setattr(trainer_state, "_COST", 1e9)
    starts = []
    for last in (3, 5, 6, 8):
        with pytest.raises(Killed):
            run_training(
                tmp_path,
                make_team(),
                Agree(),
                on_step=until(last),
                on_checkpoint=lambda step, folder: starts.append(step),
                **again,
            )
    result, steps = run_training(tmp_path, make_team(), Agree(), **again)
    assert (result.resumed_from, [step for step, _ in result.checkpoints], len(steps)) == (7, [0, 6, 9], 2)
    assert starts == [0, 0, 0, 0, 6]
    assert [folder_digest(folder) for _, folder in result.checkpoints] == [
        folder_digest(folder) for _, folder in whole.checkpoints
    ]
    assert sorted(path.name for path in again["scratch"].glob("*-0*")) == [
        "state-00006", "state-00009", "step-00000", "step-00006", "step-00009"
    ]  # fmt: skip


class Cut(BaseException):
    """Ends a run as a kill does."""


def point_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int, **options: Any) -> None:
    """Run until the update after ``last``, whose point between checkpoints is written."""
    monkeypatch.setattr(trainer_state, "EVERY_S", 0.0)
    monkeypatch.setattr(trainer_state, "_COST", 1e9)

    def on_step(step: int, metrics: dict[str, float]) -> None:
        if step == last + 1:
            raise Cut

    with pytest.raises(Cut):
        run_training(tmp_path, make_team(), Agree(), on_step=on_step, **options)


@pytest.mark.parametrize("function", ["write_state", "write_checkpoint"])
@pytest.mark.parametrize("error", [Cut(), OSError(28, "No space left on device")])
def test_a_point_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, error: BaseException
) -> None:
    """Killed, or out of disk space, while a point is written: no work is lost but the updates after the last point."""
    settings = make_settings(steps=9, checkpoint_every=8)
    whole, _ = run_training(tmp_path, make_team(), Agree(), settings=settings, scratch=tmp_path / "whole")
    point_at(tmp_path, monkeypatch, 4, settings=settings)
    real = getattr(trainer, function)

    def failing(scratch: Path, step: int, *args: Any) -> Any:
        if step == 6:
            raise error
        return real(scratch, step, *args)

    monkeypatch.setattr(trainer, function, failing)
    with pytest.raises(type(error)):
        run_training(tmp_path, make_team(), Agree(), settings=settings)
    monkeypatch.setattr(trainer, function, real)
    result, _ = run_training(tmp_path, make_team(), Agree(), settings=settings)
    assert result.resumed_from == 5
    assert [folder_digest(f) for _, f in result.checkpoints] == [folder_digest(f) for _, f in whole.checkpoints]


def test_a_point_becomes_a_checkpoint_where_the_plan_wants_one_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``checkpoint_every`` may change before a killed run is continued."""
    settings = make_settings(steps=9, checkpoint_every=3)
    whole, _ = run_training(tmp_path, make_team(), Agree(), settings=settings, scratch=tmp_path / "whole")
    point_at(tmp_path, monkeypatch, 3, settings=make_settings(steps=9, checkpoint_every=8))
    result, _ = run_training(tmp_path, make_team(), Agree(), settings=settings)
    assert (result.resumed_from, [step for step, _ in result.checkpoints]) == (3, [0, 3, 6, 9])
    assert [folder_digest(f) for _, f in result.checkpoints] == [folder_digest(f) for _, f in whole.checkpoints]


def test_nothing_is_left_of_a_damaged_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make_settings(steps=6, checkpoint_every=6)
    point_at(tmp_path, monkeypatch, 3, settings=settings)
    scratch = tmp_path / "scratch"
    (scratch / "state-00003" / "state.json").write_bytes(b"{")
    monkeypatch.setattr(trainer_state, "EVERY_S", 60.0)
    run_training(tmp_path, make_team(), Agree(), settings=settings)
    assert sorted(path.name for path in scratch.glob("*-0*")) == ["state-00006", "step-00000", "step-00006"]


def test_a_point_between_checkpoints_costs_at_most_a_fiftieth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(trainer_state.time, "monotonic", lambda: now[0])
    between = trainer_state.Between()
    seen = []
    for second in range(1, 2000):
        now[0] = second
        if between.due():
            seen.append(second)
            with between.writing():
                now[0] += 9.5
    assert seen[0] == 60 and min(b - a for a, b in pairwise(seen)) >= 9.5 / 0.02


def test_a_finished_run_answers_at_once_with_the_last_weights(tmp_path: Path) -> None:
    settings = make_settings(steps=4, checkpoint_every=2)
    trained, again = make_team(), make_team()
    run_training(tmp_path, trained, Agree(), settings=settings)
    environment = Agree()
    result, steps = run_training(tmp_path, again, environment, settings=settings)
    assert (result.resumed_from, steps, environment.steps) == (4, [], 0)
    assert team_digest(again) == team_digest(trained)


def test_a_run_can_be_lengthened_and_shortened(tmp_path: Path) -> None:
    digests = {}
    for name, lengths in (("straight", [6]), ("lengthened", [4, 6]), ("shortened", [6, 4, 6])):
        for steps in lengths:
            settings = make_settings(steps=steps, checkpoint_every=2)
            result, _ = run_training(tmp_path, make_team(), Agree(), settings=settings, scratch=tmp_path / name)
            assert result.checkpoints[-1][0] == steps
        digests[name] = [folder_digest(folder) for _, folder in result.checkpoints]
    assert digests["straight"] == digests["lengthened"] == digests["shortened"]


def test_a_damaged_checkpoint_costs_one_interval(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = make_settings(steps=6, checkpoint_every=2)
    whole, _ = run_training(tmp_path, make_team(), Agree(), settings=settings)
    expected = [folder_digest(folder) for _, folder in whole.checkpoints]
    path = whole.checkpoints[-1][1] / "one" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    result, steps = run_training(tmp_path, make_team(), Agree(), settings=settings)
    assert result.resumed_from == 4
    assert len(steps) == 2
    assert str(path) in caplog.text
    assert [folder_digest(folder) for _, folder in result.checkpoints] == expected


def test_an_engine_that_fails_leaves_the_state_to_continue_from(tmp_path: Path) -> None:
    """A server that went down, for example; the same call goes on when it is back, and nothing is lost or different."""

    class Failing(TransformersEngine):
        calls = 0

        def generate(self, requests: Any, sampling: Sampling) -> Any:
            self.calls += 1
            if self.calls == 4:
                raise EngineError("no answer (connection refused)")
            return super().generate(requests, sampling)

    settings = make_settings(steps=6, checkpoint_every=2)
    whole, _ = run_training(tmp_path, make_team(), Agree(), settings=settings, scratch=tmp_path / "whole")
    broken = {"settings": settings, "scratch": tmp_path / "broken"}
    with pytest.raises(EngineError, match="refused"):
        run_training(tmp_path, make_team(), Agree(), engine=Failing(rows=64), **broken)
    result, _ = run_training(tmp_path, make_team(), Agree(), **broken)
    assert result.resumed_from == 2
    expected = [folder_digest(folder) for _, folder in whole.checkpoints]
    assert [folder_digest(folder) for _, folder in result.checkpoints] == expected


def test_two_processes_do_not_train_the_same_run(tmp_path: Path) -> None:
    settings = make_settings(steps=2, checkpoint_every=2)

    def meanwhile(step: int, metrics: dict[str, float]) -> None:
        with pytest.raises(TrainingError, match="another process is training"):
            run_training(tmp_path, make_team(), Agree(), settings=settings)

    run_training(tmp_path, make_team(), Agree(), settings=settings, on_step=meanwhile)


def test_training_in_a_thread_leaves_signals_alone(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            run_training(tmp_path, make_team(), Agree(), settings=make_settings(steps=1, checkpoint_every=1))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []


def test_global_settings_of_torch_are_put_back(tmp_path: Path) -> None:
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    run_training(tmp_path, make_team(), Agree(), settings=make_settings(steps=1, checkpoint_every=1))
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (threads, precision)


def test_what_cannot_be_trained_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no problems"):
        run_training(tmp_path, make_team(), Agree(), problems=[])
    with pytest.raises(TrainingError, match="same id"):
        run_training(tmp_path, make_team(), Agree(), problems=[Toy("a", "red"), Toy("a", "blue")])
    with pytest.raises(TrainingError, match="temperature"):
        run_training(tmp_path, make_team(), Agree(), sampling=Sampling(temperature=0.0))
    assert not (tmp_path / "scratch").exists()


def test_ids_are_trained_as_sampled_whatever_the_tokenizer_does_to_text(tmp_path: Path) -> None:
    """Sampled text is never encoded again: encoding it gives other ids for nearly all actions of small models."""
    team = make_team()
    encoded: list[str] = []
    for policy in team.policies.values():
        original = policy.tokenizer

        class Listening:
            eos_token_id = original.eos_token_id

            def __call__(self, text: str, inner: Any = original) -> Any:
                encoded.append(text)
                return inner(text)

            def decode(self, *args: Any, inner: Any = original, **options: Any) -> Any:
                return inner.decode(*args, **options)

            def __getattr__(self, name: str, inner: Any = original) -> Any:
                return getattr(inner, name)

        policy.tokenizer = Listening()  # type: ignore[assignment]
    run_training(tmp_path, team, Agree(), settings=make_settings(steps=2, checkpoint_every=2))
    observations = {f"pick {toy.text} {side}" for toy in TOYS for side in ("left", "right")}
    assert set(encoded) == observations


def test_agents_may_be_different_models_with_different_tokenizers(tmp_path: Path) -> None:
    team = make_team()
    words = [*WORDS[:2], *reversed(WORDS[2:]), "more", "words"]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    other = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", pad_token="<pad>")
    team.policies["two"] = Policy("two", make_model(1, hidden=16, layers=2, vocabulary=len(words)), other)
    settings = make_settings(steps=40, group_size=24, learning_rate=2e-2)
    _, steps = run_training(tmp_path, team, Agree(), settings=settings)
    assert mean(steps[:5]) < 0.4
    assert mean(steps[-5:]) > 0.8
