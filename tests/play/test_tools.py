"""Tools within a turn: who is asked again with what, what is trained of it, and what happens where a tool fails."""

import io
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import PreTrainedTokenizerFast

from pipeline_lib.credit.plans import make_plan
from pipeline_lib.environment_api.environment import ToolCall, ToolResult
from pipeline_lib.evaluation.run import OTHER, TranscriptRecorder, record_of
from pipeline_lib.play import Decision, Experience, Player, groups, paired
from pipeline_lib.play.fixing import Fixed, FixedActions
from pipeline_lib.policies.embedded import train_tokenizer
from pipeline_lib.policies.policy import Policy, Team, remote_policy
from pipeline_lib.protocols import make_protocol
from pipeline_lib.rollouts.engine import Action, Request, Sampling
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.settings.train import LossSettings
from pipeline_lib.storage import folder_digest
from pipeline_lib.training.batch import actions_of, build, normaliser
from pipeline_lib.training.logprobs import TokenScorer
from pipeline_lib.training.loss import Tokens, policy_loss
from pipeline_lib.training.optimiser import TrainingError
from pipeline_lib.training.packing import micro_batches
from pipeline_lib.training.summary import experience_metrics
from tasks.use.playing import play
from tasks.use.showing import TerminalShow
from tests.play.engines import Scripted
from tests.training.conftest import (
    END,
    SAMPLING,
    TOYS,
    WORDS,
    Agree,
    ToyState,
    make_settings,
    make_team,
    make_tokenizer,
    run_training,
)

DIGITS = WORDS[8:]
#: Largest difference of log-probabilities, in nats, as docs/feedback.md says.
BOUND = 2e-5


class Oracle(Agree):
    """A text that begins with no digit calls a tool, which tells the problem's colour and what everybody wrote."""

    tool_calls = 2
    tool_tokens = 4

    def __init__(self, agents: Sequence[str] = ("one", "two"), fails: int | None = None, **options: Any) -> None:
        super().__init__(agents, **options)
        self.fails = fails  # number of the call of `use_tools` that raises an error
        self.asked: list[list[ToolCall[ToyState]]] = []
        self.error = ""

    def use_tools(self, calls: Sequence[ToolCall[ToyState]]) -> list[ToolResult]:
        self.asked.append(list(calls))
        if len(self.asked) == self.fails:
            raise KeyboardInterrupt
        return [self.result(call) for call in calls]

    def result(self, call: ToolCall[ToyState]) -> ToolResult:
        if (call.text.split() or [""])[0] in DIGITS:
            return ToolResult()
        if self.error:
            return ToolResult(error=self.error)
        return ToolResult(" ".join([call.state.problem.text, *call.texts]))


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(WORDS.index(word) for word in text.split())


class Script(Scripted):
    """Agents write what is scripted, one text after the other; "..." at the end means that the text was cut off."""

    def __init__(self, texts: Mapping[str, Sequence[str]]) -> None:
        super().__init__()
        self.texts = {name: list(own) for name, own in texts.items()}

    def actions(self, request: Request) -> list[Action]:
        return [self.action(self.texts[request.policy].pop(0)) for _ in range(request.n)]

    def action(self, text: str) -> Action:
        said = text.removesuffix(" ...")
        ids = ids_of(said) if text != said else (*ids_of(said), END)
        return Action(ids, (-0.5,) * len(ids), said, "length" if text != said else "stop")


def scripted(
    texts: Mapping[str, Sequence[str]], environment: Oracle | None = None, n: int = 1, **options: Any
) -> tuple[list[Decision], Script, Oracle]:
    environment, engine = environment or Oracle(list(texts)), Script(texts)
    player = Player(environment, make_team(list(texts)), engine, SAMPLING, **options)
    return player.play(groups(TOYS[:1], n, 0)).decisions, engine, environment


def test_a_call_is_answered_below_its_ids_and_the_last_text_is_the_action() -> None:
    (decision,), engine, environment = scripted({"one": ["left", "3"], "two": ["3"]})
    first, again = engine.calls
    assert [request.policy for request in again] == ["one"]
    told = ids_of("red left 3")
    assert again[0].prompt == (*first[0].prompt, *ids_of("left"), END, *told)
    assert decision.prompts == (first[0].prompt, first[1].prompt, again[0].prompt)
    assert [action.text for action in decision.actions] == ["left", "3", "3"]
    assert (decision.agents, decision.rounds) == (("one", "two", "one"), (0, 0, 1))
    assert (decision.reward, decision.tool_calls, decision.unread) == (1.0, 1, 0)
    assert len({request.seed for call in engine.calls for request in call}) == 3
    assert [[(call.agent, call.texts) for call in calls] for calls in environment.asked] == [
        [(0, ("left", "3")), (1, ("left", "3"))],
        [(0, ("3", "3"))],
    ]


def test_calls_are_limited_and_a_further_one_is_the_answer() -> None:
    (decision,), engine, environment = scripted({"one": ["left", "right", "blue"], "two": ["3"]})
    assert len(engine.calls) == 3 and len(environment.asked) == 2
    assert [action.text for action in decision.actions if action.text != "3"] == ["left", "right", "blue"]
    assert decision.tool_calls == 2 and decision.reward == pytest.approx(0.15)  # blue is no digit


def test_results_are_cut_to_their_limit() -> None:
    texts = {"one": ["left left left left", "3"], "two": ["3"]}
    _, engine, _ = scripted(texts)
    assert engine.calls[1][0].prompt[-5:] == (END, *ids_of("red left left left"))


def test_a_text_that_was_cut_off_calls_nothing() -> None:
    (decision,), engine, environment = scripted({"one": ["left ..."], "two": ["3"]})
    assert len(engine.calls) == 1 and decision.tool_calls == 0
    assert [call.agent for call in environment.asked[0]] == [1]


def test_a_result_for_which_no_space_is_left_is_not_read() -> None:
    long = " ".join(["left"] * 58)
    (decision,), engine, _ = scripted({"one": [long], "two": ["3"]})
    assert len(engine.calls) == 1
    assert (decision.unread, decision.tool_calls, decision.actions[0].text) == (1, 0, long)


def test_joint_actions_of_a_group_have_their_own_calls_results_and_draws() -> None:
    decisions, engine, _ = scripted({"one": ["left", "3", "right", "4", "5"], "two": ["1", "2", "3"]}, n=3)
    again = engine.calls[1]
    assert [request.prompt[-3:] for request in again] == [ids_of("red left 1"), ids_of("red right 3")]
    assert len({request.seed for request in again}) == 2
    assert [[a.text for a in d.actions] for d in decisions] == [["left", "1", "4"], ["3", "2"], ["right", "3", "5"]]


def test_in_a_pipeline_the_next_agent_reads_the_answer_and_not_the_call() -> None:
    protocol = make_protocol("sequential_pipeline")
    (decision,), engine, environment = scripted({"one": ["left", "3"], "two": ["right", "3"]}, protocol=protocol)
    assert environment.asked[0][0].texts == ("left", "")  # the second has written nothing yet
    assert environment.asked[2][0].texts == ("3", "right")
    assert decision.rounds == (0, 1, 2, 3) and decision.tool_calls == 2
    second = make_tokenizer().decode(engine.calls[2][0].prompt)
    assert " 3 " in second and second.count("left") == 0


def test_a_tool_that_the_infrastructure_lost_gives_no_reward_and_no_example() -> None:
    environment = Oracle()
    environment.error = "no sandbox"
    decisions, _, _ = scripted({"one": ["left", "3"], "two": ["3", "3"]}, environment, n=2)
    assert [decision.reward for decision in decisions] == [None, 1.0]
    assert decisions[0].last and decisions[0].details["status"] == "tool_failed"
    assert decisions[0].details["error"] == "no sandbox"
    player = Player(environment, make_team(), Script({"one": ["left"], "two": ["3"]}), SAMPLING)
    experience = player.play(groups(TOYS[:1], 1, 0))
    assert (experience.executed, experience.lost) == (1, 1)


@pytest.mark.parametrize("limits", [{"tool_calls": -1}, {"tool_tokens": 0}, {"tool_tokens": -3}])
def test_limits_under_which_nothing_can_be_read_are_refused(limits: dict[str, int]) -> None:
    environment = Oracle()
    for name, value in limits.items():
        setattr(environment, name, value)
    with pytest.raises(ValueError, match=r"Oracle has tool_calls .* and tool_tokens .*; set them to 1 or more"):
        scripted({"one": ["left", "3"], "two": ["3"]}, environment)


@pytest.mark.parametrize("answers", [None, [], [ToolResult()], ["red", "red"], [ToolResult(3), ToolResult()]])
def test_a_tool_that_answers_something_else_is_named(answers: Any) -> None:
    environment = Oracle()
    environment.use_tools = lambda calls: answers  # type: ignore[method-assign]
    with pytest.raises(TypeError, match="of Oracle must return a ToolResult for each of 2 texts"):
        scripted({"one": ["left", "3"], "two": ["3"]}, environment)


def test_an_agent_on_a_server_has_no_tool() -> None:
    team = make_team()
    team.policies["two"] = remote_policy("two", "m")
    with pytest.raises(ValueError, match="two is played by a server"):
        Player(Oracle(), team, Script({"one": ["3"], "two": ["3"]}), SAMPLING).play(groups(TOYS[:1], 1, 0))


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({"credit": {"kind": "cross"}}, r"train.credit \(cross\) to \{kind: aligned\}"),
        ({"advantage": {"baseline": "counterfactual"}}, "baseline .counterfactual. to critic"),
        ({"fidelity_every": 1}, r"train.fidelity_every \(1\) to 0"),
        ({"overlap": 2}, r"train.overlap \(2\) to 1"),
    ],
)
def test_tools_of_an_own_environment_are_refused_the_same_settings(
    tmp_path: Path, settings: dict[str, Any], change: str
) -> None:
    with pytest.raises(TrainingError, match=f"an environment with tools cannot be trained so: set .*{change}"):
        run_training(tmp_path, make_team(), Oracle(), settings=make_settings(**settings))


def test_actions_that_depend_on_each_other_are_not_combined() -> None:
    for options in ({"plan": make_plan("cross")}, {"overlap": 2}):
        with pytest.raises(ValueError, match="tools needs the plan aligned and an overlap of 1"):
            scripted({"one": ["3"], "two": ["3"]}, **options)


def test_fixed_actions_are_what_a_tool_is_asked_about() -> None:
    inner, engine = Oracle(), Script({"one": ["left", "3"]})
    problem = Fixed(TOYS[0], given={1: "6"})
    (decision,) = Player(FixedActions(inner), make_team(), engine, SAMPLING).play(groups([problem], 1, 0)).decisions
    assert inner.asked[0][0].texts == ("left", "6") and inner.asked[0][0].state.problem is TOYS[0]
    assert engine.calls[1][0].prompt[-3:] == ids_of("red left 6")
    assert decision.tool_calls == 1


def test_counts_of_an_episode_and_of_an_update() -> None:
    decisions, _, _ = scripted({"one": ["left", "3"], "two": ["3"]})

    class Family:
        id, family = "toy/red", "toy"

    record = record_of(Family(), 0, decisions, False)  # type: ignore[arg-type]
    assert record.tokens == 2 + 2 + 2
    assert (record.details["tool_calls"], record.details["requests"]) == (1, 3)
    assert record.details["critical_path_tokens"] == 2 + 2  # one after the other
    found = experience_metrics(Experience(decisions), [(0.0,) * 3], 0.0)
    assert (found["actions/tool_calls"], found["actions/tokens"]) == (1.0, 6.0)


def sampled(temperature: float = 0.8) -> tuple[Experience, Team, Sampling]:
    """Return what a random team plays, with calls, and calls after calls."""
    team = make_team(("one", "two"), seed=3)
    for policy in team.policies.values():
        with torch.no_grad():
            policy.model.get_output_embeddings().weight.mul_(2)  # not uniform
    engine, sampling = TransformersEngine(rows=64), Sampling(temperature=temperature, max_new_tokens=4)
    engine.load(team.policies)
    experience = Player(Oracle(), team, engine, sampling).play(groups(TOYS, 64, 5))
    calls = [decision.tool_calls for decision in experience.decisions]
    assert sum(calls) > 40 and max(calls) >= 2
    return experience, team, sampling


def sequences(decision: Decision, agent: str) -> tuple[tuple[int, ...], list[bool], list[float]]:
    """Return all ids of an agent's turn, which of them it sampled, and the log-probabilities of these."""
    own = [place for place, name in enumerate(decision.agents) if name == agent]
    whole = decision.prompts[own[-1]] + decision.actions[own[-1]].ids
    chosen, said = [False] * len(whole), []
    for place in own:
        start, action = len(decision.prompts[place]), decision.actions[place]
        assert whole[: start + len(action.ids)] == decision.prompts[place] + action.ids
        chosen[start : start + len(action.ids)] = [True] * len(action.ids)
        said += action.logprobs
    return whole, chosen, said


def logprobs(model: Any, whole: tuple[int, ...], temperature: float) -> torch.Tensor:
    """Return by one plain forward pass the log-probability of every id but the first."""
    logits = model(input_ids=torch.tensor([whole])).logits[0, :-1].float() / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(whole[1:])[:, None])[:, 0]


def test_log_probabilities_are_those_of_one_pass_over_the_whole_turn() -> None:
    experience, team, sampling = sampled()
    worst = 0.0
    for decision in experience.decisions:
        for agent in ("one", "two"):
            whole, chosen, said = sequences(decision, agent)
            with torch.no_grad():
                found = logprobs(team.policies[agent].model, whole, sampling.temperature)
            exact = found[torch.tensor(chosen[1:])]
            worst = max(worst, float((exact - torch.tensor(said)).abs().max()))
    assert worst < BOUND


def test_the_gradient_is_that_of_the_sampled_tokens_and_of_no_result() -> None:
    """The reference has one sequence for the whole turn, and a mask that leaves out prompt and results."""
    experience, team, sampling = sampled()
    weights = [(k % 5 - 2.0) / 2 for k in range(len(experience.decisions))]
    rows = actions_of(
        experience, [(w,) * len(d.actions) for w, d in zip(weights, experience.decisions, strict=True)], False
    )
    for agent in ("one", "two"):
        model = team.policies[agent].model
        turns = [sequences(decision, agent) for decision in experience.decisions]
        total = sum(sum(chosen) for _, chosen, _ in turns)
        expected = torch.zeros(())
        for (whole, chosen, _), weight in zip(turns, weights, strict=True):
            mask = torch.tensor(chosen[1:])
            expected = expected - weight / total * logprobs(model, whole, sampling.temperature)[mask].sum()
        model.zero_grad()
        expected.backward()
        reference = {name: p.grad.clone() for name, p in model.named_parameters()}
        loss = LossSettings()
        actions, _ = rows[agent]
        batch = build(actions, normaliser(actions, loss.normalisation), loss)
        assert batch.counts.tokens == total
        scorer = TokenScorer(model, sampling)
        model.zero_grad()
        for part in micro_batches(batch, 256, scorer.shares):
            found, _ = scorer(part)
            own = Tokens(found, part.behaviour, part.positive, part.negative, part.weight)
            parts = policy_loss(own, loss)
            assert parts.corrected == 0, "trainer and engine agree"
            parts.loss.backward()
        for name, parameter in model.named_parameters():
            assert torch.allclose(parameter.grad, reference[name], atol=2e-6), name


def test_a_run_that_ends_within_a_tool_continues_to_the_same_bytes(tmp_path: Path) -> None:
    settings = make_settings(steps=6, checkpoint_every=2, group_size=4)
    sampling = Sampling(max_new_tokens=4)
    for name, fails in (("quiet", None), ("killed", 7)):
        folder = tmp_path / name
        folder.mkdir()
        if fails is not None:
            with pytest.raises(KeyboardInterrupt):
                run_training(folder, make_team(), Oracle(fails=fails), settings=settings, sampling=sampling)
        _, steps = run_training(folder, make_team(), Oracle(), settings=settings, sampling=sampling)
        assert sum(step["actions/tool_calls"] for step in steps) > 0
    quiet, killed = (
        {path.name: folder_digest(path) for path in sorted((tmp_path / name / "scratch").glob("step-*"))}
        for name in ("quiet", "killed")
    )
    assert quiet == killed and len(quiet) == 4


def test_playing_shows_the_call_what_the_tool_answers_and_what_follows() -> None:
    environment = Oracle()
    player = Player(environment, make_team(), Script({"one": ["left", "3"], "two": ["3"]}), SAMPLING)
    out = io.StringIO()
    played = play(player, "team", TOYS[0], 0, TerminalShow(Console(file=out, width=80), {}))
    shown = [line.strip("─ ") for line in out.getvalue().splitlines() if line.strip("─ ")]
    assert shown[shown.index("A tool answers one") :][:3] == ["A tool answers one", "red left 3", "one writes"]
    said = played.turns[0].said
    assert [(one.agent, one.text, one.tool) for one in said] == [
        ("one", "left", False),
        ("two", "3", False),
        ("one", "3", True),
    ]
    assert said[-1].prompt == "red left 3"


class TestTheChatTemplate:
    """What follows a call is what the template itself writes between the model's message and its next one."""

    TEMPLATE = (
        "{% for m in messages %}<|{{ m['role'] }}|> {{ m['content'] }} <end> {% endfor %}"
        "{% if add_generation_prompt %}<|assistant|> {% endif %}"
    )

    def policy(self) -> Policy:
        tokenizer = make_tokenizer()
        tokenizer.add_tokens(["<|user|>", "<|assistant|>"], special_tokens=True)
        tokenizer.chat_template = self.TEMPLATE
        return Policy("one", make_team(("one",)).policies["one"].model, tokenizer, chat=True)

    def test_the_whole_is_the_conversation_in_the_template(self) -> None:
        policy = self.policy()
        call = (*ids_of("left 3"), END)
        found = (*policy.encode("pick red"), *call, *policy.encode_result(call, "green 4"))
        messages = [
            {"role": "user", "content": "pick red"},
            {"role": "assistant", "content": "left 3"},
            {"role": "user", "content": "green 4"},
        ]
        tokenizer: PreTrainedTokenizerFast = policy.tokenizer  # type: ignore[assignment]
        whole: Any = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
        assert list(found) == whole["input_ids"]

    def test_a_call_without_an_end_token_is_ended_and_a_long_result_is_cut(self) -> None:
        policy = self.policy()
        user, model = (policy.tokenizer.convert_tokens_to_ids(f"<|{role}|>") for role in ("user", "assistant"))
        found = policy.encode_result(ids_of("left 3"), "1 2 3 4 5", 3)
        assert found == (END, user, *ids_of("1 2 3"), END, model)


class TestALongResult:
    """Of a result that is cut only the beginning is encoded, and what is kept is what would be kept of the whole."""

    class Noting:
        def __init__(self, inner: PreTrainedTokenizerFast) -> None:
            self.inner, self.sizes = inner, list[int]()

        def __call__(self, text: str, **options: Any) -> Any:
            self.sizes.append(len(text))
            return self.inner(text, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    @pytest.fixture
    def noting(self) -> Noting:
        corpus = [
            "assert main([1, 2]) == 4: got 6, expected 4\n" + " " * 40,
            "aaaa" * 9,
            "def main(xs):\n    return xs\n",
        ]
        return self.Noting(train_tokenizer(corpus * 3, 320, 64))

    @staticmethod
    def whole(tokenizer: Any, text: str, most: int) -> tuple[int, ...]:
        """Return what is kept if all of a text is encoded."""
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        while len(ids) > most:
            text = tokenizer.decode(ids[:most], clean_up_tokenization_spaces=False)
            while len(ids := tokenizer(text, add_special_tokens=False)["input_ids"]) > most:
                text = text[:-1]
        return tuple(ids)

    def test_the_same_is_kept(self, noting: Noting) -> None:
        rng = random.Random(0)
        policy = Policy("one", make_team(("one",)).policies["one"].model, noting)  # type: ignore[arg-type]
        pieces = ["got 6, ", "\n", " " * 50, "a" * 70, "main", "\N{SNOWMAN}", "\N{GRINNING FACE}", "=", "4", "x" * 30]
        cut = 0
        for _ in range(400):
            text = "".join(rng.choice(pieces) * rng.choice([1, 9, 200]) for _ in range(rng.randrange(8)))
            most = rng.choice([1, 2, 7, 8, 64])
            noting.sizes.clear()
            found = policy.encode_result((), text, most)
            cut += 0 < noting.sizes[0] < len(text)
            assert found == self.whole(noting.inner, text, most)
        assert cut > 100

    def test_the_rest_of_it_is_not_read(self, noting: Noting) -> None:
        policy = Policy("one", make_team(("one",)).policies["one"].model, noting)  # type: ignore[arg-type]
        for text in ("got 6, expected 4\n" * 250_000, "a" * 4_000_000, "\N{GRINNING FACE}" * 4_000_000):
            noting.sizes.clear()
            assert len(policy.encode_result((), text, 128)) in range(120, 129)
            assert sum(noting.sizes) < 128 * 300


def test_a_transcript_has_what_every_text_was_written_after() -> None:
    team, roots = make_team(), paired(TOYS[:1], 1, 0)
    environment, engine = Oracle(), Script({"one": ["left", "3"], "two": ["3"]})
    recorder = TranscriptRecorder(environment, roots)
    player = Player(environment, team, engine, SAMPLING, watcher=recorder)
    recorder.add_prompts(0, player.play(roots).decisions, team)
    (transcript,) = recorder.transcripts
    assert transcript["turns"] == [["3", "3"]]
    assert [(one["agent"], one["answer"]) for one in transcript["seen"][0]] == [
        ("one", "left"),
        ("two", "3"),
        ("one", "3"),
    ]
    assert transcript["seen"][0][2]["prompt"] == [("task", "pick red left"), (OTHER, " left red left 3")]


def test_evaluation_draws_the_same_with_and_without_others_beside() -> None:
    team = make_team(seed=3)
    engine = TransformersEngine(rows=8)
    engine.load(team.policies)
    player = Player(Oracle(), team, engine, Sampling(max_new_tokens=4))
    together = player.play(paired(TOYS, 8, 1)).decisions
    alone = [player.play([root]).decisions[0] for root in paired(TOYS, 8, 1)]
    assert sum(decision.tool_calls for decision in together) > 2
    assert [[a.ids for a in d.actions] for d in together] == [[a.ids for a in d.actions] for d in alone]


def test_an_environment_without_tools_is_never_asked() -> None:
    class Silent(Agree):
        def use_tools(self, calls: Sequence[ToolCall[ToyState]]) -> list[ToolResult]:
            raise AssertionError

    player = Player(Silent(), make_team(), Script({"one": ["left"], "two": ["3"]}), SAMPLING)
    assert player.play(groups(TOYS[:1], 1, 0)).decisions[0].tool_calls == 0
