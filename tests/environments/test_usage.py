"""Calls of the helper, ignored values and thin wrappers are read from the tree."""

import pytest

from pipeline_lib.environments.coding.program import build_program

AUX = "def aux(x):\n    return x * 2"


def build(main):
    return build_program((AUX, main), "main")


@pytest.mark.parametrize(
    "main",
    [
        "def main(x):\n    return aux(x)",
        "def main(x):\n    f = aux\n    return f(x) + 1",
        "def main(x):\n    f = g = aux\n    return g(x)",
        "def main(x):\n    f, n = aux, 1\n    return f(n)",
        "def main(x):\n    return (f := aux)(x) + f(x)",
        "f = aux\ndef main(x):\n    return f(x)",
        "f = aux\ng = f\ndef main(x):\n    return g(x)",
        "def main(x, f=aux):\n    return f(x)",
        "def main(x, *, f=aux):\n    return f(x)",
        "def main(xs):\n    return list(map(aux, xs))",
        "def main(xs):\n    return [x for x in filter(aux, xs)]",
        "def main(xs):\n    return sorted(xs, key=aux)",
        "from functools import reduce\ndef main(xs):\n    return reduce(lambda a, b: a + aux(b), xs)",
        "def further(x):\n    return aux(x)\ndef main(x):\n    return further(x) + 1",
        "further = lambda x: aux(x)\ndef main(x):\n    return further(x) + 1",
        "def main(x):\n    def inner(y):\n        return aux(y)\n    return inner(x)",
        "def main(x):\n    for f in [aux]:\n        x = f(x)\n    return x",
        "def solve(x):\n    return aux(x)\nmain = solve",
        "main = aux",
        "main = lambda x: aux(x) + 1",
        "@aux\ndef main(x):\n    return x",
        "def main(x):\n    global aux\n    return aux(x)",
    ],
)
def test_the_helper_is_used(main):
    assert build(main).calls_helper


@pytest.mark.parametrize(
    "main",
    [
        "def main(x):\n    return x  # aux(x)",
        "def main(x):\n    '''Uses aux(x).'''\n    return x",
        "def main(x):\n    return 'aux(x)' and x",
        "def main(x):\n    return f'aux({x})'",
        "def main(x, aux=len):\n    return aux(x)",
        "def main(aux):\n    return aux(1)",
        "def main(x):\n    aux = len\n    return aux(x)",
        "def main(x):\n    def aux(y):\n        return y\n    return aux(x)",
        "def main(x):\n    return [aux for aux in x]",
        "def main(x):\n    return (lambda aux: aux(x))(len)",
        "def main(x):\n    from math import floor as aux\n    return aux(x)",
        "def main(x):\n    return x.aux(x)",
        "def main(x):\n    return my_aux(x)",
        "def main(x):\n    aux\n    return x",
        "def main(x):\n    return x if aux is not None else 0",
        "def main(x):\n    return x if aux else 0",
        "def main(x):\n    return aux.__name__",
        "def main(x):\n    f = aux\n    return x",
        "def unused(x):\n    return aux(x)\ndef main(x):\n    return x",
        "def main(x):\n    return x\naux(3)",
        "def main(x):\n    return x\n\nif __name__ == '__main__':\n    print(aux(main(1)))",
        "def other(x):\n    return aux(x)",
    ],
)
def test_the_helper_is_not_used(main):
    program = build(main)
    assert not program.calls_helper
    assert program.ablated == ()


@pytest.mark.parametrize(
    "main",
    [
        "def main(x):\n    aux(x)\n    return x",
        "def main(x):\n    aux( x, )\n    return x",
        "def main(x):\n    y = aux(x)\n    return x",
        "def main(x):\n    _ = y = aux(x)\n    return x",
        "def main(x):\n    y: int = aux(x)\n    return x",
        "def main(x):\n    f = aux\n    f(x)\n    return x",
        "def main(x):\n    if x:\n        aux(x)\n    for i in x:\n        aux(i)\n    return x",
    ],
)
def test_values_are_thrown_away(main):
    program = build(main)
    assert program.calls_helper
    assert program.ignores_helper
    assert not program.thin_wrapper


@pytest.mark.parametrize(
    "main",
    [
        "def main(x):\n    aux(x)\n    return aux(x)",
        "def main(x):\n    y = aux(x)\n    return y",
        "def main(x):\n    print(aux(x))\n    return x",
        "def main(x):\n    x[0] = aux(x)\n    return x",
        "total = 0\ndef main(x):\n    global total\n    total = aux(x)\n    return x",
        "def main(xs):\n    map(aux, xs)\n    return xs",
        "def main(x):\n    if aux(x):\n        return 1\n    return 0",
    ],
)
def test_values_are_not_all_thrown_away(main):
    program = build(main)
    assert program.calls_helper
    assert not program.ignores_helper


@pytest.mark.parametrize(
    "main",
    [
        "def main(x):\n    return aux(x)",
        "def main(x, y):\n    return aux(y, x, 3, k=x)",
        "def main(*xs):\n    return aux(*xs)",
        "def main(x):\n    result = aux(x)\n    return result",
        "def main(x):\n    a = x\n    b = aux(a)\n    c = b\n    return c",
        "def main(x):\n    '''Doc.'''\n    pass\n    dummy = 1\n    return aux(x)",
        "def main(x):\n    n = len(x)\n    return aux(x)",
        "def main(x):\n    result = aux(x)\n    print(result)\n    unused = [result]\n    return result",
        "def main(x):\n    if True:\n        return aux(x)\n    return 0",
        "def main(x):\n    if False:\n        return 0\n    return aux(x)",
        "def main(x):\n    return aux(x)\n    return 0",
        "def main(x):\n    if x:\n        return aux(x)\n    else:\n        return aux(x)\n    return 1",
        "def main(x):\n    return aux(x) if x else aux(x)",
        "def main(x):\n    return (y := aux(x))",
        "def main(x):\n    assert x is not None\n    for i in range(3):\n        pass\n    return aux(x)",
        "def main(x):\n    f = aux\n    return f(x)",
        "f = aux\ndef main(x):\n    return f(x)",
        "def further(y):\n    return aux(y)\ndef main(x):\n    return further(x)",
        "main = lambda x: aux(x)",
        "main = aux",
        "def solve(x):\n    return aux(x)\nmain = solve",
    ],
)
def test_thin_wrappers(main):
    program = build(main)
    assert program.calls_helper
    assert program.thin_wrapper


@pytest.mark.parametrize(
    "main",
    [
        "def main(x):\n    return aux(x) + 1",
        "def main(x):\n    return sum(aux(x))",
        "def main(xs):\n    return [aux(x) for x in xs]",
        "def main(xs):\n    return aux([x for x in xs if x > 0])",
        "def main(xs):\n    ys = sorted(xs)\n    return aux(ys)",
        "def main(xs):\n    xs = sorted(xs)\n    return aux(xs)",
        "def main(xs):\n    xs.sort()\n    return aux(xs)",
        "def main(xs):\n    xs[0] = 1\n    return aux(xs)",
        "def main(xs):\n    change(xs)\n    return aux(xs)",
        "def main(x):\n    if not x:\n        return 0\n    return aux(x)",
        "def main(x):\n    try:\n        return aux(x)\n    except ValueError:\n        return 0",
        "def main(x):\n    y = aux(x)\n    if y is None:\n        y = 0\n    return y",
        "def main(x):\n    y = aux(x)\n    y += 1\n    return y",
        "def main(x):\n    y = aux(x)\n    y.append(1)\n    return y",
        "def main(x):\n    y = aux(x)\n    y = y + 1\n    return y",
        "def main(x):\n    return aux(aux(x))",
        "def main(x):\n    yield aux(x)",
        "def main(x):\n    while True:\n        return aux(x) or 1",
        "def further(y):\n    return aux(y) + 1\ndef main(x):\n    return further(x)",
        "def main(x):\n    return main(aux(x))",
        "def main(x):\n    return x",
    ],
)
def test_not_thin_wrappers(main):
    assert not build(main).thin_wrapper
