"""What an agent wrote becomes a syntax tree, whatever surrounds the code."""

import ast
import string
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.environments.coding.extraction import MAX_TEXT, extract

# pytest sets warning filters of its own, above the one that the module under test sets.
pytestmark = pytest.mark.filterwarnings("ignore:invalid")

FUNCTION = "def main(xs):\n    return sum(xs)"


def kept(text, wanted=("main", "aux")):
    return ast.unparse(ast.Module(body=list(extract(text, wanted).body), type_ignores=[]))


@pytest.mark.parametrize(
    "text",
    [
        FUNCTION,
        f"```python\n{FUNCTION}\n```",
        f"```\n{FUNCTION}\n```",
        f"~~~py\n{FUNCTION}\n~~~",
        f"Here's the function (it's short:\n\n```python\n{FUNCTION}\n```\nIt doesn't need a helper.",
        f"Sure! Here is the code:\n{FUNCTION}\nThis returns the sum.",
        f"1. First, an item\n\n    ```python\n    {FUNCTION.replace(chr(10), chr(10) + '    ')}\n    ```",
        f"```python\n{FUNCTION}",  # the closing fence was cut off
        f"{FUNCTION}\n```\n\nExplanation: don't.",  # only the closing fence is there
        f'The docstring uses """ quotes\n{FUNCTION}',
        f"{FUNCTION}\n\nprint(main([1, 2]))\nassert main([1]) == 1\nmain([3])",
        f"{FUNCTION}\n\nif __name__ == '__main__':\n    result = main([1])\n    print(result)",
        f"{FUNCTION}\nresult = main([1, 2, 3])",
        f"{FUNCTION}\nfor case in ([1], [2]):\n    print(main(case))",
        f"# a comment\n{FUNCTION}  # aux(",
        f'"""Module."""\n{FUNCTION}\nreturn result',
    ],
)
def test_only_the_function_is_kept(text):
    assert kept(text) == FUNCTION
    assert extract(text, ("main",)).error is None


def test_everything_the_function_needs_is_kept():
    text = "\n".join(
        [
            "from __future__ import annotations",
            "import math",
            "import functools as ft",
            "try:\n    from math import prod\nexcept ImportError:\n    prod = None",
            "LIMIT: int = 3",
            "TABLE = []\nfor i in range(LIMIT):\n    TABLE.append(i * i)",
            "TABLE.extend([7])",
            "SQUARES = {}\nSQUARES[2] = 4",
            "class Point:\n    def __init__(self, x):\n        self.x = x",
            "def further(x):\n    return TABLE[x] + SQUARES[2] + prod([1])",
            "@ft.lru_cache(maxsize=None)\ndef main(x):\n    return further(x) + math.floor(Point(x).x)",
        ]
    )
    assert kept(text) == ast.unparse(ast.parse(text))


def test_conditional_definitions_of_wanted_names_are_kept():
    text = (
        "import sys\nif sys.maxsize > 1:\n    def aux(x):\n        return x\nelse:\n    def aux(x):\n        return -x"
    )
    assert kept(text) == ast.unparse(ast.parse(text))


def test_a_local_name_does_not_keep_a_demonstration():
    text = "def main(xs):\n    result = sum(xs)\n    return result\n\nresult = main(5)"
    assert "main(5)" not in kept(text)


def test_broken_code_is_reported_where_it_is_and_the_rest_is_kept():
    found = extract("def aux(x):\n    return x\n\ndef main(xs:\n    return 1\n\ndef other():\n    return 2")
    assert [s.name for s in found.body] == ["aux", "other"]
    assert (found.error.line, found.error.column) == (4, 9)
    assert "never closed" in found.error.message


def test_lines_of_errors_count_from_the_start_of_the_text():
    found = extract("Look:\n\n```python\ndef aux(x):\n    return x +\n```\nDone.")
    assert found.error.line == 5


def test_a_function_that_was_cut_off_is_an_error():
    found = extract("def aux(x):\n    return x\n\ndef main(xs):\n    return [aux(x) for")
    assert [s.name for s in found.body] == ["aux"]
    assert found.error.line == 5


def test_missing_colon():
    found = extract("def main(xs)\n    return 1")
    assert not found.body
    assert found.error.message == "expected ':'"


@pytest.mark.parametrize("text", ["", "   \n", "I cannot help with that.", "hello", "print('def main(): pass')", "42"])
def test_no_code_is_an_error_and_not_an_empty_program(text):
    found = extract(text, ("main",))
    assert not found.body
    assert found.error is not None


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "-" * 20_000 + "1",
        "x = " + "1+" * 20_000 + "1",
        "def f():\n" + "".join(" " * i + "if x:\n" for i in range(1, 200)),
        "x = " + "[" * 90 + "]" * 90,
        "def f(x):\n    return x" + ".a" * 3000,
        "a\x00b",
        "x = '\ud800'",
        "\ufeffdef f(): return 1",
        "x = " + "9" * 5000,
        "def f():\n\treturn 1\n        return 2",
        "\x0cdef f():\r    return 1\r",
        "a" * (MAX_TEXT + 1),
        "def f():\n    '''" + "\n" * 3000,
        "x = (\n" * 2000,
        "def f(\n" * 2000,
    ],
)
def test_hostile_text_comes_back(text):
    extract(text, ("f",))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([*"()[]{}:='\"#\n\t \\@,.", "def f(x):", "\n    return x", "```", "import os", "'''"])))
def test_any_text_comes_back(parts):
    found = extract("".join(parts))
    ast.unparse(ast.Module(body=list(found.body), type_ignores=[]))


@settings(max_examples=50, deadline=None)
@given(
    st.text(alphabet=string.ascii_letters + " '.,()", max_size=60), st.text(string.ascii_letters + " '.,(", max_size=60)
)
def test_prose_around_code_never_costs_the_code(before, after):
    text = f"{before}\n```python\n{FUNCTION}\n```\n{after}"
    assert FUNCTION in kept(text)


def test_invalid_escapes_are_neither_errors_nor_noise():
    """Whatever the filters: in a process of its own, for pytest has filters too."""
    module = "pipeline_lib.environments.coding.extraction"
    code = f"from {module} import extract; print(extract(r\"def f(): return '\\d'\").error)"
    for options in ([], ["-W", "error"], ["-W", "always"]):
        done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("None\n", "")
