"""Tests become cases by their syntax tree."""

import marshal

import pytest

from pipeline_lib.sandbox import BadTests
from pipeline_lib.sandbox.calls import CallFailed, Recorder
from pipeline_lib.sandbox.inside import messages, values
from pipeline_lib.sandbox.tests_source import CALL_FAILED, CASES, count_cases, plan_tests
from tests.human_eval import human_eval_rows


def results(tests: str, candidate: object, entry_point: str = "f") -> list[str]:
    """Run rewritten tests in this process and return the result of each case."""
    plan = plan_tests(tests, entry_point)
    recorder = Recorder(plan.total, plan.unreached, plan.once, 1000)
    space = {entry_point: candidate, "candidate": candidate, CASES: recorder, CALL_FAILED: CallFailed}
    try:
        exec(marshal.loads(plan.code), space)
        if plan.has_check:
            space["check"](candidate)  # type: ignore[operator]
        recorder.finish(True)
    except Exception as error:
        recorder.stop(error)
    return [result for result, _ in recorder.outcome()]


def test_every_assert_counts_and_a_failed_one_stops_nothing() -> None:
    tests = "def check(c):\n    assert c(1) == 2\n    assert c(2) == 0\n    assert c(3) == 4, 'message'\n"
    assert results(tests, lambda x: x + 1) == ["ok", "fail", "ok"]


def test_an_exception_in_a_case_stops_nothing() -> None:
    assert results("def check(c):\n    assert c(0)\n    assert c(1)\n", lambda x: 1 / x) == ["error", "ok"]


def test_an_assert_over_several_lines_and_one_in_text_are_one_case() -> None:
    tests = (
        "def check(c):\n    '''\n    assert False\n    '''\n    assert c(\n        1\n    ) == (\n        2\n    )\n"
    )
    assert results(tests, lambda x: x + 1) == ["ok"]


def test_a_case_in_a_loop_holds_only_if_it_never_failed() -> None:
    tests = "def check(c):\n    for i in range(5):\n        assert c(i) == i\n"
    assert results(tests, lambda x: x) == ["ok"]
    assert results(tests, lambda x: x if x < 3 else 0) == ["fail"]


NEVER = "def check(c):\n    assert c(1) == 1\n    for i in range(0):\n        assert c(i) == i\n"


def test_a_case_that_is_never_reached_holds_only_if_every_other_does() -> None:
    assert results(NEVER, lambda x: x) == ["ok", "ok"]
    assert results(NEVER, lambda x: 0) == ["fail", "skipped"]
    assert results(NEVER + "    c(2)[0]\n", lambda x: x) == ["ok", "error"]


def test_tests_that_are_stopped_never_pass() -> None:
    loop = "def check(c):\n    for i in (1, 0):\n        y = c(i)\n        assert y == 1\n"
    assert results(loop, lambda x: 1 // x) == ["error"]
    after = "def check(c):\n    assert c(1) == 1\n    assert c(1)\n    c(0)\n"
    assert results(after, lambda x: 1 // x) == ["ok", "error"]
    again = "def check(c):\n    y = c(n)\n    assert y\nn = 1\ncheck(f)\nn = 0\n"
    assert results(again, lambda x: 1 // x) == ["error"]


def test_tests_that_ask_nothing_have_judged_nothing() -> None:
    recorder = Recorder(1, frozenset(), frozenset({0}), 1000)
    recorder.finish(asked=False)
    assert recorder.outcome() == [("error", "the tests ended without calling the program")]
    recorder = Recorder(1, frozenset({0}), frozenset({0}), 1000)
    recorder.finish(asked=False)
    assert recorder.outcome() == [("skipped", "not reached")]
    recorder.finish(asked=True)
    assert recorder.outcome() == [("ok", "")]


def test_constants_are_no_free_credit() -> None:
    tests = "def check(c):\n    assert True, 'edge case'\n    assert 1 == 1\n    assert (1, 2)\n    assert c(1) == 2\n"
    assert count_cases(tests, "f") == 1


@pytest.mark.parametrize(
    "tests",
    ["def check(c):\n    assert True", "def check(c):\n    c(1)", "", "x = 1", "def check(c):\n    print('assert')"],
)
def test_tests_that_cannot_fail_are_refused(tests: str) -> None:
    with pytest.raises(BadTests, match="no assert"):
        plan_tests(tests, "f")


@pytest.mark.parametrize("test", ["(f(1) == 2, 'wrong')", "(f(1) == 2,)"])
def test_an_assert_of_a_tuple_is_named(test: str) -> None:
    with pytest.raises(BadTests, match=r"line 2: assert \(condition, message\) holds for every"):
        plan_tests(f"def check(f):\n    assert {test}\n    assert f(1) == 2", "f")


@pytest.mark.parametrize("tests", ["def check(:", "assert f(1) ==", "\0", "def check():\n    assert f(1)"])
def test_tests_that_cannot_be_used_are_refused(tests: str) -> None:
    with pytest.raises(BadTests):
        plan_tests(tests, "f")


def test_a_case_that_must_not_be_reached() -> None:
    tests = "def check(c):\n    try:\n        c(0)\n        assert False\n    except ZeroDivisionError:\n        pass\n"
    assert results(tests, lambda x: 1 / x) == ["ok"]
    assert results(tests, lambda x: x) == ["fail"]
    assert results(tests, lambda x: [][x]) == ["skipped"]


def test_a_statement_that_raises_ends_the_run_and_is_blamed_on_the_next_case() -> None:
    tests = "def check(c):\n    assert c(1) == 1\n    y = c(0)\n    assert y\n    assert c(2)\n"
    assert results(tests, lambda x: 1 // x) == ["ok", "error", "skipped"]


def test_asserts_without_check_call_the_entry_point() -> None:
    assert results("assert f(1) == 2\nassert f(2) == 2\n", lambda x: x + 1) == ["ok", "fail"]


def test_asserts_in_helpers_of_the_tests_count() -> None:
    tests = "def same(a, b):\n    assert a == b\ndef check(c):\n    same(c(1), 2)\n    same(c(2), 3)\n"
    assert results(tests, lambda x: x + 1) == ["ok"]
    assert results(tests, lambda x: 2) == ["fail"]


def test_an_expected_exception_is_not_a_dead_program() -> None:
    def dead(x: int) -> int:
        raise CallFailed("timeout", "too slow")

    assert results("def check(c):\n    assert c(1) == 1\n    assert c(2) == 2\n", dead) == ["timeout", "timeout"]
    with pytest.raises(CallFailed):
        results("def check(c):\n    try:\n        c(1)\n    except Exception:\n        assert c\n", dead)


def foreseen(*lines: str, around: str = "") -> list[list[object]]:
    """Return the arguments of the calls that are foreseen in a check with these lines."""
    tests = around + "def check(candidate):\n" + "".join(f"    {line}\n" for line in lines)
    requests = [messages.read_request(frame[4:]) for _, frame in plan_tests(tests, "f").foreseen]
    assert [number for number, *_ in requests] == list(range(1, len(requests) + 1))
    return [args if plain else values.decode(args) for _, _, plain, args, _ in requests]


def test_calls_that_the_text_alone_tells_are_foreseen() -> None:
    assert foreseen(
        "assert candidate(1) == 2", "assert True", "pass", "assert [3] == sorted(candidate([3], (4,)))"
    ) == [[1], [[3], (4,)]]
    assert foreseen("assert abs(candidate(-1.5) - 2) < 1e-6", "assert not candidate('x')", around="import math\n") == [
        [-1.5],
        ["x"],
    ]
    assert (
        plan_tests("assert f(1) == 2\nassert f(2) == 3", "f").foreseen
        == plan_tests("def check(g):\n    assert g(1) == 2\n    assert g(2) == 3", "f").foreseen
    )


@pytest.mark.parametrize(
    "doubtful",
    [
        "assert candidate(x) == 1",
        "assert candidate(1) == candidate(2)",
        "assert candidate(candidate(1)) == 2",
        "assert candidate(1) == f(2)",
        "assert 1 and candidate(1)",
        "assert candidate(1) if 0 else 1",
        "assert 0 < 1 < candidate(1)",
        "assert [candidate(n) for n in (1, 2)]",
        "assert (lambda: candidate(1))",
        "assert helper(candidate(1))",
        "assert candidate(n=1)",
        "assert candidate(*[1])",
        "assert candidate({1, 2})",
        "assert candidate(1).real",
        "candidate([1])",
        "x = 1",
        "if x: pass",
    ],
)
def test_nothing_is_foreseen_after_a_statement_that_leaves_a_doubt(doubtful: str) -> None:
    assert foreseen("assert candidate(7)", doubtful, "assert candidate(8)") == [[7]]


@pytest.mark.parametrize("around", ["f(1)\n", "assert f(1)\n", "@print\ndef g(): pass\nprint(f)\n"])
def test_nothing_is_foreseen_where_code_around_the_check_might_call(around: str) -> None:
    assert foreseen("assert candidate(7)", around=around) == []


def test_human_eval_has_1133_cases() -> None:
    counts = [count_cases(problem["test"], problem["entry_point"]) for problem in human_eval_rows()]
    assert (len(counts), sum(counts), min(counts), max(counts)) == (164, 1133, 1, 26)
