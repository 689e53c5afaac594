"""Published datasets: every format, the fields as published, and what belongs to a problem."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.environments.coding.datasets import read_dataset
from pipeline_lib.environments.coding.problem import CodingProblem
from pipeline_lib.environments.coding.settings import DatasetProblems
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.sandbox import Executor, Job, Limits, Status
from pipeline_lib.sandbox.tests_source import count_cases
from tests.human_eval import HUMAN_EVAL

WITH_HELPER = {
    "task_id": "HumanEval/10",
    "prompt": (
        "import math\n\n\ndef is_even(n: int) -> bool:\n    return n % 2 == 0\n\n\n"
        "def half(number: float, *, up: bool = False) -> int:\n"
        '    """Half of an even number.\n    >>> half(4)\n    2\n    """\n'
    ),
    "canonical_solution": "    return math.ceil(number / 2) if is_even(number) else 0\n",
    "test": (
        "METADATA = {}\n\ndef check(candidate):\n    assert candidate(4) == 2\n    assert candidate(3) == 0\n"
        "    for n in (6, 8):\n        assert candidate(n) == n / 2\n    assert True, 'no credit for this'\n"
    ),
    "entry_point": "half",
}
SANITIZED = {
    "source_file": "Benchmark Questions Verification V2.ipynb",
    "task_id": 7,
    "prompt": "Write a function to add one to every item of a list.",
    "code": (
        "import math\ndef increment(items):\n    return [other(item) for item in items]\n"
        "def other(item):\n    return item + 1"
    ),
    "test_imports": ["import math"],
    "test_list": [
        "assert increment([1]) == [2]",
        "assert math.isclose(sum(increment([1, 2])), 5)",
        "assert increment([]) == []",
    ],
}
FULL = {
    "task_id": 602,
    "text": "Write a python function to find the first letter.",
    "code": "def first_letter(text):\r\n  return text[0]",
    "test_list": ['assert first_letter("abc") == "a"', 'assert first_letter("b\\nc") == "b"'],
    "test_setup_code": "",
    "challenge_test_list": [],
}


TREE = {
    "task_id": 927,
    "text": "Write a function to calculate the height of a tree.",
    "code": (
        "class Node:\n    def __init__(self, data):\n        self.data, self.left, self.right = data, None, None\n"
        "def height(node):\n    return max(height(node.left), height(node.right)) + 1 if node else 0"
    ),
    "test_list": ["assert height(root) == 3", "assert height(root.right) == 1", "assert height(None) == 0"],
    "test_setup_code": "root = Node(1)\nroot.left, root.right = Node(2), Node(3)\nroot.left.left = Node(4)",
}


def _jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _gzipped(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(gzip.compress(_jsonl(path.with_suffix(""), rows).read_bytes()))
    return path


def _json(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps(rows, indent=2))
    return path


def _parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def _read(path: Path, kind: str = "humaneval", **settings: object) -> list[CodingProblem]:
    found = read_dataset(DatasetProblems.model_validate({"kind": kind, "source": str(path), **settings}))
    return [problem for problem, _ in found]


def _passes(problem: CodingProblem, tests: str) -> bool:
    namespace: dict[str, Any] = {}
    for source in (problem.prelude, *problem.reference.values(), tests):
        exec(source, namespace)
    namespace["check"](namespace[problem.entry_point])
    return True


@pytest.mark.parametrize(
    ("name", "write"), [("a.jsonl", _jsonl), ("a.jsonl.gz", _gzipped), ("a.json", _json), ("a.parquet", _parquet)]
)
@pytest.mark.parametrize(("kind", "row"), [("humaneval", WITH_HELPER), ("mbpp", SANITIZED), ("mbpp", FULL)])
def test_every_format_and_layout_gives_problems_whose_solutions_pass(
    tmp_path: Path, name: str, write: Callable[[Path, list[dict[str, Any]]], Path], kind: str, row: dict[str, Any]
):
    (problem,) = _read(write(tmp_path / name, [row]), kind)
    assert problem.source == kind
    assert _passes(problem, problem.hidden_tests) and _passes(problem, problem.visible_tests)


def test_a_prompt_needs_no_newline_at_its_end(tmp_path: Path):
    (problem,) = _read(_jsonl(tmp_path / "a.jsonl", [{**WITH_HELPER, "prompt": WITH_HELPER["prompt"].rstrip()}]))
    assert _passes(problem, problem.hidden_tests)


def test_functions_of_the_prompt_belong_to_the_problem_and_not_to_the_agents(tmp_path: Path):
    (problem,) = _read(_jsonl(tmp_path / "a.jsonl", [WITH_HELPER]))
    assert "import math" in problem.prelude and "def is_even" in problem.prelude and "def half" not in problem.prelude
    assert list(problem.reference) == ["half"] and "def is_even" not in problem.reference["half"]


def test_the_skeleton_has_the_parameters_of_the_entry_point(tmp_path: Path):
    (problem,) = _read(_jsonl(tmp_path / "a.jsonl", [WITH_HELPER]))
    told = problem.observations
    assert "def half(number: float, *, up: bool=False) -> int:" in told["main"]
    assert "aux(number, up=up)" in told["main"]
    assert "def aux(number: float, *, up: bool=False):" in told["helper"]
    assert "def aux(n: int)" not in told["helper"] and "def half(n: int)" not in told["main"]


def test_skeletons_are_indented_python_and_never_an_error_text(tmp_path: Path):
    nothing = {
        **WITH_HELPER, "prompt": 'def answer():\n    """Everything."""\n', "entry_point": "answer",
        "canonical_solution": "    return 42\n", "test": "def check(candidate):\n    assert candidate() == 42\n",
    }  # fmt: skip
    for problem in _read(_jsonl(tmp_path / "a.jsonl", [WITH_HELPER, nothing])):
        for role, function in (("helper", "aux"), ("main", problem.entry_point), ("single", "aux")):
            skeleton = problem.observations[role].rpartition(f"\ndef {function}(")[2]
            compile(f"def {function}({skeleton}", "<skeleton>", "exec")
            assert "Error" not in problem.observations[role]


def test_the_helper_may_not_write_the_entry_point_and_main_not_the_helper(tmp_path: Path):
    (problem,) = _read(_jsonl(tmp_path / "a.jsonl", [WITH_HELPER]))
    helper, main, single = (problem.observations[role] for role in ("helper", "main", "single"))
    assert "half is not yours to write" in helper and "do not define it" in main
    assert "def aux" in single and "def half" in single.partition("Write a helper")[2]


def test_the_first_tests_are_visible_and_the_rest_hidden(tmp_path: Path):
    path = _jsonl(tmp_path / "a.jsonl", [WITH_HELPER])
    for visible, counts in ((0, (0, 3)), (1, (1, 2)), (2, (2, 1)), (9, (2, 1))):
        (problem,) = _read(path, visible_tests=visible)
        seen = count_cases(problem.visible_tests) if problem.visible_tests else 0
        assert (seen, count_cases(problem.hidden_tests)) == counts


def test_a_problem_with_one_test_keeps_it_hidden(tmp_path: Path):
    row = {**FULL, "test_list": FULL["test_list"][:1]}
    (problem,) = _read(_jsonl(tmp_path / "a.jsonl", [row]), "mbpp", visible_tests=3)
    assert problem.visible_tests == "" and count_cases(problem.hidden_tests) == 1
    assert "For example" not in problem.observations["main"]


@pytest.mark.parametrize("visible", [1, 3])
def test_mbpp_shows_visible_tests_as_examples_and_never_a_hidden_one(tmp_path: Path, visible: int):
    (problem,) = _read(_jsonl(tmp_path / "a.jsonl", [SANITIZED]), "mbpp", visible_tests=visible)
    shown = [test for test in SANITIZED["test_list"] if test in problem.observations["helper"]]
    assert shown == SANITIZED["test_list"][: min(visible, 2)]
    assert problem.entry_point == "increment" and "import math" in problem.prelude


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ProblemsError, match=r"problems.source: .*gone.jsonl: there is no such file"):
        _read(tmp_path / "gone.jsonl")


def test_another_format_is_refused_with_those_that_are_read(tmp_path: Path):
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(ProblemsError, match=r"expected a file ending in .jsonl, .jsonl.gz, .json, .parquet"):
        _read(tmp_path / "a.csv")


def test_a_file_that_is_not_what_its_name_says_is_named(tmp_path: Path):
    (tmp_path / "a.parquet").write_text("no parquet")
    with pytest.raises(ProblemsError, match=r"a.parquet: not readable as parquet"):
        _read(tmp_path / "a.parquet")


@pytest.mark.parametrize("content", ["", "\n", "[]"])
def test_an_empty_dataset_is_refused(tmp_path: Path, content: str):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ProblemsError, match=r"a.json: the dataset is empty"):
        _read(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"entry_point": None},
            "has the fields canonical_solution, entry_point, prompt, task_id, test; expected task_id",
        ),
        ({"task_id": ""}, "the field task_id is missing"),
        ({"prompt": "def half(:"}, "the prompt is not Python"),
        ({"entry_point": "third"}, "does not define the entry point 'third'"),
        ({"test": "def check(candidate):\n    assert True\n"}, "no assert that a program could fail"),
        ({"task_id": []}, r"the field task_id must be a text, got \[\]"),
    ],
)
def test_a_problem_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path, changes: dict[str, Any], words: str):
    rows = [WITH_HELPER, {**WITH_HELPER, "task_id": "HumanEval/11", **changes}]
    with pytest.raises(ProblemsError, match=words) as caught:
        _read(_jsonl(tmp_path / "a.jsonl", rows))
    assert "a.jsonl:2: problem " in str(caught.value)


FIELDS = ("prompt", "entry_point", "test", "canonical_solution")


@pytest.mark.parametrize(
    ("row", "field", "value", "words"),
    [
        *((WITH_HELPER, field, 7, f"the field {field} must be a text, got 7") for field in FIELDS),
        *((FULL, field, 7, f"the field {field} must be a text, got 7") for field in ("text", "code")),
        (FULL, "test_setup_code", ["x"], r"the field test_setup_code must be a text, got \['x'\]"),
        (FULL, "test_list", "assert f(1)", "the field test_list must be a list of texts, got 'assert f"),
        (FULL, "test_list", [1], r"the field test_list must be a list of texts, got \[1\]"),
        (
            {**FULL, "test_imports": []},
            "test_imports",
            "os",
            "the field test_imports must be a list of texts, got 'os'",
        ),
    ],
)
def test_a_field_of_another_type_is_named_with_line_and_problem(
    tmp_path: Path, row: dict[str, Any], field: str, value: object, words: str
):
    with pytest.raises(ProblemsError, match=rf"a.jsonl:1: problem [A-Z/a-z]+\d+: {words}"):
        _read(_jsonl(tmp_path / "a.jsonl", [{**row, field: value}]), "mbpp" if row is not WITH_HELPER else "humaneval")


def test_mbpp_tests_that_call_nothing_known_are_named(tmp_path: Path):
    row = {**FULL, "test_list": ["assert last_letter('a') == 'a'"]}
    with pytest.raises(ProblemsError, match=r"problem MBPP/602: the tests call none of the functions .*first_letter"):
        _read(_jsonl(tmp_path / "a.jsonl", [row]), "mbpp")


def test_without_a_connection_the_way_out_is_said():
    code = (
        "from pipeline_lib.environments.coding.datasets import read_dataset\n"
        "from pipeline_lib.environments.coding.settings import DatasetProblems\n"
        "read_dataset(DatasetProblems(kind='mbpp'))\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert "the hub did not provide 'google-research-datasets/mbpp'" in last and "problems.source to the path" in last


@pytest.fixture(scope="module")
def humaneval() -> list[CodingProblem]:
    return _read(HUMAN_EVAL)


def test_all_cases_of_humaneval_are_counted_once(humaneval: list[CodingProblem]):
    counts = [count_cases(p.hidden_tests) + (count_cases(p.visible_tests) if p.visible_tests else 0) for p in humaneval]
    assert (len(humaneval), sum(counts), min(counts), max(counts)) == (164, 1133, 1, 26)


def test_all_canonical_solutions_of_humaneval_get_full_marks(humaneval: list[CodingProblem]):
    jobs = [
        Job(f"{p.id} {n}", "\n\n".join(p.reference.values()), tests, p.entry_point, p.prelude)
        for p in humaneval
        for n, tests in enumerate((p.hidden_tests, p.visible_tests))
        if tests
    ]
    with Executor(slots=2) as executor:
        verdicts = executor.run(jobs)
    assert [v.id for v in verdicts if v.status is not Status.PASSED or v.passed != v.total] == []


@pytest.mark.parametrize("number", [10, 32, 38, 50])
def test_prompts_that_define_a_function_first_ask_for_the_right_one(humaneval: list[CodingProblem], number: int):
    problem = humaneval[number]
    assert problem.prelude.count("def ") == 1
    assert f"def {problem.entry_point}(" in problem.observations["main"].rpartition("\n\n")[2]


def test_humaneval_goes_through_prepare(humaneval: list[CodingProblem], tmp_path: Path):
    settings = DatasetProblems(kind="humaneval", source=str(HUMAN_EVAL))
    manifest = prepare("coding", settings, tmp_path, lambda: Executor(slots=2))
    assert sum(entry["count"] for entry in manifest["splits"].values()) == 164
    loaded = [p for split in ("train", "validation", "test") for p in load_split(tmp_path, split)]
    assert sorted(p.id for p in loaded) == sorted(p.id for p in humaneval)


def _checked(path: Path, kind: str = "humaneval", **settings: object) -> None:
    section = DatasetProblems.model_validate({"kind": kind, "source": str(path), **settings})
    limits = Limits(cpu_s=1.0, call_cpu_s=0.5)  # for solutions that never end
    prepare("coding", section, path.parent / "out", lambda: Executor(slots=2, limits=limits))


def _incrementing(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "task_id": f"T/{number}",
        "prompt": f'def f(x):\n    """Return x plus {number}."""\n',
        "canonical_solution": f"    return x + {number}\n",
        "test": f"def check(f):\n    assert f(0) == {number}\n    assert f(1) == {number + 1}\n",
        "entry_point": "f",
        **changes,
    }


WRONG = {3: {"canonical_solution": "    return x\n"}, 5: {"canonical_solution": "    while True: pass\n"}}


@pytest.mark.parametrize("visible", [0, 1])
def test_a_solution_that_fails_its_own_tests_is_refused_with_the_name_of_the_problem(tmp_path: Path, visible: int):
    path = _jsonl(tmp_path / "a.jsonl", [_incrementing(n, **WRONG.get(n, {})) for n in range(8)])
    with pytest.raises(ProblemsError) as caught:
        _checked(path, visible_tests=visible)
    first, *reasons, advice = str(caught.value).splitlines()
    assert first.startswith("2 of 8 problems came with a solution that fails their own tests")
    assert [reason.split(":")[0].strip() for reason in reasons] == ["T/3", "T/5"]
    assert advice.endswith("problems.leave_out: [T/3, T/5]")
    _checked(path, visible_tests=visible, leave_out=["T/3", "T/5"])
    found = [p.id for split in ("train", "validation", "test") for p in load_split(tmp_path / "out", split)]
    assert sorted(found) == ["T/0", "T/1", "T/2", "T/4", "T/6", "T/7"]


def test_a_wrong_solution_of_mbpp_is_refused_too(tmp_path: Path):
    path = _jsonl(tmp_path / "a.jsonl", [SANITIZED, {**FULL, "code": "def first_letter(text):\n  return text"}, TREE])
    with pytest.raises(ProblemsError, match=r"(?s)1 of 3 problems .* MBPP/602: 2 of 2 tests fail"):
        _checked(path, "mbpp", validation=0.3, test=0.3)


def test_problems_without_solutions_start_no_sandbox(tmp_path: Path):
    def started() -> Executor:
        raise AssertionError("a sandbox was started")

    path = _jsonl(tmp_path / "a.jsonl", [_incrementing(n, canonical_solution=None) for n in range(8)])
    prepare("coding", DatasetProblems(kind="humaneval", source=str(path)), tmp_path / "out", started)


def test_a_problem_that_is_left_out_must_be_there(tmp_path: Path):
    path = _jsonl(tmp_path / "a.jsonl", [_incrementing(n) for n in range(8)])
    words = r"problems.leave_out: .*a.jsonl has no problem 'T/77' \(did you mean 'T/7'\?\) and no problem 'other'$"
    with pytest.raises(ProblemsError, match=words):
        _read(path, leave_out=["T/77", "T/1", "other"])


def test_mbpp_tests_are_set_up_with_the_classes_of_the_solution(tmp_path: Path):
    (problem,) = _read(_jsonl(tmp_path / "a.jsonl", [TREE]), "mbpp", visible_tests=1)
    good = problem.reference["height"]
    jobs = [
        Job(f"{number} {tests}", code, tests, "height", problem.prelude)
        for number, code in enumerate([good, good.replace("+ 1", "+ 2")])
        for tests in (problem.hidden_tests, problem.visible_tests)
    ]
    with Executor(slots=1) as executor:
        verdicts = executor.run(jobs)
    assert [(verdict.status.value, verdict.total) for verdict in verdicts[:2]] == [("passed", 2), ("passed", 1)]
    assert verdicts[2].status.value == "failed"
