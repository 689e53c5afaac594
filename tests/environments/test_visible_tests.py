"""The tool of the coding environment: what calls it, what it tells, what it never tells, and who is shown its use."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline_lib.assembly.memory import longest_prompt
from pipeline_lib.environment_api.environment import ToolCall, ToolResult
from pipeline_lib.environment_api.registry import find
from pipeline_lib.environment_api.task import Demonstration
from pipeline_lib.environments.coding.demonstrations import demonstrate_later
from pipeline_lib.environments.coding.feedback import CALL, INSTRUCTION, is_call
from pipeline_lib.environments.coding.generated import generate
from pipeline_lib.environments.coding.runtime import CodingEnvironment
from pipeline_lib.environments.coding.settings import CodingSettings, GeneratedProblems
from pipeline_lib.policies.embedded import train_tokenizer
from pipeline_lib.policies.imitation import encode
from pipeline_lib.policies.policy import Policy
from pipeline_lib.sandbox import Executor, Job, Limits, Status, Verdict
from pipeline_lib.settings import Params
from pipeline_lib.settings.compose import compose
from pipeline_lib.settings.environment import Tools
from pipeline_lib.settings.problems import SplitSizes
from tests.environments.test_feedback import AUX, HIDDEN, MAIN, PROBLEM, Failing
from tests.training.conftest import make_model

TOOL = CodingSettings(tools={"calls": 1, "tokens": 64})
LOOP = "def main(mains_name):\n    while True:\n        pass"


def make_sandbox() -> Executor:
    return Executor(slots=1, limits=Limits(cpu_s=1.0, call_cpu_s=0.5))


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with make_sandbox() as found:
        yield found


def ask(environment: CodingEnvironment, *texts: str, problem: Any = PROBLEM) -> list[ToolResult]:
    """Return what every agent is told."""
    state = environment.start(problem)
    return environment.use_tools([ToolCall(state, agent, texts) for agent in range(len(texts))])


@pytest.mark.parametrize(
    ("text", "called"),
    [
        (f"{AUX}\n{CALL}", True),
        (f"```python\n{AUX}\n{CALL}\n```\n", True),
        (f"```python\n{AUX}\n```\n  {CALL}\n\n", True),
        (CALL, True),
        (AUX, False),
        (f"{CALL}\n{AUX}", False),
        (f"{AUX}  {CALL}", False),
        (f"{AUX}\n{CALL}s", False),
        ("", False),
    ],
)
def test_the_last_line_calls(text: str, called: bool) -> None:
    assert is_call(text) is called


def test_an_agent_is_told_of_the_program_of_all_that_was_written(executor: Executor) -> None:
    environment = CodingEnvironment(TOOL, lambda: executor)
    helper, main = ask(environment, f"{AUX}\n{CALL}", f"{MAIN}\n{CALL}")
    failure = "assert candidate([1, 2, 3]) == 4: got 6, expected 4"
    told = f"\nWrite it again, improved:\n- tests passed: 0 of 1\n- {failure}\n"
    assert helper.text == main.text == told
    helper, main = ask(environment, AUX, f"{MAIN}\n{CALL}")
    assert (helper, main.text) == (ToolResult(), told)
    right = "def aux(xs):\n    return [2 * x for x in xs if x % 2 == 0]"
    assert ask(environment, right, f"{MAIN}\n{CALL}")[1].text == "\nWrite it again, improved:\n- tests passed: 1 of 1\n"


def test_a_program_that_runs_on_is_stopped_and_the_agent_is_told(executor: Executor) -> None:
    environment = CodingEnvironment(TOOL, lambda: executor)
    _, main = ask(environment, AUX, f"{LOOP}\n{CALL}")
    assert main.text is not None and "tests passed: 0 of 1" in main.text and "timeout" in main.text
    assert not main.error


def test_what_is_missing_is_named_and_nothing_is_run() -> None:
    environment = CodingEnvironment(TOOL, Failing)
    helper, main = ask(environment, f"{AUX}\n{CALL}", f"def other():\n    return 1\n{CALL}")
    assert helper.text == "\nWrite it again, improved:\n- no test could run\n"
    assert main.text == "\nWrite it again, improved:\n- main is not defined\n- no test could run\n"
    untested = replace(PROBLEM, visible_tests="")
    assert "no test could run" in str(ask(environment, AUX, f"{MAIN}\n{CALL}", problem=untested)[1].text)


def test_no_hidden_test_and_no_text_of_another_agent_is_told() -> None:
    sandbox = Failing()
    environment = CodingEnvironment(TOOL, lambda: sandbox)
    results = ask(environment, f"{AUX}\n{CALL}", f"{MAIN}\n{CALL}")
    assert [(job.tests, job.shown) for job in sandbox.jobs] == [(PROBLEM.visible_tests, True)] * 2
    for result, other in zip(results, ("mains_name", "helpers_name"), strict=True):
        assert result.text is not None and other not in result.text
        assert not any(word in result.text for word in HIDDEN)


def test_a_sandbox_that_fails_is_no_result() -> None:
    class Lost(Failing):
        def run(self, jobs: Sequence[Job]) -> list[Verdict]:
            return [Verdict(job.id, Status.INFRA_ERROR, 0, 1, error="no worker") for job in jobs]

    assert ask(CodingEnvironment(TOOL, Lost), AUX, f"{MAIN}\n{CALL}")[1] == ToolResult(error="no worker")


def test_agents_know_of_the_tool_in_every_turn_and_without_it_nothing_is_added() -> None:
    for turns in (1, 2):
        settings = TOOL.model_copy(update={"turns": turns})
        environment = CodingEnvironment(settings, Failing)
        state = environment.start(PROBLEM)
        assert environment.observe(state, 1) == f"{PROBLEM.observations['main']}{INSTRUCTION}"
        assert (environment.tool_calls, environment.tool_tokens) == (1, 64)
    (outcome,) = environment.step([state], [(AUX, f"{MAIN}\n{CALL}")])
    assert environment.observe(outcome.state, 1).startswith(f"{PROBLEM.observations['main']}{INSTRUCTION}")
    plain = CodingEnvironment(CodingSettings(), Failing)
    assert plain.observe(plain.start(PROBLEM), 1) == PROBLEM.observations["main"] and plain.tool_calls == 0


def test_the_line_that_calls_changes_no_program(executor: Executor) -> None:
    environment = CodingEnvironment(TOOL, lambda: executor)
    state = environment.start(PROBLEM)
    plain, calling = environment.step([state, state], [(AUX, MAIN), (f"{AUX}\n{CALL}", f"{MAIN}\n{CALL}")])
    assert (plain.reward, plain.terms, plain.metrics) == (calling.reward, calling.terms, calling.metrics)


@pytest.fixture(scope="module")
def shown() -> list[Any]:
    problems = generate(GeneratedProblems(sizes=SplitSizes(train=64, validation=8, test=8)))["train"]
    return list(demonstrate_later(problems, 400, 0.2, 3, TOOL, make_sandbox))


def test_demonstrations_call_the_tool_and_answer_what_it_tells(shown: list[Any]) -> None:
    first = [d for d in shown if not d.calls]
    answers = [d for d in shown if d.calls]
    assert len(shown) == 400 and abs(len(first) - 200) < 40
    assert 0.6 < sum(is_call(d.action) for d in first) / len(first) < 0.9
    assert all(d.observation.endswith(INSTRUCTION) for d in shown)
    for d in answers:
        ((call, told),) = d.calls
        assert is_call(call) and not is_call(d.action) and told.startswith("\nWrite it again, improved:\n- ")
        if "tests passed: 2 of 2" in told:
            assert f"{d.action}\n{CALL}" == call
    assert 0 < sum("tests passed: 2 of 2" in d.calls[0][1] for d in answers) < len(answers)


def test_where_agents_may_call_again_further_drafts_are_followed_by_further_calls(executor: Executor) -> None:
    problems = generate(GeneratedProblems(sizes=SplitSizes(train=64, validation=8, test=8)))["train"]
    thrice = TOOL.model_copy(update={"tools": Tools(calls=3, tokens=64)})
    found = demonstrate_later(problems, 400, 0.2, 3, thrice, make_sandbox)
    assert found == demonstrate_later(problems, 400, 0.2, 3, thrice, make_sandbox) and len(found) == 400
    counts = Counter(len(d.calls) for d in found)
    assert sorted(counts) == [0, 1, 2, 3] and min(counts.values()) > 15, counts
    for d in found:
        assert all(is_call(call) for call, _ in d.calls)
        assert not any("tests passed: 2 of 2" in told for _, told in d.calls[:-1]), "who is done asks no further"
        if len(d.calls) == 3 or any("2 of 2" in told for _, told in d.calls):
            assert not is_call(d.action)
    again = [is_call(d.action) for d in found if len(d.calls) in (1, 2) and "2 of 2" not in d.calls[-1][1]]
    assert 0.6 < sum(again) / len(again) < 0.9
    played, checked = CodingEnvironment(thrice.model_copy(update={"team": "single"}), lambda: executor), 0
    known = {played.observe(played.start(problem), 0): problem for problem in problems}
    for d in found:
        if len(d.calls) == 3 and (problem := known.get(d.observation)):
            assert all(ask(played, call, problem=problem)[0].text == told for call, told in d.calls)
            checked += 1
    assert checked > 3


def test_demonstrations_of_feedback_and_of_the_tool_come_together() -> None:
    problems = generate(GeneratedProblems(sizes=SplitSizes(train=64, validation=8, test=8)))["train"]
    both = TOOL.model_copy(update={"turns": 2})
    found = demonstrate_later(problems, 60, 0.2, 3, both, make_sandbox)
    assert len(found) == 60
    later = [d for d in found if "Your code:" in d.observation]
    assert 5 < len(later) < 40 and any(d.calls for d in found)
    assert found == demonstrate_later(problems, 60, 0.2, 3, both, make_sandbox)


def test_a_demonstration_has_the_ids_that_are_played_and_trains_the_answer_only(shown: list[Any]) -> None:
    texts = [text for d in shown for text in (d.observation, d.action, *(told for _, told in d.calls))]
    tokenizer = train_tokenizer(texts, 512, 1024)
    policy = Policy("base", make_model(vocabulary=512), tokenizer)
    policy.model.config.max_position_embeddings = 1024
    d = next(d for d in shown if d.calls)
    ((ids, prompt),) = encode([d], policy)
    ((call, told),) = d.calls

    def plain(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    end = tokenizer.eos_token_id
    assert ids == [*policy.encode(d.observation), *plain(call), end, *plain(told)[:64], *plain(d.action), end]
    assert ids[prompt:] == [*plain(d.action), end]
    short = replace(d, tool_tokens=8)
    ((ids, prompt),) = encode([short], policy)
    assert ids[:prompt] == [*policy.encode(d.observation), *plain(call), end, *plain(told)[:8]]
    assert Demonstration("a", "b").calls == ()


TOOLS = {"kind": "coding", "tools": {}}
SERVER = {"url": "http://127.0.0.1:1", "model": "m"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"problems": {"visible_tests": 0}}, "environment.tools lets agents run visible tests"),
        ({"train": {"credit": {"kind": "cross"}}}, r"set train.credit \(cross\) to \{kind: aligned\}"),
        ({"train": {"advantage": {"baseline": "counterfactual"}}}, r"set train.advantage.baseline \(counterfactual\)"),
        ({"train": {"fidelity_every": 5}}, r"set train.fidelity_every \(5\) to 0"),
        ({"train": {"overlap": 2}}, r"set train.overlap \(2\) to 1"),
        (
            {
                "policy": {
                    "kind": "embedded",
                    "agents": {"helper": {"server": {"url": "http://127.0.0.1:1", "model": "m"}}},
                }
            },
            "agent helper is played by a server",
        ),
        ({"environment": {**TOOLS, "tools": {"calls": 0}}}, "greater than or equal to 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Params.model_validate({"environment": TOOLS, **settings})


def test_the_preset_and_the_single_agent_have_the_tool() -> None:
    params = compose({"environment": "coding-tools"}, Path(__file__).parents[2] / "conf")
    without = params.model_copy(update={"environment": params.environment.model_copy(update={"tools": None})})
    both = params.rollouts.max_new_tokens + params.environment.tools.tokens
    assert longest_prompt(params, ()) == longest_prompt(without, ()) + both
    assert params.environment.tools.calls == 1 and params.environment.turns == 1
    task = find("coding")
    assert task.single_agent(params.environment).tools == params.environment.tools
    assert task.has_later_turns(params)
