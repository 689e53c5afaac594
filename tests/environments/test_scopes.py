"""Names are resolved as Python resolves them; the interpreter itself is the judge."""

import ast
import symtable

import pytest

from pipeline_lib.environments.coding.scopes import bindings, module_references, rename

PROGRAMS = [
    "def f(aux):\n    return aux(1)",
    "def f(x):\n    aux = len\n    return aux(x)",
    "def f(x):\n    global aux\n    aux = len\n    return aux(x)",
    "def f(x):\n    def aux(y):\n        return y\n    return aux(x)",
    "def f(x):\n    def g(y):\n        return aux(y)\n    return g(x)",
    "def f(x):\n    return [aux(y) for y in x]",
    "def f(x):\n    return [aux for aux in x]",
    "def f(x):\n    return [x for aux in aux for x in aux]",
    "def f(x):\n    return {aux: 1 for aux in x}, aux",
    "def f(x):\n    return any((aux := y) for y in x) and aux",
    "f = lambda aux: aux(1)",
    "f = lambda x, y=aux: y(x)",
    "class C:\n    aux = 1\n    def m(self):\n        return aux",
    "class C:\n    aux = 1\n    other = aux + 1",
    "def f(x):\n    from math import floor as aux\n    return aux(x)",
    "def f(x):\n    try:\n        pass\n    except ValueError as aux:\n        return aux",
    "def f(x):\n    for aux in x:\n        pass\n    return aux",
    "def f(x):\n    with open(x) as aux:\n        return aux",
    "def f(x):\n    match x:\n        case [aux, *rest]:\n            return aux",
    "def f(x):\n    match x:\n        case {'a': 1, **aux}:\n            return aux",
    "def f(x):\n    def g():\n        nonlocal x\n        x = aux\n    return g",
    "@aux\ndef f(x: aux = aux) -> aux:\n    return x",
    "async def f(x):\n    async for aux in x:\n        yield aux",
    "def f(aux):\n    def g():\n        global aux\n        return aux(1)\n    return g",
    "import aux\nfrom os import path as aux\naux = 1\nprint(aux)",
]


def names_by_symtable(source):
    """Return how often the interpreter's own symbol tables see ``aux`` as a module-level name, per scope."""

    def walk(table):
        found = 0
        for symbol in table.get_symbols():
            if symbol.get_name() == "aux" and (symbol.is_referenced() or symbol.is_assigned() or symbol.is_imported()):
                found += table.get_type() == "module" or symbol.is_global()
        return found + sum(walk(child) for child in table.get_children())

    return walk(symtable.symtable(source, "<test>", "exec"))


@pytest.mark.parametrize("source", PROGRAMS)
def test_module_names_are_those_the_interpreter_sees(source):
    tree = ast.parse(source)
    found = any(name.id == "aux" for name in module_references(tree.body))
    found |= any(name == "aux" for name, _ in bindings(tree.body))
    assert found == bool(names_by_symtable(source))


@pytest.mark.parametrize("source", PROGRAMS)
def test_renaming_touches_all_module_names_and_no_others(source):
    tree = ast.parse(source)
    rename(tree.body, {"aux": "other"})
    renamed = ast.unparse(tree)
    assert names_by_symtable(renamed) == 0
    back = ast.parse(renamed)
    rename(back.body, {"other": "aux"})
    assert ast.unparse(back) == ast.unparse(ast.parse(source)) or "import" in source


def test_a_renamed_program_still_runs_the_same():
    source = (
        "import math\nK = 2\n"
        "def g(x):\n    global K\n    K += 1\n    return math.floor(x) * K\n"
        "def f(K=K):\n    return g(1.5) + K"
    )
    tree = ast.parse(source)
    rename(tree.body, {"K": "K2", "math": "m", "g": "h"})
    space: dict = {}
    exec(compile(tree, "<renamed>", "exec"), space)
    assert space["f"]() == 1 * 3 + 2
    assert {"K2", "m", "h"} <= set(space)
    assert not {"K", "math", "g"} & set(space)


def test_a_dotted_import_is_left_alone():
    tree = ast.parse("import os.path\nprint(os.sep)")
    rename(tree.body, {"os": "other"})
    assert ast.unparse(tree) == "import os.path\nprint(os.sep)"
