"""The tool: agents look names up in their own documents, against a plain search; and who is shown its use."""

import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from pipeline_lib.audit.result import Status
from pipeline_lib.audit.run import audit
from pipeline_lib.environment_api.environment import ToolCall, ToolResult
from pipeline_lib.environment_api.registry import find
from pipeline_lib.environments.documents.demonstrations import demonstrate, right_answer
from pipeline_lib.environments.documents.problem import AGENTS, ENTITIES, RELATIONS, SINGLE, DocumentsProblem, Fact
from pipeline_lib.environments.documents.reading import looked_up
from pipeline_lib.environments.documents.runtime import DocumentsEnvironment, DocumentsState
from pipeline_lib.environments.documents.settings import DocumentsSettings, SoundDocumentsReward
from pipeline_lib.play import Player, groups
from pipeline_lib.policies.embedded import train_tokenizer
from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.rollouts.engine import Action, Request, Sampling
from pipeline_lib.settings import load_params
from pipeline_lib.settings.environment import Tools
from pipeline_lib.settings.load import SettingsError
from tasks.use.playing import play
from tasks.use.showing import TerminalShow
from tests.environments.documents.help import questions
from tests.play.engines import Scripted
from tests.training.conftest import make_model

ROOT = Path(__file__).parents[3]
NAMES = [name for names in ENTITIES.values() for name in names]


def environment(team: str = "team", calls: int = 3, **given: object) -> DocumentsEnvironment:
    return DocumentsEnvironment(DocumentsSettings(team=team, tools=Tools(calls=calls, tokens=64), **given))


def ask(played: DocumentsEnvironment, state: DocumentsState, agent: int, text: str) -> ToolResult:
    texts = ["find acme"] * len(played.agents(state.problem))
    texts[agent] = text
    [result] = played.use_tools([ToolCall(state, agent, tuple(texts))])
    return result


def search(problem: DocumentsProblem, agents: Sequence[int], name: str) -> list[str]:
    """Return the lines of the agents' documents that a name stands in, found letter by letter."""
    lines: dict[str, list[str]] = {}
    for fact in problem.facts:
        if fact.holder in agents and re.search(rf"\b{name}\b", fact.text):
            lines.setdefault(fact.title, []).append(fact.text)
    return [f" {'; '.join(own)}" for own in lines.values()] or [" nothing"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("find anna", "anna"),
        (" Find  Anna.\n", "anna"),
        ('who has it?\nfind "Eiffel Tower"', "eiffel tower"),
        ("anna boss carl; find carl;", "carl"),
        ("answer rome; find carl", "carl"),
        ("find carl; answer rome", ""),
        ("please find carl", ""),
        ("finds carl", ""),
        ("find", ""),
        ("find ;", ""),
        ("", ""),
        ("-", ""),
    ],
)
def test_the_last_statement_calls(text: str, name: str) -> None:
    assert looked_up(text) == name


@pytest.mark.parametrize("agents", [2, 4])
def test_every_agent_finds_what_its_own_documents_say_and_no_others(agents: int) -> None:
    played, found = environment(), Counter[int]()
    relations = {name for own in RELATIONS.values() for name in own}
    for problem in questions(agents)["test"]:
        state = played.start(problem)
        names = [*NAMES, *relations, *(" ".join(fact.text.split()[:2]) for fact in problem.facts)]
        for agent, who in enumerate(AGENTS[:agents]):
            for name in names:
                lines = search(problem, [agent], name)
                result = ask(played, state, agent, f" find {name}")
                assert result == ToolResult("\n".join(["", f"{who} finds", *lines, f"{who}:"]))
                found[len(lines) - (lines == [" nothing"])] += 1
        assert ask(played, state, 0, right_answer(problem)) == ToolResult()
    assert found[0] > 100 and found[1] > 100 and found[2] > 10


def test_one_agent_finds_what_all_documents_say() -> None:
    played = environment(SINGLE)
    for problem in questions()["test"]:
        for name in NAMES:
            lines = search(problem, range(problem.agents), name)
            assert ask(played, played.start(problem), 0, f"find {name}").text == "\n".join(
                ["", "single finds", *lines, "single:"]
            )


def test_agents_see_the_titles_of_their_own_documents_only_and_without_the_tool_the_documents() -> None:
    for team, who in (("team", 1), (SINGLE, 0)):
        for problem in questions()["test"]:
            played, without = environment(team), DocumentsEnvironment(DocumentsSettings(team=team))
            state = played.start(problem)
            own = [fact for fact in problem.facts if team == SINGLE or fact.holder == who]
            titles = "; ".join(dict.fromkeys(fact.title for fact in own))
            seen = played.observe(state, who).splitlines()
            assert seen[0] == f"{played.agents(problem)[who]} can find {titles}"
            assert not any(fact.text in "\n".join(seen) for fact in problem.facts)
            assert all(fact.text in without.observe(without.start(problem), who) for fact in own)
            assert (played.tool_calls, played.tool_tokens, without.tool_calls) == (3, 64, 0)


def test_published_sentences_are_found_by_their_title_or_by_what_they_say() -> None:
    facts = (
        Fact("Eiffel Tower 1", "It is in Paris.", "Eiffel Tower", 0),
        Fact("Eiffel Tower 2", "Gustave Eiffel built it.", "Eiffel Tower", 0),
        Fact("York 1", "York is old.", "York", 1),
    )
    problem = DocumentsProblem("q", "hotpotqa", "q", "Where?", "Paris", 2, facts, (0, 2), plain=True)
    played = environment()
    state = played.start(problem)
    seen = played.observe(state, 0)
    assert "end your text with: find Eiffel Tower" in seen and "asker can find Eiffel Tower\n" in seen
    both = "\nasker finds\n Eiffel Tower 1: It is in Paris.\n Eiffel Tower 2: Gustave Eiffel built it.\nasker:"
    assert ask(played, state, 0, "find Eiffel Tower").text == both
    assert (
        ask(played, state, 0, "find gustave eiffel").text
        == f"\nasker finds\n {facts[1].label}: {facts[1].text}\nasker:"
    )
    assert ask(played, state, 0, "find York").text == "\nasker finds\n nothing\nasker:"
    plain = DocumentsEnvironment(DocumentsSettings())
    assert "find" not in plain.observe(plain.start(problem), 0)


class Script(Scripted):
    def __init__(self, policy: Policy, texts: Sequence[str]) -> None:
        super().__init__()
        self.policy, self.texts = policy, list(texts)

    def actions(self, request: Request) -> list[Action]:
        text = self.texts.pop(0)
        ids = (*self.policy.tokenizer(text, add_special_tokens=False)["input_ids"], self.policy.tokenizer.eos_token_id)
        return [Action(ids, (-0.5,) * len(ids), text, "stop")]


def test_playing_shows_what_is_looked_up_and_only_what_is_said_after_it_is_paid_for() -> None:
    problem = next(p for p in questions(2, (1,))["test"])
    played, fact = environment(calls=1), problem.facts[problem.support[0]]
    shown = demonstrate(questions(2, (1,))["train"], 200, 0.0, 0, Tools(calls=1, tokens=64))
    tokenizer = train_tokenizer([t for d in shown for t in (d.observation, d.action, *sum(d.calls, ()))], 600, 256)
    policy = Policy("team", make_model(vocabulary=len(tokenizer)), tokenizer)
    asks, useless, finds, tells, answers = (
        f" {text}" for text in (problem.question, "find dora", f"find {fact.title}", fact.text, right_answer(problem))
    )
    # Asker and holder; the holder again; asker and holder; the holder again; the answer, and silence.
    engine = Script(policy, script := [asks, useless, "", "", finds, tells, answers, ""])
    player = Player(played, Team({"team": policy}, {}), engine, Sampling(max_new_tokens=16))
    out = io.StringIO()
    show = TerminalShow(Console(file=out, width=100), {})
    episode = play(player, "team", problem, 0, show)
    assert [[(one.agent, one.text, one.tool) for one in turn.said] for turn in episode.turns] == [
        [("asker", asks, False), ("first", useless, False), ("first", "", True)],
        [("asker", "", False), ("first", finds, False), ("first", tells, True)],
        [("asker", answers, False), ("first", "", False)],
    ]
    lines = [line.strip("─ ") for line in out.getvalue().splitlines()]
    assert lines[lines.index("A tool answers first (turn 2)") :][2:4] == [
        "first finds",
        search(problem, [1], fact.title)[0].strip(),
    ]
    engine.texts = list(script)
    decisions = player.play(groups([problem], 1, 0)).decisions
    assert [decision.tool_calls for decision in decisions] == [1, 1, 0]
    assert decisions[-1].metrics["all_proven"] == 1.0
    assert decisions[-1].metrics["message_tokens"] == len(asks.split()) + 1 + len(tells.split()), "a mark, too"


def test_demonstrations_look_up_what_they_say_of_their_own_documents() -> None:
    problems, tools = questions()["train"], Tools(calls=3, tokens=64)
    played = {team: environment(team) for team in ("team", SINGLE)}
    shown = demonstrate(problems, 1500, 0.0, 1, tools)
    assert shown == demonstrate(problems, 1500, 0.0, 1, tools)
    starts = {
        each.observe(each.start(problem), agent): (each, problem, agent)
        for each in played.values()
        for problem in problems
        for agent in range(len(each.agents(problem)))
    }
    counts = Counter[str]()
    for each in shown:
        assert each.tool_tokens == 64 and len(each.calls) <= 3
        read = "\n".join(result for _, result in each.calls)
        name, said = each.observation.split()[0], each.action.strip()
        counts[f"{name} {len(each.calls)}{'' if looked_up(said) else ' says'}"] += 1
        if each.observation in starts:  # of a first turn the world is known
            by, problem, agent = starts[each.observation]
            state = by.start(problem)
            assert all(ask(by, state, agent, call) == ToolResult(result) for call, result in each.calls)
        if not looked_up(said):
            heard = each.observation + read
            facts = [
                statement for statement in said.split("; ") if len(statement.split()) == 3 and "?" not in statement
            ]
            assert all(fact in heard for fact in facts), each
        elif "finds" not in read:
            assert looked_up(said) in each.observation
    assert min(counts[f"single {number} says"] for number in (1, 2, 3)) > 10
    assert min(counts[name] for name in ("asker 1 says", "first 1 says", "first 0 says", "single 2", "first 0")) > 20
    mistaken = demonstrate(problems, 1500, 0.5, 1, tools)
    assert sum(any("nothing" in result for _, result in each.calls) for each in mistaken) > 20


def test_published_documents_are_demonstrated_by_worlds_with_no_more_hops_than_calls() -> None:
    facts = tuple(Fact(f"T{n} 1", f"s{n}", f"T{n}", n) for n in range(2))
    problem = DocumentsProblem("q", "hotpotqa", "q", "Where?", "Paris", 2, facts, (0, 1), plain=True)
    shown = demonstrate([problem], 300, 0.0, 0, Tools(calls=1, tokens=64))
    answers = [each for each in shown if "answer" in each.action and each.observation.count("single")]
    assert answers and all(each.action.count(";") == 1 for each in answers)
    assert all("Of your documents you see the titles." in each.observation for each in shown)


def params_of(folder: Path, text: str):
    (folder / "params.yaml").write_text(text)
    return load_params(folder / "params.yaml", ROOT / "conf")


def test_the_preset_asks_for_demonstrations_of_the_tool_and_too_few_calls_are_refused(tmp_path: Path) -> None:
    params = params_of(tmp_path, "environment: documents-tools\n")
    task = find("documents")
    assert (params.environment.kind, params.environment.tools) == ("documents", Tools(calls=1, tokens=64))
    assert task.has_later_turns(params) and task.single_agent(params.environment).tools == params.environment.tools
    problems = questions(2, (1,))["train"]
    later = task.demonstrate_later(problems, 40, 0.2, 0, params.environment, list)
    assert len(later) == 40 and any(each.calls for each in later)
    assert not task.has_later_turns(params_of(tmp_path, "environment: documents\n"))
    with pytest.raises(
        SettingsError, match=r"tools.calls \(1\) is fewer than the facts .* set it to 2, or problems.hops"
    ):
        params_of(tmp_path, "environment: documents-tools\nproblems: {hops: [1, 2]}\n")
    params_of(tmp_path, "environment: {preset: documents-tools, tools: {calls: 2}}\nproblems: {hops: [1, 2]}\n")


@pytest.mark.parametrize("team", ["team", SINGLE])
def test_the_sound_reward_passes_with_the_tool(team: str) -> None:
    settings = DocumentsSettings(team=team, reward=SoundDocumentsReward(), tools=Tools(calls=2))
    found = audit(settings, DocumentsEnvironment(settings), questions(3, (1, 2))["test"])
    assert found.status is Status.PASS, found.summary
    rewards = {rung.name: rung.reward for rung in found.ladder}
    assert rewards["looks_up_and_says_nothing"] < rewards["silent"]
