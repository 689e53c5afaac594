"""How often is the reward audit wrong?  Runs it on every reward of the table and writes benchmarks/results/audit.md.

    python -m benchmarks.audit                # all of them: ten minutes of one core, more where it is shared
    python -m benchmarks.audit --missing      # only those that the table does not have yet
    python -m benchmarks.audit 'max-min'      # those whose name contains a word, printed only

A philosophers' reward is audited on 32 training tables of the preset, with the habits of a base that grabs its left
fork, then its right one, and slips (it deadlocks, as the preset's base does); a coding reward on 8 generated problems,
and a reward for modules on 8 with three modules, of levels 1 and 2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.audit_coding_rewards import CODING
from benchmarks.audit_fresh_rewards import FRESH_CODING, FRESH_PHILOSOPHERS, MISSED
from benchmarks.audit_modules_rewards import MISSED_LATER, MODULES
from benchmarks.audit_rewards import PHILOSOPHERS, Entry
from pipeline_lib.audit.result import Check, Status, worst
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.environments.coding.audit import CodingExaminer
from pipeline_lib.environments.coding.generated import generate
from pipeline_lib.environments.coding.settings import GeneratedProblems
from pipeline_lib.environments.modules.audit import ModulesExaminer
from pipeline_lib.environments.modules.generated import generate as generate_modules
from pipeline_lib.environments.modules.settings import GeneratedModules
from pipeline_lib.environments.philosophers.audit import CHOICES, Floats, audit_philosophers
from pipeline_lib.environments.philosophers.rewards import Reward
from pipeline_lib.environments.philosophers.runtime import PhilosophersEnvironment
from pipeline_lib.environments.philosophers.scenarios import Scenario, generate_scenarios
from pipeline_lib.environments.philosophers.scripted import CLASSES, FREE, MINE
from pipeline_lib.environments.philosophers.settings import PhilosophersSettings, ScenarioFamily, ScenarioProblems
from pipeline_lib.environments.philosophers.table import LEFT, RELEASE, RIGHT, WAIT
from pipeline_lib.settings.problems import SplitSizes
from pipeline_lib.settings.sandbox import ProcessSandbox

TABLE = Path("benchmarks/results/audit.md")
FIGURES = Path("benchmarks/results/audit.json")
SIZES = SplitSizes(train=32, validation=1, test=1)


def scenarios() -> list[Scenario]:
    """Return training tables as the preset draws them: rings of five, 24 steps."""
    family = ScenarioFamily(philosophers=(5,), held=0.1, horizon=(24,))
    return list(generate_scenarios(ScenarioProblems(sizes=SIZES, family=family))["train"])


def deadlocking_habits(philosophers: int = 5, slips: float = 0.25) -> Floats:
    """Return logits (N, 9, 5) of a base that takes left, then right, and slips in a way that its seat decides."""
    chances = np.full((philosophers, CLASSES, CHOICES), 0.02)
    for seat in range(philosophers):
        for situation in range(CLASSES):
            left, right = divmod(situation, 3)
            habit = LEFT if left == FREE else RIGHT if left == MINE and right == FREE else WAIT
            slip = (WAIT, RIGHT, RELEASE, RIGHT, WAIT)[seat % 5]
            chances[seat, situation, slip] += 0.8 * slips
            chances[seat, situation, [WAIT, LEFT, RIGHT, RELEASE]] += 0.2 * slips / 4
            chances[seat, situation, habit] += 1 - slips
    return np.log(chances / chances.sum(axis=-1, keepdims=True))


def audit_all(entries: Sequence[tuple[str, Entry]]) -> Iterator[tuple[str, Entry, list[Check]]]:
    """Audit rewards of the table, each with the name of its task, and yield the checks of each."""
    tables = scenarios()
    problems: dict[str, Sequence[Any]] = {
        "coding": generate(GeneratedProblems(sizes=SIZES))["train"][:8],
        "modules": generate_modules(GeneratedModules(levels=(1, 2), sizes=SIZES))["train"][:8],
    }
    examiners = {"coding": CodingExaminer(), "modules": ModulesExaminer()}
    usual = PhilosophersSettings(prompt="compact")
    for task, entry in entries:
        if task == "philosophers":
            table = PhilosophersEnvironment(entry.reward if isinstance(entry.reward, PhilosophersSettings) else usual)
            if isinstance(entry.reward, Reward):
                table.reward = entry.reward
            yield task, entry, audit_philosophers(table, tables, 0, deadlocking_habits())[1]
            continue
        environment = make_environment(entry.reward, ProcessSandbox())
        try:
            checks = examiners[task].examine(environment, problems[task], 0, lambda done, total, text: None)[1]
        finally:
            environment.close()
        yield task, entry, checks


def every_entry() -> list[tuple[str, Entry]]:
    """Return the whole table with the name of each reward's task."""
    philosophers, coding = (*PHILOSOPHERS, *FRESH_PHILOSOPHERS), (*CODING, *FRESH_CODING)
    by_task = {"philosophers": philosophers, "coding": coding, "modules": MODULES}
    return [(task, entry) for task, entries in by_task.items() for entry in entries]


def row(task: str, entry: Entry, checks: Sequence[Check]) -> dict[str, Any]:
    """Return what the audit said of one reward."""
    status = worst([check.status for check in checks])
    refused = status is Status.FAIL
    wrong = entry.label != "arguable" and refused != (entry.label == "bad")
    return {
        "task": task,
        "reward": entry.name,
        "label": entry.label,
        "audit": status.value,
        "wrong": wrong,
        "by": [check.name for check in checks if check.status is Status.FAIL],
        "warns": [check.name for check in checks if check.status is Status.WARN],
    }


def write(rows: Sequence[dict[str, Any]]) -> None:
    """Write the table and the figures behind it."""
    FIGURES.write_text(json.dumps(list(rows), indent=1) + "\n")
    lines = [
        "# The audit's table",
        "",
        "Written by `python -m benchmarks.audit`; the claims of the audit and the labels are explained in",
        "[docs/rewards.md](../../docs/rewards.md).",
        "",
        "| | rewards | refused | accepted | wrong |",
        "|---|---|---|---|---|",
    ]
    for label in ("bad", "sound", "arguable"):
        own = [r for r in rows if r["label"] == label]
        refused = sum(r["audit"] == "FAIL" for r in own)
        wrong = f"{sum(r['wrong'] for r in own) / len(own):.1%}" if label != "arguable" else "-"
        lines.append(f"| {label} | {len(own)} | {refused} | {len(own) - refused} | {wrong} |")
    fresh = [entry for entry in (*FRESH_PHILOSOPHERS, *FRESH_CODING) if entry.label != "arguable"]
    bad = sum(entry.label == "bad" for entry in fresh)
    lines += [
        "",
        f"The last {len(FRESH_PHILOSOPHERS)} rewards for philosophers and {len(FRESH_CODING)} for coding were "
        "written and labelled after the audit was",
        f"finished. At first it accepted {len(MISSED)} of the {bad} bad ones",
        f"({' and '.join(repr(name) for name in MISSED)}) and refused none of the {len(fresh) - bad} sound",
        f"ones, {len(MISSED) / len(fresh):.0%} wrong; then the audit was improved.",
        "Expect that first rate for rewards that are not in this table.",
        "",
        f"The {len(MODULES)} rewards for modules and those for coding that begin with `fine` came later still, with",
        f"labels given before the audit was run on them. At first it accepted one bad one ({MISSED_LATER!r});",
        "then the audit of modules got the team `right_on_a_third`.",
        "",
        "| task | reward | label | audit | refused by |",
        "|---|---|---|---|---|",
    ]
    for r in rows:
        mark = " **wrong**" if r["wrong"] else ""
        lines.append(f"| {r['task']} | {r['reward']} | {r['label']} | {r['audit']}{mark} | {', '.join(r['by'])} |")
    TABLE.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Audit the rewards whose name contains an argument, those that are missing in the table, or all of them."""
    missing = sys.argv[1:] == ["--missing"]
    words = [] if missing else sys.argv[1:]
    rows = {(r["task"], r["reward"]): r for r in json.loads(FIGURES.read_text())} if missing else {}
    table = every_entry()
    chosen = [
        (task, entry)
        for task, entry in table
        if (task, entry.name) not in rows and (not words or any(word in f"{task} {entry.name}" for word in words))
    ]
    for task, entry, checks in audit_all(chosen):
        rows[task, entry.name] = row(task, entry, checks)
        print(json.dumps(rows[task, entry.name]), flush=True)
        if words:
            for check in checks:
                print(f"    {check.status} {check.name}: {check.sentence}")
    if not words:
        write([rows[task, entry.name] for task, entry in table])


if __name__ == "__main__":
    main()
