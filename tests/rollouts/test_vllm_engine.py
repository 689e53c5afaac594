"""The vllm engine against real vLLM, in the environment that benchmarks/make_vllm_environment.sh makes."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from pipeline_lib.play import Player, groups
from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.rollouts import Action, Engine, EngineError, Request, Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.rollouts.vllm_hosts import WorkerHost
from pipeline_lib.settings.rollouts import VllmRollouts
from tests.needs import VLLM_PYTHON, needs
from tests.play.test_tools import Oracle
from tests.rollouts.tiny import END, policy, reference_logprobs
from tests.training.conftest import TOYS, make_model, make_settings, make_tokenizer, run_training

#: Largest difference of log-probabilities, in nats, as docs/feedback.md says.
BOUND = 1e-4

PROMPTS = [tuple(range(40, 40 + n)) for n in (3, 17, 9, 1)]

pytestmark = [pytest.mark.service, pytest.mark.timeout(1500), needs("vLLM")]


def vllm_policy(seed: int = 0, name: str = "team", **more: Any) -> Policy:
    """A tiny policy of a shape vLLM's CPU attention takes."""
    shape: dict[str, Any] = {"head_dim": 32, "hidden_size": 64, "intermediate_size": 96, "spread": 1.0}
    return policy("qwen3", seed, name, **{**shape, **more})


def section(**more: Any) -> VllmRollouts:
    return VllmRollouts(python=str(VLLM_PYTHON), eager=True, rows=64, **more)


def requests(n: int = 3, name: str = "team") -> list[Request]:
    return [Request(name, prompt, n, seed) for seed, prompt in enumerate(PROMPTS, start=100)]


def assert_exact(policies: dict[str, Policy], wanted: list[Request], found: list[list[Action]], s: Sampling) -> None:
    for request, actions in zip(wanted, found, strict=True):
        assert len(actions) == request.n
        for action in actions:
            exact = reference_logprobs(policies[request.policy], request.prompt, action, s)
            assert torch.allclose(torch.tensor(action.logprobs).double(), exact, atol=BOUND)


def shake(team: Policy) -> None:
    """Move every weight, as an optimiser step would."""
    with torch.no_grad():
        for _, parameter in team.trainable():
            parameter.add_(0.1 * torch.randn_like(parameter))
    team.version += 1


@pytest.fixture(scope="module")
def team() -> Policy:
    return vllm_policy()


@pytest.fixture(scope="module")
def engine(team: Policy) -> Iterator[Engine]:
    engine = make_engine(section())
    try:
        engine.load({"team": team})
        yield engine
    finally:
        engine.close()


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(0.6), Sampling(0.6, 0.6, 50), Sampling(1.0, 1.0, 4), Sampling(0.0)]
)
def test_log_probabilities_are_those_of_the_distribution(team: Policy, engine: Engine, sampling: Sampling) -> None:
    sampling = replace(sampling, max_new_tokens=12)
    assert_exact({"team": team}, requests(), engine.generate(requests(), sampling), sampling)


def test_seeds_fix_actions_whatever_the_order(engine: Engine) -> None:
    sampling = Sampling(max_new_tokens=12)
    first = [[a.ids for a in actions] for actions in engine.generate(requests(), sampling)]
    again = [[a.ids for a in actions] for actions in engine.generate(requests()[::-1], sampling)][::-1]
    assert first == again
    neighbour = engine.generate([replace(requests()[0], seed=101)], sampling)[0]
    assert not {a.ids for a in neighbour} & set(first[0])  # not shifted by one, as seed + j would be
    assert len(set(first[0])) == 3


def test_more_prompt_tokens_than_one_step_reads(engine: Engine, team: Policy) -> None:
    """vLLM would divide a prompt between two steps, and its seeded generators on a CPU cannot be set back."""
    many = [Request("team", tuple(40 + (seed + at) % 50 for at in range(90)), 1, seed) for seed in range(150)]
    sampling = Sampling(max_new_tokens=4)
    assert_exact({"team": team}, many, engine.generate(many, sampling), sampling)


def test_end_token_is_included_and_nothing_follows_it(engine: Engine) -> None:
    actions = engine.generate([Request("team", PROMPTS[1], 200, 3)], Sampling(max_new_tokens=40))[0]
    ended = [a for a in actions if a.finish == "stop"]
    assert ended and all(a.ids[-1] == END and END not in a.ids[:-1] for a in ended)
    assert all(END not in a.ids and len(a.ids) == 40 for a in actions if a.finish == "length")
    assert not any("<end>" in a.text for a in actions)


def test_stop_strings_cut_the_text_and_keep_the_ids(team: Policy, engine: Engine) -> None:
    wanted, sampling = [Request("team", PROMPTS[2], 20, 8)], Sampling(max_new_tokens=30)
    free = engine.generate(wanted, sampling)[0]
    pairs = [a.text[i : i + 2] for a in free for i in range(2, len(a.text) - 4)]
    stop = next(pair for pair in pairs if "\N{REPLACEMENT CHARACTER}" not in pair and pair.isprintable())
    team.stop_strings = (stop,)
    try:
        found = engine.generate(wanted, sampling)[0]
    finally:
        team.stop_strings = ()
    hits = [(b, a) for b, a in zip(free, found, strict=True) if stop in b.text]
    assert hits
    for before, after in hits:
        assert after.finish == "stop" and after.text == before.text[: before.text.index(stop)]
        assert after.ids == before.ids[: len(after.ids)] and len(after.ids) == len(after.logprobs)
        assert stop in team.decode(after.ids) and stop not in team.decode(after.ids[:-1])


def test_prompts_that_do_not_fit(engine: Engine) -> None:
    with pytest.raises(EngineError, match=r"has 96 tokens, and its context is 96.*shorten"):
        engine.generate([Request("team", (5,) * 96, 1, 0)], Sampling())
    long = engine.generate([Request("team", (5,) * 90, 4, 0)], Sampling())[0]
    assert {len(a.ids) for a in long if a.finish == "length"} == {6}


def test_new_weights_are_taken_and_old_ones_refused(team: Policy, engine: Engine) -> None:
    """All of them: the output layer is tied to the embedding, which vLLM keeps packed apart."""
    for _ in range(2):
        shake(team)
        with pytest.raises(EngineError, match="call update after every optimiser step"):
            engine.generate(requests(), Sampling())
        engine.update(team)
        sampling = Sampling(max_new_tokens=12)
        assert_exact({"team": team}, requests(), engine.generate(requests(), sampling), sampling)


def test_texts_around_results_of_a_tool_are_trained_with_the_log_probabilities_of_the_trainer(tmp_path: Path) -> None:
    team = Team({"team": Policy("team", make_model(hidden=64, spread=0.1), make_tokenizer())}, {})
    settings = make_settings(steps=3, checkpoint_every=3, learning_rate=1e-3)
    sampling = Sampling(0.8, max_new_tokens=12)
    engine = make_engine(section())
    try:
        _, steps = run_training(tmp_path, team, Oracle(), settings=settings, sampling=sampling, engine=engine)
        found = Player(Oracle(), team, engine, sampling).play(groups(TOYS, 16, 7)).decisions
    finally:
        engine.close()
    assert all(step["actions/tool_calls"] > 10 and step["update/tokens"] > 20 for step in steps)
    assert 0 < max(step["mismatch/max"] for step in steps) < BOUND
    assert max(decision.tool_calls for decision in found) > 2
    for decision in found:
        wanted = [Request("team", prompt, 1, 0) for prompt in decision.prompts]
        assert_exact(team.policies, wanted, [[action] for action in decision.actions], sampling)


def adapted(base: Policy, name: str, seed: int) -> Policy:
    """A policy with a random adapter on the weights of ``base``."""
    own = vllm_policy(name=name)
    own.model.load_state_dict(base.model.state_dict())
    torch.manual_seed(seed)
    own.model = get_peft_model(
        own.model, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"])
    )
    with torch.no_grad():
        for _, parameter in own.trainable():
            parameter.normal_(std=0.2)
    return own


@pytest.mark.drawn("processes of vLLM", "pipeline_lib/rollouts", count=2)
def test_agents_that_differ_are_served_side_by_side() -> None:
    """A large model, a small one of another vocabulary's size, an adapter of higher rank: each draws from its own."""
    small = vllm_policy(1, "small", num_hidden_layers=1, intermediate_size=64, vocab_size=300)
    team = {"large": vllm_policy(0, "large"), "small": small, "adapted": adapted(vllm_policy(2), "adapted", 2)}
    wanted = [request for each in zip(*(requests(2, name) for name in team), strict=True) for request in each]
    sampling = Sampling(max_new_tokens=10)
    engine = make_engine(section())
    try:
        engine.load(team)
        before = engine.generate(wanted, sampling)
        assert_exact(team, wanted, before, sampling)
        shake(team["small"])
        engine.update(team["small"])
        after = engine.generate(wanted, sampling)
        assert_exact(team, wanted, after, sampling)
    finally:
        engine.close()
    ids = [[[action.ids for action in actions] for actions in found] for found in (before, after)]
    assert ids[0][0::3] == ids[1][0::3] and ids[0][2::3] == ids[1][2::3]
    assert ids[0][1::3] != ids[1][1::3]


@pytest.mark.drawn("processes of vLLM", "pipeline_lib/rollouts", count=2)
def test_replicas_share_the_work_and_the_weights(team: Policy, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two engines side by side draw what one draws, before and after an update."""
    drawn: list[tuple[WorkerHost, int]] = []
    call = WorkerHost.call

    def noting(self: WorkerHost, name: str, **arguments: Any) -> Any:
        if name == "generate":
            drawn.append((self, len(arguments["rows"])))
        return call(self, name, **arguments)

    sampling = Sampling(max_new_tokens=12)
    pair = make_engine(section(replicas=2))
    try:
        pair.load({"team": team})
        monkeypatch.setattr(WorkerHost, "call", noting)
        for _ in range(2):
            drawn.clear()
            found = pair.generate(requests(), sampling)
            assert sorted(rows for _, rows in drawn) == [2, 2] and len({host for host, _ in drawn}) == 2
            assert_exact({"team": team}, requests(), found, sampling)
            alone = engine.generate(requests(), sampling)
            assert [[a.ids for a in actions] for actions in found] == [[a.ids for a in actions] for actions in alone]
            shake(team)
            for each in (engine, pair):
                each.update(team)
    finally:
        pair.close()


def test_a_missing_interpreter_and_one_without_vllm_are_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"rollouts.python: .*nowhere/python cannot be run"):
        make_engine(VllmRollouts(python=str(tmp_path / "nowhere/python"))).load({"team": vllm_policy()})
    with pytest.raises(EngineError, match=r"vLLM cannot be imported by .*; install it into an environment of its own"):
        make_engine(VllmRollouts(python=sys.executable)).load({"team": vllm_policy()})
