"""Pairs of a program and tests for `benchmarks.differential`: right programs, made wrong, and ended, in many ways.

A pair is a problem, HumanEval's or one of `benchmarks.differential_parts`, a shape of its tests, and an ending of its
program after some right answers.  They are drawn by a seed, so that a pair that was judged wrongly can be made again.
"""

from __future__ import annotations

import ast
import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.differential_parts import ENDINGS, PROBLEMS, SHAPES, SLOW
from benchmarks.sandbox import prelude


@dataclass(frozen=True, slots=True)
class Pair:
    """A program and tests, with what was done to them."""

    name: str
    shape: str
    ending: str
    code: str
    tests: str
    entry_point: str
    prelude: str = ""


def pairs(seed: int, human_eval: Path | None) -> Iterator[Pair]:
    """Yield pairs without end, half of them with HumanEval's problems where its file is given."""
    chance = random.Random(seed)
    problems = [] if human_eval is None else _human_eval(human_eval)
    endings = [name for name in ENDINGS for _ in range(1 if name in SLOW else 5)]
    while True:
        after, ending = chance.choice((0, 1, 1, 2, 3)), chance.choice(endings)
        if problems and chance.random() < 0.5:
            name, code, tests, entry_point, common = chance.choice(problems)
            shape = "its own"
        else:
            number = chance.randrange(len(PROBLEMS))
            entry_point, (code, arguments) = "f", PROBLEMS[number]
            shape = chance.choice(list(SHAPES))
            name, tests, common = f"problem {number}", _tests(code, arguments, shape), ""
        if chance.random() < 0.2:
            code, ending = mutated(code, chance), "mutated"
        elif ending != "goes on":
            code = ended(code, entry_point, ENDINGS[ending], after)
        yield Pair(f"{name}, {shape}, {ending} after {after}", shape, ending, code, tests, entry_point, common)


def ended(code: str, entry_point: str, ending: str, after: int) -> str:
    """Return the program that does as ``ending`` says once it has given ``after`` answers."""
    body = "\n".join("    " + line for line in ending.splitlines())
    return (
        f"{code}\n\nSTATE = {{}}\nWRAPPED = {entry_point}\ndef {entry_point}(*args):\n"
        f"    STATE['n'] = STATE.get('n', 0) + 1\n    if STATE['n'] <= {after}:\n"
        f"        return WRAPPED(*args)\n{body}\n"
    )


def mutated(code: str, chance: random.Random) -> str:
    """Return the program with one operator, comparison or number changed."""
    tree = ast.parse(code)
    kinds = (ast.BinOp, ast.Compare, ast.Constant)
    places = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    if places:
        node = chance.choice(places)
        if isinstance(node, ast.BinOp):
            node.op = chance.choice((ast.Add(), ast.Sub(), ast.Mult()))
        elif isinstance(node, ast.Compare):
            node.ops[0] = chance.choice((ast.Lt(), ast.LtE(), ast.Eq(), ast.NotEq()))
        elif type(node.value) is int:
            node.value += chance.choice((-1, 1))
    return ast.unparse(tree)


def _tests(code: str, arguments: str, shape: str) -> str:
    """Return a check of that shape; a generator's values are expected as a list of what it yields."""
    wanted = []
    for number in range(len(ast.parse(arguments, mode="eval").body.elts)):  # type: ignore[attr-defined]
        space: dict[str, object] = {}
        exec(code, space)  # afresh, for some remember what they were asked
        value = space["f"](*eval(arguments)[number])  # type: ignore[operator]
        wanted.append(list(value) if hasattr(value, "__next__") else value)
    cases = f"[{', '.join(f'({args!r}, {want!r})' for args, want in zip(eval(arguments), wanted, strict=True))}]"
    if shape == "straight":
        body = "\n".join(
            f"assert candidate({', '.join(map(repr, args))}) == {want!r}"
            for args, want in zip(eval(arguments), wanted, strict=True)
        )
    else:
        body = f"CASES = {cases}\n{SHAPES[shape]}"
    return "def check(candidate):\n" + "\n".join("    " + line for line in body.splitlines()) + "\n"


def _human_eval(path: Path) -> list[tuple[str, str, str, str, str]]:
    with gzip.open(path, "rt") as file:
        problems = [json.loads(line) for line in file]
    return [
        (p["task_id"], p["prompt"] + p["canonical_solution"], p["test"], p["entry_point"], prelude(p)) for p in problems
    ]
