"""HotpotQA and 2WikiMultihopQA in their published fields: their documents are dealt out."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.environment_api.registry import find
from pipeline_lib.environments.documents.demonstrations import demonstrate, right_answer
from pipeline_lib.environments.documents.problem import DocumentsProblem
from pipeline_lib.environments.documents.published import read_dataset
from pipeline_lib.environments.documents.reading import told
from pipeline_lib.environments.documents.runtime import DocumentsEnvironment
from pipeline_lib.environments.documents.settings import DocumentsSettings, PublishedDocuments
from pipeline_lib.problems.content import ProblemsError


def row(number: int, form: str) -> dict[str, Any]:
    """Return a question about two of four documents: as pairs, as first published, as columns, or as JSON in texts."""
    context = [[f"Film {number}", [f"Film {number} is a film.", f" It was made by Ann {number}."]]]
    context += [[f"Ann {number}", [f"Ann {number} was born in Rome.", "She has a cat."]]]
    context += [[f"Bob {number}-{each}", [f"Bob {each} was born in Oslo."]] for each in range(4)]
    support = [[f"Film {number}", 1], [f"Ann {number}", 0]]
    fields: dict[str, Any] = {"context": context, "supporting_facts": support}
    if form == "columns":
        columns = {"context": ("title", "sentences"), "supporting_facts": ("title", "sent_id")}
        fields = {
            name: {both[at]: [pair[at] for pair in fields[name]] for at in (0, 1)} for name, both in columns.items()
        }
    if form == "json":
        fields = {name: json.dumps(value) for name, value in fields.items()}
    key = {"id": f"q{number}"} if form == "columns" else {"_id": f"q{number}"}
    return {**key, "question": f"Where was the maker of Film {number} born?", "answer": "Rome", **fields}


def settings_of(folder: Path, rows: list[dict[str, Any]], **given: Any) -> PublishedDocuments:
    path = folder / "rows.json"
    path.write_text(json.dumps(rows))
    return PublishedDocuments(**{"kind": "hotpotqa", "source": str(path), **given})


def read(folder: Path, rows: list[dict[str, Any]], **given: Any) -> Any:
    return find("documents").make_problems(settings_of(folder, rows, **given))


def usable(folder: Path, rows: list[dict[str, Any]], **given: Any) -> list[DocumentsProblem]:
    return [problem for problem, _ in read_dataset(settings_of(folder, rows, **given))]


@pytest.mark.parametrize("form", ["pairs", "columns", "json"])
@pytest.mark.parametrize("agents", [2, 3])
def test_all_published_forms_are_dealt_out_so_that_nobody_has_all_that_is_needed(
    tmp_path: Path, form: str, agents: int
) -> None:
    kind = "2wikimultihop" if form == "json" else "hotpotqa"
    found = read(tmp_path, [row(number, form) for number in range(12)], kind=kind, agents=agents, documents=5)
    problems = [problem for split in found.values() for problem in split]
    assert len(problems) == 12 and all(found.values())
    for problem in problems:
        assert problem.id == f"{kind}/q{problem.question.split()[6]}" and problem.plain and not problem.path
        number = problem.question.split()[6]
        wanted = {f"Film {number} 2", f"Ann {number} 1"}
        assert {problem.facts[each].label for each in problem.support} == wanted
        assert len({problem.facts[each].holder for each in problem.support}) == 2
        dealt = [len(problem.documents(problem.held(agent))) for agent in range(agents)]
        assert sum(dealt) == 5 and max(dealt) - min(dealt) <= 1
        assert problem == type(problem).from_json(json.loads(json.dumps(problem.to_json())))


def test_support_is_named_by_title_and_number_and_read_where_it_is_quoted_or_named(tmp_path: Path) -> None:
    problem = read(tmp_path, [row(number, "pairs") for number in range(12)])["train"][0]
    played = DocumentsEnvironment(DocumentsSettings())
    state = played.start(problem)
    holder = next(problem.facts[number] for number in problem.support if problem.facts[number].holder == 1)
    assert f" {holder.label}: {holder.text}\n" in played.observe(state, 1) and "only asker" in played.observe(state, 1)
    for message in (f"I read: {holder.text}", f"See {holder.label}."):
        [outcome] = played.step([state], [["who made it?", message]])
        assert outcome.metrics["useless_talk"] == 0.0
        [outcome] = played.step([outcome.state], [[right_answer(problem).replace("Rome", "the rome."), ""]])
        assert outcome.metrics["all_proven"] == 1.0
    [outcome] = played.step([state], [[f"{right_answer(problem)}; Nobody 3", ""]])
    assert outcome.metrics["not_read"] == outcome.metrics["invented"] == pytest.approx(1 / 3)
    assert outcome.metrics["right_answer"] == 1.0 and outcome.metrics["support_share"] == pytest.approx(1 / 3)


def test_questions_that_need_one_document_are_left_out_and_other_forms_refused(tmp_path: Path) -> None:
    alone = {**row(0, "pairs"), "supporting_facts": [["Ann 0", 0], ["Ann 0", 1], ["Nobody", 0], ["Film 0", 9]]}
    found = read(tmp_path, [alone, *(row(number, "pairs") for number in range(1, 8))])
    assert sum(map(len, found.values())) == 7
    with pytest.raises(ProblemsError, match="none of its questions can be used"):
        read(tmp_path, [alone])
    for wrong in ("Ann", [["Ann"]], {"title": ["Ann"]}, [["Ann", "0"]], None):
        with pytest.raises(ProblemsError, match="the field supporting_facts must hold titles"):
            read(tmp_path, [{**row(0, "pairs"), "supporting_facts": wrong}])


def test_published_documents_are_demonstrated_by_generated_worlds_in_plain_english(tmp_path: Path) -> None:
    problems = read(tmp_path, [row(number, "pairs") for number in range(12)])["train"]
    shown = demonstrate(problems, 40, 0.2, seed=0)
    assert len(shown) == 40 and not any("Film" in each.observation for each in shown)
    assert any("only asker is told" in each.observation for each in shown)


def test_saying_nothing_tells_no_sentence_and_is_no_right_answer(tmp_path: Path) -> None:
    rows = [row(number, "pairs") for number in range(6)]
    for each in rows[:3]:
        each["answer"] = "The"  # nothing is left of it where answers are compared
    for each in rows[3:]:
        each["context"][0][1].append(" ... ")
        each["context"][1][1].insert(0, "")
        each["supporting_facts"][1][1] = 1
    problems = usable(tmp_path, rows, agents=2, documents=5)
    assert [problem.id for problem in problems] == ["hotpotqa/q3", "hotpotqa/q4", "hotpotqa/q5"]
    environment = DocumentsEnvironment(DocumentsSettings())
    for problem in problems:
        assert all(fact.text.strip(" .") for fact in problem.facts)
        (outcome,) = environment.step([environment.start(problem)], [("", "")])
        assert outcome.state.read == set(problem.held(0)), "whoever is silent tells nothing"


def test_questions_whose_documents_have_one_name_are_left_out(tmp_path: Path) -> None:
    rows = [row(number, "pairs") for number in range(6)]
    for each, title in zip(rows[:3], ("Ann 0", "film: 1!", "..."), strict=True):
        each["context"].append([title, ["It is another one."]])
    assert [problem.id for problem in usable(tmp_path, rows)] == ["hotpotqa/q3", "hotpotqa/q4", "hotpotqa/q5"]


def test_questions_whose_names_would_be_read_as_statements_are_left_out(tmp_path: Path) -> None:
    rows = [row(number, "pairs") for number in range(6)]
    for each, title in zip(rows, ("Steins;Gate", "Answer Me", "Find, the"), strict=False):
        each["context"].append([title, ["It is another one."]])
    rows[3]["answer"] = "Rome; Italy"
    rows[4]["context"].append(["Answers", ["It is another one."]])
    assert [problem.id for problem in usable(tmp_path, rows)] == ["hotpotqa/q4", "hotpotqa/q5"]


def test_a_name_within_a_longer_one_is_not_told(tmp_path: Path) -> None:
    context = [["York", ["A town.", "It is old."]], ["New York", ["A city.", "It is not York 1."]]]
    support = [["York", 0], ["New York", 0]]
    (problem,) = usable(tmp_path, [{**row(0, "pairs"), "context": context, "supporting_facts": support}])
    labels = [fact.label for fact in problem.facts]

    def names(message: str) -> set[str]:
        return {labels[number] for number in told(problem, message)}

    assert names("New York 1") == {"New York 1"} and names("York 1") == {"York 1"}
    assert names("new york 1 york 1 york 2") == {"New York 1", "York 1", "York 2"}
    assert names("It is not York 1.") == {"New York 2"}
    assert names("York 1 york 1") == {"York 1"}


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("context", [["Film 0", ["A film.", None]]], "the field context must hold texts as sentences"),
        ("question", " ", "the field question is missing"),
        ("answer", "\t", "the field answer is missing"),
    ],
)
def test_fields_of_another_form_are_refused_in_words(tmp_path: Path, field: str, value: Any, reason: str) -> None:
    with pytest.raises(ProblemsError, match=reason):
        read(tmp_path, [{**row(0, "pairs"), field: value}])


def test_truth_values_are_no_numbers_of_sentences(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError, match="the field supporting_facts must hold"):
        read(tmp_path, [{**row(0, "json"), "supporting_facts": '[["Film 0", true], ["Ann 0", false]]'}])
