"""What every engine that runs in this process must promise, checked against each of them."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from pipeline_lib.policies.policy import Policy
from pipeline_lib.rollouts import Engine, EngineError, Request, Sampling
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.sampling_progress import sampling_shown_by
from tests.rollouts.tiny import CONFIGS, END, FAST, VOCABULARY, policy, reference_logits, reference_logprobs

Make = Callable[..., Engine]
CASES = [pytest.param((kind, True), id=f"{kind}-fast") for kind in FAST]
CASES += [pytest.param((kind, False), id=f"{kind}-general") for kind in CONFIGS]
BOTH = [pytest.param(("qwen3", True), id="fast"), pytest.param(("qwen3", False), id="general")]
PROMPTS = [tuple(range(40, 40 + n)) for n in (3, 17, 9, 1)]


@pytest.fixture
def make() -> Iterator[Make]:
    torch.set_num_threads(1)
    made: list[Engine] = []

    def build(fast: bool, *policies: Policy, rows: int = 16) -> Engine:
        engine = TransformersEngine(rows=rows, fast=fast)
        engine.load({p.name: p for p in policies})
        made.append(engine)
        return engine

    yield build
    for engine in made:
        engine.close()


def requests(n: int = 5, prompts: list[tuple[int, ...]] = PROMPTS) -> list[Request]:
    return [Request("team", prompt, n, seed) for seed, prompt in enumerate(prompts, start=100)]


def ids_of(found: list[list]) -> list[list[tuple[int, ...]]]:
    return [[action.ids for action in actions] for actions in found]


@pytest.mark.parametrize("case", CASES)
def test_log_probabilities_are_those_of_a_teacher_forced_pass(case: tuple[str, bool], make: Make) -> None:
    kind, fast = case
    team = policy(kind)
    sampling = Sampling(max_new_tokens=12)
    wanted = requests(3)
    found = make(fast, team).generate(wanted, sampling)
    for request, actions in zip(wanted, found, strict=True):
        assert len(actions) == 3
        for action in actions:
            exact = reference_logprobs(team, request.prompt, action, sampling)
            assert torch.allclose(torch.tensor(action.logprobs).double(), exact, atol=1e-4)


@pytest.mark.parametrize("case", BOTH)
def test_who_watches_a_call_is_told_after_each_step_how_far_it_is(case: tuple[str, bool], make: Make) -> None:
    engine, told = make(case[1], policy("qwen3"), rows=4), []
    with sampling_shown_by(lambda *seen: told.append(seen)):
        found = [action for actions in engine.generate(requests(3), Sampling(max_new_tokens=6)) for action in actions]
    finished, actions, tokens, shares = zip(*told, strict=True)
    assert set(actions) == {12} and finished[-1] == 12 and tokens[-1] == sum(len(action.ids) for action in found)
    assert list(shares) == sorted(shares) and shares[0] == 0.0 and shares[-1] == 1.0
    assert list(finished) == sorted(finished) and len(told) >= 6


@pytest.mark.parametrize("case", BOTH)
@pytest.mark.parametrize(
    "sampling", [Sampling(0.6, max_new_tokens=10), Sampling(0.6, 0.6, 50, 10), Sampling(1.3, 1.0, 4, 10)]
)
def test_log_probabilities_are_processed_not_raw(case: tuple[str, bool], sampling: Sampling, make: Make) -> None:
    team = policy("qwen3")
    wanted = requests(4)
    found = make(case[1], team).generate(wanted, sampling)
    off = 0.0
    for request, actions in zip(wanted, found, strict=True):
        for action in actions:
            reported = torch.tensor(action.logprobs).double()
            assert torch.allclose(reported, reference_logprobs(team, request.prompt, action, sampling), atol=1e-4)
            raw = reference_logprobs(team, request.prompt, action, Sampling())
            off = max(off, float((raw - reported).abs().max()))
    assert off > 0.3  # the fault would be seen


@pytest.mark.parametrize("kind", FAST)
def test_fast_and_general_path_draw_the_same_actions(kind: str, make: Make) -> None:
    team, sampling = policy(kind), Sampling(max_new_tokens=30)
    fast, general = (make(f, team, rows=7).generate(requests(6), sampling) for f in (True, False))
    assert ids_of(fast) == ids_of(general)
    assert [[a.finish for a in actions] for actions in fast] == [[a.finish for a in actions] for actions in general]


@pytest.mark.parametrize("case", BOTH)
def test_actions_are_exactly_those_of_drawing_one_at_a_time(case: tuple[str, bool], make: Make) -> None:
    """The textbook loop (whole forward pass per token, no cache, no batch) with the same uniforms."""
    from pipeline_lib.rollouts.sampling import uniforms

    team, sampling = policy("qwen3", spread=1.5), Sampling(temperature=0.8, top_k=40, max_new_tokens=9)
    found = make(case[1], team, rows=5).generate(requests(4), sampling)
    for request, actions in zip(requests(4), found, strict=True):
        for number, action in enumerate(actions):
            values = uniforms(np.array([request.seed], np.uint64), np.array([number], np.uint64), 9)[0]
            ids: tuple[int, ...] = ()
            while len(ids) < 9 and END not in ids:
                row = reference_logits(team, request.prompt, (*ids, 0))[-1] / 0.8
                row[row < row.topk(40).values[-1]] = -torch.inf
                cumulative = row.softmax(-1).double().cumsum(0)
                ids = (*ids, int((cumulative <= float(values[len(ids)])).sum()))
            assert action.ids == ids


@pytest.mark.parametrize("case", BOTH)
@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.5), Sampling(1.0, 1.0, 6), Sampling(0.9, 0.7, 0)])
def test_frequencies_of_first_and_second_token_match(case: tuple[str, bool], sampling: Sampling, make: Make) -> None:
    team, draws = policy("qwen3", spread=1.5), 3000
    prompt = PROMPTS[0]
    engine = make(case[1], team, rows=512)
    actions = engine.generate([Request("team", prompt, draws, 5)], replace(sampling, max_new_tokens=2))[0]
    firsts = np.bincount([a.ids[0] for a in actions], minlength=VOCABULARY)
    commonest = int(firsts.argmax())
    seconds = np.bincount([a.ids[1] for a in actions if a.ids[0] == commonest and len(a.ids) > 1], minlength=VOCABULARY)
    for counts, forced in ((firsts, (0,)), (seconds, (commonest, 0))):
        row = reference_logits(team, prompt, forced)[-1].double() / sampling.temperature
        order = row.argsort(descending=True)
        if sampling.top_k:
            order = order[: sampling.top_k]
        mass = row[order].softmax(-1)
        if sampling.top_p < 1:
            order = order[mass.cumsum(0) - mass < sampling.top_p]
        expected = row[order].softmax(-1).numpy()
        assert counts.sum() == counts[order.numpy()].sum()  # nothing outside the support
        observed, total = counts[order.numpy()], counts.sum()
        common = expected * total >= 5
        seen = np.append(observed[common], observed[~common].sum())
        wanted = np.append(expected[common], expected[~common].sum()) * total
        keep = wanted > 1
        if keep.sum() > 1:
            assert stats.chisquare(seen[keep], wanted[keep] * seen[keep].sum() / wanted[keep].sum()).pvalue > 1e-4


@pytest.mark.parametrize("case", BOTH)
def test_same_seed_same_actions_whatever_the_batch(case: tuple[str, bool], make: Make) -> None:
    team, sampling = policy("qwen3"), Sampling(max_new_tokens=20)
    wanted = [*requests(4), Request("team", PROMPTS[1], 3, 9)]
    engine = make(case[1], team, rows=64)
    together = ids_of(engine.generate(wanted, sampling))
    assert ids_of(engine.generate(wanted[::-1], sampling))[::-1] == together
    assert [ids_of(engine.generate([request], sampling))[0] for request in wanted] == together
    assert ids_of(make(case[1], team, rows=3).generate(wanted, sampling)) == together
    fewer = ids_of(engine.generate([replace(request, n=2) for request in wanted], sampling))
    assert fewer == [actions[:2] for actions in together]
    longer = ids_of(engine.generate(wanted, replace(sampling, max_new_tokens=25)))
    assert [[ids[:20] for ids in actions] for actions in longer] == together
    other = ids_of(engine.generate([replace(request, seed=request.seed + 50) for request in wanted], sampling))
    assert other != together


@pytest.mark.parametrize("case", BOTH)
def test_end_token_is_included_and_nothing_follows_it(case: tuple[str, bool], make: Make) -> None:
    team = policy("qwen3", spread=0.5)
    actions = make(case[1], team, rows=512).generate(
        [Request("team", PROMPTS[1], 600, 3)], Sampling(max_new_tokens=25)
    )[0]
    ended = [a for a in actions if a.finish == "stop"]
    assert len(ended) > 10
    assert all(a.ids[-1] == END and END not in a.ids[:-1] for a in ended)
    assert all(END not in a.ids and len(a.ids) == 25 for a in actions if a.finish == "length")
    assert all(len(a.ids) == len(a.logprobs) for a in actions)
    assert not any("<end>" in a.text for a in actions)


@pytest.mark.parametrize("case", BOTH)
def test_a_higher_limit_of_tokens_changes_no_action_that_ended_by_itself(case: tuple[str, bool], make: Make) -> None:
    """What the verdict at equal effort says of longer answers rests on this."""
    team = policy("qwen3", spread=0.5)
    team.model.generation_config.eos_token_id = [END, *range(20)]
    engine = make(case[1], team, rows=64)
    (short,), (long,) = (engine.generate(requests(40)[:1], Sampling(max_new_tokens=most)) for most in (12, 24))
    ended = [(one.ids, other.ids) for one, other in zip(short, long, strict=True) if one.finish == "stop"]
    assert len(ended) > 10 and len(ended) < 40 and all(one == other for one, other in ended)


@pytest.mark.parametrize("case", BOTH)
def test_several_end_tokens(case: tuple[str, bool], make: Make) -> None:
    team = policy("qwen3", spread=0.5)
    team.model.generation_config.eos_token_id = [END, *range(20)]
    actions = make(case[1], team, rows=64).generate([Request("team", PROMPTS[0], 50, 3)], Sampling(max_new_tokens=25))[
        0
    ]
    last = {a.ids[-1] for a in actions if a.finish == "stop"}
    assert len(last) > 2 and last <= {END, *range(20)}


@pytest.mark.parametrize("case", BOTH)
def test_padding_side_does_not_matter(case: tuple[str, bool], make: Make) -> None:
    """Greedy actions of prompts of many lengths in one batch are those of transformers with each prompt alone."""
    team = policy("qwen3")
    prompts = [tuple((7 * i + k) % 250 for k in range(1 + i % 19)) for i in range(64)]
    team.tokenizer.padding_side = "right"
    try:
        found = make(case[1], team, rows=64).generate(
            [Request("team", p, 1, 0) for p in prompts], Sampling(temperature=0, max_new_tokens=12)
        )
    finally:
        team.tokenizer.padding_side = "left"
    for prompt, (action,) in zip(prompts, found, strict=True):
        ids = torch.tensor([prompt])
        alone = team.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12)
        assert action.ids == tuple(alone[0, len(prompt) :].tolist())


@pytest.mark.parametrize("case", BOTH)
def test_stop_strings_cut_the_text_and_keep_the_ids(case: tuple[str, bool], make: Make) -> None:
    free = policy("qwen3", spread=1.5)
    wanted, sampling = [Request("team", PROMPTS[2], 40, 8)], Sampling(max_new_tokens=30)
    unstopped = make(case[1], free, rows=64).generate(wanted, sampling)[0]
    pairs = [a.text[i : i + 2] for a in unstopped for i in range(2, len(a.text) - 4)]
    stop = next(pair for pair in pairs if "\N{REPLACEMENT CHARACTER}" not in pair)  # two tokens, in mid-text
    stopping = replace(free, stop_strings=(stop, "\n\n\n\n"))
    found = make(case[1], stopping, rows=64).generate(wanted, sampling)[0]
    hits = 0
    for before, after in zip(unstopped, found, strict=True):
        if stop not in before.text:
            assert (after.ids, after.text, after.finish) == (before.ids, before.text, before.finish)
            continue
        hits += 1
        assert after.finish == "stop" and after.text == before.text[: before.text.index(stop)]
        assert after.ids == before.ids[: len(after.ids)] and after.logprobs == pytest.approx(
            before.logprobs[: len(after.ids)]
        )
        assert stop in free.decode(after.ids) and stop not in free.decode(after.ids[:-1])
    assert hits


@pytest.mark.parametrize("case", BOTH)
def test_ids_are_never_encoded_again(case: tuple[str, bool], make: Make) -> None:
    """Ids that no encoder would produce (bytes that are not text) come back as they were drawn."""
    team = policy("qwen3", spread=0.3)
    actions = make(case[1], team, rows=64).generate([Request("team", PROMPTS[0], 40, 3)], Sampling(max_new_tokens=20))[
        0
    ]
    broken = [a for a in actions if "\N{REPLACEMENT CHARACTER}" in a.text]
    assert broken
    for action in broken:
        assert tuple(team.tokenizer(action.text)["input_ids"]) != action.ids
        exact = reference_logprobs(team, PROMPTS[0], action, Sampling())
        assert torch.allclose(torch.tensor(action.logprobs).double(), exact, atol=1e-4)


@pytest.mark.parametrize("case", BOTH)
def test_stale_weights_are_refused_and_new_ones_used(case: tuple[str, bool], make: Make) -> None:
    team, sampling = policy("qwen3"), Sampling(max_new_tokens=8)
    engine = make(case[1], team)
    engine.generate(requests(2), sampling)
    engine.generate(requests(2), replace(sampling, max_new_tokens=1))  # fills whatever the engine remembers
    with torch.no_grad():
        for parameter in team.model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    team.version += 1
    with pytest.raises(EngineError, match=r"'team' has version 0, the policy 1: call update"):
        engine.generate(requests(2), sampling)
    engine.update(team)
    for steps in (1, 8):
        found = engine.generate(requests(2), replace(sampling, max_new_tokens=steps))
        for request, actions in zip(requests(2), found, strict=True):
            for action in actions:
                exact = reference_logprobs(team, request.prompt, action, sampling)
                assert torch.allclose(torch.tensor(action.logprobs).double(), exact, atol=1e-4)


@pytest.mark.parametrize("case", BOTH)
def test_rollout_copy_does_not_move_with_training(case: tuple[str, bool], make: Make) -> None:
    team, sampling = policy("qwen3"), Sampling(max_new_tokens=8)
    engine = make(case[1], team)
    before = engine.generate(requests(2), sampling)
    with torch.no_grad():
        for parameter in team.model.parameters():
            parameter.mul_(0.5)
    assert engine.generate(requests(2), sampling) == before


@pytest.mark.parametrize("case", BOTH)
def test_agents_of_different_architecture_and_size_in_one_call(case: tuple[str, bool], make: Make) -> None:
    helper = policy("llama", seed=1, name="helper", hidden_size=16, vocab_size=300)
    main = policy("qwen2", seed=2, name="main", num_hidden_layers=1)
    wanted = [Request(name, prompt, 2, 4) for prompt in PROMPTS for name in ("helper", "main")]
    sampling = Sampling(max_new_tokens=6)
    found = make(case[1], helper, main).generate(wanted, sampling)
    for request, actions in zip(wanted, found, strict=True):
        for action in actions:
            exact = reference_logprobs(
                {"helper": helper, "main": main}[request.policy], request.prompt, action, sampling
            )
            assert torch.allclose(torch.tensor(action.logprobs).double(), exact, atol=1e-4)


@pytest.mark.parametrize("case", BOTH)
def test_prompts_that_do_not_fit_are_refused_and_long_ones_cut_the_action(case: tuple[str, bool], make: Make) -> None:
    engine = make(case[1], policy("qwen3", spread=0.3))
    with pytest.raises(EngineError, match=r"has 96 tokens, and its context is 96.*shorten"):
        engine.generate([Request("team", (5,) * 96, 1, 0)], Sampling())
    with pytest.raises(EngineError, match="must not be empty"):
        engine.generate([Request("team", (), 1, 0)], Sampling())
    with pytest.raises(EngineError, match=r"'other' is not loaded \(loaded: \['team'\]\)"):
        engine.generate([Request("other", (5,), 1, 0)], Sampling())
    with pytest.raises(EngineError, match="asks for 0 actions"):
        engine.generate([Request("team", (5,), 0, 0)], Sampling())
    long, short = engine.generate([Request("team", (5,) * 90, 8, 0), Request("team", (5,), 8, 0)], Sampling())
    assert {len(a.ids) for a in long if a.finish == "length"} == {6}
    assert {len(a.ids) for a in short if a.finish == "length"} == {64}
    assert engine.generate([], Sampling()) == []


@pytest.mark.parametrize("case", BOTH)
def test_counters_and_exact_sharing(case: tuple[str, bool], make: Make) -> None:
    engine = make(case[1], policy("qwen3"), rows=64)
    twice = requests(6) + requests(6)
    found = engine.generate(twice, Sampling(max_new_tokens=10))
    counters = engine.counters
    assert found[:4] == found[4:]
    assert counters.requests == 8 and counters.actions == 48
    assert counters.prompt_tokens == sum(map(len, PROMPTS))  # each distinct prompt once
    delivered = [a.ids for actions in found for a in actions]
    assert counters.generated_tokens == sum(map(len, delivered))
    # A token goes through the model once per distinct prefix that is continued.
    prefixes = {
        (r.prompt, a.ids[:k]) for r, acts in zip(twice, found, strict=True) for a in acts for k in range(1, len(a.ids))
    }
    assert counters.computed_tokens == len(prefixes) < counters.generated_tokens
    assert counters.seconds > 0


@pytest.mark.parametrize("case", BOTH)
def test_first_tokens_of_known_prompts_cost_nothing(case: tuple[str, bool], make: Make) -> None:
    team = policy("qwen3")
    engine = make(case[1], team)
    one = Sampling(max_new_tokens=1)
    first = engine.generate(requests(3), one)
    computed = engine.counters.prompt_tokens
    again = engine.generate([*requests(3), Request("team", (9, 9), 3, 1)], one)
    assert again[:4] == first
    assert engine.counters.prompt_tokens == computed + 2 and engine.counters.computed_tokens == 0
    engine.update(team)
    engine.generate(requests(3), one)
    assert engine.counters.prompt_tokens == 2 * computed + 2
