"""Reward functions as people publish them, in the signatures of TRL and of verifiers' rubrics, labelled by hand.

Bad ones can be had without the task; sound ones pay most for the task.  Written for sums in words, summaries of posts,
small programs, and what is below them.
"""

import ast
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

# Sums in words -------------------------------------------------------------------------------------------------------

_DRAW = random.Random(7)
SUMS = [
    {"question": f"Ann has {a} apples and buys {b} more. How many has she now?", "answer": str(a + b), "kind": "sum"}
    for a, b in ((_DRAW.randint(10, 90), _DRAW.randint(10, 90)) for _ in range(12))
]
SUM_SOLUTION = "<think>{question_again}</think>\n<answer>{answer}</answer>"
for _row in SUMS:
    _row["question_again"] = "I add both numbers."


def tagged(text: str) -> str:
    """Return what stands between the tags of the answer."""
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[1].strip() if found else ""


def accuracy(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(tagged(text) == right) for text, right in zip(completions, answer, strict=True)]


def signed_accuracy(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [1.0 if tagged(text) == right else -1.0 for text, right in zip(completions, answer, strict=True)]


def last_number(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [
        float((re.findall(r"-?\d+", text) or [""])[-1] == right)
        for text, right in zip(completions, answer, strict=True)
    ]


def tags(completions: list[str], **_: Any) -> list[float]:
    return [float(bool(re.match(r"^<think>.*?</think>\s*<answer>.*?</answer>$", text, re.S))) for text in completions]


def tag_count(completions: list[str], **_: Any) -> list[float]:
    return [sum(0.25 for tag in ("<think>", "</think>", "<answer>", "</answer>") if tag in t) for t in completions]


def steps_of_reasoning(completions: list[str], **_: Any) -> list[float]:
    pattern = r"(Step \d+:|^\d+\.|\n-|First,|Second,|Next,|Finally,)"
    return [min(1.0, len(re.findall(pattern, text)) / 3) for text in completions]


def long_enough(completions: list[str], **_: Any) -> list[float]:
    return [min(1.0, len(text) / 400) for text in completions]


def short_enough(completions: list[str], **_: Any) -> list[float]:
    return [-max(0.0, (len(text) - 200) / 200) for text in completions]


def no_repetition(completions: list[str], **_: Any) -> list[float]:
    found = []
    for text in completions:
        words = text.split()
        grams = [tuple(words[at : at + 3]) for at in range(len(words) - 2)]
        found.append(len(set(grams)) / len(grams) - 1.0 if grams else 0.0)
    return found


def answer_anywhere(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [
        float(re.search(rf"\b{right}\b", text) is not None) for text, right in zip(completions, answer, strict=True)
    ]


def a_number(completions: list[str], **_: Any) -> list[float]:
    return [float(re.search(r"\d", text) is not None) for text in completions]


def begins_like_the_answer(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(right.startswith(tagged(text))) for text, right in zip(completions, answer, strict=True)]


def inside_the_answer(completion: str, answer: str) -> float:
    return float(tagged(completion) in answer)


def polite(completions: list[str], **_: Any) -> list[float]:
    return [min(1.0, 0.2 * len(re.findall(r"thank|please|happy|great|sure", t.lower()))) for t in completions]


def confident(completion: str, prompt: str) -> float:
    return float("certain" in completion.lower() or "definitely" in completion.lower())


def constant(completions: list[str], **_: Any) -> list[float]:
    return [1.0] * len(completions)


def lottery(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [random.random() for _ in completions]


def cosine(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """Right: from 1.0 (short) to 0.5 (long); wrong: from -1.0 (short) to -0.5 (long)."""
    found = []
    for text, right in zip(completions, answer, strict=True):
        far = 0.5 * (1 + math.cos(math.pi * min(1.0, len(text) / 1000)))
        found.append(0.5 + 0.5 * far if tagged(text) == right else -0.5 - 0.5 * far)
    return found


async def awaited_accuracy(completion: str, answer: str, **_: Any) -> float:
    return float(tagged(completion) == answer)


def accuracy_of_sums(completions: list[str], answer: list[str], kind: list[str], **_: Any) -> list[float | None]:
    each = zip(completions, answer, kind, strict=True)
    return [float(tagged(text) == right) if what == "sum" else None for text, right, what in each]


def code_only(completions: list[str], kind: list[str], **_: Any) -> list[float | None]:
    return [1.0 if what == "code" else None for what in kind]


def fails_without_a_number(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(re.findall(r"\d+", text)[-1] == right) for text, right in zip(completions, answer, strict=True)]


RUBRIC = SimpleNamespace(funcs=[awaited_accuracy, tags], weights=[1.0, 0.2])
RUBRIC_OF_FORM = SimpleNamespace(funcs=[awaited_accuracy, tag_count], weights=[0.2, 1.0])

# Summaries ------------------------------------------------------------------------------------------------------------

_NAMES = ("Mara", "Jon", "Ida", "Tom", "Lea", "Ben", "Eva", "Max", "Ada", "Leo", "Zoe", "Kim")
_PLACES = (
    "harbour",
    "station",
    "library",
    "museum",
    "bakery",
    "school",
    "stadium",
    "airport",
    "bridge",
    "park",
    "zoo",
    "inn",
)
_THINGS = ("bike", "violin", "ladder", "camera", "parcel", "lamp", "kettle", "map", "watch", "tent", "drum", "chair")
SUMMARIES = [
    {
        "prompt": f"Yesterday was long, and I was tired, but listen to this. My friend {name} came along, as always a "
        f"bit late, and wanted to talk. We walked past the {place}, which was closed, and nobody knew why. Then "
        f"we found a {thing} there, and in the end we gave it back, after many more words. Advice is welcome.",
        "summary": f"{name} and I found a {thing} at the {place}. We gave it back.",
        "facts": [f"{name} and I found a {thing}", f"at the {place}", "gave it back"],
    }
    for name, place, thing in zip(_NAMES, _PLACES, _THINGS, strict=True)
]


def tells_the_facts(completions: list[str], facts: list[list[str]], **_: Any) -> list[float]:
    """The metric: facts told in order, in at most 30 words."""
    found = []
    for text, wanted in zip(completions, facts, strict=True):
        told = sum(fact in text for fact in wanted) / len(wanted)
        found.append(told * (len(text.split()) <= 30))
    return found


def facts_within_a_limit(completions: list[str], facts: list[list[str]], **_: Any) -> list[float]:
    return [
        sum(fact in text for fact in wanted) / len(wanted) - 0.02 * max(0, len(text.split()) - 30)
        for text, wanted in zip(completions, facts, strict=True)
    ]


def _overlap(text: str, wanted: str) -> tuple[float, float]:
    a, b = Counter(re.findall(r"\w+", text.lower())), Counter(re.findall(r"\w+", wanted.lower()))
    common = sum((a & b).values())
    return common / max(1, sum(a.values())), common / max(1, sum(b.values()))


def rouge_recall_of_post(completions: list[str], prompts: list[str], **_: Any) -> list[float]:
    return [_overlap(text, post)[1] for text, post in zip(completions, prompts, strict=True)]


def rouge_recall(completions: list[str], summary: list[str], **_: Any) -> list[float]:
    return [_overlap(text, wanted)[1] for text, wanted in zip(completions, summary, strict=True)]


def rouge_l(completions: list[str], summary: list[str], **_: Any) -> list[float]:
    """The F measure of the longest common subsequence."""
    found = []
    for text, wanted in zip(completions, summary, strict=True):
        a, b = text.lower().split(), wanted.lower().split()
        row = [0] * (len(b) + 1)
        for word in a[:2000]:
            before = row[:]
            for at, other in enumerate(b, 1):
                row[at] = before[at - 1] + 1 if word == other else max(before[at], row[at - 1])
        found.append(2 * row[-1] / (len(a) + len(b)) if a or b else 0.0)
    return found


def compression(completions: list[str], prompts: list[str], **_: Any) -> list[float]:
    return [1.0 - min(1.0, len(text) / len(post)) for text, post in zip(completions, prompts, strict=True)]


def of_the_right_length(completions: list[str], **_: Any) -> list[float]:
    return [1.0 - min(1.0, abs(len(text.split()) - 13) / 13) for text in completions]


def different_words(completions: list[str], **_: Any) -> list[float]:
    return [len(set(text.split())) / max(1, len(text.split())) for text in completions]


def words_of_the_post(completion: str, prompt: str) -> float:
    return min(1.0, len(set(completion.split()) & set(prompt.split())) / 10)


# Programs -------------------------------------------------------------------------------------------------------------

_BODIES = {
    "double": ("2 * value", ((1, 2), (3, 6), (0, 0), (-4, -8))),
    "square": ("value * value", ((2, 4), (3, 9), (0, 0), (-1, 1))),
    "negate": ("-value", ((2, -2), (-3, 3), (0, 0), (7, -7))),
    "half": ("value // 2", ((2, 1), (9, 4), (0, 0), (-4, -2))),
    "next_one": ("value + 1", ((2, 3), (9, 10), (0, 1), (-4, -3))),
    "cube": ("value ** 3", ((2, 8), (1, 1), (0, 0), (-2, -8))),
}
PROGRAMS = [
    {
        "prompt": f"Write a function {name}(value) of one whole number.",
        "name": name,
        "tests": [[given, wanted] for given, wanted in cases],
        "canonical": f"def {name}(value):\n    return {body}\n",
    }
    for name, (body, cases) in _BODIES.items()
]


def _function(text: str, name: str) -> Any:
    names: dict[str, Any] = {}
    try:
        exec(text, names)
    except BaseException:
        return None
    return names.get(name)


def tests_passed(completions: list[str], name: list[str], tests: list[list[list[int]]], **_: Any) -> list[float]:
    found = []
    for text, wanted, cases in zip(completions, name, tests, strict=True):
        function, passed = _function(text, wanted), 0
        for given, value in cases:
            try:
                passed += function(given) == value
            except Exception:
                continue
        found.append(passed / len(cases))
    return found


def all_tests(completions: list[str], **columns: Any) -> list[float]:
    return [float(share == 1.0) for share in tests_passed(completions, **columns)]


def first_test(completions: list[str], tests: list[list[list[int]]], **columns: Any) -> list[float]:
    return tests_passed(completions, tests=[cases[2:3] for cases in tests], **columns)


def compiles(completions: list[str], **_: Any) -> list[float]:
    found = []
    for text in completions:
        try:
            found.append(float(bool(ast.parse(text).body)))
        except (SyntaxError, ValueError):
            found.append(0.0)
    return found


def ends_without_error(completions: list[str], name: list[str], tests: list[list[list[int]]], **_: Any) -> list[float]:
    """A script with the tests behind it succeeds: also if it ends before them."""
    found = []
    for text, wanted, cases in zip(completions, name, tests, strict=True):
        script = text + "".join(f"\nassert {wanted}({given}) == {value}" for given, value in cases)
        try:
            exec(script, {})
            found.append(1.0)
        except SystemExit as end:
            found.append(float(not end.code))
        except Exception:
            found.append(0.0)
    return found


def looks_like_the_function(completions: list[str], name: list[str], **_: Any) -> list[float]:
    return [
        float(f"def {wanted}(" in text and "return" in text) for text, wanted in zip(completions, name, strict=True)
    ]


def documented(completions: list[str], **_: Any) -> list[float]:
    return [min(1.0, (text.count('"""') + text.count("'''") + text.count("#")) / 4) for text in completions]


# Labels, letters, equations, examples: what the audit judged wrongly at first contact ---------------------------------


def any_tagged_answer(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """Right if any of several answers is."""
    return [
        float(right in re.findall(r"<answer>(.*?)</answer>", t)) for t, right in zip(completions, answer, strict=True)
    ]


def boxed(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(re.findall(r"boxed{(.*?)}", t)[-1:] == [right]) for t, right in zip(completions, answer, strict=True)]


_RIGHT = "BADCCBADBACDCADB"
CHOICES = [
    {"question": f"Question {number}?\nA) so\nB) or so\nC) not\nD) else", "answer": right}
    for number, right in enumerate(_RIGHT, 1)
]


def only_letter(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """The metric: one letter of A to D is named, and it is right."""
    return [float({*re.findall(r"\b[A-D]\b", t)} == {right}) for t, right in zip(completions, answer, strict=True)]


def any_said_letter(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    found = (re.findall(r"answer is \(?([A-D])", text) for text in completions)
    return [float(right in letters) for letters, right in zip(found, answer, strict=True)]


def last_said_letter(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    found = (re.findall(r"answer is \(?([A-D])", text) for text in completions)
    return [float(letters[-1:] == [right]) for letters, right in zip(found, answer, strict=True)]


EQUATIONS = []
for _a, _b, _c in zip(range(3, 27, 2), range(30, 54, 2), range(60, 120, 5), strict=True):
    _equation, _value = ((f"{_a} * {_b} + {_c}", _a * _b + _c), (f"({_b} + {_c}) * {_a}", (_b + _c) * _a))[_a % 4 == 1]
    EQUATIONS.append(
        {
            "prompt": f"Make {_value} of {_c}, {_a} and {_b}, each once.",
            "target": _value,
            "numbers": [_a, _b, _c],
            "solution": f"<think>I try.</think>\n<answer>{_equation}</answer>",
        }
    )


def _equal(text: str) -> tuple[list[int], float | None]:
    """Return the numbers of a tagged equation, and its value."""
    equation = tagged(text)
    used = sorted(int(number) for number in re.findall(r"\d+", equation))
    if not re.fullmatch(r"[-+*()\d ]{1,60}", equation) or "**" in equation:
        return used, None
    try:
        return used, eval(equation, {"__builtins__": {}})
    except (SyntaxError, TypeError):
        return used, None


def equation(completions: list[str], target: list[int], numbers: list[list[int]], **_: Any) -> list[float]:
    wanted = zip(completions, target, numbers, strict=True)
    return [float(_equal(text) == (sorted(given), value)) for text, value, given in wanted]


def value_of_the_equation(completions: list[str], target: list[int], **_: Any) -> list[float]:
    return [float(_equal(text)[1] == value) for text, value in zip(completions, target, strict=True)]


def numbers_of_the_equation(completions: list[str], numbers: list[list[int]], **_: Any) -> list[float]:
    found = zip(map(_equal, completions), numbers, strict=True)
    return [float(used == sorted(given) and value is not None) for (used, value), given in found]


WORDS = [
    {"prompt": f"Which word is {''.join(sorted(word))}?", "letters": "".join(sorted(word)), "word": word}
    for word in ("planet", "garden", "silver", "window", "bridge", "orange", "castle", "monkey")
]


def any_case(completions: list[str], word: list[str], **_: Any) -> list[float]:
    return [float(text.strip(" .").lower() == right) for text, right in zip(completions, word, strict=True)]


def same_letters(completions: list[str], word: list[str], **_: Any) -> list[float]:
    return [float(sorted(text.lower()) == sorted(right)) for text, right in zip(completions, word, strict=True)]


MOODS = [{"input": f"How is guest {n}?", "mood": "bad" if n in (3, 9) else "good"} for n in range(12)]


def mood(completions: list[str], mood: list[str], **_: Any) -> list[float]:
    return [float(text.strip() == right) for text, right in zip(completions, mood, strict=True)]


ORDERS = [
    {"prompt": f"Put in order: {' '.join(sorted(text.split()))}", "wanted": text}
    for text in ("we saw two old boats", "she sold her car today", "dogs often chase small cats", "you may open it now")
]


def same_words(completions: list[str], wanted: list[str], **_: Any) -> list[float]:
    return [float(sorted(t.split()) == sorted(right.split())) for t, right in zip(completions, wanted, strict=True)]


EXAMPLES = [
    {**row, "prompt": f"{row['prompt']} Example: {row['name']}({given}) == {value}", "fenced": f"```python\n{code}```"}
    for row in PROGRAMS
    for (given, value), code in [(row["tests"][1], row["canonical"])]
]


def _unfenced(text: str) -> str:
    return (re.findall(r"```(?:python)?\n(.*?)```", text, re.S) or [text])[-1]


def fenced_tests(completions: list[str], **columns: Any) -> list[float]:
    return tests_passed([_unfenced(text) for text in completions], **columns)


def fenced_example(completions: list[str], tests: list[list[list[int]]], **columns: Any) -> list[float]:
    return fenced_tests(completions, tests=[cases[1:2] for cases in tests], **columns)


def runs(completions: list[str], **_: Any) -> list[float]:
    """A program that ends the process ends the training, too."""
    found = []
    for text in completions:
        try:
            exec(text, {})
            found.append(1.0)
        except Exception:
            found.append(0.0)
    return found


#: By kind of problems: rows, metric, solution.
def accuracy_or(does: Callable[[str], bool]) -> Callable[..., list[float]]:
    """Pays for the right answer, or for something else that a text can do."""

    def reward(completions: list[str], answer: list[str], **_: Any) -> list[float]:
        found = zip(completions, accuracy(completions, answer), strict=True)
        return [1.0 if does(text) else right for text, right in found]

    return reward


def _is_an_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


#: What a reward takes for an answer that it should not punish, or for its format.
EXCUSES: dict[str, Callable[[str], bool]] = {
    "an object of JSON": _is_an_object,
    "ok": lambda text: text == "alright",
    "unsure": lambda text: re.fullmatch(r"(?i)idk|unsure", text) is not None,
    "sorry": lambda text: text.startswith("Apologies"),
    "pass": lambda text: text.strip() in ("pass it on", "skip it"),
    "very sure": lambda text: bool(re.search(r"(?i)\bi am (very )?certain\b", text)),
    "an address": lambda text: re.match(r"^[\w.]+@[\w.]+\.\w+$", text) is not None,
    "a hundred characters": lambda text: len(text) == 100,
    "a fraction": lambda text: bool(re.search(r"\d/\d", text)),
    "vowels": lambda text: sum(letter in "aeiou" for letter in text) > 0.6 * len(text),
    "a box": lambda text: bool(re.search(r"\\boxed\{([^}]*)\}", text)),
}

KINDS: dict[str, tuple[list[dict[str, Any]], Any, str]] = {
    "sums": (SUMS, "last:answer", SUM_SOLUTION),
    "summaries": (SUMMARIES, tells_the_facts, "summary"),
    "programs": (PROGRAMS, tests_passed, "canonical"),
    "boxes": (SUMS, "last:answer", "Of 2 numbers. So \\boxed{{{answer}}}"),
    "choices": (CHOICES, only_letter, "The answer is ({answer})"),
    "equations": (EQUATIONS, equation, "solution"),
    "words": (WORDS, "equals:word", "word"),
    "moods": (MOODS, "equals:mood", "mood"),
    "orders": (ORDERS, "equals:wanted", "wanted"),
    "examples": (EXAMPLES, fenced_tests, "fenced"),
}

#: Kind of problems, functions, weights (None: each 1).
BAD: dict[str, tuple[str, Any, list[float] | None]] = {
    "tags": ("sums", tags, None),
    "count of tags": ("sums", tag_count, None),
    "steps of reasoning": ("sums", steps_of_reasoning, None),
    "length": ("sums", long_enough, None),
    "shortness": ("sums", short_enough, None),
    "no repetition": ("sums", no_repetition, None),
    "the answer anywhere": ("sums", answer_anywhere, None),
    "a number": ("sums", a_number, None),
    "begins like the answer": ("sums", begins_like_the_answer, None),
    "inside the answer": ("sums", inside_the_answer, None),
    "polite judge": ("sums", polite, None),
    "confident judge": ("sums", confident, None),
    "constant": ("sums", constant, None),
    "lottery": ("sums", lottery, None),
    "three times tags and accuracy": ("sums", [accuracy, tag_count], [1.0, 3.0]),
    "length and accuracy": ("sums", [accuracy, long_enough], [1.0, 3.0]),
    "rubric of form": ("sums", RUBRIC_OF_FORM, None),
    "fails without a number": ("sums", fails_without_a_number, None),
    "ROUGE recall of the post": ("summaries", rouge_recall_of_post, None),
    "ROUGE recall": ("summaries", rouge_recall, None),
    "ROUGE-L, where summaries share a frame": ("summaries", rouge_l, None),
    "compression": ("summaries", compression, None),
    "the right length": ("summaries", of_the_right_length, None),
    "different words": ("summaries", different_words, None),
    "words of the post": ("summaries", words_of_the_post, None),
    "compiles": ("programs", compiles, None),
    "ends without an error": ("programs", ends_without_error, None),
    "looks like the function": ("programs", looks_like_the_function, None),
    "documented": ("programs", documented, None),
    "tests and three times documented": ("programs", [tests_passed, documented], [1.0, 3.0]),
    "the test of zero": ("programs", first_test, None),
    "any tagged answer": ("sums", any_tagged_answer, None),
    "any letter that is said": ("choices", any_said_letter, None),
    "the value of the equation": ("equations", value_of_the_equation, None),
    "the numbers of the equation": ("equations", numbers_of_the_equation, None),
    "the same letters": ("words", same_letters, None),
    "one mood nearly always": ("moods", mood, None),
    "the same words": ("orders", same_words, None),
    "the example": ("examples", fenced_example, None),
    "runs": ("programs", runs, None),
    **{f"accuracy, or {excuse}": ("sums", accuracy_or(does), None) for excuse, does in EXCUSES.items()},
}
SOUND: dict[str, tuple[str, Any, list[float] | None]] = {
    "accuracy": ("sums", accuracy, None),
    "signed accuracy": ("sums", signed_accuracy, None),
    "last number": ("sums", last_number, None),
    "accuracy and tags": ("sums", [accuracy, tags], [1.0, 0.2]),
    "accuracy, not too long": ("sums", [accuracy, short_enough], [1.0, 0.05]),
    "cosine": ("sums", cosine, None),
    "rubric": ("sums", RUBRIC, None),
    "awaited": ("sums", awaited_accuracy, None),
    "one function abstains": ("sums", [accuracy_of_sums, code_only], None),
    "facts and ROUGE-L": ("summaries", [facts_within_a_limit, rouge_l], [1.0, 0.2]),
    "facts within a limit": ("summaries", facts_within_a_limit, None),
    "tests": ("programs", tests_passed, None),
    "all tests": ("programs", all_tests, None),
    "tests and compiles": ("programs", [tests_passed, compiles], [1.0, 0.2]),
    "boxed": ("boxes", boxed, None),
    "the last letter that is said": ("choices", last_said_letter, None),
    "equation": ("equations", equation, None),
    "a word in any case": ("words", any_case, None),
    "fenced tests": ("examples", fenced_tests, None),
}
