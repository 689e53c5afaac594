"""The four cooperation schemes of the MAGRPO paper: programs that follow them, and programs that do not."""

import pytest

from pipeline_lib.environments.coding.schemes import CONVENTIONS, SCHEMES, convention, schemes

AUX = "def aux(x):\n    return x * 2\n\n"


def of(main):
    return set(schemes(AUX + main, "main"))


PROGRAMS = {
    "fallback": [
        "def main(x):\n    try:\n        return aux(x)\n    except Exception:\n        return x * 2",
        "def main(x):\n    try:\n        y = aux(x)\n    except Exception:\n        y = 0\n    return y",
        "def main(x):\n    y = aux(x)\n    if y is None:\n        y = x * 2\n    return y",
        "def main(x):\n    y = aux(x)\n    if y is not None:\n        return y\n    return x * 2",
        "def main(x):\n    y = aux(x)\n    return y if y is not None else x * 2",
        "def main(x):\n    y = aux(x)\n    if not y:\n        return [x]\n    return y",
        "def main(x):\n    y = aux(x)\n    if y:\n        return y\n    return x * 2",
        "def main(x):\n    return aux(x) or x * 2",
        "def main(x):\n    y = aux(x)\n    return y or 0",
        "def main(x):\n    if (y := aux(x)) is None:\n        return 0\n    return y",
    ],
    "decorator": [
        "def main(xs):\n    if not xs:\n        return 0\n    return aux(xs)",
        "def main(xs):\n    if xs:\n        return aux(xs)\n    return 0",
        "def main(xs):\n    return aux(xs) if xs else []",
        "def main(xs):\n    if not isinstance(xs, list):\n        raise TypeError('a list')\n    return aux(xs)",
        "def main(xs):\n    return max(aux(xs))",
        "def main(xs):\n    return aux(xs)[0]",
        "def main(xs):\n    ys = aux(xs)\n    return sorted(ys)",
        "def main(xs):\n    ys = aux(xs)\n    ys.sort()\n    return ys",
        "def main(xs):\n    return aux(sorted(xs))",
        "def main(xs):\n    return sum([y + 1 for y in aux(xs)])",
        "def main(xs):\n    total = 0\n    for y in aux(xs):\n        total += y\n    return total",
    ],
    "coordinator": [
        "def main(xs):\n    return [aux(x) for x in xs]",
        "def main(xs):\n    return sum(aux(x) for x in xs)",
        "def main(xs):\n    out = []\n    for x in xs:\n        out.append(aux(x))\n    return out",
        "def main(x):\n    while x < 9:\n        x = aux(x)\n    return x",
        "def main(xs):\n    return list(map(aux, xs))",
        "import itertools\ndef main(xs):\n    return list(itertools.starmap(aux, xs))",
        "def main(xs):\n    return sorted(xs, key=aux)",
        "def main(x, y):\n    return aux(x) + aux(y)",
        "def main(x, y):\n    a = aux(x)\n    b = aux(y)\n    return a + b",
        "def main(xs):\n    return max(y for y in map(aux, xs) if y is not None)",
    ],
    "strategy_filter": [
        "def main(xs):\n    if len(xs) > 3:\n        return aux(xs)\n    return sum(xs) // 2",
        "def main(xs):\n    if len(xs) < 3:\n        return sum(xs) // 2\n    return aux(xs)",
        "def main(xs):\n    if len(xs) < 3:\n        y = sum(xs)\n    else:\n        y = aux(xs)\n    return y",
        "def main(x):\n    return aux(x) if x > 3 else x - 1",
        "def main(x):\n    if aux(x):\n        return x + 1\n    return x - 1",
        "def main(x):\n    ok = aux(x)\n    if ok:\n        return x + 1\n    return x - 1",
        "def main(x):\n    if aux(x) > 3:\n        return 1\n    return 0",
        "def main(xs):\n    return [x for x in xs if aux(x)]",
        "def main(xs):\n    return sum(filter(aux, xs))",
        "def main(x):\n    if x > 0:\n        x = aux(x)\n    return x + 1",
        "def main(x):\n    match aux(x):\n        case 1:\n            return x\n    return 0",
    ],
}


@pytest.mark.parametrize(("scheme", "main"), [(name, main) for name, mains in PROGRAMS.items() for main in mains])
def test_programs_that_follow_a_scheme(scheme, main):
    assert scheme in of(main)


@pytest.mark.parametrize(
    ("scheme", "main"),
    [(name, main) for name in PROGRAMS for other, mains in PROGRAMS.items() if other != name for main in mains],
)
def test_programs_written_for_one_scheme_follow_no_other(scheme, main):
    both = {
        # Filtering a list by the helper is also applying it to every item.
        ("coordinator", "def main(xs):\n    return [x for x in xs if aux(x)]"),
        ("coordinator", "def main(xs):\n    return sum(filter(aux, xs))"),
        # From the second round on, the condition is about the helper's value.
        ("strategy_filter", "def main(x):\n    while x < 9:\n        x = aux(x)\n    return x"),
    }
    assert (scheme in of(main)) == ((scheme, main) in both)


@pytest.mark.parametrize(
    "main",
    [
        "def main(x):\n    return aux(x)",
        "def main(x):\n    y = aux(x)\n    return y",
        "def main(x):\n    dummy = 1\n    return aux(x)",
        "def main(x):\n    return x",
        "def main(x):\n    return x  # if aux(x) is None: for aux in aux",
        "def main(x):\n    '''try: aux(x) except: return 0'''\n    return x",
        "def main(x, aux=len):\n    return [aux(y) for y in x]",
        "def other(x):\n    return aux(x) or 0\ndef main(x):\n    return x",
    ],
)
def test_thin_wrappers_and_loners_follow_none(main):
    assert of(main) == set()


def test_a_handler_that_only_raises_is_no_fallback():
    main = "def main(x):\n    try:\n        return aux(x) + 1\n    except KeyError:\n        raise ValueError(x)"
    assert of(main) == {"decorator"}


def test_several_schemes_at_once():
    main = (
        "def main(xs):\n    if not xs:\n        return 0\n    total = 0\n"
        "    for x in xs:\n        try:\n            total += aux(x)\n"
        "        except ValueError:\n            total += 1\n    return total"
    )
    assert of(main) == {"fallback", "decorator", "coordinator"}


def test_further_functions_of_the_main_agent_are_read_too():
    assert of("def each(x):\n    return aux(x) or 0\ndef main(xs):\n    return each(xs) + 1") == {"fallback"}


def test_schemes_are_those_of_the_paper():
    assert set(PROGRAMS) == set(SCHEMES)


@pytest.mark.parametrize(
    ("name", "helper"),
    [
        ("list", "def aux(xs):\n    return [x * x for x in xs if x > 3]"),
        ("list", "def aux(xs):\n    return [x * x for x in xs]"),
        ("keep", "def aux(xs):\n    return [x for x in xs if x > 3]"),
        ("pred", "def aux(x):\n    return x > 3"),
        ("pred", "def aux(x):\n    return x > 3 and x % 2 == 0"),
        ("pred", "aux = lambda x: not x"),
        ("each", "def aux(x):\n    return x * x if x > 3 else None"),
        ("other", "def aux(x):\n    return x + 1"),
        ("other", "def aux(x):\n    if x:\n        return True\n    return False"),
        ("other", "def helper(x):\n    return x > 3"),
    ],
)
def test_conventions(name, helper):
    assert convention(helper) == name
    assert name in (*CONVENTIONS, "other")
