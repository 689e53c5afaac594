"""A whole experiment made up: training logs, sweep, test, verdict; everything a report needs."""

import dataclasses
import math
from functools import cache
from typing import Any

import numpy as np

from pipeline_lib.environments.coding.task import METRICS, OF_TEAMS, TERMS
from pipeline_lib.environments.coding.task import SCHEMES as MEANINGS
from pipeline_lib.evaluation.episodes import EpisodeRecord, summarise_team
from pipeline_lib.evaluation.look_correction import correct_for_looks
from pipeline_lib.evaluation.looks import Look
from pipeline_lib.evaluation.plan import check_plan, make_plan
from pipeline_lib.evaluation.schemes import scheme_use
from pipeline_lib.evaluation.selection import select
from pipeline_lib.evaluation.verdict import add_plan_and_looks, summarise_test
from pipeline_lib.report.data import About, ReportData
from pipeline_lib.report.viewer import TestedTeam
from pipeline_lib.settings.evaluate import EvaluateSettings, HeldOutSettings, SampleSettings, VerdictSettings

EVALUATE = EvaluateSettings(
    metric="tests_passed", validation=SampleSettings(samples=2), test=HeldOutSettings(samples=4), pass_k=(1, 4)
)
VERDICT = VerdictSettings(resamples=500)
STEPS = [10, 20, 30, 40, 50, 60, 70, 80]
SCHEMES = ("coordinator", "decorator", "fallback", "strategy_filter")


#: As long as it is in a real plan, where it is one line.
PLAY = {
    "environment": {"kind": "coding", "reward": {"kind": "sound"}},
    "limits": {"call_cpu_s": 2.0, "code_kb": 256, "cpu_s": 4.0, "error_kb": 2, "file_mb": 16, "memory_mb": 512}
    | {"open_files": 64, "processes": 64, "reply_kb": 256, "wall_s": 12.0},
}


def episodes(
    split: str, problems: int, samples: int, ability: float, seed: int, team: bool = True
) -> list[EpisodeRecord]:
    """Episodes of a team that passes a test with about this probability; harder problems come later."""
    rng = np.random.default_rng([seed, problems])
    records = []
    for i in range(problems):
        hardness = 1.5 * math.cos(i * 1.7)
        p = 1 / (1 + math.exp(-(math.log(ability / (1 - ability)) + hardness)))
        for k in range(samples):
            parses = rng.random() < 0.8 + 0.2 * ability
            passed = rng.binomial(6, p) / 6 if parses and rng.random() < 0.4 + 0.6 * ability else 0.0
            works = float(team and passed > 0 and rng.random() < ability)
            terms = {"structure": 0.4 * parses, "syntax": 0.2 * parses, "tests": passed, "cooperation": 0.4 * works}
            records.append(
                EpisodeRecord(
                    problem=f"generated/{split}-{i:03d}",
                    family=f"{split}-family-{i % (problems // 3)}",
                    sample=k,
                    reward=sum(terms.values()),
                    turns=1,
                    terms=terms,
                    metrics={
                        "tests_passed": passed,
                        "all_passed": float(passed == 1),
                        "structure": float(parses),
                        "syntax": float(parses),
                        "cooperation": works,
                        "calls_helper": float(rng.random() < 0.7 + 0.3 * ability),
                        "thin_wrapper": float(rng.random() < 0.1 * (1 - ability)),
                    },
                    tokens=int(rng.integers(30, 60)),
                    details={
                        "schemes": [s for s in SCHEMES if rng.random() < 0.3],
                        "status": "ok",
                        "prompt_tokens": 88,
                    },
                )
            )
    return records


def shown(text: str, passed: bool) -> dict[str, Any]:
    """What is kept of an episode to be read."""
    return {
        "agents": ["helper", "main"],
        "told": ["write aux", "write main"],
        "turns": [[text, f"def main(xs):\n    return aux(xs)  # {text}"]],
        "text": f"{text}\n\ndef main(xs): ...",
        "language": "python",
        "checks": [["assert candidate([1]) == 1", passed, "" if passed else f"got {text}"]],
    }


def overall(records: list[EpisodeRecord]) -> dict[str, float]:
    return dict(summarise_team(records, metrics=METRICS)["overall"])


def ability(step: int, seed: int) -> float:
    return 0.12 + 0.82 * (1 - math.exp(-step / 22)) - 0.01 * seed - 0.03 * max(0, step - 60) / 20


def training(seed: int, shift: float = 0.0, tokens: float = 9000) -> list[dict[str, float]]:
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(1, 81):
        level = max(0.02, ability(step, seed) - shift + 0.03 * rng.standard_normal())
        rows.append(
            {
                "step": step,
                "reward/mean": 0.4 + 1.5 * level,
                "reward/std": 0.5,
                "metrics/tests_passed": min(1.0, level),
                "terms/structure": 0.4 * min(1, 0.8 + level / 4),
                "terms/syntax": 0.2 * min(1, 0.8 + level / 4),
                "terms/tests": level,
                "terms/cooperation": 0.4 * level**1.5,
                "actions/length_mean": 23 - 3 * level + 0.3 * rng.standard_normal(),
                "actions/truncated_share": 0.0,
                **{f"actions/length_mean/{agent}": 20 + number for number, agent in enumerate(("helper", "main"))},
                **{f"actions/entropy/{agent}": 0.3 - 0.2 * level for agent in ("helper", "main")},
                **{
                    f"update/gradient_norm/{agent}": 0.1 + 0.05 * number
                    for number, agent in enumerate(("helper", "main"))
                },
                "actions/tokens": tokens * (1 + 0.1 * rng.standard_normal()),
                "time/generation_s": 0.21,
                "time/waiting_s": 0.05,
                "time/update_s": 0.13,
                "time/refresh_s": 0.01,
                "time/step_s": 0.43,
            }
        )
    return rows


@cache
def experiment(seeds: int = 3) -> ReportData:
    checkpoints = {
        s: {step: episodes("validation", 48, 2, ability(step, s), 100 * s + step) for step in STEPS}
        for s in range(seeds)
    }
    base = episodes("validation", 48, 2, 0.12, 999)
    selection = select(checkpoints, base, EVALUATE, VERDICT, METRICS)
    problems = {
        split: [f"generated/{split}-{i:03d}" for i in range(n)] for split, n in (("validation", 48), ("test", 96))
    }
    names = ("base", "last", "single-agent GRPO", "untrained single agent", "untrained one-round discussion")
    contents = {"validation": "v", "test": "t"}
    plan = make_plan(EVALUATE, VERDICT, dict.fromkeys(range(seeds), STEPS), problems, contents, PLAY, names)
    chosen = {s: found.step for s, found in selection.seeds.items()}
    selected = {s: episodes("test", 96, 4, ability(step, s), 10 + s) for s, step in chosen.items()}
    untrained = episodes("test", 96, 4, 0.12, 20)
    last = {s: episodes("test", 96, 4, ability(80, s), 30 + s) for s in range(seeds)}
    single = episodes("test", 96, 4, 0.8, 40, team=False)
    others = {
        "untrained single agent": episodes("test", 96, 4, 0.2, 41, team=False),
        "untrained one-round discussion": episodes("test", 96, 4, 0.05, 42),
    }
    verdict = summarise_test(
        selected,
        untrained,
        last,
        {"single-agent GRPO": {0: single}, **others},
        chosen,
        {s: found.last for s, found in selection.seeds.items()},
        EVALUATE,
        VERDICT,
        {s: checkpoints[s][step] for s, step in chosen.items()},
        metrics=METRICS,
    )
    look = Look(plan.to_json(), {}, tuple(problems["test"]), "seen", "embedded default", "0f63", "2026-01-01T10:00:00")
    verdict = add_plan_and_looks(
        verdict, check_plan(plan, plan), correct_for_looks([look], look, verdict, VERDICT.alpha)
    )
    return ReportData(
        name="embedded default",
        train={s: training(s) for s in range(seeds)},
        selection=selection.to_json(),
        verdict=verdict,
        sweep={
            s: {0: overall(base), **{step: overall(records) for step, records in by_step.items()}}
            for s, by_step in checkpoints.items()
        },
        baseline_train={"single-agent GRPO": {0: training(7, shift=0.12)}},
        costs={
            "warm start": {"seconds": 41.3, "tokens": 0},
            "sweep": {"seconds": 22.5, "tokens": 61_000},
            "test": {"seconds": 17.0, "tokens": 48_211},
        },
        plan=plan.to_json(),
        audit=audit(),
        identity={"git commit": "0f634b7d2c", "MLflow run": "b1946ac92492d234", "problems": "5d41402abc4b2a76"},
        metrics=METRICS,
        notes=("In a discussion untrained agents read 1 draft.",),
        about=About("coding", "a tiny model", "generated problems (96 test)", "2026-01-01", "a small machine"),
        tested=[
            *(TestedTeam("selected", seed, chosen[seed], found) for seed, found in selected.items()),
            TestedTeam("base", None, None, untrained),
            *(TestedTeam("last", seed, 80, found) for seed, found in last.items()),
            TestedTeam("single-agent GRPO", 0, 80, single),
            *(TestedTeam(name, None, None, found) for name, found in others.items()),
        ],
        terms=TERMS["sound"],
        team_terms=OF_TEAMS["sound"],
        schemes=MEANINGS,
        cooperation=scheme_use(untrained, selected, checkpoints, "tests_passed", 0.95),
        settings={"train": {"steps": 80, "learning_rate": 1e-3}, "evaluate": {"metric": "tests_passed"}},
    )


def audit() -> dict[str, Any]:
    return {
        "status": "PASS",
        "summary": "All 2 checks pass: of the policies that were tried, the best paid does the task.",
        "checks": [
            {"name": "ladder", "status": "PASS", "sentence": "No degenerate team comes near a working one."},
            {"name": "order", "status": "WARN", "sentence": "Reward and tests agree on most teams."},
        ],
        "ladder": [
            {"name": "reference", "role": "working", "reward": 2.0},
            {"name": "empty", "role": "degenerate", "reward": 0.0},
        ],
    }


def changed(data: ReportData, **fields: Any) -> ReportData:
    return dataclasses.replace(data, **fields)


def to_read() -> list[TestedTeam]:
    """A base that fails everything and a team that differs from problem to problem, with what agents wrote."""
    made = []
    for name, seed, passed in (
        ("base", None, [0.0, 0.0, 0.5]),
        ("selected", 0, [0.5, 1.0, 0.0]),
        ("selected", 1, [1.0] * 3),
    ):
        records = []
        for place, value in enumerate(passed):
            for sample in range(2):
                text = f"def aux(xs):\n    return '<script>{name} {seed} {place} {sample}\x1b'"
                metrics = {"tests_passed": value, "all_passed": float(value == 1)}
                records.append(
                    EpisodeRecord(
                        f"p{place}", "f", sample, 1.0 + value, 1, {"tests": value}, metrics, 9,
                        {"status": "passed" if value == 1 else "failed", "schemes": ["fallback"]},
                        shown=shown(text, value == 1),
                    )
                )  # fmt: skip
        made.append(TestedTeam(name, seed, None if seed is None else 40 + seed, records))
    made[1].episodes[5] = dataclasses.replace(made[1].episodes[5], reward=None, metrics={}, shown=None)
    return made
