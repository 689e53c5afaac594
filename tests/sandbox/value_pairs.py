"""Random pairs of a program that returns a value of some kind, and tests that compare, use or change it."""

import random
from collections.abc import Iterator

from benchmarks.differential_pairs import Pair

_METHODS = {
    "int": ("__eq__(s, o)", "__ne__(s, o)", "__lt__(s, o)", "__add__(s, o)", "__radd__(s, o)", "__mul__(s, o)",
            "__abs__(s)", "__hash__(s)", "__bool__(s)", "__index__(s)", "__int__(s)", "__str__(s)", "__repr__(s)",
            "bit_length(s)", "other(s)", "__format__(s, o)"),
    "str": ("__eq__(s, o)", "__ne__(s, o)", "__add__(s, o)", "__contains__(s, o)", "__len__(s)", "__iter__(s)",
            "__getitem__(s, o)", "upper(s)", "__mod__(s, o)", "__hash__(s)", "__str__(s)", "other(s)"),
    "list": ("__eq__(s, o)", "__ne__(s, o)", "__contains__(s, o)", "__len__(s)", "__iter__(s)", "__getitem__(s, o)",
             "__add__(s, o)", "__iadd__(s, o)", "append(s, o)", "index(s, o)", "__bool__(s)", "__lt__(s, o)",
             "__repr__(s)", "other(s)", "__setitem__(s, i, o)", "__reversed__(s)"),
    "tuple": ("__eq__(s, o)", "__ne__(s, o)", "__contains__(s, o)", "__len__(s)", "__iter__(s)", "__getitem__(s, o)",
              "__add__(s, o)", "__hash__(s)", "count(s, o)", "other(s)"),
    "dict": ("__eq__(s, o)", "__ne__(s, o)", "__contains__(s, o)", "__len__(s)", "__iter__(s)", "__getitem__(s, o)",
             "__missing__(s, o)", "get(s, o)", "items(s)", "keys(s)", "__or__(s, o)", "other(s)"),
    "set": ("__eq__(s, o)", "__ne__(s, o)", "__contains__(s, o)", "__len__(s)", "__iter__(s)", "__and__(s, o)",
            "add(s, o)", "other(s)"),
    "object": ("__eq__(s, o)", "__ne__(s, o)", "__hash__(s)", "__lt__(s, o)", "__add__(s, o)", "__len__(s)",
               "__contains__(s, o)", "__iter__(s)", "__bool__(s)", "__call__(s)", "__getitem__(s, o)", "__int__(s)",
               "__getattr__(s, o)", "__getattribute__(s, o)", "__class__(s)", "append(s, o)", "__str__(s)"),
}  # fmt: skip
_RESULTS = ("True", "False", "3", "'ab'", "[1, 2]", "iter([1, 2])", "NotImplemented", "s", "0", "None", "hash(3)")
_BUILT = {"int": "3", "str": "'ab'", "list": "[1, 2]", "tuple": "(1, [2])", "dict": "{'k': 1}", "set": "{1, 2}"}
_PLAIN = (
    *("3", "True", "1.5", "'ab'", "b'ab'", "None", "10 ** 30", "(1, 2)", "(1, [2])", "[1, 2]", "[[1], [1]]"),
    *("{'k': 1}", "{'k': [1]}", "{1, 2}", "frozenset({1, 2})", "deque([1, 2])", "Counter('aab')", "range(2)"),
    *("OrderedDict(k=1, j=2)", "defaultdict(list, k=[1])", "N(1, [2])", "T(1)", "I.R", "E.R", "D(1)", "F(1)"),
    *("np.array([1, 2])", "np.float64(1.5)", "np.int64(3)", "np.str_('ab')", "array('i', [1, 2])", "iter([1, 2])"),
    *("bytearray(b'ab')", "Decimal('1.5')", "Fraction(3, 2)", "date(2024, 1, 2)", "ValueError('ab')", "len", "f"),
    *("{'k': 1}.keys()", "{'k': [1]}.values()", "np.zeros((2, 2))[0]", "memoryview(b'ab')", "complex(1, 2)"),
)
_DEFINED = """
from array import array
from collections import *
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
import enum, typing
N = namedtuple('N', 'x y')
class T(typing.NamedTuple):
    x: int
    def other(self): return 3
class I(enum.IntEnum): R = 3
class E(enum.Enum): R = 3
@dataclass
class D: x: int
@dataclass(frozen=True)
class F: x: int
"""
_WRAPPED = ("V", "V", "V", "[V]", "(V,)", "{'k': V}", "{V: 1}", "{V}", "deque([V])", "[V, V]", "N(V, 1)", "(1, (V,))")
_PROGRAMS = (
    "def f(x=None): return W",
    "K = W\ndef f(x=None): return K",
    "K = W\ndef f(x=None):\n    C\n    return K",
    "K = W\ndef f(x=None): return (K, K)",
    "def f(x=None):\n    K = x if x is not None else W\n    C\n    return K",
    "def f(x=None): return x if x is not None else W",
    "K = (W, [])\ndef f(x=None):\n    K[1].append(1)\n    return K",
)
_CHANGES = (
    *("K.append(7)", "K += [7]", "K['k'] = 7", "K[0] = 7", "K.z = 7", "K.clear()", "K.add(7)", "K.update({7: 7})"),
    *("K *= 2", "K.reverse()", "K[0].append(7)", "K.pop()", "pass"),
)
_USES = (
    *("a == X", "X == a", "a != X", "X != a", "a is b", "a == b", "a != b", "a in [X]", "X in [a]", "X in a", "1 in a"),
    *("len(a) == len(X)", "bool(a)", "a < X", "X < a", "a + X == X + X", "X + a == X + X", "a * 2 == X * 2"),
    *("isinstance(a, type(X))", "type(a) is type(X)", "str(a) == str(X)", "repr(a) == repr(X)", "f'{a}' == f'{X}'"),
    *("list(a) == list(X)", "sorted(a) == sorted(X)", "dict(a) == dict(X)", "set(a) == set(X)", "tuple(a) == tuple(X)"),
    *("hash(a) == hash(X)", "len({a, X}) == 1", "{a} == {X}", "{a: 1} == {X: 1}", "a in {X: 1}", "X in {a: 1}"),
    *("[a] == [X]", "(a, 1) == (X, 1)", "{'q': a} == {'q': X}", "[a].count(X)", "[a].index(X) == 0", "max(a, X) == X"),
    *("hasattr(a, 'append')", "hasattr(a, 'k')", "hasattr(a, 'x')", "hasattr(a, 'other')", "a.x == 1", "a[0] == 1"),
    *("a['k'] == 1", "a.get('k') == 1", "a[-1] == b[-1]", "copy.copy(a) == a", "copy.deepcopy(a) == X", "callable(a)"),
    *("json.dumps(a) == json.dumps(X)", "a.z == 7", "int(a) == 3", "abs(a - X) < 1e-6", "a.other() == 3", "a() == X"),
    *("a.index(2) == 1", "a.count(1) == 1", "[*a] == [*X]", "a | X == X", "a & X == X", "'%s' % (a,) == str(X)"),
    *("type(a).__name__ == type(X).__name__", "a.__class__ is type(X)", "isinstance(a, (int, list, dict, str, tuple))"),
    *(
        "all(x == y for x, y in zip(a, X))",
        "a[0] is b[0]",
        "list(reversed(a)) == list(reversed(X))",
        "a == a",
        "a[0] == X",
    ),
    *("math.isclose(a, X)", "a.append(1) is None", "isinstance(a, Mapping)", "isinstance(a, Iterable)", "a == [X]"),
)
_BEFORE = (
    *("a.append(7)", "a[0] = 7", "a['k'] = 7", "a += [7]", "a.z = 7", "a.clear()", "a.add(7)", "a[0].append(7)"),
    *("b = candidate(a)", "b = candidate(b)", "a, b = a", "a = a[0]", "a = a['k']", "a = [*a][0]", "a = a.copy()"),
    *("b = copy.copy(a)", "del a[0]", "a.sort()", "next(a)", "a = a[1]", "a *= 2", "a.x = 5"),
)
_CHECKS = (
    "    assert U\n",
    "    assert not (U)\n",
    "    try: r = U\n    except Exception: r = None\n    assert r is None\n",
    "    try: r = U\n    except (TypeError, AttributeError): r = False\n    assert not r\n",
)


def value_pairs(number: int, seed: int) -> Iterator[Pair]:
    """Yield ``number`` pairs; the same for the same seed."""
    draw = random.Random(seed)
    for index in range(number):
        defined, value, expected = _value(draw)
        wrapped = draw.choice(_WRAPPED).replace("V", "V()")
        numpy = "import numpy as np\n" if "np." in value + expected else ""
        code = f"{_DEFINED}{numpy}{defined}def V(): return {value}\n"
        code += draw.choice(_PROGRAMS).replace("W", wrapped).replace("C\n", draw.choice(_CHANGES) + "\n") + "\n"
        use = draw.choice(_USES).replace("X", "E")
        tests = f"{numpy}{_IMPORTS}def check(candidate):\n    E = {expected}\n    a, b = candidate(), candidate()\n"
        for _ in range(draw.choice((0, 0, 1, 1, 2))):
            tests += f"    {draw.choice(_BEFORE)}\n"
            if draw.random() < 0.4:
                tests += "    b = candidate()\n"
        tests += draw.choice(_CHECKS).replace("U", use)
        yield Pair(f"{index}", use, value, code, tests, "f")


_IMPORTS = "import copy, json, math\nfrom collections import *\nfrom collections.abc import *\n"
_IMPORTS += "from array import array\nfrom datetime import date\nfrom decimal import Decimal\n"
_IMPORTS += "from fractions import Fraction\n"


def _value(draw: random.Random) -> tuple[str, str, str]:
    """Return definitions, a value, and a plain value to compare it with."""
    unknown = ("N(", "T(", "I.R", "E.R", "D(", "F(", "f")
    if draw.random() < 0.45:
        value = draw.choice(_PLAIN)
        others = [other for other in _PLAIN if not other.startswith(unknown)]
        likely = {"I.R": "3", "E.R": "3", "N(1, [2])": "(1, [2])", "T(1)": "(1,)", "D(1)": "1", "F(1)": "1"}
        same = likely.get(value, value if value in others else "3")
        return "", value, same if draw.random() < 0.7 else draw.choice(others)
    base = draw.choice([*_METHODS])
    methods = draw.sample(_METHODS[base], draw.choice((0, 1, 1, 2)))
    body = "".join(f"    def {method}: return {draw.choice(_RESULTS)}\n" for method in methods)
    if draw.random() < 0.1 and base == "object":
        body += "    __hash__ = None\n"
    made = "C()" if base == "object" else f"C({_BUILT[base]})"
    expected = "3" if base == "object" else _BUILT[base]
    return f"class C({base}):\n{body or '    pass' + chr(10)}", made, expected


_KEEPER = """
from collections import *
from array import array
class L(list):
    def total(s): return len(s)
class T(tuple): pass
class O:
    def __init__(s): s.items = [0]
    def __repr__(s): return 'O'
N = namedtuple('N', 'x y')
K = []
def f(do, *args):
    if do == 'new':
        K.append(MAKE[args[0]]())
        return K[-1]
    if do == 'keep':
        K.append(args[0])
        return None
    if do == 'get': return K[args[0] % len(K)]
    if do == 'pair': return (K[args[0] % len(K)], [K[args[1] % len(K)]])
    if do == 'dict': return {'a': K[args[0] % len(K)], 'b': K[args[1] % len(K)]}
    if do == 'drop': K.pop(args[0] % len(K))
    if do == 'change': change(K[args[0] % len(K)], args[1])
    if do == 'nest':
        where, what = K[args[0] % len(K)], K[args[1] % len(K)]
        if isinstance(where, list): where.append(what)
        elif isinstance(where, dict): where['n'] = what
    if do == 'given': change(args[0], args[1])
    if do == 'see': return [str(K), len(K)]
    if do == 'fail':
        change(args[0], 3)
        raise ValueError('no')
    return None
MAKE = [list, dict, lambda: [1, 2], lambda: ([1], 2), lambda: L([1]), lambda: {'k': [1]}, lambda: {1, 2}, O,
        lambda: deque([1]), lambda: OrderedDict(a=1), lambda: defaultdict(list, q=[1]), lambda: N([1], 2),
        lambda: T(([1], 2)), lambda: array('i', [1]), lambda: bytearray(b'a'), lambda: {'k': [1]}.values(),
        lambda: Counter('a'), lambda: 5]
"""
_CHANGE = """
def change(thing, how):
    try:
        if how == 0: thing.append(how)
        elif how == 1: thing['z'] = [how]
        elif how == 2: thing[0] = 9
        elif how == 3: thing[0].append(8)
        elif how == 4: thing.clear()
        elif how == 5: thing.add(how)
        elif how == 6: thing.items.append(6)
        elif how == 7: thing.note = 7
        elif how == 8: thing += thing
        elif how == 9: thing.reverse()
    except Exception: pass
"""
_SHOW = """
def show(seen, depth=0):
    found = []
    for n, one in enumerate(seen):
        kind = type(one).__name__
        inner = ''
        if kind == 'O': inner = show([one.items], depth + 1) if depth < 3 else ''
        elif kind == 'L': inner = [one.total(), list(one) and depth < 3 and show(list(one), depth + 1)]
        elif isinstance(one, dict) and depth < 3: inner = [[*one], show([*one.values()], depth + 1)]
        elif isinstance(one, (list, tuple, deque)) and depth < 3: inner = show([*one], depth + 1)
        elif isinstance(one, (set, int, str, bytearray, array)): inner = str(one)
        same = [m for m, other in enumerate(seen) if type(other) in KINDS and one is other]
        found.append([kind, hasattr(one, 'note'), inner, same])
    return found
"""
_KINDS = "KINDS = (list, dict, set, deque, OrderedDict, defaultdict, array, bytearray, Counter)\n"
_TESTS = "from array import array\nfrom collections import *\n" + _KINDS


def stories(number: int, seed: int) -> Iterator[Pair]:
    """Yield programs that keep, share and change what they get and give, and tests of all that can be seen then."""
    draw = random.Random(seed)
    for index in range(number):
        steps = ["V = [f('new', 2)]"]
        for _ in range(draw.randint(3, 9)):
            i, j, k = (draw.randrange(9) for _ in range(3))
            steps.append(
                draw.choice(
                    (
                        *(f"V.append(f('new', {draw.randrange(18)}))", f"V.append(f('get', {i}))"),
                        *(f"V.append(f('pair', {i}, {j}))", f"V.append(f('dict', {i}, {j}))"),
                        *(f"f('keep', V[{i} % len(V)])", f"f('change', {i}, {k})", f"f('nest', {i}, {j})"),
                        *(f"f('given', V[{i} % len(V)], {k})", f"change(V[{i} % len(V)], {k})", "f('drop', 0)"),
                        *(f"V.append([V[{i} % len(V)], {j}])", f"f('keep', (V[{i} % len(V)], V[{j} % len(V)]))"),
                        *("V.append(f('see'))", "V.append(list(V))", f"del V[{i} % len(V)]; V.append(3)"),
                        f"try: f('fail', V[{i} % len(V)])\nexcept ValueError: V.append('failed')",
                    )
                )
            )
        story = "\n".join([_CHANGE, _SHOW, *steps, "SEEN = show(V)\n"])
        space: dict[str, object] = {}
        exec(_KEEPER + _CHANGE, space)
        try:
            exec(_TESTS + story, space)
        except Exception:
            continue
        tests = f"{_TESTS}{story}assert SEEN == {space['SEEN']!r}\n"
        yield Pair(f"story {index}", "story", "\n".join(steps), _KEEPER + _CHANGE, tests, "f")
