"""Reward functions of other trainers: what can be had for nothing is refused, and what pays for the task is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import symposium
from pipeline_lib.audit.functions import RewardFunctionError
from tests.audit.public_rewards import BAD, KINDS, SOUND, SUMS, accuracy, fails_without_a_number, tags


def audited(case: tuple[str, Any, list[float] | None]) -> symposium.Audit:
    kind, reward, weights = case
    rows, metric, solution = KINDS[kind]
    return symposium.audit(reward, rows, metric=metric, solution=solution, weights=weights)


@pytest.mark.parametrize("name", BAD)
def test_a_reward_that_can_be_had_for_nothing_is_refused(name: str) -> None:
    assert not audited(BAD[name]).passed


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
        (SUMS, {"metric": "equals:answers"}, "no column 'answers'"),
        (SUMS, {"metric": lambda completions, **_: [2.0] * len(completions)}, "between 0 and 1"),
        (SUMS, {"solution": "answers"}, "no column 'answers'"),
        (SUMS, {"solution": "{answers}"}, "cannot be filled in"),
        (SUMS, {"solution": "kind"}, "does the task in 0%"),
        (SUMS, {"weights": [1.0, 2.0]}, "2 weights were given for 1 functions"),
        (SUMS, {"reward": lambda completions, **_: [1.0]}, "must return a list with a number or None for each"),
        (SUMS, {"reward": lambda completions, completion_ids: [1.0]}, "needs 'completion_ids'"),
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
        "def long(completions, **_):\n    return [len(c) / 1000 for c in completions]\n"
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
