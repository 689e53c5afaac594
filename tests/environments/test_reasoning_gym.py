"""Datasets of reasoning-gym, as questions for teams and for one agent."""

import json
from pathlib import Path
from typing import Any

import pytest

import symposium
from pipeline_lib.audit.result import Status
from pipeline_lib.environments.reasoning_gym import (
    Question,
    ReasoningExaminer,
    ReasoningGame,
    ReasoningGymProblems,
    ReasoningGymSettings,
    ReasoningGymTask,
    agent_names,
    answer_of,
    common_head,
    score,
)
from pipeline_lib.problems.content import ProblemsError
from tests.needs import needs

TASK = ReasoningGymTask()
SUMS = {"min_terms": 3, "max_terms": 4, "max_digits": 1}


def questions(dataset: str = "chain_sum", count: int = 6, **settings: Any) -> list[Question]:
    sizes = {"train": count, "validation": 2, "test": 2}
    return list(TASK.make_problems(ReasoningGymProblems(dataset=dataset, sizes=sizes, **settings))["train"])


def made_up(question: str, head: int = 0, plain: bool = True) -> Question:
    return Question("chain_sum", "{}", 7, 10, 0, question, "7", head, plain)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("text", ["Sum: 4 + 3 - 1 =", "one", "two\nlines  here\n", "a b c d e f g h i"])
def test_parts_are_the_text_and_share_the_words(text: str, count: int):
    parts = made_up(text).parts(count)
    words = [len(part.split()) for part in parts]
    assert len(parts) == count and "".join(parts) == text and max(words) - min(words) <= 1


def test_the_head_is_what_all_questions_begin_with_in_whole_words():
    assert common_head(["Add these: 4 + 3", "Add these: 41 + 3", "Add these: 5"]) == len("Add these: ")
    assert common_head(["Sum of 12", "Sum of 13"]) == len("Sum of ") and common_head(["a", "b"]) == 0
    assert common_head(["the same", "the same"]) == 0  # something must be left to tell


def test_the_last_answer_in_tags_counts_and_without_tags_the_whole_text():
    assert answer_of("<answer>3</answer> no, <answer> 4\n</answer>.") == "4"
    assert answer_of(" 12 \n") == "12" and answer_of("<answer>9") == "<answer>9"


def test_equal_answers_are_equal_whatever_stands_around_them(monkeypatch):
    monkeypatch.setattr("pipeline_lib.environments.reasoning_gym.score", lambda question, answer: 1.0)
    game = ReasoningGame(ReasoningGymSettings(agents=1))
    states = [game.start(made_up("Sum: 4 + 3 ="))] * 3
    outcomes = game.step(states, [["so <answer> 7 </answer>"], ["7"], ["70"]])
    assert [outcome.details["answer"] for outcome in outcomes] == ["7", "7", "70"]


@needs("reasoning-gym")
def test_scores_are_those_of_the_package():
    import reasoning_gym

    drawn = questions(config=SUMS)
    dataset = reasoning_gym.create_dataset("chain_sum", seed=7, size=drawn[0].drawn, **SUMS)
    for question in drawn:
        entry = dataset[question.index]
        assert (question.question, question.answer) == (entry["question"], entry["answer"])
        for answer in (entry["answer"], "0", "so", "", "1,000", f"+{entry['answer']}.0", f"about {entry['answer']}"):
            assert score(question, answer) == dataset.score_answer(answer, entry)
    (coin, *_) = questions("coin_flip", 1)  # it reads answers as fractions
    for huge in ("1e99999999", "1e9_9_9_9_9_9_9_9", "1E+999_99999"):
        assert score(drawn[0], huge) == score(coin, huge) == 0.0


@needs("reasoning-gym")
@pytest.mark.parametrize("dataset", ["chain_sum", "letter_counting", "gcd", "spell_backward", "leg_counting", "maze"])
@pytest.mark.parametrize("agents", [1, 2, 4])
def test_a_team_that_hands_its_parts_on_can_answer(dataset: str, agents: int):
    game = ReasoningGame(ReasoningGymSettings(agents=agents, note_words=10_000))
    for question in questions(dataset, prompt="plain"):
        state = game.start(question)
        told = [game.observe(state, agent) for agent in range(agents)]
        for part, prompt in zip(question.parts(agents), told, strict=True):
            assert part.strip() in prompt and question.question[: question.head] in prompt
        if agents > 1:
            assert list(game.acting(state)) == list(range(agents - 1))
            notes = [game.right_part(state, agent) for agent in range(agents)]
            (outcome,) = game.step([state], [notes])
            assert (outcome.reward, outcome.done) == (0.0, False)
            state = outcome.state
            for part in question.parts(agents):
                assert " ".join(part.split()) in " ".join(game.observe(state, agents - 1).split())
        assert list(game.acting(state)) == [agents - 1]
        right, wrong = game.step([state] * 2, [[""] * (agents - 1) + [text] for text in (question.answer, "")])
        assert (right.reward, right.metrics["question_solved"], right.done) == (1.0, 1.0, True)
        assert (wrong.reward, wrong.metrics["question_solved"], wrong.done) == (0.0, 0.0, True)


@needs("reasoning-gym")
def test_a_note_is_read_up_to_its_most_words():
    game = ReasoningGame(ReasoningGymSettings(note_words=3))
    (outcome,) = game.step([game.start(questions()[0])], [["one two three four", ""]])
    read = game.observe(outcome.state, 1)
    assert "one two three" in read and "four" not in read and outcome.metrics["note_words"] == 3


@needs("reasoning-gym")
@pytest.mark.parametrize("agents", [1, 2, 3])
@pytest.mark.parametrize("partial", [False, True])
def test_the_audit_accepts_the_reward(partial: bool, agents: int):
    game = ReasoningGame(ReasoningGymSettings(agents=agents, partial=partial))
    rungs, checks = ReasoningExaminer().examine(game, questions(count=24, config=SUMS), 0, lambda *_: None)
    assert not [check for check in checks if check.status is Status.FAIL]
    assert {rung.name: rung.reward for rung in rungs}["reference"] == 1.0


@needs("reasoning-gym")
def test_only_with_partial_is_an_answer_paid_that_mentions_the_right_one():
    question = questions(config=SUMS)[0]
    said = [["", f"It is {question.answer} or so"]]
    for partial, paid in ((False, 0.0), (True, len(question.answer) / len(said[0][1]))):
        game = ReasoningGame(ReasoningGymSettings(partial=partial))
        (noted,) = game.step([game.start(question)], [["", ""]])
        assert game.step([noted.state], said)[0].reward == pytest.approx(paid)


@needs("reasoning-gym")
@pytest.mark.parametrize("dataset", ["countdown", "polynomial_multiplication", "codeio", "puzzle24"])
def test_a_dataset_that_runs_answers_as_code_is_refused(dataset: str, tmp_path: Path):
    """For one of them the attack, which works in the package itself, is made."""
    if dataset == "countdown":
        import reasoning_gym

        gym = reasoning_gym.create_dataset(dataset, seed=1, size=1)
        gym.score_answer(f"__import__('pathlib').Path({str(tmp_path / 'here')!r}).touch()", gym[0])
        assert (tmp_path / "here").exists()
    with pytest.raises(ProblemsError, match=f"{dataset} is not played, since its code contains"):
        questions(dataset)


@needs("reasoning-gym")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dataset": "chain_sums"}, "problems.dataset: reasoning-gym has no 'chain_sums'; it has .*chain_sum"),
        (
            {"dataset": "composite", "config": {"datasets": [{"name": "countdown", "weight": 1}]}},
            "composite is not played",
        ),
        ({"dataset": "leg_counting", "config": {"min_animals": "many"}}, "problems.config: leg_counting does not take"),
        ({"config": {"terms": 3}}, "problems.config: chain_sum does not take .*terms"),
        ({"config": {"min_terms": 9, "max_terms": 2}}, "problems.config: chain_sum does not take .*max_terms"),
        (
            {"count": 300, "config": {"min_terms": 2, "max_terms": 2, "max_digits": 1}},
            "gave 200 different questions, and 304 are",
        ),
    ],
)
def test_what_cannot_be_made_is_told_in_words(settings: dict[str, Any], said: str):
    with pytest.raises(ProblemsError, match=said):
        questions(**settings)


@needs("reasoning-gym")
def test_questions_that_the_package_scores_as_wrong_or_makes_anew_are_refused():
    with pytest.raises(ProblemsError, match="does not score its own answer as right for 6 of 6 questions"):
        TASK.check_problems(questions("rush_hour"), lambda: None)
    row = questions()[0].to_json()
    assert TASK.read_problem(json.loads(json.dumps(row))) == questions()[0]
    with pytest.raises(ProblemsError, match="makes another question there; prepare the problems again"):
        score(TASK.read_problem({**row, "question": "What is 1?"}), "1")


def test_agents_have_names():
    named = [agent_names(ReasoningGymSettings(agents=count)) for count in (1, 2, 3)]
    assert named == [("solver",), ("reader", "solver"), ("reader1", "reader2", "solver")]


@needs("reasoning-gym")
def test_a_team_trains_on_it(tmp_path: Path):
    experiment = symposium.Experiment(
        tmp_path,
        {"kind": "reasoning_gym"},
        problems={"config": SUMS, "sizes": {"train": 64, "validation": 8, "test": 8}},
        policy={"hidden_size": 32, "mlp_size": 64, "warm_start": {"steps": 40, "batch": 16}},
        rollouts={"max_new_tokens": 12},
        audit={"problems": 8, "group_size": 4, "override": "a team as small as this solves nothing yet"},
        train={"steps": 2, "problems_per_step": 4, "group_size": 4, "checkpoint_every": 2},
        evaluate={"baselines": [], "validation": {"samples": 2}},
    )
    checkpoints = symposium.sweep(symposium.train(experiment))
    assert set(checkpoints.base.means) >= {"reward", "question_solved", "silent_readers"}
    assert len(checkpoints.base.episodes) == 16
