"""The writers as the chain knows them: settings, demonstrations, presets."""

from collections import Counter
from pathlib import Path

import pytest

from pipeline_lib.environment_api.registry import find
from pipeline_lib.environments.writing.demonstrations import FLAWS, demonstrate
from pipeline_lib.environments.writing.problem import PAIR
from pipeline_lib.environments.writing.reading import split_sentences
from pipeline_lib.protocols import TurnInput, make_protocol
from pipeline_lib.settings import load_params
from pipeline_lib.settings.load import SettingsError
from tests.environments.writing.help import problems, work, world_of

ROOT = Path(__file__).parents[3]


def params_of(folder: Path, text: str):
    (folder / "params.yaml").write_text(text)
    return load_params(folder / "params.yaml", ROOT / "conf")


@pytest.mark.parametrize(
    ("preset", "given", "task", "reward"),
    [
        ("writing", "", "summary", "sound"),
        ("writing", "problems: {task: introduction}\n", "introduction", "sound"),
        ("{preset: writing, reward: {kind: paper}}", "", "summary", "paper"),
    ],
)
def test_a_preset_brings_everything_that_goes_with_it(tmp_path: Path, preset: str, given: str, task: str, reward: str):
    params = params_of(tmp_path, f"environment: {preset}\n{given}")
    assert (params.environment.kind, params.problems.task, params.environment.reward.kind) == ("writing", task, reward)
    assert params.evaluate.metric == "coverage" and params.policy.vocabulary == 1024
    assert [guard.metric for guard in params.evaluate.guards] == ["inventions", "complete"]


@pytest.mark.parametrize("task", ["summary", "introduction"])
def test_every_arm_has_as_many_tokens_as_the_longest_text_that_is_asked_for(tmp_path: Path, task: str):
    """A token for each word and each full stop, and one for the end; a fact takes a sentence of its own."""
    most = params_of(tmp_path, "environment: writing\n").rollouts.max_new_tokens
    longest = max(problems(task)[0].limits.first[1], problems(task)[0].limits.second[1])
    facts = max(len(part) for part in problems(task)[0].parts)
    assert longest + facts + 1 <= most < 2 * longest


def test_settings_that_do_not_go_together_are_refused(tmp_path: Path):
    text = "environment: {kind: writing}\nproblems: {sizes: {train: 8}}\ntrain: {problems_per_step: 32}\n"
    with pytest.raises(SettingsError, match=r"train.problems_per_step \(32\) is more than problems.sizes.train \(8\)"):
        params_of(tmp_path, text)
    with pytest.raises(SettingsError, match="leave no problem to train on"):
        params_of(tmp_path, "environment: {kind: writing}\nproblems: {kind: tldr, validation: 0.5, test: 0.5}\n")
    with pytest.raises(SettingsError, match=r"environment\.reward"):
        params_of(tmp_path, "environment: {kind: writing, reward: {kind: paper, variant: newest}}\n")


def test_the_task_says_what_makes_no_sense_and_where_its_reward_is(tmp_path: Path):
    task = find("writing")
    pair = params_of(tmp_path, "environment: writing\n").environment
    single = task.single_agent(pair)
    assert single.team == "single" and pair.team == "pair"
    assert "no other agents to read" in task.unsuitable("one_round_discussion", single)
    assert "turns 1" in task.unsuitable("naive_concatenation", pair) and task.notes(pair)
    assert not task.unsuitable("naive_concatenation", pair.model_copy(update={"turns": 2}))
    assert task.reward_code(pair) == "pipeline_lib.environments.writing.runtime:WritingEnvironment"
    own = params_of(tmp_path, "environment: {kind: writing, reward: {kind: custom, path: 'a.b:C'}}\n").environment
    assert task.reward_code(own) == "a.b:C"


@pytest.mark.parametrize("task", ["summary", "introduction"])
def test_demonstrations_have_gaps_inventions_copies_and_no_agreement(task: str):
    found = demonstrate(problems(task), 3000, mistakes=0.5, seed=3)
    assert found == demonstrate(problems(task), 3000, mistakes=0.5, seed=3) != demonstrate(problems(task), 3000, 0.5, 4)
    by_observation = {text: (p, role) for p in problems(task) for role, text in p.observations.items()}
    kinds: Counter[str] = Counter()
    for each in found:
        shown = each.observation.split("\n\n")[0]
        problem, role = by_observation[f"{shown.rstrip()}\n"]
        kinds["quoted"] += "wrote:" in each.observation
        assert role == each.role
        parts = each.action.split("\n\n") if role == "single" else [each.action]
        texts = parts if role == "single" else ["", parts[0]] if role == "second" else [parts[0], ""]
        reading = work(problem, *texts).reading
        if not each.flawed:
            assert reading.inventions == reading.copied == 0.0
            kinds["whole"] += reading.coverage == 1.0
        kinds["flawed"] += each.flawed
        kinds["invented"] += reading.inventions > 0
        kinds["copied"] += reading.copied > 0
        kinds["single"] += role == "single"
        statements = [world_of(problem).read(s) for text in parts for s in split_sentences(text)]
        kinds["past"] += any(s is not None and s.tense == "past" for s in statements)
    assert 0.45 < kinds["flawed"] / 3000 < 0.55 and sum(FLAWS.values()) == pytest.approx(1.0)
    assert kinds["invented"] > 150 and kinds["copied"] > 150
    assert 0.12 < kinds["quoted"] / 3000 < 0.18, "a fifth of three quarters"
    assert kinds["whole"] > 200, "a single agent that is not flawed tells everything"
    assert 0.4 < kinds["past"] / 3000 < 0.75


@pytest.mark.parametrize("protocol", ["sequential_pipeline", "one_round_discussion"])
def test_text_is_quoted_as_protocols_quote_it_and_heeded(protocol: str):
    """The prompts of a protocol in which everybody writes what a demonstration quotes are those demonstrated."""
    checked = 0
    for each in demonstrate(problems("summary"), 1500, mistakes=0.0, seed=5):
        if "wrote:" not in each.observation or ("You wrote:" in each.observation) != ("discussion" in protocol):
            continue
        first, *quoted = each.observation.split("\n\n")
        said = dict(part.split(":\n", 1) for part in quoted[:-1])
        problem = next(p for p in problems("summary") if p.observations[each.role] == f"{first.rstrip()}\n")
        place = PAIR.index(each.role)
        theirs = said[f"{PAIR[1 - place]} wrote"]
        texts = {place: said.get("You wrote", ""), 1 - place: theirs}
        prompts: list[str] = []

        def speak(asks, prompts=prompts, texts=texts, place=place):
            prompts += [ask.prompt for ask in asks if ask.agent == place]
            return [texts[ask.agent] for ask in asks]

        seat = TurnInput(PAIR, (0, 1), tuple(problem.observations[role] for role in PAIR))
        make_protocol(protocol).act([seat], speak)
        assert prompts[-1] == each.observation
        told = work(problem, *((each.action, theirs) if place == 0 else (theirs, each.action))).reading
        assert (told.coverage, told.repeated, told.inventions) == (1.0, 0.0, 0.0), "both heed what was read"
        assert told.style == 1.0
        checked += 1
    assert checked > 50


def test_nothing_to_demonstrate_is_an_answer_in_words():
    with pytest.raises(ValueError, match="no texts to demonstrate"):
        demonstrate([], 3, 0.0, 0)
