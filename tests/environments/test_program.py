"""Joint actions become one program: joined on the tree, with collisions resolved and the helper's part known."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.environments.coding.program import build_program
from pipeline_lib.environments.coding.schemes import SCHEMES, schemes

# pytest sets warning filters of its own, above the one that the module under test sets.
pytestmark = pytest.mark.filterwarnings("ignore:invalid")

AUX = "def aux(x):\n    return x * 2"
MAIN = "def main(xs):\n    return sum(aux(x) for x in xs)"


def build(helper, main, entry_point="main"):
    return build_program((helper, main), entry_point)


def run(code, entry_point="main"):
    """Load a program written in this file (trusted) and return its entry point."""
    space: dict = {"__name__": "candidate"}
    exec(compile(code, "<program>", "exec"), space)
    return space[entry_point]


def test_a_clean_pair():
    program = build(AUX, MAIN)
    assert program.code == ast.unparse(ast.parse(f"{AUX}\n{MAIN}"))
    assert program.parses
    assert program.conflicts == ()
    assert [role.function for role in program.roles] == ["aux", "main"]
    assert all(role.defined and role.returns for role in program.roles)
    assert run(program.code)([1, 2]) == 6


def test_the_same_program_whatever_comments_and_spacing():
    assert build(AUX, MAIN) == build(f"# first\n{AUX}\n\n\n", f"```python\n{MAIN}  # sums\n```")


def test_imports_constants_classes_decorators_and_further_functions_survive():
    helper = (
        "import math\nSCALE = 3\n"
        "class Box:\n    def __init__(self, x):\n        self.x = x\n"
        "def aux(x):\n    return Box(math.floor(x) * SCALE)"
    )
    main = (
        "from functools import lru_cache\nONE = 1\n"
        "@lru_cache\ndef add(a, b):\n    return a + b + ONE\n"
        "def main(x):\n    return add(aux(x).x, 1)"
    )
    program = build(helper, main)
    assert run(program.code)(2.5) == 8
    assert program.roles[1].functions == ("add", "main")


def test_future_imports_come_first_wherever_they_were_written():
    program = build(AUX, f"from __future__ import annotations\n{MAIN}")
    assert program.code.startswith("from __future__")
    assert run(program.code)([1]) == 2


@pytest.mark.parametrize(
    "own",
    [
        "def aux(x):\n    return 0",
        "aux = lambda x: 0",
        "aux: object = len",
        "from helper import aux",
        "from helper import something as aux",
        "class aux:\n    pass",
        "try:\n    from helper import aux\nexcept ImportError:\n    def aux(x):\n        return 0",
    ],
)
def test_the_helpers_aux_wins_over_the_main_agents(own):
    program = build(AUX, f"{own}\n\n{MAIN}")
    assert run(program.code)([1, 2]) == 6
    assert program.conflicts == ("aux: the helper's is used, the main agent's is left out",)
    assert program.calls_helper


def test_without_a_helper_the_main_agents_own_aux_stays_and_is_no_cooperation():
    program = build("no code here", f"{AUX}\n{MAIN}")
    assert run(program.code)([1, 2]) == 6
    assert not program.calls_helper
    assert program.ablated == ()
    assert not program.roles[0].defined


def test_the_main_agents_entry_point_wins_over_the_helpers():
    helper = "def main(xs):\n    return -1\n\ndef aux(x):\n    return main(x)"
    program = build(helper, "def main(xs):\n    return aux(xs) * 10")
    assert run(program.code)([1]) == -10  # the helper's own use still means the helper's
    assert program.conflicts == ("main: the main agent's is used, the helper's is not",)


def test_an_entry_point_that_only_the_helper_wrote_is_none():
    program = build(f"{AUX}\n{MAIN}", "I leave it to you.")
    assert not program.main.defined
    with pytest.raises(KeyError):
        run(program.code)


def test_other_names_of_both_agents_are_kept_apart():
    helper = "import math as m\nK = 2\ndef scale(x):\n    return x * K\ndef aux(x):\n    return scale(x) + m.floor(0.5)"
    main = (
        "import cmath as m\nK = 100\n"
        "def scale(x):\n    return x + K\n"
        "def main(x):\n    return scale(aux(x)) + int(m.pi)"
    )
    program = build(helper, main)
    assert run(program.code)(1) == 2 + 100 + 3
    assert len(program.conflicts) == 3


def test_equal_names_with_equal_meaning_are_no_conflict():
    helper = f"import math, re\nfrom typing import List\n{AUX}"
    main = f"import math\nfrom typing import Dict, List\n{MAIN}"
    assert build(helper, main).conflicts == ()


def test_ablation_replaces_the_helper_and_nothing_else():
    helper = f"K = 1\ndef further(x):\n    return x\n{AUX}"
    program = build(helper, "def main(x):\n    return (aux(x), K, further(x))")
    assert run(program.code)(1) == (2, 1, 1)
    nothing, agreeing = program.ablated
    assert run(nothing)(1) == (None, 1, 1)
    assert run(agreeing)(1)[1:] == (1, 1)


def test_ablation_reaches_aliases():
    program = build(AUX, "f = aux\ndef main(x):\n    return f(x)")
    assert [run(ablated)(1) for ablated in program.ablated] == [None, None]


@pytest.mark.parametrize(
    "main",
    [
        "def main(x):\n    if aux(x) is None:\n        return None\n    return x + 1",
        "def main(x):\n    return x + 1 if aux(x) == 2 * x else None",
        "def main(x):\n    if not isinstance(aux(x), int):\n        raise ValueError\n    return x + 1",
        "def main(x):\n    return x + 1 + 0 * aux(x)",
        "def main(x):\n    return x + 1 + (aux(x) - 2 * x)",
        "def main(x):\n    assert 0 <= aux(x) <= 1000 and aux(x) in (2 * x,)\n    return x + 1",
    ],
)
def test_who_only_checks_its_helper_goes_on_with_one_that_agrees(main):
    program = build("def aux(x):\n    return 2 * x", main)
    assert run(program.code)(4) == 5
    assert run(program.ablated[1])(4) == 5


@pytest.mark.parametrize(
    ("helper", "main", "given", "right"),
    [
        ("def aux(xs):\n    return [x for x in xs if x > 1]", "def main(xs):\n    return sum(aux(xs))", [1, 2], 2),
        ("def aux(x):\n    return x > 1", "def main(xs):\n    return [x for x in xs if aux(x)]", [1, 2], [2]),
        ("def aux(x):\n    return x > 1", "def main(xs):\n    return [x for x in xs if not aux(x)]", [1, 2], [1]),
        ("def aux(x):\n    return x + 1", "def main(x):\n    return 2 * aux(x)", 3, 8),
        ("def aux(n):\n    return 1 if n < 2 else n * aux(n - 1)", "def main(n):\n    return aux(n)", 4, 24),
    ],
)
def test_who_works_with_the_helpers_value_is_lost_without_it(helper, main, given, right):
    program = build(helper, main)
    assert run(program.code)(given) == right
    for ablated in program.ablated:
        try:
            found = run(ablated)(given)
        except (TypeError, ValueError):
            continue
        assert type(found) is not type(right) or found != right


def test_there_is_no_ablation_of_a_helper_that_is_not_used():
    assert build(AUX, "def main(xs):\n    return sum(xs)").ablated == ()


@pytest.mark.parametrize(
    ("source", "defined", "returns"),
    [
        ("def aux(x):\n    return x", True, True),
        ("def aux(x):\n    yield x", True, True),
        ("async def aux(x):\n    return x", True, True),
        ("aux = lambda x: x", True, True),
        ("aux = other = lambda x: x", True, True),
        ("def other(x):\n    return x\naux = other", True, True),
        ("from math import gcd as aux", True, True),
        ("import functools\naux = functools.partial(int, base=2)", True, True),
        ("class aux:\n    pass", True, True),
        ("def aux(x):\n    print(x)", True, False),
        ("def aux(x):\n    return", True, False),
        ("def aux(x):\n    return None", True, False),
        ("def aux(x):\n    def inner():\n        return 1", True, False),
        ("def aux(x):\n    '''return x'''", True, False),
        ("def aux(x):\n    pass  # return x", True, False),
        ("aux = lambda x: None", True, False),
        ("aux = 5", False, False),
        ("aux = [1]", False, False),
        ("aux = aux", False, False),
        ("def helper(x):\n    return x", False, False),
        ("# def aux(x): return x", False, False),
        ("'def aux(x): return x'", False, False),
        ("def outer():\n    def aux(x):\n        return x", False, False),
        ("class C:\n    def aux(x):\n        return x", False, False),
    ],
)
def test_defined_and_returning_a_value_are_read_from_the_tree(source, defined, returns):
    role = build(source, MAIN).roles[0]
    assert (role.defined, role.returns) == (defined, returns)


def test_the_entry_point_is_the_named_one_and_not_the_first_function():
    program = build(AUX, "def first(a, b, c):\n    return 0\n\ndef solve(x):\n    return aux(x)", "solve")
    assert program.main.defined
    assert run(program.code, "solve")(2) == 4


def test_a_broken_text_costs_only_its_author():
    program = build(AUX, "def main(xs):\n    return sum(aux(x) for x in xs")
    assert program.roles[0].error is None
    assert program.roles[1].error.line == 2
    assert not program.parses
    assert program.code == AUX


def test_a_single_agent_writes_both():
    program = build_program((f"{AUX}\n\n{MAIN}",), "main")
    assert run(program.code)([1, 2]) == 6
    assert program.main.returns
    assert program.calls_helper
    assert program.ablated == ()


def test_deeply_nested_code_is_an_error_and_no_crash():
    deep = "def main(x):\n    return " + "-" * 900 + "1"
    program = build(AUX, deep)
    assert not program.parses or program.main.defined


@pytest.mark.parametrize("texts", [(), ("", "", "")])
def test_other_team_sizes_are_refused(texts):
    with pytest.raises(ValueError, match="one or two agents"):
        build_program(texts, "main")


def test_two_agents_may_import_everything_from_different_modules():
    program = build_program(("from math import *\n" + AUX, "from cmath import *\ndef main(xs):\n    return xs"), "main")
    assert program.code.count("import *") == 2 and program.conflicts == ()
    for part in program.parts:
        ast.parse(part)


PARTS = ["aux", "main", "(", ")", ":", "\n", "    ", "return ", "lambda ", "x", "= ", "if ", "for ", "in ", "def "]
PARTS += [
    "[",
    "]",
    "yield ",
    "*",
    "global aux\n",
    "import aux\n",
    "class ",
    "@",
    "await ",
    "match ",
    "case ",
    "```",
    "1",
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 80), st.integers(0, 3), st.sampled_from(PARTS)), max_size=4), st.booleans())
def test_whatever_is_written_becomes_a_program_that_parses(edits, alone):
    texts = [AUX, "def main(xs):\n    ys = [aux(x) for x in xs if x > 1]\n    return sum(ys) or None"]
    for place, deleted, inserted in edits:
        texts[place % 2] = texts[place % 2][:place] + inserted + texts[place % 2][place + deleted :]
    program = build_program(("\n".join(texts),) if alone else tuple(texts), "main")
    for code in (program.code, *program.ablated):
        ast.parse(code)
    if program.calls_helper:
        assert schemes(program.code, "main") <= set(SCHEMES)
