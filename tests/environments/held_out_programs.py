"""Programs labelled by hand by the definitions of docs/credit.md.

They were written and labelled without looking at the detector and after it was finished,
to measure its precision and recall. A comment above a program says why it has its labels
where two readers could disagree. Four rules hold throughout:

- a test for a call of aux that failed (None, empty, -1, a wrong type or shape) is a fallback and not also
  a strategy filter;
- any other test of the value of aux in an if, a while or a filter is a strategy filter, but a test of
  the single elements of a collection that aux gave only processes the value;
- the base case of a recursion that gives a trivial answer without aux is a guard;
- leaving an item out before aux sees it is no guard, as no answer stands in for that of aux.
"""

HELD_OUT: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset({"decorator"}),
        """
def solve(numbers):
    if not numbers:
        return 0.0
    return aux(numbers)
""",
    ),
    (
        frozenset({"coordinator"}),
        """
def solve(sentence):
    words = sentence.split()
    return " ".join(aux(word) for word in words)
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        '''
from typing import List


def solve(nums: List[int]) -> List[int]:
    """Return only the prime numbers of the list, in order."""
    return [n for n in nums if aux(n)]
''',
    ),
    (
        frozenset({"fallback"}),
        """
def solve(date_str):
    try:
        return aux(date_str)
    except ValueError:
        return "Invalid date"
""",
    ),
    (
        frozenset(),
        '''
def solve(a: int, b: int) -> int:
    """Return the greatest common divisor of a and b."""
    return aux(a, b)
''',
    ),
    (
        frozenset({"strategy_filter"}),
        """
def solve(n):
    if aux(n):
        return "Prime"
    return "Composite"
""",
    ),
    (
        frozenset({"decorator"}),
        """
def solve(text):
    counts = aux(text)
    return sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))
""",
    ),
    # The position -1 says that nothing was found, and an answer of its own follows.
    (
        frozenset({"fallback"}),
        """
def solve(items, target):
    index = aux(items, target)
    if index == -1:
        return len(items)
    return index
""",
    ),
    (
        frozenset({"decorator", "coordinator"}),
        """
def solve(matrix):
    if not matrix or not matrix[0]:
        return []
    result = []
    for row in matrix:
        result.append(aux(row))
    return result
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """
def solve(arr):
    # Use insertion sort for small lists
    if len(arr) <= 10:
        arr = arr[:]
        for i in range(1, len(arr)):
            key = arr[i]
            j = i - 1
            while j >= 0 and arr[j] > key:
                arr[j + 1] = arr[j]
                j -= 1
            arr[j + 1] = key
        return arr
    return aux(arr)
""",
    ),
    (
        frozenset(),
        """
def solve(n):
    result = []
    a, b = 0, 1
    while len(result) < n:
        result.append(a)
        a, b = b, a + b
    return result
""",
    ),
    (
        frozenset({"coordinator"}),
        '''
def solve(words):
    """Sort the words by their number of vowels."""
    return sorted(words, key=aux)
''',
    ),
    (
        frozenset({"coordinator"}),
        '''
def solve(a, b, c):
    """Greatest common divisor of three numbers."""
    return aux(aux(a, b), c)
''',
    ),
    # Leaving out the item is what the function does of its own when aux fails.
    (
        frozenset({"fallback", "coordinator"}),
        """
def solve(lines):
    total = 0
    for line in lines:
        try:
            total += aux(line)
        except ValueError:
            continue
    return total
""",
    ),
    (
        frozenset({"decorator"}),
        """
def solve(n):
    if n < 0:
        raise ValueError("n must be non-negative")
    return aux(n)
""",
    ),
    # The value of aux is what the loop tests to go on.
    (
        frozenset({"coordinator", "strategy_filter"}),
        """
def solve(n):
    steps = 0
    while n != 1:
        n = aux(n)
        steps += 1
    return steps
""",
    ),
    (
        frozenset({"fallback"}),
        """
def solve(expression):
    result = aux(expression)
    if result is None:
        return 0
    return result
""",
    ),
    (
        frozenset({"decorator"}),
        """
def solve(s):
    cleaned = "".join(ch.lower() for ch in s if ch.isalnum())
    return aux(cleaned)
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """
def solve(email):
    email = email.strip()
    return "valid" if aux(email) else "invalid"
""",
    ),
    (
        frozenset({"coordinator"}),
        '''
from functools import reduce


def solve(numbers):
    """Least common multiple of all numbers."""
    return reduce(aux, numbers)
''',
    ),
    (
        frozenset(),
        """
def solve(grid, start, end):
    path = aux(grid, start, end)
    return path
""",
    ),
    (
        frozenset({"decorator", "fallback"}),
        """
def solve(text, pattern):
    if not pattern:
        return 0
    position = aux(text, pattern)
    if position is None or position < 0:
        return text.find(pattern)
    return position
""",
    ),
    # The two calls are in branches that exclude each other; arguments and value are worked on.
    (
        frozenset({"decorator"}),
        """
def solve(number):
    if number < 0:
        return -aux(-number)
    return aux(number)
""",
    ),
    (
        frozenset({"coordinator"}),
        """
def solve(students):
    grades = {}
    for name, scores in students.items():
        grades[name] = aux(scores)
    return grades
""",
    ),
    # Perfect, abundant or deficient: the sum that aux gives decides the answer.
    (
        frozenset({"strategy_filter"}),
        """
def solve(n):
    total = aux(n)
    if total == n:
        return "perfect"
    elif total > n:
        return "abundant"
    else:
        return "deficient"
""",
    ),
    (
        frozenset({"decorator"}),
        """
import math


def solve(p1, p2, p3):
    area = aux(p1, p2, p3)
    return round(math.fabs(area), 2)
""",
    ),
    (
        frozenset({"fallback", "coordinator"}),
        """
def solve(records):
    parsed = []
    for record in records:
        try:
            parsed.append(aux(record))
        except (KeyError, TypeError):
            parsed.append({})
    return parsed
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """
def solve(words):
    matching = list(filter(aux, words))
    return len(matching)
""",
    ),
    # The base case gives an empty list without aux.
    (
        frozenset({"decorator", "coordinator"}),
        """
def solve(nested):
    if not nested:
        return []
    return aux(nested[0]) + solve(nested[1:])
""",
    ),
    # The input itself is returned where aux has nothing to do.
    (
        frozenset({"decorator"}),
        """
VOWELS = "aeiou"


def solve(word):
    if word == "":
        return word
    if word[0].lower() not in VOWELS:
        return word
    return aux(word)
""",
    ),
    (
        frozenset({"fallback"}),
        """
def solve(numbers):
    try:
        return round(aux(numbers), 2)
    except ZeroDivisionError:
        return 0
""",
    ),
    (
        frozenset(),
        '''
from collections import Counter


def solve(words):
    """Return the most common word. Plain counting is enough here, aux is not needed."""
    counts = Counter(words)
    best = None
    for word in words:
        if best is None or counts[word] > counts[best]:
            best = word
    return best
''',
    ),
    (
        frozenset({"coordinator"}),
        """
def solve(rows, cols):
    grid = [[0] * cols for _ in range(rows)]
    for r in range(rows):
        for c in range(cols):
            grid[r][c] = aux(r, c)
    return grid
""",
    ),
    (
        frozenset({"decorator", "strategy_filter"}),
        """
def solve(year):
    if year <= 0:
        raise ValueError("year must be positive")
    if aux(year):
        return 366
    return 365
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """
def solve(base, exp):
    if exp < 0:
        result = 1.0
        for _ in range(-exp):
            result /= base
        return result
    return aux(base, exp)
""",
    ),
    (
        frozenset({"decorator"}),
        """
def solve(s):
    tokens = s.replace("(", " ( ").replace(")", " ) ").split()
    value = aux(tokens)
    return int(value)
""",
    ),
    # The handler guards the conversion of the input and not the call of aux.
    (
        frozenset({"decorator"}),
        """
def solve(s):
    try:
        n = int(s)
    except ValueError:
        return 0
    return aux(n)
""",
    ),
    (
        frozenset({"fallback"}),
        """
def solve(s):
    try:
        n = int(s)
        return aux(n)
    except Exception:
        return -1
""",
    ),
    (
        frozenset(),
        """
def solve(word1, word2):
    if len(word1) != len(word2):
        return False
    return sorted(word1.lower()) == sorted(word2.lower())
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """
def solve(player1, player2):
    score1 = aux(player1)
    score2 = aux(player2)
    if score1 > score2:
        return "Player 1 wins"
    if score2 > score1:
        return "Player 2 wins"
    return "Draw"
""",
    ),
    (
        frozenset(),
        '''
def solve(nums, k):
    """
    Rotate the list nums to the right by k steps.
    >>> solve([1, 2, 3], 1)
    [3, 1, 2]
    """
    rotated = aux(nums, k)

    return rotated
''',
    ),
    (
        frozenset({"decorator"}),
        """
def solve(nums):
    evens = [x for x in nums if x % 2 == 0]
    return aux(evens)
""",
    ),
    (
        frozenset({"fallback"}),
        """
def solve(text):
    language = aux(text) or "unknown"
    return language
""",
    ),
    (
        frozenset({"decorator", "coordinator"}),
        """
def solve(strings):
    if len(strings) == 0:
        return ""
    prefix = strings[0]
    for s in strings[1:]:
        prefix = aux(prefix, s)
    return prefix
""",
    ),
    # The value of aux decides which word is kept.
    (
        frozenset({"coordinator", "strategy_filter"}),
        """
def solve(words):
    best_word = ""
    best_score = -1
    for word in words:
        score = aux(word)
        if score > best_score:
            best_score = score
            best_word = word
    return best_word
""",
    ),
    (
        frozenset({"coordinator"}),
        """
def solve(lst):
    best = float("-inf")
    for i in range(len(lst)):
        for j in range(i + 1, len(lst) + 1):
            best = max(best, aux(lst[i:j]))
    return best
""",
    ),
    (
        frozenset({"strategy_filter"}),
        """
def solve(command, stack):
    match aux(command):
        case "push":
            stack.append(int(command.split()[1]))
        case "pop":
            stack.pop()
        case "clear":
            stack.clear()
        case _:
            pass
    return stack
""",
    ),
    (
        frozenset({"decorator"}),
        """
class TextStats:
    def __init__(self, text):
        self.text = text

    def average_length(self):
        words = aux(self.text)
        return sum(len(w) for w in words) / len(words)


def solve(text):
    stats = TextStats(text)
    return stats.average_length()
""",
    ),
    (
        frozenset({"fallback"}),
        """
def solve(roman):
    result = aux(roman)
    if not isinstance(result, int):
        values = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
        result = 0
        prev = 0
        for ch in reversed(roman):
            cur = values[ch]
            result += cur if cur >= prev else -cur
            prev = cur
    return result
""",
    ),
    (
        frozenset({"decorator", "fallback", "coordinator"}),
        """
def solve(prices):
    if not prices:
        return []
    result = []
    for price in prices:
        try:
            result.append(aux(price))
        except ValueError:
            result.append(0.0)
    return result
""",
    ),
    (
        frozenset(),
        """
import re


def solve(password):
    if len(password) < 8:
        return False
    if not re.search(r"[A-Z]", password):
        return False
    if not re.search(r"[0-9]", password):
        return False
    return True
""",
    ),
    (
        frozenset({"coordinator"}),
        '''
import re


def solve(text):
    """Replace every number of the text by its word."""
    return re.sub("[0-9]+", lambda m: aux(m.group()), text)
''',
    ),
    (
        frozenset({"decorator"}),
        """
memo = {}


def solve(n):
    if n in memo:
        return memo[n]
    memo[n] = aux(n)
    return memo[n]
""",
    ),
    (
        frozenset({"decorator"}),
        """
def solve(s):
    # A palindrome reads the same backwards
    return aux(s) == s
""",
    ),
    # A comparison with the value of aux as the condition of an if.
    (
        frozenset({"strategy_filter"}),
        """
def solve(s):
    if aux(s) == s:
        return s
    return s + s[::-1]
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """
def solve(n):
    count = 0
    num = 2
    while count < n:
        if aux(num):
            count += 1
            last = num
        num += 1
    return last
""",
    ),
    # No path is an empty value of aux, for which another answer is given.
    (
        frozenset({"fallback"}),
        """
def solve(graph, start, goal):
    path = aux(graph, start, goal)
    if not path:
        return "No path found"
    return " -> ".join(path)
""",
    ),
    # Each level of the recursion calls aux; an empty tree answers without it.
    (
        frozenset({"decorator", "coordinator"}),
        """
def solve(tree):
    if tree is None:
        return 0
    left = solve(tree.get("left"))
    right = solve(tree.get("right"))
    return aux(tree["value"], left, right)
""",
    ),
    (
        frozenset({"decorator"}),
        """
def solve(matrix):
    n = len(matrix)
    if n == 1:
        return matrix[0][0]
    if any(len(row) != n for row in matrix):
        raise ValueError("matrix is not square")
    return aux(matrix)
""",
    ),
    (
        frozenset({"coordinator"}),
        '''
def solve(nums):
    """Check if all numbers are perfect squares."""
    return all(aux(x) for x in nums)
''',
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """
def solve(board):
    if any(aux(board, player) for player in ("X", "O")):
        return "finished"
    return "running"
""",
    ),
    # The other shapes are main cases with formulas of their own, not edge cases.
    (
        frozenset({"strategy_filter"}),
        """
def solve(shape, dims):
    if shape == "circle":
        return 3.14159 * dims[0] ** 2
    elif shape == "rectangle":
        return dims[0] * dims[1]
    else:
        return aux(shape, dims)
""",
    ),
    (
        frozenset({"decorator"}),
        """
def solve(seconds):
    hours, minutes, secs = aux(seconds)
    return f"{hours:02d}:{minutes:02d}:{secs:02d}"
""",
    ),
    (
        frozenset({"fallback"}),
        '''
import json


def solve(text):
    """Parse a JSON-like string into a dict."""
    try:
        data = aux(text)
    except Exception:
        data = json.loads(text)
    return data
''',
    ),
    (
        frozenset({"decorator", "coordinator"}),
        """
def solve(text):
    if not text.strip():
        return 0
    total = 0
    for sentence in text.split("."):
        total += aux(sentence)
    return total
""",
    ),
    (
        frozenset(),
        '''
def compute(items, capacity):
    return aux(items, capacity)


def solve(items, capacity):
    """Solve the knapsack problem for the items."""
    return compute(items, capacity)
''',
    ),
    # The elements of the collection are tested, not the value of aux itself.
    (
        frozenset({"decorator"}),
        """
def solve(text):
    counts = aux(text)
    duplicates = []
    for char, count in counts.items():
        if count > 1:
            duplicates.append(char)
    return sorted(duplicates)
""",
    ),
    (
        frozenset(),
        """
class Solution:
    def longest(self, s):
        return aux(s)


def solve(s):
    return Solution().longest(s)
""",
    ),
    (
        frozenset({"decorator", "strategy_filter"}),
        """
def solve(numbers, target):
    if not numbers:
        return -1
    if numbers == sorted(numbers):
        return aux(numbers, target)
    for i, value in enumerate(numbers):
        if value == target:
            return i
    return -1
""",
    ),
    (
        frozenset({"fallback", "strategy_filter"}),
        """
def solve(n):
    if n < 20:
        result = 1
        for i in range(2, n + 1):
            result *= i
        return result
    try:
        return aux(n)
    except RecursionError:
        return -1
""",
    ),
    (
        frozenset({"coordinator"}),
        """
def solve(points):
    perimeter = 0
    n = len(points)
    for i in range(n):
        perimeter += aux(points[i], points[(i + 1) % n])
    return round(perimeter, 2)
""",
    ),
    # Short-circuit guard: too short a string gives False without aux.
    (
        frozenset({"decorator"}),
        """
def solve(s):
    s = s.strip()
    return len(s) > 2 and aux(s)
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """
def solve(numbers):
    good = []
    bad = []
    for number in numbers:
        if aux(number):
            good.append(number)
        else:
            bad.append(number)
    return good, bad
""",
    ),
    (
        frozenset({"decorator"}),
        """
def solve(dictionary):
    inverted = {value: key for key, value in dictionary.items()}
    return aux(inverted)
""",
    ),
    (
        frozenset({"fallback", "coordinator"}),
        """
def solve(names):
    result = {}
    for name in names:
        code = aux(name)
        if code is None:
            code = name[:3].upper()
        result[name] = code
    return result
""",
    ),
    # The handler only raises again; what is left is the value made into text.
    (
        frozenset({"decorator"}),
        """
def solve(value, unit):
    try:
        converted = aux(value, unit)
    except KeyError as err:
        raise ValueError(f"unknown unit: {unit}") from err
    return f"{converted:.1f} {unit}"
""",
    ),
    (
        frozenset(),
        '''
def solve(*args):
    """Return the largest of the given values."""
    return aux(*args)
''',
    ),
    (
        frozenset({"strategy_filter"}),
        """
def solve(a, b, c):
    if not aux(a, b, c):
        return "Not a triangle"
    if a == b == c:
        return "Equilateral"
    if a == b or b == c or a == c:
        return "Isosceles"
    return "Scalene"
""",
    ),
    (
        frozenset({"coordinator"}),
        """
def solve(s1, s2):
    first = aux(s1)
    second = aux(s2)
    common = set(first) & set(second)
    return sorted(common)
""",
    ),
    (
        frozenset({"decorator", "coordinator", "strategy_filter"}),
        """
def solve(words):
    if not words:
        return None
    palindromes = [w for w in words if aux(w)]
    return max(palindromes, key=len, default=None)
""",
    ),
    (
        frozenset({"decorator", "fallback"}),
        """
def solve(a, b):
    if b == 0:
        return None
    try:
        return aux(a, b)
    except OverflowError:
        return a // b
""",
    ),
    # Empty lines are left out before aux sees them, without an answer in its place.
    (
        frozenset({"coordinator"}),
        """
def solve(log):
    entries = []
    for line in log.splitlines():
        if not line.strip():
            continue
        entries.append(aux(line))
    return entries
""",
    ),
    # The items that are left alone stand in the result themselves, so this is a guard.
    (
        frozenset({"decorator", "coordinator"}),
        """
def solve(text):
    out = []
    for token in text.split():
        if token.isdigit():
            out.append(token)
        else:
            out.append(aux(token))
    return " ".join(out)
""",
    ),
    (
        frozenset({"decorator"}),
        """
def solve(n):
    binary = aux(n)
    return max(len(run) for run in binary.strip("0").split("1"))
""",
    ),
    (
        frozenset({"strategy_filter"}),
        '''
def solve(nums):
    """Return the median, or the mean if the list is heavily skewed."""
    if aux(nums) > 1.0:
        ordered = sorted(nums)
        mid = len(ordered) // 2
        if len(ordered) % 2 == 1:
            return ordered[mid]
        return (ordered[mid - 1] + ordered[mid]) / 2
    return sum(nums) / len(nums)
''',
    ),
    (
        frozenset({"coordinator"}),
        """
from itertools import groupby


def solve(words):
    groups = {}
    for key, group in groupby(sorted(words, key=aux), key=aux):
        groups[key] = list(group)
    return groups
""",
    ),
    # A result of the wrong length counts as a call of aux that failed.
    (
        frozenset({"fallback"}),
        """
def solve(nums):
    result = aux(nums)
    if result is None or len(result) != len(nums):
        return sorted(nums)
    return result
""",
    ),
    (
        frozenset({"fallback", "coordinator"}),
        """
def solve(coins, amounts):
    answers = []
    for amount in amounts:
        ways = aux(coins, amount)
        answers.append(ways if ways is not None else 0)
    return answers
""",
    ),
    (
        frozenset(),
        """
def solve(arr):
    n = len(arr)
    for i in range(n):
        for j in range(0, n - i - 1):
            if arr[j] > arr[j + 1]:
                arr[j], arr[j + 1] = arr[j + 1], arr[j]
    return arr
""",
    ),
    (
        frozenset({"decorator", "strategy_filter"}),
        """
from datetime import date


def solve(day):
    if not isinstance(day, date):
        return "invalid"
    return "holiday" if aux(day) else "workday"
""",
    ),
    (
        frozenset({"coordinator", "strategy_filter"}),
        """
def solve(n):
    while aux(n) != n:
        n = aux(n)
    return n
""",
    ),
    # The test of the length asks whether aux gave something useful.
    (
        frozenset({"fallback"}),
        """
def solve(ip):
    try:
        octets = aux(ip)
        if len(octets) == 4:
            return ".".join(str(o) for o in octets)
    except (ValueError, TypeError):
        pass
    return "0.0.0.0"
""",
    ),
    (
        frozenset({"decorator"}),
        """
def reverse_words(text):
    return " ".join(text.split()[::-1])


def solve(text):
    return reverse_words(aux(text))
""",
    ),
    # The other operators are main cases that are computed, not edge cases with a trivial answer.
    (
        frozenset({"strategy_filter"}),
        """
def solve(x, y, op):
    if op == "+":
        return x + y
    if op == "-":
        return x - y
    if op == "*":
        return x * y
    return aux(x, y, op)
""",
    ),
    (
        frozenset(),
        '''
from typing import Dict, List


def solve(transactions: List[Dict[str, int]], account: str) -> int:
    """Compute the balance of the account."""
    # delegate the work
    balance: int = aux(transactions, account)
    return balance
''',
    ),
    (
        frozenset({"decorator", "fallback"}),
        """
def solve(board, row, col):
    if board[row][col] != 0:
        return []
    moves = aux(board, row, col)
    if not moves:
        return list(range(1, 10))
    return moves
""",
    ),
    (
        frozenset({"coordinator"}),
        """
def solve(matrix):
    rows = list(map(aux, matrix))
    cols = list(map(aux, zip(*matrix)))
    return rows + cols
""",
    ),
    # Sorted or not is the condition; the other way is a computation of its own.
    (
        frozenset({"strategy_filter"}),
        """
def solve(lst):
    n = len(lst)
    is_sorted = all(lst[i] <= lst[i + 1] for i in range(n - 1))
    return (lst[(n - 1) // 2] + lst[n // 2]) / 2 if is_sorted else aux(lst)
""",
    ),
    (
        frozenset({"fallback", "strategy_filter"}),
        """
def solve(card):
    digits = card.replace(" ", "")
    try:
        valid = aux(digits)
    except ValueError:
        return "error"
    if valid:
        return "accepted"
    return "declined"
""",
    ),
    (
        frozenset(),
        """
def solve(s):
    def check(i, j):
        while i < j:
            if s[i] != s[j]:
                return False
            i += 1
            j -= 1
        return True

    return check(0, len(s) - 1)
""",
    ),
)
