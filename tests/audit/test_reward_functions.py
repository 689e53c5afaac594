"""Reward functions of other trainers: what can be had for nothing is refused, and what pays for the task is not."""

import asyncio
import functools
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest

import symposium
from pipeline_lib.audit.reward_calls import RewardFunctionError, read_rows
from tests.audit.public_rewards import BAD, KINDS, SOUND, SUMS, accuracy, fails_without_a_number, tags


def audited(case: tuple[str, Any, list[float] | None]) -> symposium.Audit:
    kind, reward, weights = case
    rows, metric, solution = KINDS[kind]
    return symposium.audit(reward, rows, metric=metric, solution=solution, weights=weights)


@pytest.mark.drawn("bad rewards", "pipeline_lib/audit", count=10)
@pytest.mark.parametrize("name", BAD)
def test_a_reward_that_can_be_had_for_nothing_is_refused(name: str) -> None:
    assert not audited(BAD[name]).passed


@pytest.mark.drawn("sound rewards", "pipeline_lib/audit", count=5)
@pytest.mark.parametrize("name", SOUND)
def test_a_reward_that_pays_for_the_task_is_accepted(name: str) -> None:
    found = audited(SOUND[name])
    assert found.passed, found.result.summary


def test_the_reason_is_the_right_one() -> None:
    def failed(case: tuple[str, Any, list[float] | None]) -> set[str]:
        return {check.name for check in audited(case).result.checks if check.status == "FAIL"}

    assert "raises" in failed(("sums", fails_without_a_number, None))
    assert {"best", "ladder"} <= failed(("sums", tags, None))


def test_a_promised_reward_that_nobody_earns_counts_as_earned_without_the_task() -> None:
    rows, metric, solution = KINDS["sums"]
    given = {"metric": metric, "solution": solution}
    assert symposium.audit(accuracy, rows, reward_range=(0.0, 1.0), **given).passed
    found = symposium.audit(accuracy, rows, reward_range=(0.0, 5.0), **given)
    assert not found.passed and "promise 5.000" in found.result.summary
    assert not symposium.audit(accuracy, rows, reward_range=(0.0, 0.5), **given).passed, "outside the bounds"


def by_position(completions: list[str], /, **_: Any) -> list[float]:
    return [0.0] * len(completions)


def test_a_reward_is_asked_as_its_trainer_asks() -> None:
    """Callables of any kind, arrays, arguments that it changes, and what trainers and rubrics add to the columns."""
    rows = [{**row, "cells": [1, 2]} for row in SUMS]
    given = {"metric": "last:answer", "solution": "answer"}

    def exact(completions: list[str], answer: list[str], **_: Any) -> list[float]:
        return [float(text == right) for text, right in zip(completions, answer, strict=True)]

    async def awaited(completions: list[str], answer: list[str], **_: Any) -> np.ndarray:
        await asyncio.sleep(0)
        return np.array(exact(completions, answer))

    def spoils(completions: list[str], answer: list[str], prompts: list[str], cells: list[list[int]]) -> list[float]:
        earned = [value * (cell == [1, 2]) for value, cell in zip(exact(completions, answer), cells, strict=True)]
        for one in (completions, answer, prompts, *cells):
            one.clear()
        return earned

    def logs(
        completions: list[str], answer: list[str], completion_ids: list[list[int]], log_extra: Any, log_metric: Any
    ) -> list[float]:
        log_extra("answers", answer)
        log_metric("longest", max(map(len, completion_ids)))
        return [value * (len(ids) < 3) for value, ids in zip(exact(completions, answer), completion_ids, strict=True)]

    def parsed(completion: str, answer: str, parser: Any, state: dict[str, Any]) -> float:
        state.clear()
        return float(parser(completion) == answer)

    former = SimpleNamespace(reward_funcs=[parsed], reward_weights=[2.0], class_objects={"parser": str.strip})
    group = SimpleNamespace(rubrics=[former, SimpleNamespace(funcs=[parsed], class_objects={"parser": str.strip})])
    for reward in (functools.partial(exact), awaited, spoils, logs, former, group):
        found = symposium.audit(reward, rows, **given)
        assert found.passed and found.result.ladder[0].name == "the solution", found.result.summary

    async def in_a_notebook() -> symposium.Audit:
        return symposium.audit(awaited, rows, **given)

    assert asyncio.run(in_a_notebook()).passed
    assert all(row["cells"] == [1, 2] for row in rows)


def test_a_column_called_completion_is_not_the_completion() -> None:
    rows = [{"prompt": row["question"], "completion": row["answer"]} for row in SUMS]
    found = symposium.audit(
        lambda completions, **_: [min(1.0, len(t) / 90) for t in completions], rows, metric="equals:completion"
    )
    assert not found.passed and max(rung.outcome for rung in found.result.ladder if rung.name != "the solution") < 0.5


def test_a_failure_ends_a_training_and_counts_as_0_in_a_rubric() -> None:
    def last(completion: str, answer: str) -> float:
        return float(completion.split()[-1] == answer)

    found = symposium.audit(last, SUMS, metric="last:answer", solution="answer")
    warned = [check for check in found.result.checks if check.name == "raises"]
    assert found.passed and [check.status for check in warned] == ["WARN"], found.result.summary
    (raised,) = [check for check in audited(BAD["runs"]).result.checks if check.name == "raises"]
    assert raised.status == "FAIL" and "SystemExit" in raised.sentence


@pytest.mark.parametrize("count", [1, 2])
def test_one_problem_and_equal_ones_can_be_judged(count: int) -> None:
    assert symposium.audit(
        accuracy, SUMS[:1] * count, metric="last:answer", solution="<answer>{answer}</answer>"
    ).passed


def test_different_problems_with_one_and_the_same_solution_are_refused() -> None:
    rows = [{"question": f"Is {n} even?", "answer": "1"} for n in range(0, 8, 2)]
    refused = symposium.audit(accuracy, rows, metric="last:answer", solution="<answer>{answer}</answer>")
    assert not refused.passed and "'<answer>1</answer>' solves 100% of the problems" in str(refused)


def test_tables_of_other_packages_are_problems() -> None:
    rows = [{"prompt": [{"role": "user", "content": row["question"]}], "answer": row["answer"]} for row in SUMS]
    frame = pandas.DataFrame(rows)
    frame["prompt"] = [np.array(messages) for messages in frame["prompt"]]  # as pandas reads them from Parquet
    for table in (frame, pyarrow.Table.from_pylist(rows), iter(rows)):
        assert [(row.prompt, row.columns) for row in read_rows(table)] == [
            (row["prompt"], {"answer": row["answer"]}) for row in rows
        ]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b"", "no rows"),
        ("a.jsonl", b'{"prompt": "a"}\n{oops', "a.jsonl, line 2: not JSON"),
        ("a.jsonl", b'{"prompt": "a"}\n[1]', "a.jsonl, line 2: not an object"),
        ("a.jsonl", b'{"prompt": "a"}\n{"prompt": "\xe9"}', "a.jsonl, line 2: not UTF-8"),
        ("a.jsonl", b'{"prompt": "a"}\n{"prompt": null}', "a.jsonl, line 2: prompt is None"),
        ("a.jsonl", b'{"prompt": "a"}\n{"text": "b"}', "a.jsonl, line 2: there is no column 'prompt'"),
        ("a.csv", b"prompt,answer\na,1\nb\n", "a.csv, line 3: 1 cells"),
        ("a.csv", b"prompt,prompt\na,1\n", "a.csv, line 1: the column 'prompt' occurs twice"),
        ("a.csv", b'prompt,answer\n"a,1\n', "a.csv, line 2"),
        ("a.parquet", b"PAR1", "a.parquet: not a Parquet file"),
        ("a.xlsx", b"", "a.xlsx: unknown kind of file"),
    ],
)
def test_a_damaged_table_is_described(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RewardFunctionError, match=words):
        read_rows(tmp_path / name)


def test_messages_and_a_column_that_solves_are_found() -> None:
    rows = [{"prompt": [{"role": "user", "content": row["question"]}], "answer": row["answer"]} for row in SUMS]

    def spoken(completions: list[list[dict[str, str]]], answer: list[str], **_: Any) -> list[float]:
        return [float(turn[0]["content"] == right) for turn, right in zip(completions, answer, strict=True)]

    found = symposium.audit(spoken, rows, metric="equals:answer")
    assert found.passed
    best = found.result.ladder[0]
    assert (best.name, best.role, best.outcome) == ("the solution", "working", 1.0)


@pytest.mark.parametrize(
    ("problems", "options", "words"),
    [
        ("nowhere.jsonl", {}, "nowhere.jsonl"),
        ([], {}, "no rows"),
        ([{"text": "a"}], {}, "no column 'prompt'"),
        ([{"prompt": 3}], {}, "must be a text or a list of messages"),
        (SUMS, {"metric": "near:answer"}, "no module near"),
        (SUMS, {"metric": "equals:answers"}, "row 1: there is no column 'answers'"),
        (SUMS, {"metric": "equals:task"}, "no column 'task'"),
        ([*SUMS, {**SUMS[0], "answer": None}], {"limit": 64}, "row 13: there is nothing in column 'answer'"),
        ([*SUMS, {**SUMS[0], "answer": "?"}], {"limit": 64}, "row 13: answer is '\\?', without a number"),
        (SUMS, {"metric": lambda completions, **_: [1.0] * len(completions)}, "also no text at all"),
        (
            SUMS,
            {"metric": lambda completions, **_: [0.0] * len(completions), "solution": None},
            "no text that was tried",
        ),
        (SUMS, {"metric": lambda completions, **_: sys.exit(0)}, "raised SystemExit: 0"),
        (SUMS, {"metric": lambda completions, **_: [2.0] * len(completions)}, "between 0 and 1"),
        (SUMS, {"solution": "answers"}, "no column 'answers'"),
        (SUMS, {"solution": "{answers}"}, "cannot be filled in"),
        (SUMS, {"solution": "{answer.x}"}, "cannot be filled in"),
        (SUMS, {"solution": "kind"}, "does the task in 0%"),
        (SUMS, {"weights": [1.0, 2.0]}, "2 weights were given for 1 functions"),
        (SUMS, {"reward": lambda completions, **_: [1.0]}, "must return a list with a number or None for each"),
        (SUMS, {"reward": lambda completions, **_: ["1.0"] * len(completions)}, "must return a list with a number"),
        (SUMS, {"reward": lambda completions, **_: "1" * len(completions)}, "must return a list with a number"),
        (SUMS, {"reward": lambda completions, **_: dict.fromkeys(range(len(completions)))}, "must return a list"),
        (SUMS, {"reward": lambda completion: [1.0]}, "returned '\\[1.0\\]' for a completion; it must return a number"),
        (SUMS, {"reward": lambda completions, trainer_state: [1.0]}, "needs 'trainer_state'"),
        (SUMS, {"reward": by_position}, "takes 'completions' by position only"),
        (SUMS, {"reward": SimpleNamespace(funcs=[accuracy], weights=[1.0, 2.0])}, "2 weights for 1 functions"),
        (SUMS, {"weights": [float("nan")]}, "must be finite"),
        (SUMS, {"reward_range": (1.0, 0.0)}, "the first must be less"),
        (SUMS, {"reward": "tests.audit.no_module_at_all:f"}, "there is no module"),
        (SUMS, {"reward": ".rewards:f"}, "cannot be imported"),
        (SUMS, {"reward": "rewards"}, "write module:function"),
        (SUMS, {"reward": "tests.audit.public_rewards:nothing"}, "has no nothing"),
        (SUMS, {"reward": 3}, "no function"),
    ],
)
def test_what_is_wrong_is_said(problems: Any, options: dict[str, Any], words: str) -> None:
    given = {"metric": "last:answer", "solution": "answer", "reward": accuracy, **options}
    with pytest.raises(RewardFunctionError, match=words):
        symposium.audit(given.pop("reward"), problems, **given)


def test_the_command_says_what_earns_most_and_its_status_is_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in SUMS))
    (tmp_path / "mine.py").write_text(
        "def exact(completions, answer, **_):\n    return [float(c == a) for c, a in zip(completions, answer)]\n\n"
        "def long(completions, **_):\n    print('asked')\n    return [len(c) / 1000 for c in completions]\n"
    )

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "symposium", "audit", "--problems", "problems.jsonl", *more]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    good = run("--reward", "mine:exact", "--metric", "equals:answer")
    assert (good.returncode, good.stderr) == (0, "") and "PASS" in good.stdout.splitlines()[-1]
    bad = run("--reward", "mine:exact", "mine:long", "--weights", "1", "2", "--metric", "equals:answer", "--json")
    found = json.loads(bad.stdout)
    assert bad.returncode == 1 and found["status"] == "FAIL" and found["reward"] == "exact + 2 long"
    wrong = run("--reward", "mine:other", "--metric", "equals:answer")
    assert (wrong.returncode, wrong.stdout) == (2, "") and wrong.stderr == "error: mine:other: mine has no other\n"
    absent = run("--reward", "mine:exact", "--metric", "equals:answer", "--model", "./no_model.gguf")
    assert (absent.returncode, absent.stdout) == (2, "") and absent.stderr.startswith("error: ")
