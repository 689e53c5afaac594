"""The documents as the chain knows them: the preset, demonstrations, and what is refused."""

from collections import Counter
from pathlib import Path

import pytest

from pipeline_lib.environment_api.registry import find
from pipeline_lib.environments.documents.demonstrations import demonstrate
from pipeline_lib.environments.documents.runtime import DocumentsEnvironment
from pipeline_lib.environments.documents.settings import DocumentsSettings
from pipeline_lib.settings import load_params
from pipeline_lib.settings.load import SettingsError
from tests.environments.documents.help import questions

ROOT = Path(__file__).parents[3]


def params_of(folder: Path, text: str):
    (folder / "params.yaml").write_text(text)
    return load_params(folder / "params.yaml", ROOT / "conf")


def test_the_preset_brings_everything_that_goes_with_it(tmp_path: Path) -> None:
    params = params_of(tmp_path, "environment: documents\nproblems: {agents: 4, hops: [3]}\n")
    task = find("documents")
    assert (params.problems.kind, params.evaluate.metric, params.train.groups) == ("worlds", "proven", "episodes")
    assert params.evaluate.baselines == () and [guard.metric for guard in params.evaluate.guards] == ["answered"]
    assert task.agent_names(params) == ("asker", "first", "second", "third") and task.most_turns(params) == 6
    single = params.model_copy(update={"environment": task.single_agent(params.environment)})
    assert task.agent_names(single) == ("single",) and task.most_turns(single) == 1
    assert task.reward_code(params.environment) == "pipeline_lib.environments.documents.runtime:DocumentsEnvironment"
    names = {name for problem in questions(4)["test"] for name in task.make(params.environment, list).agents(problem)}
    assert names == set(task.agent_names(params))


def test_what_cannot_be_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="read each other's messages already"):
        params_of(tmp_path, "environment: documents\nevaluate: {baselines: [one_round_discussion]}\n")
    with pytest.raises(SettingsError, match=r"train.problems_per_step \(16\) is more than problems.sizes.train \(8\)"):
        params_of(tmp_path, "environment: documents\nproblems: {sizes: {train: 8}}\n")
    with pytest.raises(ValueError, match="no questions to demonstrate"):
        demonstrate([], 3, 0.0, 0)


def test_demonstrations_are_what_agents_see_and_mostly_right() -> None:
    problems = questions()["train"]
    found = demonstrate(problems, 2000, 0.5, seed=3)
    assert found == demonstrate(problems, 2000, 0.5, seed=3) != demonstrate(problems, 2000, 0.5, seed=4)
    said: Counter[str] = Counter()
    for each in found:
        name = each.observation.split()[0]
        assert each.observation.endswith(f"\n{name}:") and (not each.action or each.action[0] == " ")
        kind = "answer" if "answer" in each.action else "question" if "?" in each.action else "fact"
        said[f"{name} {kind if each.action else 'silence'}"] += 1
    usual = ("single answer", "asker answer", "asker question", "asker silence", "first fact", "second silence")
    assert all(said[name] > 100 for name in usual), said
    assert not any(said[f"{holder} answer"] for holder in ("first", "second"))


@pytest.mark.parametrize("prompt", ["compact", "plain"])
def test_the_first_prompts_of_demonstrations_are_those_of_the_task(prompt: str) -> None:
    problems = questions()["test"]
    if prompt == "plain":
        problems = [type(each).from_json({**each.to_json(), "plain": True}) for each in problems]
    known = set(find("documents").prompts(problems))
    shown = [each.observation for each in demonstrate(problems, 300, 0.3, seed=1)]
    assert sum("turn 1\n" in text for text in shown) > 60
    assert all(text in known for text in shown if "turn 1\n" in text)
    assert all(("a price" in text) == (prompt == "plain") for text in known if not text.endswith("single:"))


def test_demonstrations_without_mistakes_prove_their_answers() -> None:
    problems = questions()["train"]
    alone = DocumentsEnvironment(DocumentsSettings(team="single"))
    by_prompt = {alone.observe(alone.start(problem), 0): problem for problem in problems}
    checked = 0
    for each in demonstrate(problems, 800, 0.0, seed=2):
        if each.observation in by_prompt:
            problem = by_prompt[each.observation]
            [outcome] = alone.step([alone.start(problem)], [[each.action]])
            assert outcome.metrics["all_proven"] == 1.0
            checked += 1
    assert checked > 80
