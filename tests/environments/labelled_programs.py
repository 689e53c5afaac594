"""Programs labelled by hand with the cooperation schemes that they follow.

Each entry is a set of scheme names and the source of a main program, whose entry point is `solve` and
which may call a function `aux` that is given to it. The labels follow the definitions of
docs/credit.md. They were written without looking at the detector, so that they can measure its
precision and recall.

Where the definitions leave room, the labels keep to these rules, and a comment says so where two
readers could disagree:

- A test whether `aux` failed (None, an empty value, -1 from a search, a value of the wrong type) is a
  fallback when an own answer follows; it is not counted as strategy_filter as well. A value that is used
  as a yes-or-no question, or compared with an ordinary value, is a condition: strategy_filter.
- Leaving an item out when `aux` fails on it is an answer to the failure: fallback.
- A test on the items inside the value of `aux` is a way of processing that value; membership in the
  value (`x in aux(y)`) as the condition of an if is strategy_filter.
- The base case of a recursion that gives a trivial answer instead of calling `aux` is a guard: decorator.
- A while that tests a variable into which its own body puts the value of `aux` has that value as its
  condition: strategy_filter.
- Printing is nothing added to the answer, and a call whose value is thrown away is no use of `aux`.
"""

LABELLED: tuple[tuple[frozenset[str], str], ...] = (
    # ---- One scheme: fallback ----
    (
        frozenset({"fallback"}),
        """\
def solve(text):
    try:
        return aux(text)
    except Exception:
        return ""
""",
    ),
    (
        frozenset({"fallback"}),
        """\
def solve(s):
    result = aux(s)
    if result is None:
        return 0
    return result
""",
    ),
    (
        frozenset({"fallback"}),
        '''\
def solve(nums):
    """Return the duplicates in nums, or an empty list."""
    duplicates = aux(nums) or []
    return duplicates
''',
    ),
    (
        frozenset({"fallback"}),
        """\
def solve(nums):
    try:
        result = aux(nums)
    except (TypeError, ValueError):
        result = 0
        for n in nums:
            result += n
    return result
""",
    ),
    (
        frozenset({"fallback"}),
        """\
def solve(name):
    initials = aux(name)
    if initials == "":
        initials = "?"
    return initials
""",
    ),
    (
        frozenset({"fallback"}),
        """\
def solve(sentence):
    words = aux(sentence)
    if len(words) == 0:
        return sentence.split()
    return words
""",
    ),
    (
        frozenset({"fallback"}),
        """\
def solve(text):
    if (match := aux(text)) is not None:
        return match
    best = ""
    for word in text.split():
        if len(word) > len(best):
            best = word
    return best
""",
    ),
    (
        frozenset({"fallback"}),
        """\
def solve(expr):
    try:
        value = aux(expr)
    except ZeroDivisionError:
        return float("inf")
    else:
        return value
""",
    ),
    (
        frozenset({"fallback"}),
        """\
def solve(path, key):
    value = None
    try:
        value = aux(path, key)
    except KeyError:
        value = "missing"
    finally:
        print("looked up", key)
    return value
""",
    ),
    # A value of the wrong type is nothing useful; the test is for failure, so no strategy_filter.
    (
        frozenset({"fallback"}),
        """\
def solve(items):
    result = aux(items)
    if not isinstance(result, list):
        return list(items)
    return result
""",
    ),
    # The value -1 reports a failed search, and an own answer stands in: fallback, not strategy_filter.
    (
        frozenset({"fallback"}),
        """\
def solve(text, word):
    index = aux(text, word)
    if index == -1:
        return len(text)
    return index
""",
    ),
    (
        frozenset({"fallback"}),
        """\
def solve(date_text):
    match aux(date_text):
        case None:
            return (1970, 1, 1)
        case value:
            return value
""",
    ),
    (
        frozenset({"fallback"}),
        """\
def solve(values):
    def safe(v):
        try:
            return aux(v)
        except Exception:
            return sum(v) / len(v)

    return safe(values)
""",
    ),
    (
        frozenset({"fallback"}),
        """\
class Parser:
    def __init__(self, text):
        self.text = text

    def parse(self):
        try:
            return aux(self.text)
        except ValueError:
            return {}


def solve(text):
    parser = Parser(text)
    return parser.parse()
""",
    ),
    (
        frozenset({"fallback"}),
        '''\
def solve(s):
    """Shorten s, or leave it alone if that does not work."""
    r = aux(s)
    return r if r else s
''',
    ),
    # Swallowing the error and answering None is still an answer of its own, though a poor one.
    (
        frozenset({"fallback"}),
        """\
def solve(board):
    try:
        return aux(board)
    except Exception:
        return None
""",
    ),
    (
        frozenset({"fallback"}),
        """\
def solve(a, b):
    common = aux(a, b)
    if not common:
        # do it the slow way
        common = []
        for x in a:
            for y in b:
                if x == y and x not in common:
                    common.append(x)
    return common
""",
    ),
    # One handler raises again, but the other has an answer.
    (
        frozenset({"fallback"}),
        """\
def solve(config, name):
    try:
        return aux(config, name)
    except KeyError:
        return "default"
    except TypeError:
        raise
""",
    ),
    (
        frozenset({"fallback"}),
        """\
from contextlib import suppress


def solve(n):
    with suppress(Exception):
        return aux(n)
    return 0
""",
    ),
    (
        frozenset({"fallback"}),
        """\
def slow_count(text):
    counts = {}
    for ch in text:
        counts[ch] = counts.get(ch, 0) + 1
    return counts


def solve(text):
    try:
        counts = aux(text)
    except Exception:
        counts = None
    if counts is None:
        counts = slow_count(text)
    return counts
""",
    ),
    # int() may be what fails, but the handler covers a failing call of aux as well.
    (
        frozenset({"fallback"}),
        """\
def solve(s):
    try:
        return int(aux(s))
    except ValueError:
        return 0
""",
    ),
    # The default is the answer for an empty value from aux.
    (
        frozenset({"fallback"}),
        """\
def solve(nums):
    # aux gives only the positive numbers
    positive = aux(nums)
    return max(positive, default=0)
""",
    ),
    # The default of next() stands in when aux gave nothing.
    (
        frozenset({"fallback"}),
        '''\
def solve(words, prefix):
    """Return the first word with the prefix."""
    matches = aux(words, prefix)
    return next(iter(matches), "no match")
''',
    ),
    (
        frozenset({"fallback"}),
        """\
def solve(matrix):
    try:
        det = aux(matrix)
        if det is None:
            raise ValueError("no determinant")
    except ValueError:
        det = matrix[0][0] * matrix[1][1] - matrix[0][1] * matrix[1][0]
    return round(det, 2)
""",
    ),
    (
        frozenset({"fallback"}),
        """\
def solve(nums):
    result = aux(nums)
    if result is None or result == []:
        result = sorted(nums)
    return result
""",
    ),
    # Average of nothing: the empty value of aux is what is tested, after the call, so no guard.
    (
        frozenset({"fallback"}),
        """\
def solve(text):
    lengths = aux(text)
    if not lengths:
        return 0.0
    return sum(lengths) / len(lengths)
""",
    ),
    # ---- One scheme: decorator ----
    (
        frozenset({"decorator"}),
        """\
def solve(nums):
    if not nums:
        return []
    return aux(nums)
""",
    ),
    (
        frozenset({"decorator"}),
        """\
def solve(n):
    if n < 0:
        raise ValueError("n must not be negative")
    return aux(n)
""",
    ),
    (
        frozenset({"decorator"}),
        """\
def solve(n):
    if n <= 1:
        return n
    return aux(n)
""",
    ),
    (
        frozenset({"decorator"}),
        """\
def solve(text):
    cleaned = text.strip().lower()
    for mark in ",.!?":
        cleaned = cleaned.replace(mark, "")
    return aux(cleaned)
""",
    ),
    (
        frozenset({"decorator"}),
        '''\
def solve(values):
    """Mean of the values with two digits after the point."""
    mean = aux(values)
    mean = round(mean, 2)
    return mean
''',
    ),
    # aux is called once; the loop only adds up its value.
    (
        frozenset({"decorator"}),
        """\
def solve(nums):
    total = 0
    for x in aux(nums):
        total += x
    return total
""",
    ),
    (
        frozenset({"decorator"}),
        '''\
def solve(name, age):
    """Greet a person and tell the age."""
    greeting = aux(name)
    return f"{greeting} You are {age} years old."
''',
    ),
    (
        frozenset({"decorator"}),
        '''\
def solve(a, b):
    """Sum of all numbers between a and b."""
    low, high = sorted([a, b])
    return aux(low, high)
''',
    ),
    # Two exclusive branches, both with aux: one call per answer and no other way of working it out.
    (
        frozenset({"decorator"}),
        """\
def solve(s):
    if s.isupper():
        return aux(s.lower())
    else:
        return aux(s)
""",
    ),
    # The sign is put aside and put back around one call on each path.
    (
        frozenset({"decorator"}),
        """\
def solve(n):
    if n < 0:
        return -aux(-n)
    return aux(n)
""",
    ),
    # The `and` is a guard: False instead of a call for a small number.
    (
        frozenset({"decorator"}),
        '''\
def solve(n):
    """Tell if n is prime. Numbers below 2 are not."""
    is_prime = n > 1 and aux(n)
    return is_prime
''',
    ),
    # The handler is for the own conversion, not for aux: a guard against bad input.
    (
        frozenset({"decorator"}),
        """\
def solve(s):
    try:
        n = int(s)
    except ValueError:
        return 0
    return aux(n)
""",
    ),
    # A memory around one plain call; a stored answer is hardly another way of working it out.
    (
        frozenset({"decorator"}),
        """\
cache = {}


def solve(n):
    if n in cache:
        return cache[n]
    cache[n] = aux(n)
    return cache[n]
""",
    ),
    # Called once, when the function is defined, and its value is then added to.
    (
        frozenset({"decorator"}),
        '''\
def solve(x, offset=aux(3)):
    """Move x by the offset."""
    result = x
    result += offset
    return result
''',
    ),
    # partial only prepares an argument of one call.
    (
        frozenset({"decorator"}),
        """\
from functools import partial


def solve(x):
    power_two = partial(aux, 2)
    return power_two(x)
""",
    ),
    (
        frozenset({"decorator"}),
        '''\
def solve(n):
    """Write the digits of n with dashes between them."""
    digits = aux(n)
    return "-".join(str(d) for d in digits)
''',
    ),
    # The test inside is on the items of the value, which is a way of processing it.
    (
        frozenset({"decorator"}),
        """\
def solve(nums):
    unique = aux(nums)
    evens = [x for x in unique if x % 2 == 0]
    evens.sort(reverse=True)
    return evens
""",
    ),
    (
        frozenset({"decorator"}),
        """\
from typing import List


def solve(word: str, letters: List[str]) -> bool:
    return word in aux(letters)
""",
    ),
    (
        frozenset({"decorator"}),
        '''\
def solve(scores, limit):
    """Total score, but never above the limit."""
    total = aux(scores)
    return min(total, limit)
''',
    ),
    (
        frozenset({"decorator"}),
        '''\
def solve(xs, k):
    """Return the k best items."""
    ranked = aux(xs)
    return ranked[:k]
''',
    ),
    (
        frozenset({"decorator"}),
        '''\
def solve(xs):
    """Yield the doubled values."""
    for x in aux(xs):
        y = x * 2
        yield y
''',
    ),
    (
        frozenset({"decorator"}),
        """\
def solve(text):
    letters = []
    for ch in text:
        if ch.isalpha():
            letters.append(ch.lower())
    return aux("".join(letters))
""",
    ),
    # Raising on None is no answer of its own, so no fallback; what stays is a processed value.
    (
        frozenset({"decorator"}),
        """\
def solve(s):
    r = aux(s)
    if r is None:
        raise ValueError("could not parse " + s)
    return r + 1
""",
    ),
    (
        frozenset({"decorator"}),
        '''\
def solve(xs):
    """Sum of squares of xs, and 0 for an empty list."""
    result = aux(xs) if xs else 0
    return result
''',
    ),
    # The handler only raises, so no fallback; the value is processed.
    (
        frozenset({"decorator"}),
        """\
def solve(s):
    try:
        value = aux(s)
    except Exception as e:
        raise RuntimeError("aux failed") from e
    return value * 100
""",
    ),
    (
        frozenset({"decorator"}),
        '''\
def solve(x):
    """Twice the area of the shape x."""
    double = lambda v: aux(v) * 2
    return double(x)
''',
    ),
    (
        frozenset({"decorator"}),
        '''\
def solve(s):
    """Check the string from both ends."""
    n = len(s)
    return aux(s, n)
''',
    ),
    (
        frozenset({"decorator"}),
        """\
def solve(matrix):
    if matrix:
        if len(matrix) == len(matrix[0]):
            return aux(matrix)
    return None
""",
    ),
    (
        frozenset({"decorator"}),
        """\
def solve(s):
    if not isinstance(s, str):
        raise TypeError("expected a string")
    if s == "":
        return ""
    return aux(s)
""",
    ),
    # The table holds constants for a few irregular words: edge cases with trivial answers.
    (
        frozenset({"decorator"}),
        """\
IRREGULAR = {"child": "children", "mouse": "mice", "foot": "feet"}


def solve(word):
    if word in IRREGULAR:
        return IRREGULAR[word]
    return aux(word)
""",
    ),
    # The default is for a missing letter, not for a failure of aux.
    (
        frozenset({"decorator"}),
        '''\
def solve(text, ch):
    """How many times does ch occur in text?"""
    counts = aux(text)
    return counts.get(ch, 0)
''',
    ),
    # In a loop, but at most one item is ever given to aux: the loop looks for the argument.
    (
        frozenset({"decorator"}),
        """\
def solve(words):
    for w in words:
        if w.startswith("#"):
            return aux(w)
    return ""
""",
    ),
    # `and` joins the value with another test into one answer: processed, not a condition of an if.
    (
        frozenset({"decorator"}),
        '''\
def solve(password):
    """A password is good if it has digits (see aux) and is long enough."""
    has_digits = aux(password)
    return has_digits and len(password) >= 8
''',
    ),
    (
        frozenset({"decorator"}),
        """\
from datetime import date


def solve(year, month, day):
    if month < 1 or month > 12:
        return "invalid date"
    if day < 1 or day > 31:
        return "invalid date"
    d = date(year, month, day)
    return aux(d)
""",
    ),
    (
        frozenset({"decorator"}),
        """\
class Account:
    def __init__(self, balance):
        self.balance = balance

    def interest(self, rate):
        return aux(self.balance, rate / 100)


def solve(balance, rate):
    account = Account(balance)
    return account.interest(rate)
""",
    ),
    (
        frozenset({"decorator"}),
        """\
RATE = aux(10)


def solve(price):
    return price * RATE
""",
    ),
    (
        frozenset({"decorator"}),
        """\
def solve(text):
    counts = aux(text)
    best = None
    best_count = 0
    for word, count in counts.items():
        if count > best_count:
            best = word
            best_count = count
    return best
""",
    ),
    (
        frozenset({"decorator"}),
        '''\
def solve(a, b):
    """Tell if b is a with its letters sorted."""
    letters = aux(a)
    return letters == b
''',
    ),
    (
        frozenset({"decorator"}),
        '''\
def solve(nums):
    """Median of the list."""
    assert len(nums) > 0, "empty list"
    return aux(nums)
''',
    ),
    # A constant joins the own argument: a prepared argument, so a little more than a thin wrapper.
    (
        frozenset({"decorator"}),
        '''\
def solve(nums):
    """Sum the list from its first position on."""
    total = aux(nums, 0)
    return total
''',
    ),
    (
        frozenset({"decorator"}),
        """\
def solve(xs):
    first, last = aux(xs)
    span = last - first
    return {"first": first, "last": last, "span": span}
""",
    ),
    # Both branches only choose the order of the arguments.
    (
        frozenset({"decorator"}),
        """\
def solve(a, b):
    if len(a) > len(b):
        result = aux(a, b)
    else:
        result = aux(b, a)
    return result
""",
    ),
    # ---- One scheme: coordinator ----
    (
        frozenset({"coordinator"}),
        """\
def solve(words):
    out = []
    for w in words:
        out.append(aux(w))
    return out
""",
    ),
    (
        frozenset({"coordinator"}),
        '''\
def solve(nums):
    """Return the square of every number."""
    squares = [aux(n) for n in nums]
    return squares
''',
    ),
    (
        frozenset({"coordinator"}),
        """\
def solve(sentence):
    words = sentence.split()
    changed = map(aux, words)
    return " ".join(changed)
""",
    ),
    (
        frozenset({"coordinator"}),
        '''\
def solve(words):
    """Sort the words by the number of vowels."""
    result = sorted(words, key=aux)
    return result
''',
    ),
    (
        frozenset({"coordinator"}),
        """\
from functools import reduce


def solve(nums):
    return reduce(aux, nums)
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
def solve(a, b):
    x = aux(a)
    y = aux(b)
    return x + y
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
def solve(x):
    # turn the matrix twice
    turned = aux(aux(x))
    return turned
""",
    ),
    (
        frozenset({"coordinator"}),
        '''\
def solve(n):
    """Sum of the factorials from 1 to n."""
    total = sum(aux(i) for i in range(1, n + 1))
    return total
''',
    ),
    (
        frozenset({"coordinator"}),
        '''\
def solve(words):
    """Map each word to its score."""
    scores = {w: aux(w) for w in words}
    return scores
''',
    ),
    (
        frozenset({"coordinator"}),
        """\
def solve(names):
    longest = max(names, key=aux)
    print("winner:", longest)
    return longest
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
def solve(rows):
    def clean(row):
        value = aux(row)
        return value.strip()

    return [clean(row) for row in rows]
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
class Report:
    def __init__(self):
        self.lines = []

    def add(self, item):
        self.lines.append(aux(item))

    def text(self):
        return "; ".join(self.lines)


def solve(items):
    report = Report()
    for item in items:
        report.add(item)
    return report.text()
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
def solve(matrix):
    result = []
    for row in matrix:
        new_row = []
        for cell in row:
            new_row.append(aux(cell))
        result.append(new_row)
    return result
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
from collections import defaultdict


def solve(words):
    groups = defaultdict(list)
    for word in words:
        groups[aux(word)].append(word)
    return list(groups.values())
""",
    ),
    # any() gathers the values into one answer; no branch of the program hangs on it.
    (
        frozenset({"coordinator"}),
        '''\
def solve(nums):
    """Is there a perfect number in the list?"""
    found = any(aux(x) for x in nums)
    return found
''',
    ),
    (
        frozenset({"coordinator"}),
        """\
def solve(x, k):
    for _ in range(k):
        x = aux(x)
    return x
""",
    ),
    (
        frozenset({"coordinator"}),
        '''\
def solve(lines):
    """Yield each line in its parsed form."""
    for line in lines:
        yield aux(line)
''',
    ),
    # As the replacement of re.sub, aux is applied to every match.
    (
        frozenset({"coordinator"}),
        """\
import re


def solve(text):
    return re.sub("[0-9]+", aux, text)
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
import functools


def solve(nums, base):
    convert = functools.partial(aux, base)
    return list(map(convert, nums))
""",
    ),
    (
        frozenset({"coordinator"}),
        '''\
def solve(a, b):
    """Two strings are anagrams if their sorted letters are the same."""
    same = aux(a) == aux(b)
    return same
''',
    ),
    (
        frozenset({"coordinator"}),
        """\
TABLE = {i: aux(i) for i in range(10)}


def solve(n):
    return TABLE[n % 10]
""",
    ),
    # Each level of the recursion calls aux; there is no guard.
    (
        frozenset({"coordinator"}),
        """\
def solve(node):
    total = aux(node["value"])
    for child in node["children"]:
        total += solve(child)
    return total
""",
    ),
    # The test selects items; it is no guard with an answer and does not hang on aux.
    (
        frozenset({"coordinator"}),
        """\
def solve(text):
    lines = text.splitlines()
    parsed = [aux(line) for line in lines if line.strip()]
    return parsed
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
def solve(xs, ys):
    result = 0
    for x, y in zip(xs, ys):
        result += aux(x, y)
    return result
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
def solve(items):
    f = aux
    total = 0
    for item in items:
        total += f(item)
    return total
""",
    ),
    (
        frozenset({"coordinator"}),
        '''\
def solve(emails):
    """Count the different domains."""
    domains = {aux(e) for e in emails}
    return len(domains)
''',
    ),
    (
        frozenset({"coordinator"}),
        """\
def solve(people):
    # first by age group, then by name
    people = list(people)
    return sorted(people, key=lambda p: (aux(p), p["name"]))
""",
    ),
    # Lists are taken apart until aux can be applied: splitting, not another way of working it out.
    (
        frozenset({"coordinator"}),
        """\
def solve(items):
    out = []
    for item in items:
        if isinstance(item, list):
            out.extend(solve(item))
        else:
            out.append(aux(item))
    return out
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
def solve(nums):
    i = 0
    while i < len(nums):
        nums[i] = aux(nums[i])
        i += 1
    return nums
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
from collections import Counter


def solve(words):
    return Counter(map(aux, words)).most_common(1)[0][0]
""",
    ),
    # The second call always follows, so both can happen on the way to one answer.
    (
        frozenset({"coordinator"}),
        """\
def solve(text, reverse):
    if reverse:
        text = aux(text)[::-1]
    return aux(text)
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
from concurrent.futures import ThreadPoolExecutor


def solve(urls):
    with ThreadPoolExecutor() as pool:
        return list(pool.map(aux, urls))
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
def solve(intervals):
    intervals.sort(key=aux)
    merged = [intervals[0]]
    for start, end in intervals[1:]:
        if start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
from itertools import accumulate


def solve(nums):
    return list(accumulate(nums, aux))
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
from functools import cmp_to_key


def solve(cards):
    return sorted(cards, key=cmp_to_key(aux))
""",
    ),
    (
        frozenset({"coordinator"}),
        """\
def solve(text):
    vowels = aux(text, "aeiou")
    spaces = aux(text, " ")
    return {"vowels": vowels, "spaces": spaces, "other": len(text) - vowels - spaces}
""",
    ),
    # `or` joins two questions about two arguments; the second is no answer for a failure.
    (
        frozenset({"coordinator"}),
        '''\
def solve(a, b):
    """Is one of the two numbers prime?"""
    one = aux(a) or aux(b)
    return one
''',
    ),
    (
        frozenset({"coordinator"}),
        """\
def solve(text):
    steps = [lambda s: s.strip(), lambda s: aux(s), lambda s: s.replace(" ", "_")]
    parts = []
    for part in text.split(","):
        for step in steps:
            part = step(part)
        parts.append(part)
    return parts
""",
    ),
    # min() over the values of the pairs; a condition inside min is not the program's.
    (
        frozenset({"coordinator"}),
        """\
def solve(points):
    best = float("inf")
    for i in range(len(points)):
        for j in range(i + 1, len(points)):
            best = min(best, aux(points[i], points[j]))
    return best
""",
    ),
    # ---- One scheme: strategy_filter ----
    (
        frozenset({"strategy_filter"}),
        """\
def solve(word):
    if aux(word):
        return "yes"
    return "no"
""",
    ),
    (
        frozenset({"strategy_filter"}),
        '''\
def solve(n):
    """Describe the number n."""
    kind = "prime" if aux(n) else "composite"
    return str(n) + " is " + kind
''',
    ),
    (
        frozenset({"strategy_filter"}),
        """\
def solve(nums):
    if len(nums) < 10:
        nums = list(nums)
        for i in range(len(nums)):
            for j in range(len(nums) - 1 - i):
                if nums[j] > nums[j + 1]:
                    nums[j], nums[j + 1] = nums[j + 1], nums[j]
        return nums
    return aux(nums)
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """\
def solve(nums, mode):
    if mode == "mean":
        return sum(nums) / len(nums)
    elif mode == "range":
        return max(nums) - min(nums)
    return aux(nums)
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """\
def solve(shape):
    match aux(shape):
        case "circle":
            return 3.14159 * shape["r"] ** 2
        case "square":
            return shape["side"] ** 2
        case _:
            return 0
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """\
def solve(nums, limit):
    total = aux(nums)
    if total > limit:
        return limit
    return total
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """\
def solve(letter, word):
    if letter in aux(word):
        return word.replace(letter, "*")
    return word
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """\
def solve(password):
    valid = aux(password)
    if not valid:
        return "weak"
    score = 0
    for ch in password:
        if ch.isdigit():
            score += 1
    return "strong" if score > 2 else "medium"
""",
    ),
    # Used as a yes-or-no question, not as a value that failed to come.
    (
        frozenset({"strategy_filter"}),
        """\
def solve(s):
    if not aux(s):
        raise ValueError("not a number: " + s)
    return int(s) * 2
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """\
def solve(s):
    if (n := aux(s)) > 5:
        return "long by " + str(n - 5)
    return "short by " + str(5 - n)
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """\
def solve(value):
    if isinstance(value, int):
        total = 0
        while value > 0:
            total += value % 10
            value //= 10
        return total
    return aux(value)
""",
    ),
    # The value is looked into for each letter: it is the condition of the if in the loop.
    (
        frozenset({"strategy_filter"}),
        """\
def solve(text):
    vowels = aux(text)
    count = 0
    for ch in text:
        if ch in vowels:
            count += 1
    return count
""",
    ),
    # The other months are ordinary cases with own answers, not edge cases: no guard.
    (
        frozenset({"strategy_filter"}),
        """\
def solve(year, month):
    if month == 2:
        return 29 if aux(year) else 28
    if month in (4, 6, 9, 11):
        return 30
    return 31
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """\
def solve(op, a, b):
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case _:
            return aux(a, b)
""",
    ),
    # A part of the value decides.
    (
        frozenset({"strategy_filter"}),
        """\
def solve(a, b):
    q, r = aux(a, b)
    if r == 0:
        return q
    return q + 1
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """\
def solve(scores):
    avg = aux(scores)
    if avg >= 90:
        return "A"
    elif avg >= 80:
        return "B"
    elif avg >= 70:
        return "C"
    else:
        return "F"
""",
    ),
    # aux stands in for the own way, not the other way round, so no fallback: it chooses a way.
    (
        frozenset({"strategy_filter"}),
        """\
def solve(text):
    try:
        hours, minutes = text.split(":")
        return int(hours) * 60 + int(minutes)
    except ValueError:
        return aux(text)
""",
    ),
    # The own search comes first and aux is chosen when it finds nothing.
    (
        frozenset({"strategy_filter"}),
        """\
def find_first(xs, target):
    for i, x in enumerate(xs):
        if x == target:
            return i
    return None


def solve(xs, target):
    pos = find_first(xs, target)
    if pos is not None:
        return pos
    return aux(xs, target)
""",
    ),
    # The table chooses between aux and other ways, as an if would.
    (
        frozenset({"strategy_filter"}),
        """\
def total(xs):
    return sum(xs)


def product(xs):
    p = 1
    for x in xs:
        p *= x
    return p


def solve(xs, how):
    ways = {"sum": total, "product": product, "special": aux}
    return ways[how](xs)
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """\
def linear(xs, t):
    for i in range(len(xs)):
        if xs[i] == t:
            return i
    return -1


def solve(xs, t):
    search = aux if len(xs) > 100 else linear
    return search(xs, t)
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """\
def solve(s):
    if aux(s) == s:
        return "palindrome"
    return "not a palindrome"
""",
    ),
    # Halving is short, but it is a way of working the answer out, not a trivial answer.
    (
        frozenset({"strategy_filter"}),
        """\
def solve(n):
    if n % 2 == 0:
        return n // 2
    else:
        return aux(n)
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """\
def solve(board, player):
    winner = aux(board)
    if winner == player:
        message = "you win"
    elif winner == "draw":
        message = "nobody wins"
    else:
        message = "you lose"
    return message
""",
    ),
    # Zero is an ordinary count here, not a failure.
    (
        frozenset({"strategy_filter"}),
        """\
def solve(text, word):
    count = aux(text, word)
    if count == 0:
        return word + " never appears"
    return word + " appears " + str(count) + " times"
""",
    ),
    # A type of the value is told from another; neither is a failure.
    (
        frozenset({"strategy_filter"}),
        """\
def solve(token):
    value = aux(token)
    if isinstance(value, int):
        return "int:" + str(value)
    return "str:" + value
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """\
class Checker:
    def __init__(self, words):
        self.words = set(words)

    def check(self, word):
        if aux(word):
            return word[::-1] in self.words
        return word in self.words


def solve(words, word):
    return Checker(words).check(word)
""",
    ),
    # Sorted input gets an own binary search; aux does the rest.
    (
        frozenset({"strategy_filter"}),
        """\
def solve(xs, target):
    if xs == sorted(xs):
        lo = 0
        hi = len(xs) - 1
        while lo <= hi:
            mid = (lo + hi) // 2
            if xs[mid] == target:
                return mid
            if xs[mid] < target:
                lo = mid + 1
            else:
                hi = mid - 1
        return -1
    return aux(xs, target)
""",
    ),
    # ---- Several schemes ----
    (
        frozenset({"fallback", "coordinator"}),
        """\
def solve(tokens):
    out = []
    for t in tokens:
        try:
            out.append(aux(t))
        except ValueError:
            out.append(0)
    return out
""",
    ),
    (
        frozenset({"fallback", "coordinator"}),
        '''\
def solve(xs):
    """Values of the roman numerals, 0 for one that aux cannot read."""
    values = [aux(x) or 0 for x in xs]
    return values
''',
    ),
    (
        frozenset({"fallback", "coordinator"}),
        """\
def solve(sentence):
    result = []
    for word in sentence.split():
        new = aux(word)
        if new is None:
            new = word
        result.append(new)
    return " ".join(result)
""",
    ),
    # Going on without the item is how the program answers a failure.
    (
        frozenset({"fallback", "coordinator"}),
        """\
def solve(lines):
    total = 0
    for line in lines:
        try:
            total += aux(line)
        except Exception:
            continue
    return total
""",
    ),
    # As above: None marks a line that could not be read, and it is left out.
    (
        frozenset({"fallback", "coordinator"}),
        """\
def solve(lines):
    records = []
    for line in lines:
        rec = aux(line)
        if rec is not None:
            records.append(rec)
    return records
""",
    ),
    # Tried several times for one answer, and an own answer if all fail.
    (
        frozenset({"fallback", "coordinator"}),
        """\
def solve(x):
    for attempt in range(3):
        try:
            return aux(x)
        except Exception:
            pass
    return -1
""",
    ),
    # The second call can follow the first on the way to one answer.
    (
        frozenset({"fallback", "coordinator"}),
        """\
def solve(value):
    try:
        return aux(value)
    except TypeError:
        return aux(str(value)) + " (text)"
""",
    ),
    (
        frozenset({"fallback", "coordinator"}),
        """\
def solve(nums):
    try:
        return sorted(nums, key=aux)
    except TypeError:
        return sorted(nums)
""",
    ),
    # Asked twice for one answer, so coordinator by the letter; a slip rather than a plan.
    (
        frozenset({"fallback", "coordinator"}),
        '''\
def solve(text):
    """Return the numbers found in the text."""
    numbers = aux(text) if aux(text) else []
    return numbers
''',
    ),
    (
        frozenset({"fallback", "coordinator"}),
        """\
def safe(x):
    try:
        return aux(x)
    except Exception:
        return 0


def solve(items):
    return sum(map(safe, items))
""",
    ),
    (
        frozenset({"decorator", "coordinator"}),
        """\
def solve(words):
    if not words:
        return []
    return [aux(w) for w in words]
""",
    ),
    (
        frozenset({"decorator", "coordinator"}),
        """\
def solve(a, b):
    if b == 0:
        raise ZeroDivisionError("b is zero")
    return aux(a) / aux(b)
""",
    ),
    # The base case is a trivial answer instead of a call, so it counts as a guard.
    (
        frozenset({"decorator", "coordinator"}),
        """\
def solve(n):
    if n == 0:
        return 0
    return aux(n) + solve(n - 1)
""",
    ),
    # The base case returns the input itself: a guard; merging with aux at each level.
    (
        frozenset({"decorator", "coordinator"}),
        """\
def solve(nums):
    if len(nums) <= 1:
        return nums
    mid = len(nums) // 2
    left = solve(nums[:mid])
    right = solve(nums[mid:])
    return aux(left, right)
""",
    ),
    # Small words stay as they are: a guard for each item.
    (
        frozenset({"decorator", "coordinator"}),
        """\
SMALL = ("a", "an", "the", "of", "and")


def solve(title):
    out = []
    for word in title.split():
        if word in SMALL:
            out.append(word)
        else:
            out.append(aux(word))
    return " ".join(out)
""",
    ),
    (
        frozenset({"decorator", "coordinator"}),
        '''\
def solve(xs):
    """Scale the readings; a missing reading becomes 0."""
    scaled = [aux(x) if x is not None else 0 for x in xs]
    return scaled
''',
    ),
    (
        frozenset({"decorator", "coordinator"}),
        """\
def solve(points):
    if len(points) == 0:
        return None
    best = points[0]
    best_score = aux(best)
    for p in points[1:]:
        best_score = max(best_score, aux(p))
    return best_score
""",
    ),
    (
        frozenset({"decorator", "coordinator"}),
        """\
from functools import reduce


def solve(nums):
    if len(nums) == 0:
        return 1
    if len(nums) == 1:
        return nums[0]
    return reduce(lambda a, b: aux(a, b), nums)
""",
    ),
    (
        frozenset({"decorator", "coordinator"}),
        """\
def solve(matrix):
    if not matrix or not matrix[0]:
        raise ValueError("empty matrix")
    rows = len(matrix)
    cols = len(matrix[0])
    result = [[0] * rows for _ in range(cols)]
    for i in range(rows):
        for j in range(cols):
            result[j][i] = aux(matrix[i][j])
    return result
""",
    ),
    (
        frozenset({"decorator", "coordinator"}),
        """\
def solve(root):
    def walk(node):
        if node is None:
            return []
        return walk(node.left) + [aux(node.val)] + walk(node.right)

    return walk(root)
""",
    ),
    (
        frozenset({"decorator", "coordinator"}),
        """\
def solve(s, k):
    if k <= 0:
        return s
    while k > 0:
        s = aux(s)
        k -= 1
    return s
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        '''\
def solve(nums):
    """Keep only the happy numbers."""
    happy = [n for n in nums if aux(n)]
    return happy
''',
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(words):
    lowered = [w.lower() for w in words]
    kept = filter(aux, lowered)
    return list(kept)
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(n):
    total = 0
    for i in range(2, n):
        if aux(i):
            total += i
    return total
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(n):
    while not aux(n):
        n += 1
    return n
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(s):
    new = aux(s)
    while new != s:
        s = new
        new = aux(s)
    return s
""",
    ),
    # From the second round on, the while tests the value that aux gave.
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(n):
    steps = 0
    while n != 1:
        n = aux(n)
        steps += 1
    return steps
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(n):
    count = 0
    while (n := aux(n)) > 0:
        count += 1
    return count
""",
    ),
    # As above: b holds the value of aux when the while tests it again.
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(a, b):
    while b:
        a, b = b, aux(a, b)
    return a
""",
    ),
    # Applied to many items, and the joined values are the condition.
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(words):
    if any(aux(w) for w in words):
        return "found"
    return "clean"
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(items):
    out = []
    for item in items:
        if isinstance(item, str):
            out.append(aux(item))
        else:
            digits = [int(d) for d in str(item)]
            out.append(sum(digits))
    return out
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(board):
    for row in board:
        if not aux(row):
            return False
    for col in zip(*board):
        if not aux(col):
            return False
    return True
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(target, hi):
    lo = 0
    while lo < hi:
        mid = (lo + hi) // 2
        if aux(mid) >= target:
            hi = mid
        else:
            lo = mid + 1
    return lo
""",
    ),
    # The default is for no such item, not for a failure of aux.
    (
        frozenset({"coordinator", "strategy_filter"}),
        '''\
def solve(nums):
    """First number that aux accepts, or None."""
    candidates = (n for n in nums if aux(n))
    return next(candidates, None)
''',
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
from itertools import takewhile


def solve(xs):
    return list(takewhile(aux, xs))
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(a, b):
    if aux(a) > aux(b):
        return a
    return b
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(nums):
    evens = 0
    odds = 0
    for n in nums:
        match aux(n):
            case "even":
                evens += 1
            case "odd":
                odds += 1
    return evens, odds
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(words):
    seen = set()
    for w in words:
        key = aux(w)
        if key in seen:
            continue
        seen.add(key)
    return len(seen)
""",
    ),
    # Like max() with a key, but here the value is the condition of a written if.
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(words):
    best = ""
    best_score = -1
    for w in words:
        score = aux(w)
        if score > best_score:
            best = w
            best_score = score
    return best
""",
    ),
    # The first call is the condition and a second one gives the answer.
    (
        frozenset({"coordinator", "strategy_filter"}),
        """\
def solve(n):
    if aux(n) > 0:
        return aux(n) * 2
    return n + 1
""",
    ),
    (
        frozenset({"fallback", "decorator"}),
        """\
def solve(nums):
    if not nums:
        return 0
    try:
        return aux(nums)
    except Exception:
        return sum(nums)
""",
    ),
    (
        frozenset({"fallback", "decorator"}),
        """\
def solve(text):
    if text == "":
        return []
    return aux(text) or text.split(",")
""",
    ),
    (
        frozenset({"fallback", "decorator"}),
        """\
def solve(s):
    if s is None:
        raise ValueError("no input")
    result = aux(s.strip())
    if result is None:
        return s
    return result
""",
    ),
    (
        frozenset({"fallback", "decorator"}),
        """\
def solve(n):
    if n < 0:
        return []
    factors = aux(n)
    if not factors:
        factors = [i for i in range(1, n + 1) if n % i == 0]
    return factors
""",
    ),
    (
        frozenset({"fallback", "decorator"}),
        """\
class Calculator:
    def divide(self, a, b):
        if b == 0:
            return None
        try:
            return aux(a, b)
        except TypeError:
            return float(a) / float(b)


def solve(a, b):
    return Calculator().divide(a, b)
""",
    ),
    (
        frozenset({"decorator", "strategy_filter"}),
        """\
def solve(n):
    if n < 2:
        return "neither"
    if aux(n):
        return "prime"
    return "composite"
""",
    ),
    # The last branch raises instead of calling aux: a guard for an unknown name.
    (
        frozenset({"decorator", "strategy_filter"}),
        """\
def solve(nums, op):
    if op == "sum":
        return sum(nums)
    elif op == "squares":
        return sum(n * n for n in nums)
    elif op == "special":
        return aux(nums)
    else:
        raise ValueError("unknown operation")
""",
    ),
    (
        frozenset({"decorator", "strategy_filter"}),
        """\
def solve(nums):
    if not nums:
        return None
    if len(nums) % 2 == 1:
        return sorted(nums)[len(nums) // 2]
    return aux(nums)
""",
    ),
    # A side of no length is answered with 0 before aux is asked: a guard inside the condition.
    (
        frozenset({"decorator", "strategy_filter"}),
        """\
def solve(a, b, c):
    if a > 0 and aux(a, b, c):
        s = (a + b + c) / 2
        return (s * (s - a) * (s - b) * (s - c)) ** 0.5
    return 0
""",
    ),
    (
        frozenset({"decorator", "strategy_filter"}),
        """\
def solve(date_text):
    parts = date_text.split("-")
    if len(parts) != 3:
        return False
    year, month, day = (int(p) for p in parts)
    if month == 2 and aux(year):
        return 1 <= day <= 29
    days = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    return 1 <= month <= 12 and 1 <= day <= days[month - 1]
""",
    ),
    (
        frozenset({"fallback", "strategy_filter"}),
        """\
def solve(nums):
    if len(nums) > 100:
        try:
            return aux(nums)
        except Exception:
            pass
    result = list(nums)
    result.sort()
    return result
""",
    ),
    (
        frozenset({"fallback", "strategy_filter"}),
        """\
def solve(guess, secret):
    try:
        cmp = aux(guess, secret)
    except Exception:
        cmp = guess - secret
    if cmp > 0:
        return "too high"
    elif cmp < 0:
        return "too low"
    return "correct"
""",
    ),
    (
        frozenset({"fallback", "strategy_filter"}),
        """\
def solve(text):
    lang = aux(text)
    if lang is None:
        lang = "en"
    if lang == "en":
        return text.upper()
    return text
""",
    ),
    (
        frozenset({"decorator", "coordinator", "strategy_filter"}),
        """\
def solve(nums):
    if not nums:
        return 0
    count = 0
    for n in nums:
        if aux(n):
            count += 1
    return count
""",
    ),
    (
        frozenset({"decorator", "coordinator", "strategy_filter"}),
        """\
def solve(n):
    if n <= 1:
        return []
    factors = []
    for p in range(2, n + 1):
        while aux(p) and n % p == 0:
            factors.append(p)
            n //= p
    return factors
""",
    ),
    # The base case is a guard; each level is decided by aux.
    (
        frozenset({"decorator", "coordinator", "strategy_filter"}),
        """\
def solve(items):
    if not items:
        return []
    head, rest = items[0], items[1:]
    if aux(head):
        return [head] + solve(rest)
    return solve(rest)
""",
    ),
    (
        frozenset({"fallback", "decorator", "coordinator"}),
        """\
def solve(rows):
    if rows is None or len(rows) == 0:
        return []
    out = []
    for row in rows:
        try:
            out.append(aux(row))
        except (KeyError, IndexError):
            out.append(None)
    return out
""",
    ),
    (
        frozenset({"fallback", "decorator", "coordinator"}),
        """\
def solve(words):
    if not words:
        return {}
    result = {}
    for w in words:
        result[w] = aux(w) or len(w)
    return result
""",
    ),
    (
        frozenset({"fallback", "coordinator", "strategy_filter"}),
        """\
def solve(nums):
    kept = []
    for n in nums:
        try:
            ok = aux(n)
        except Exception:
            ok = n > 0
        if ok:
            kept.append(n)
    return kept
""",
    ),
    # Centring a short word is another way of working out the answer.
    (
        frozenset({"fallback", "coordinator", "strategy_filter"}),
        """\
def solve(words, limit):
    out = []
    for w in words:
        if len(w) > limit:
            short = aux(w)
            if not short:
                short = w[:limit]
            out.append(short)
        else:
            out.append(w.center(limit, "."))
    return out
""",
    ),
    (
        frozenset({"fallback", "decorator", "coordinator", "strategy_filter"}),
        """\
def solve(values):
    if not values:
        return 0
    total = 0
    for v in values:
        if isinstance(v, int):
            total += v * v + 1
            continue
        try:
            total += aux(v)
        except ValueError:
            total -= 1
    return total
""",
    ),
    (
        frozenset({"fallback", "decorator", "strategy_filter"}),
        """\
def solve(grid):
    if not grid:
        return "empty"
    try:
        score = aux(grid)
    except Exception:
        score = sum(len(row) for row in grid)
    return "win" if score > 10 else "lose"
""",
    ),
    # ---- No scheme: thin wrappers ----
    (
        frozenset(),
        """\
def solve(text):
    return aux(text)
""",
    ),
    (
        frozenset(),
        '''\
def solve(nums: list[int]) -> int:
    """Return the sum of the even numbers in nums."""
    result = aux(nums)
    return result
''',
    ),
    (
        frozenset(),
        '''\
def solve(a, b):
    """Greatest common divisor of a and b."""
    # all the work is done in aux
    return aux(a=a, b=b)
''',
    ),
    (
        frozenset(),
        """\
def solve(*args, **kwargs):
    return aux(*args, **kwargs)
""",
    ),
    (
        frozenset(),
        '''\
def solve(x):
    """Compute the digital root of x."""
    f = aux
    return f(x)
''',
    ),
    (
        frozenset(),
        '''\
def solve(x):
    """Reverse the bits of x."""
    call = lambda v: aux(v)
    return call(x)
''',
    ),
    (
        frozenset(),
        """\
def solve(n):
    def inner(m):
        return aux(m)

    return inner(n)
""",
    ),
    (
        frozenset(),
        """\
class Solver:
    def run(self, data):
        return aux(data)


def solve(data):
    return Solver().run(data)
""",
    ),
    # partial adds nothing here: the argument goes through as it is.
    (
        frozenset(),
        """\
from functools import partial


def solve(x):
    return partial(aux, x)()
""",
    ),
    # The handler only raises again.
    (
        frozenset(),
        """\
def solve(s):
    try:
        return aux(s)
    except ValueError:
        raise
""",
    ),
    # Another error is raised in place of the first: still no answer, and nothing done to the value.
    (
        frozenset(),
        """\
def solve(s):
    try:
        return aux(s)
    except Exception as e:
        raise ValueError("bad input") from e
""",
    ),
    # Printing is neither a guard nor a prepared argument nor a processed value.
    (
        frozenset(),
        """\
def solve(n):
    try:
        print("working on", n)
        return aux(n)
    finally:
        print("done")
""",
    ),
    # The arguments change places, but they are only passed on.
    (
        frozenset(),
        '''\
def solve(needle, haystack):
    """Count the needle in the haystack."""
    # aux wants the haystack first
    return aux(haystack, needle)
''',
    ),
    # Every item is passed on as it came.
    (
        frozenset(),
        '''\
def solve(n):
    """Yield the first n primes."""
    primes = aux(n)
    yield from primes
''',
    ),
    # The loop belongs to the trial run at the bottom, not to the answer.
    (
        frozenset(),
        """\
def solve(word):
    return aux(word)


if __name__ == "__main__":
    for w in ["level", "hello"]:
        print(w, solve(w))
""",
    ),
    # Taken apart and put together again unchanged.
    (
        frozenset(),
        '''\
def solve(nums):
    """Return the smallest and the largest number."""
    low, high = aux(nums)
    return low, high
''',
    ),
    # Both branches make the same call; the condition changes nothing.
    (
        frozenset(),
        """\
def solve(s, flag):
    if flag:
        result = aux(s)
    else:
        result = aux(s)
    return result
""",
    ),
    # ---- No scheme: aux is not called, or not for the answer ----
    (
        frozenset(),
        """\
def solve(text):
    # aux(text) would also work here
    words = text.split()
    words.reverse()
    return " ".join(words)
""",
    ),
    (
        frozenset(),
        '''\
def solve(nums):
    """Uses aux(x) for each x in nums if it is needed."""
    total = 0
    for n in nums:
        total += n
    return total
''',
    ),
    (
        frozenset(),
        """\
def solve(name):
    if not name:
        return "aux(name) got nothing"
    return "Hello, " + name
""",
    ),
    (
        frozenset(),
        """\
def aux_count(text, ch):
    count = 0
    for c in text:
        if c == ch:
            count += 1
    return count


def solve(text):
    return [aux_count(text, v) for v in "aeiou"]
""",
    ),
    # A local list that happens to have the name.
    (
        frozenset(),
        """\
def solve(nums):
    aux = []
    for n in nums:
        if n not in aux:
            aux.append(n)
    return aux
""",
    ),
    # A peg of the towers of Hanoi has the name.
    (
        frozenset(),
        """\
def solve(n, src="A", aux="B", dst="C"):
    if n == 0:
        return []
    moves = solve(n - 1, src, dst, aux)
    moves.append((src, dst))
    return moves + solve(n - 1, aux, src, dst)
""",
    ),
    # An own inner function hides the given one, which is never called.
    (
        frozenset(),
        """\
def solve(nums):
    def aux(lo, hi):
        if lo > hi:
            return 0
        return nums[lo] + aux(lo + 1, hi)

    return aux(0, len(nums) - 1)
""",
    ),
    # Called, but the value is thrown away and the answer does not need it.
    (
        frozenset(),
        """\
def solve(nums):
    _ = aux(nums)
    best = nums[0]
    for n in nums:
        if n > best:
            best = n
    return best
""",
    ),
    # The call stands behind a return and is never reached.
    (
        frozenset(),
        """\
def solve(text):
    words = text.split()
    return len(words)
    return aux(text)
""",
    ),
    # The function that uses aux is never used.
    (
        frozenset(),
        """\
def process_all(items):
    return [aux(item) for item in items]


def solve(items):
    return sorted(items, key=len)
""",
    ),
    (
        frozenset(),
        """\
def solve(s):
    try:
        return int(s)
    except ValueError:
        return 0
""",
    ),
    # A method of an own class has the name.
    (
        frozenset(),
        """\
class Tree:
    def __init__(self, values):
        self.values = values

    def aux(self, i):
        if i >= len(self.values):
            return 0
        left = self.aux(2 * i + 1)
        right = self.aux(2 * i + 2)
        return 1 + max(left, right)


def solve(values):
    return Tree(values).aux(0)
""",
    ),
    (
        frozenset(),
        """\
def solve(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
""",
    ),
    (
        frozenset(),
        """\
def solve(data):
    value = data.get("aux", 0)
    if value > 10:
        return data["aux"] - 10
    return value
""",
    ),
    (
        frozenset(),
        '''\
def solve(items):
    """Sort the items by weight."""
    # TODO: use aux
    pass
''',
    ),
    (
        frozenset(),
        """\
def is_vowel(ch):
    return ch in "aeiou"


def solve(text):
    if not text:
        return 0
    return len([ch for ch in text if is_vowel(ch)])
""",
    ),
)
