"""No value of a program is better in the sandbox than in plain Python: many values, and what tests do with them."""

import itertools

from benchmarks.differential import plain_verdicts
from benchmarks.differential_pairs import Pair
from pipeline_lib.sandbox import Executor, Job, Status
from tests.sandbox.value_pairs import stories, value_pairs

_INT = "class I(int):\n    def {}: return {}\n    __hash__ = int.__hash__\n"
_POINT = "from collections import namedtuple\nclass P(namedtuple('P', 'x y')):\n    def {}: return {}\n"
#: Definitions, the value, and what it is compared with.
VALUES = (
    (_INT.format("__eq__(s, o)", "True"), "I(7)", "3"),
    (_INT.format("__ne__(s, o)", "False"), "I(7)", "3"),
    (_INT.format("__add__(s, o)", "99"), "I(3)", "3"),
    (_INT.format("__rsub__(s, o)", "0"), "I(9)", "3"),
    (_INT.format("__mod__(s, o)", "99"), "I(3)", "3"),
    (_INT.format("__abs__(s)", "99"), "I(3)", "3"),
    (_INT.format("__format__(s, o)", "'x'"), "I(3)", "3"),
    (_INT.format("__index__(s)", "0"), "I(1)", "1"),
    (_INT.format("__eq__(s, o)", "True") + "I.__module__ = 'builtins'\n", "I(7)", "3"),
    (_INT.format("__eq__(s, o)", "True") + "I.__module__ = 'numpy'\n", "I(7)", "3"),
    (_INT.format("__eq__(s, o)", "True") + "I.__module__ = None\n", "[I(7)]", "[3]"),
    ("class S(str):\n    def __add__(s, o): return 'zz'\n", "S('ab')", "'ab'"),
    ("class S(str):\n    def __mod__(s, o): return 'zz'\n", "S('ab')", "'ab'"),
    (_POINT.format("__eq__(s, o)", "False"), "P(1, 2)", "(1, 2)"),
    (_POINT.format("__add__(s, o)", "(7,)"), "P(1, 2)", "(1, 2)"),
    (_POINT.format("__iter__(s)", "iter((7, 8))"), "P(1, 2)", "(1, 2)"),
    (_POINT.format("__lt__(s, o)", "False"), "P(1, 2)", "(1, 3)"),
    ("class L(list):\n    def __eq__(s, o): return False\n", "L([1, 2])", "[1, 2]"),
    ("class L(list):\n    def __ne__(s, o): return True\n", "L([1, 2])", "[1, 2]"),
    ("class L(list):\n    def __add__(s, o): return [7]\n", "L([1, 2])", "[1, 2]"),
    ("class O:\n    def __eq__(s, o): return o == 3\n    def __hash__(s): return hash(3)\n", "O()", "3"),
    ("class O:\n    def __ne__(s, o): return False\n", "O()", "3"),
    ("", "chr(0xD83D) + chr(0xDE00)", "chr(0xD83D) + chr(0xDE00)"),
    ("", "chr(0xD83D) + chr(0xDE00)", "chr(0x1F600)"),
)
OPERATIONS = (
    *("a == E", "E == a", "not (a != E)", "a != E", "not a < E", "a + E == E + E", "abs(a - E) < 1e-6"),
    *("f'{a}' == f'{E}'", "str(a) == str(E)", "list(a) == list(E)", "a % 2 == E % 2", "a in [E]"),
)
_EXCEPTIONS = (
    ("class ValueError(Exception): pass\nValueError.__module__ = 'builtins'\n", "ValueError('x')", "ValueError"),
    ("class E(OSError): pass\n", "E(2, 'x')", "FileNotFoundError"),
    ("class E(OSError): pass\n", "E(2, 'x')", "OSError"),
    ("class KeyError(LookupError): pass\nKeyError.__module__ = 'collections'\n", "KeyError('x')", "KeyError"),
)
# Right programs that must pass, too.
_HONEST = ("a == E", "E == a", "not (a != E)", "f'{a}' == f'{E}'", "str(a) == str(E)", "list(a) == list(E)")


def table() -> list[Pair]:
    made = []
    for (defined, value, expected), operation in itertools.product(VALUES, OPERATIONS):
        tests = f"def check(candidate):\n    E = {expected}\n    a = candidate()\n    assert {operation}\n"
        made.append(Pair(f"{value}: {operation}", operation, value, f"{defined}def f(): return {value}\n", tests, "f"))
    for defined, value, caught in _EXCEPTIONS:
        tests = "def check(candidate):\n    try:\n        candidate()\n"
        tests += f"        assert 1 == candidate\n    except {caught}:\n        pass\n"
        made.append(Pair(f"{defined} as {caught}", caught, value, f"{defined}def f(): raise {value}\n", tests, "f"))
    return made


def test_no_verdict_is_higher_than_plain_pythons() -> None:
    pairs = [*table(), *value_pairs(200, seed=1)]
    assert len(pairs) > 450
    plain = plain_verdicts(pairs)
    with Executor(slots=2) as executor:
        jobs = [Job(str(n), pair.code, pair.tests, pair.entry_point) for n, pair in enumerate(pairs)]
        passed = [verdict.status is Status.PASSED for verdict in executor.run(jobs)]
    assert [pair.name for pair, here, there in zip(pairs, passed, plain, strict=True) if here and not there] == []
    surrogates = [n for n, pair in enumerate(pairs) if pair.ending.startswith("chr") and pair.shape in _HONEST]
    assert [passed[n] for n in surrogates] == [plain[n] for n in surrogates]
    assert sum(passed) > 40


def test_what_is_kept_shared_and_changed_is_seen_as_in_plain_python() -> None:
    pairs = list(stories(150, seed=2))
    with Executor(slots=2) as executor:
        verdicts = executor.run([Job(str(n), pair.code, pair.tests, pair.entry_point) for n, pair in enumerate(pairs)])
    wrong = {pair.ending: v.error for pair, v in zip(pairs, verdicts, strict=True) if v.status is not Status.PASSED}
    assert {told: error for told, error in wrong.items() if "attributes of its own" not in error} == {}
    assert len(pairs) - len(wrong) > 100
