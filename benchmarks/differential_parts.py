"""What the pairs of `benchmarks.differential_pairs` are made of: problems, shapes of tests, endings of programs."""

from __future__ import annotations

# Source of a function f, and argument lists; the expected values are what the source returns.
PROBLEMS: list[tuple[str, str]] = [
    ("def f(x):\n    return x * x\n", "[(2,), (3,), (-4,)]"),
    ("def f(a, b):\n    return a + b\n", "[(1, 2), (3, 4), (0.5, 0.25), (-1, 1)]"),
    ("def f(items):\n    return sorted(items)\n", "[([3, 1, 2],), ([],), ([5, 5],)]"),
    ("def f(items):\n    items.sort()\n    return items\n", "[([3, 1, 2],), ([1],)]"),
    ("def f(n):\n    return [[0] * n for _ in range(n)]\n", "[(2,), (3,), (0,)]"),
    ("def f(n):\n    return [[0] * n] * n\n", "[(2,), (3,)]"),
    ("def f(x, seen=[]):\n    seen.append(x)\n    return list(seen)[-1:]\n", "[(1,), (2,)]"),
    ("def f(x, seen=[]):\n    seen[:] = [x]\n    return seen\n", "[(1,), (2,)]"),
    ("from functools import lru_cache\n@lru_cache\ndef f(n):\n    return list(range(n))\n", "[(3,), (3,), (1,)]"),
    ("def f(text):\n    return {c: text.count(c) for c in text}\n", "[('abca',), ('',), ('zz',)]"),
    ("def f(text):\n    return text[::-1].upper()\n", "[('abc',), ('',), ('x',)]"),
    ("def f(items):\n    return {tuple(i) for i in items}\n", "[([[1, 2], [1, 2]],), ([],)]"),
    ("def f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)\n", "[(1,), (7,), (10,)]"),
    (
        "def f(x):\n    if x < 0:\n        raise ValueError('negative')\n    return x ** 0.5\n",
        "[(4,), (9,), (2,)]",
    ),
    ("def f(grid):\n    return [list(row) for row in zip(*grid)]\n", "[([[1, 2], [3, 4]],), ([[1]],)]"),
    ("def f(items, k):\n    return items[k:] + items[:k]\n", "[([1, 2, 3], 1), ([1], 0), ((1, 2), 1)]"),
    ("def f(n):\n    for i in range(n):\n        yield i\n", "[(3,), (0,)]"),
    ("def f(a, b):\n    return divmod(a, b)\n", "[(7, 3), (-7, 3), (1, 1)]"),
    ("def f(words):\n    return max(words, key=len) if words else None\n", "[(['a', 'bcd'],), ([],)]"),
    ("def f(x):\n    return x is None or bool(x)\n", "[(None,), (0,), ([1],)]"),
    ("def f(record):\n    record['n'] = record.get('n', 0) + 1\n    return record['n']\n", "[({},), ({'n': 2},)]"),
]


def _parts(text: str) -> dict[str, str]:
    """Return the parts of a text by the names in their first lines."""
    return {name: body for name, _, body in (part.partition("\n") for part in text.strip("= \n").split("\n=== "))}


# How a check goes about it: CASES holds (arguments, expected value) pairs.
SHAPES = _parts("""
=== straight
=== loop
for args, want in CASES:
    got = candidate(*args)
    assert got == want
=== loop of asserts
for args, want in CASES:
    assert candidate(*args) == want
=== while
rest = list(CASES)
while rest:
    args, want = rest.pop()
    got = candidate(*args)
    assert got == want
=== helper
def same(args, want):
    got = candidate(*args)
    assert got == want
for case in CASES:
    same(*case)
=== branches
for args, want in CASES:
    got = candidate(*args)
    if want:
        assert got == want
    elif want is None:
        assert got is None
    else:
        assert not got and type(got) is type(want)
=== zero times
got = candidate(*CASES[0][0])
for item in []:
    assert item
assert got == CASES[0][1]
=== only zero times
got = candidate(*CASES[0][0])
for item in CASES[9:]:
    assert item
=== all
assert all(candidate(*args) == want for args, want in CASES)
=== mapped
assert all(map(lambda case: candidate(*case[0]) == case[1], CASES))
=== forgiven
for args, want in CASES:
    try:
        assert candidate(*args) == want
    except AssertionError:
        pass
=== all at once
assert [candidate(*args) for args, want in CASES] == [want for args, want in CASES]
=== kept
results = [candidate(*args) for args, want in CASES]
for got, (args, want) in zip(results, CASES):
    assert got == want
=== unchanged
import copy
for args, want in CASES:
    before = copy.deepcopy(args)
    got = candidate(*args)
    assert got == want
    assert args == before
=== changed value
for args, want in CASES:
    first = candidate(*args)
    if isinstance(first, list):
        first.append(0)
        if isinstance(first[0], list):
            first[0].append(1)
    got = candidate(*args)
    assert got == want
=== rows
got = candidate(*CASES[0][0])
if isinstance(got, list) and got and isinstance(got[0], list):
    got[0].append(5)
    assert 5 not in got[-1] or len(got) == 1
assert len(CASES) > 0 and got is not None
=== last call
assert candidate(*CASES[0][0]) == CASES[0][1]
last = candidate(*CASES[-1][0])
=== bare calls
for args, want in CASES:
    candidate(*args)
assert candidate(*CASES[0][0]) == CASES[0][1]
=== suppressed
import contextlib
assert candidate(*CASES[0][0]) == CASES[0][1]
with contextlib.suppress(Exception):
    candidate(*CASES[1][0])
=== suppressed all
import contextlib
assert candidate(*CASES[0][0]) == CASES[0][1]
with contextlib.suppress(BaseException):
    candidate(*CASES[1][0])
=== finally
assert candidate(*CASES[0][0]) == CASES[0][1]
try:
    candidate(*CASES[1][0])
finally:
    return
=== caught
got = None
try:
    got = candidate(*CASES[1][0])
except Exception:
    pass
assert got == CASES[1][1]
=== expected
assert candidate(*CASES[0][0]) == CASES[0][1]
try:
    candidate(*CASES[1][0])
except (ValueError, LookupError):
    pass
=== must raise
raised = False
try:
    candidate(object, 1, 2, 3, 4)
    assert False
except TypeError:
    raised = True
assert raised
assert candidate(*CASES[0][0]) == CASES[0][1]
=== exit expected
try:
    candidate(*CASES[1][0])
except SystemExit:
    pass
assert candidate(*CASES[0][0]) == CASES[0][1]
=== skipped
from unittest import SkipTest
try:
    got = candidate(*CASES[1][0])
except SkipTest:
    return
assert got == CASES[1][1]
=== thread
import threading
results = []
thread = threading.Thread(target=lambda: results.append(candidate(*CASES[0][0])))
thread.start(); thread.join()
assert results == [CASES[0][1]]
=== forgotten thread
import threading
assert candidate(*CASES[0][0]) == CASES[0][1]
thread = threading.Thread(target=candidate, args=CASES[1][0])
thread.start(); thread.join()
=== unittest
import io, unittest
class T(unittest.TestCase):
    def test(self):
        for args, want in CASES:
            self.assertEqual(candidate(*args), want)
suite = unittest.defaultTestLoader.loadTestsFromTestCase(T)
assert unittest.TextTestRunner(stream=io.StringIO()).run(suite).wasSuccessful()
=== generator
yield
assert candidate(*CASES[0][0]) == CASES[0][1]
""")

# What a program does once it has given a number of right answers; WRAPPED(*args) is the right answer.
ENDINGS = _parts("""
=== goes on
return WRAPPED(*args)
=== none
return None
=== raises
raise ValueError('no')
=== raises a key error
return {}[args]
=== raises its own
raise type('SkipTest', (Exception,), {})('no')
=== skips
import unittest
raise unittest.SkipTest('no')
=== fails an assert
assert False
=== stops
raise StopIteration
=== generator exit
raise GeneratorExit
=== exits
import sys
sys.exit(0)
=== interrupts
raise KeyboardInterrupt
=== base exception
raise type('E', (BaseException,), {})('no')
=== memory error
raise MemoryError
=== recursion
def g():
    return g()
return g()
=== dies
import os
os._exit(0)
=== dies of a signal
import ctypes
ctypes.string_at(0)
=== hangs
while True:
    pass
=== takes memory
return len(bytearray(1 << 40))
=== closes
import os
os.closerange(3, 64)
return WRAPPED(*args)
=== lowers a limit
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
return WRAPPED(*args)
=== object
return object()
=== function
return lambda: 1
=== class
return ValueError
=== generator
return (item for item in [WRAPPED(*args)])
=== equal to all
return type('Same', (int,), {'__eq__': lambda *a: True, '__hash__': None})()
=== text equal to all
return type('Same', (str,), {'__eq__': lambda *a: True, '__hash__': None})()
=== not a number
return float('nan')
=== true
return True
=== a float
value = WRAPPED(*args)
return float(value) if type(value) is int else value
=== a tuple
value = WRAPPED(*args)
return tuple(value) if type(value) is list else value
=== the same again
STATE.setdefault('value', WRAPPED(*args))
return STATE['value']
=== its argument
return args[0]
=== clears
value = WRAPPED(*args)
for arg in args:
    getattr(arg, 'clear', int)()
return value
=== clears later
value = WRAPPED(*args)
for old in STATE.setdefault('old', []):
    old.clear()
if isinstance(value, list):
    STATE['old'].append(value)
return value
=== aliases
value = WRAPPED(*args)
return [value[0]] * len(value) if type(value) is list and value else value
=== prints
print('passed', flush=True)
return WRAPPED(*args)
""")
#: Endings that cost seconds; they are drawn less often.
SLOW = ("hangs",)
