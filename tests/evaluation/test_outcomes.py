"""Verdicts on outcomes of any systems: the chain's numbers, damaged files, and what the data do not support."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from scipy import optimize, special

from pipeline_lib.environment_api.metrics import GREATEST, Metric
from pipeline_lib.evaluation import verdict
from pipeline_lib.evaluation.comparison import bounds
from pipeline_lib.evaluation.outcome_files import Columns
from pipeline_lib.evaluation.outcome_verdict import Asked, OutcomeVerdict, judge_outcomes, verdict_on
from pipeline_lib.evaluation.outcomes import Outcome, OutcomesError, arrange
from pipeline_lib.settings.evaluate import VerdictSettings
from tests.evaluation.build import episode

SHARE = (0.0, 1.0)
SETTINGS = VerdictSettings()


def judge(rows: Sequence[Mapping[str, Any]], **asked: Any) -> OutcomeVerdict:
    return verdict_on(rows, Columns(), Asked(**{"margin": 0.05, **asked}))


def rows_of(values: np.ndarray, system: str, families: int = 0, seeded: bool = True) -> list[dict[str, Any]]:
    """Rows from (seeds, problems, samples)."""
    return [
        {
            "problem": f"p{p:03d}",
            "system": system,
            "value": float(values[s, p, k]),
            "sample": k,
            **({"seed": s} if seeded else {}),
            **({"family": f"f{p % families}"} if families else {}),
        }
        for s, p, k in np.ndindex(values.shape)
    ]


def details(found: OutcomeVerdict) -> str:
    return " ".join(text for caveat in found.caveats for text in caveat.details)


# The numbers


def by_hand(d: np.ndarray, families: int) -> dict[str, float]:
    """The primary test from its formulas in docs/statistics.md: problem p is of family p modulo their number."""
    r = np.array([(d[f::families] - d.mean()).sum() for f in range(families)])
    share = 1 / families
    se = math.sqrt((r**2 / (1 - share)).sum()) / d.size
    g = (r**3).sum() / (r**2).sum() ** 1.5 * math.sqrt(families * (families - 1)) / (families - 2)

    def critical(q: float, lean: float) -> float:
        z = special.ndtri(q)
        corrected = -lean * (1 + 7 / (families - 1))
        return -special.stdtrit(families - 1, q) + 1.5 * max(0.0, corrected) * (2 * z * z + 1) / 6

    t = d.mean() / se
    sign = 1 if t > 0 else -1
    p = 2 * optimize.brentq(lambda q: critical(q, sign * g) - abs(t), 1e-12, 0.5, xtol=1e-15)
    return {
        "estimate": d.mean(),
        "low": d.mean() - critical(0.025, g) * se,
        "high": d.mean() + critical(0.025, -g) * se,
        "p": p,
    }


def test_the_numbers_are_those_of_the_formulas_and_corrected_by_holm() -> None:
    rng = np.random.default_rng(5)
    base = rng.beta(2, 2, (2, 30, 3))
    others = {"good": np.clip(base + rng.normal(0.12, 0.2, base.shape), 0, 1), "same": rng.beta(2, 2, base.shape)}
    rows = rows_of(base, "base", 10) + [row for name, x in others.items() for row in rows_of(x, name, 10)]
    found = judge(rows, metric_range=SHARE)
    plain = {}
    for name, values in others.items():
        difference = found.comparisons[name].difference
        for key, wanted in by_hand((values - base).mean(axis=(0, 2)), 10).items():
            assert getattr(difference, key) == pytest.approx(wanted, abs=1e-9), key
        plain[name] = difference.p or 0.0
    small, large = sorted(plain, key=plain.__getitem__)
    first = min(1.0, 2 * plain[small])
    assert found.comparisons[small].p_adjusted == pytest.approx(first, abs=1e-12)
    assert found.comparisons[large].p_adjusted == pytest.approx(max(first, plain[large]), abs=1e-12)


def test_it_is_the_verdict_of_the_chain() -> None:
    rng = np.random.default_rng(1)
    base, team = rng.random((1, 20, 2)), rng.random((3, 20, 2)) + 0.1
    rows = rows_of(base, "base", 5, seeded=False) + rows_of(team, "team", 5)
    own = judge(rows).comparisons["team"].to_json()

    def episodes(values: np.ndarray) -> list[Any]:
        return [
            episode(f"p{p:03d}", k, float(values[p, k]), f"f{p % 5}", tokens=p + k) for p, k in np.ndindex(values.shape)
        ]

    settings = VerdictSettings(margin=0.05)
    chain = verdict.compare(
        dict(enumerate(map(episodes, team))), episodes(base[0]), settings, "reward", ("team", "base"), where="common",
        metrics={"reward": Metric("value")},
    ).to_json()  # fmt: skip
    assert own | {"metric": ""} == chain | {"metric": ""}


def test_a_system_that_solves_everything_is_no_single_observation() -> None:
    rng = np.random.default_rng(2)
    base = (rng.random((1, 60, 1)) < 0.5).astype(float)
    found = judge(rows_of(base, "base", seeded=False) + rows_of(np.ones_like(base), "team", seeded=False))
    assert found.verdicts == {"team": "IMPROVED"}


def test_a_verdict_that_rests_on_bounds_is_not_followed_by_the_contrary() -> None:
    base = np.zeros((1, 60, 1))
    rows = rows_of(base, "base", seeded=False)
    decided = judge(rows + rows_of(base + 1, "team", seeded=False))
    assert decided.verdicts == {"team": "IMPROVED"} and decided.could_detect == {"team": ""}
    open_still = judge(rows + rows_of(base, "team", seeded=False))
    assert open_still.could_detect == {"team": "This design cannot tell."}


# What the data do not support


@pytest.fixture
def two() -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)
    base = (rng.random((1, 40, 1)) < 0.5).astype(float)
    return rows_of(base, "base", seeded=False) + rows_of(
        1 - base * (rng.random(base.shape) < 0.3), "team", seeded=False
    )


def test_a_value_that_is_not_there_is_lost_and_the_interval_allows_for_the_worst(two: list[dict[str, Any]]) -> None:
    whole = judge(two).comparisons["team"].difference
    two[3]["value"], two[50]["value"] = math.nan, None
    found = judge(two)
    difference = found.comparisons["team"].difference
    assert difference.low is not None and whole.low is not None and difference.low < whole.low
    assert "1 value of base is missing or not a number, for example in row 4" in details(found)
    assert "Lost: 1 of 40 episodes of team and 1 of 40 episodes of base." in found.comparisons["team"].sentence


def test_an_outcome_given_twice_counts_once_and_a_contradiction_not_at_all(two: list[dict[str, Any]]) -> None:
    same = judge([*two, dict(two[0])])
    assert same.comparisons["team"].difference == judge(two).comparisons["team"].difference
    assert "1 outcome of base occurs more than once with the same value" in details(same)
    other = judge([*two, {**two[0], "value": 1 - two[0]["value"]}])
    assert other.systems["base"]["lost"] == 1
    assert "with different values" in details(other)


def test_rows_without_sample_numbers_say_that_a_repeated_row_counts_twice(two: list[dict[str, Any]]) -> None:
    rows = [{key: value for key, value in row.items() if key != "sample"} for row in two]
    assert "no sample numbers" not in details(judge(rows))
    assert "no sample numbers" in details(judge([*rows, dict(rows[0])]))


def test_problems_of_one_system_alone_are_lost_outcomes_of_the_other(two: list[dict[str, Any]]) -> None:
    found = judge(two[5:])
    assert "5 of 40 outcomes of base have no row, for example of problem 'p000': they are taken as lost" in details(
        found
    )
    assert "Lost: 5 of 40 episodes of base." in found.comparisons["team"].sentence
    left_out = judge(two[5:], only_common=True)
    assert "5 of 40 problems of team have no partner" in details(left_out)
    for each in (found, left_out):
        assert each.comparisons["team"].problems == 35


def holed(seeds: int, samples: int, rng: np.random.Generator, selected: bool) -> tuple[list[Any], list[Any]]:
    """Rows of two systems with equal chances: with a value of None, and without the row, where something is missing.

    Whole problems, samples and seeds of problems; with ``selected`` those of the team that failed.
    """
    base = (rng.random((1, 30, samples)) < 0.5).astype(float)
    team = (rng.random((seeds, 30, samples)) < 0.5).astype(float)
    gone = (team == 0) & (rng.random(team.shape) < 0.9) if selected else rng.random(team.shape) < 0.1
    gone[:, :2] = selected | (rng.random((seeds, 2, 1)) < 0.5)
    gone[0, 5] = True
    gone[:, 9] = False  # a problem that was played in full
    rows = rows_of(base, "base", seeded=False)
    own = rows_of(team, "team")
    none = [row | {"value": None} if lost else row for row, lost in zip(own, gone.ravel(), strict=True)]
    rng.shuffle(none)  # type: ignore[arg-type]
    return [*rows, *none], [*rows, *(row for row in none if row["value"] is not None)]


@pytest.mark.parametrize("selected", [False, True])
@pytest.mark.parametrize(("seeds", "samples"), [(1, 1), (1, 4), (3, 2)])
def test_a_row_that_is_not_there_is_the_same_as_one_without_a_value(seeds: int, samples: int, selected: bool) -> None:
    rng = np.random.default_rng(1)
    for _ in range(10):
        explicit, silent = (judge(rows) for rows in holed(seeds, samples, rng, selected))
        assert silent.comparisons == explicit.comparisons
        counted = [(each.systems["team"]["outcomes"], each.systems["team"]["lost"]) for each in (silent, explicit)]
        assert counted == [(seeds * 30 * samples, explicit.comparisons["team"].losses.lost[0])] * 2
        assert silent.lines[0] == explicit.lines[0] and "have no row" in details(silent)
        assert not selected or silent.verdicts == {"team": "INCONCLUSIVE"}


def test_fewer_samples_of_every_problem_are_no_loss(two: list[dict[str, Any]]) -> None:
    further = [row | {"sample": 1} for row in two if row["system"] == "base"]
    found = judge([*two, *further])
    assert "have no row" not in details(found) and found.comparisons["team"].losses is None
    assert "their means over all of a problem were compared" in details(found)
    both = [row | {"sample": 1} for row in two[::2]]  # of half of the problems, the same of both
    even = [row for row in [*two, *both] if int(row["problem"][1:]) % 2 == 0 or row["sample"] == 0]
    assert "have no row" not in details(judge(even))


def test_without_a_common_problem_there_is_no_verdict(two: list[dict[str, Any]]) -> None:
    rows = [row | {"problem": row["problem"] + row["system"]} for row in two]
    found = judge(rows)
    assert found.verdicts == {"team": "INCONCLUSIVE"}
    assert "no problem in common" in found.comparisons["team"].sentence
    assert "no problem in common" in details(found)
    assert found.comparisons["team"].means[0].low is not None


def test_training_seeds_are_a_level_and_one_is_not_enough() -> None:
    rng = np.random.default_rng(4)
    base, team = rng.random((1, 30, 1)), rng.random((3, 30, 1))
    one = judge(rows_of(base, "base", seeded=False) + rows_of(team[:1], "team"))
    assert "There is one training seed of team" in details(one)
    assert one.other_runs["team"].startswith("Nothing can be said about other training runs: 1 training run:")
    none = judge(rows_of(base, "base", seeded=False) + rows_of(team[:1], "team", seeded=False))
    assert none.other_runs["team"].startswith("The rows have no training seeds")
    unlike = judge(rows_of(team[:2], "base") + rows_of(team, "team"))
    assert "they are not paired by seed" in details(unlike)


def test_seeds_that_share_no_problem_cannot_be_compared() -> None:
    rng = np.random.default_rng(4)
    base, team = rng.random((1, 30, 1)), rng.random((2, 30, 1))
    apart = [row for row in rows_of(team, "team") if (row["seed"] == 0) == (row["problem"] < "p015")]
    found = judge(rows_of(base, "base", seeded=False) + apart)
    assert found.verdicts == {"team": "INCONCLUSIVE"}
    assert "in every training seed" in found.comparisons["team"].sentence


def test_a_margin_and_a_range_are_never_guessed_for_a_metric_that_is_no_share() -> None:
    rows = rows_of(np.random.default_rng(0).random((1, 20, 1)) * 9, "base", seeded=False)
    rows += [row | {"system": "team"} for row in rows]
    with pytest.raises(OutcomesError, match="give --margin, in its unit"):
        verdict_on(rows, Columns(), Asked())
    assert "No range of value is declared" in details(judge(rows))
    assert "range" not in details(judge(rows, metric_range=(0.0, 9.0)))


def test_outcomes_of_a_metric_without_a_range_get_an_interval_and_what_to_do_but_no_verdict() -> None:
    low, gain = np.random.default_rng(0).random((2, 1, 90, 1))
    rows = rows_of(low, "base", seeded=False) + rows_of(low + gain, "team", seeded=False)
    found, bounded = judge(rows), judge(rows, metric_range=(0.0, 2.0))
    assert (found.verdicts, bounded.verdicts) == ({"team": "INCONCLUSIVE"}, {"team": "IMPROVED"})
    assert found.lines[-1] == "Caveats: no plan, no declared range." and "declared" not in bounded.lines[-1]
    assert (
        "--metric-range" in found.could_detect["team"]
        and found.could_detect["team"] in found.comparisons["team"].sentence
    )


def test_the_largest_values_and_ranges_that_are_accepted_have_finite_answers() -> None:
    values = np.random.default_rng(6).normal(0, 2e49, (1, 30, 1))
    rows = rows_of(values, "base", seeded=False) + rows_of(-values, "team", seeded=False)
    rows[3]["value"] = None
    for ends in (None, (-GREATEST, GREATEST)):
        found = judge(rows, metric_range=ends).comparisons["team"]
        assert ("No range" if ends is None else "0.05 needs more problems than can be had") in found.sentence
        difference = found.difference
        assert difference.low is not None and difference.high is not None
        assert -4 * GREATEST < difference.low <= (difference.estimate or 0.0) <= difference.high < 4 * GREATEST


def test_sample_numbers_that_continue_over_seeds_are_no_loss() -> None:
    rng = np.random.default_rng(2)
    rows = [
        {"problem": f"p{p}", "system": system, "value": int(rng.random() < chance), "seed": s, "sample": 2 * s + k}
        for system, chance in (("base", 0.3), ("team", 0.7))
        for p in range(40) for s in range(3) for k in range(2)
    ]  # fmt: skip
    found = judge(rows)
    assert "have no row" not in details(found) and found.verdicts == {"team": "IMPROVED"}


def test_the_order_of_rows_without_sample_numbers_decides_nothing() -> None:
    """One attempt of the base, two of the team, of which one succeeds; files are often sorted by value."""
    rows = [{"problem": f"p{p}", "system": "base", "value": p % 2} for p in range(40)]
    for order in ((1, 0), (0, 1)):
        attempts = [{"problem": f"p{p}", "system": "team", "value": value} for p in range(40) for value in order]
        found = judge([*rows, *attempts])
        assert found.comparisons["team"].difference.estimate == 0 and found.verdicts == {"team": "INCONCLUSIVE"}


@pytest.mark.parametrize("only_common", [False, True])
def test_without_sample_numbers_the_order_decides_nothing_where_rows_are_missing(only_common: bool) -> None:
    rng = np.random.default_rng(11)
    rows = [
        {"problem": f"p{p}", "system": system, "value": int(rng.random() < chance)}
        for system, chance in (("base", 0.4), ("team", 0.6)) for p in range(30) for _ in range(4)
    ]  # fmt: skip
    failed = [n for n, row in enumerate(rows) if row["system"] == "team" and row["value"] == 0]
    gone = set(rng.choice(failed, 20, replace=False).tolist())
    rows = [row for n, row in enumerate(rows) if n not in gone]
    found = [
        judge(ordered, only_common=only_common, baseline="base").comparisons["team"]
        for ordered in (
            rows, sorted(rows, key=lambda row: row["value"]), sorted(rows, key=lambda row: -row["value"]), rows[::-1]
        )
    ]  # fmt: skip
    assert all(one.difference == found[0].difference and one.verdict == found[0].verdict for one in found)
    whole = np.mean([row["value"] for row in rows if row["system"] == "base"])
    assert found[0].means[1].value == pytest.approx(whole), "no row of the base is missing"


def test_of_more_samples_those_without_a_row_are_lost_too() -> None:
    """Whatever the other has: of one sample of the base it cannot be seen how many the team should have."""
    base = [{"problem": f"p{p}", "system": "base", "value": p % 2} for p in range(40)]
    team = [{"problem": f"p{p}", "system": "team", "value": 1} for p in range(40)]
    failed = [{"problem": f"p{p}", "system": "team", "value": 0} for p in range(3)]
    found = judge([*base, *team, *failed])
    assert "37 of 80 outcomes of team have no row" in details(found)
    assert found.verdicts == {"team": "INCONCLUSIVE"}
    assert judge([*base, *team]).verdicts == {"team": "IMPROVED"}


# How often it is wrong


def often_wrong(team_seeds: int, ragged: bool, silent: float = 0.0, more: bool = False) -> tuple[float, float]:
    """Return the share of verdicts IMPROVED or WORSE, and of intervals that cover 0, where there is no difference.

    ``silent``: share of the team's failures that leave no row; without it a row is missing by chance alone.
    With ``more`` the team has four samples and the base one, and those with a row are numbered anew.
    """
    rng = np.random.default_rng(8)
    wrong = covered = 0
    runs = 250
    info = Metric("solved", share=True)
    for _ in range(runs):
        hard = rng.beta(1.5, 1.5, 40)
        effect = rng.normal(0, 0.1, 40)  # by problem, 0 in the mean
        outcomes: list[Outcome] = []
        for system, seeds, sign in (("base", 1, -1), ("team", team_seeds, 1)):
            for seed in range(seeds):
                for p in range(40):
                    chance = min(1.0, max(0.0, hard[p] + sign * effect[p] / 2))
                    there, count = 0, 1 + (p % 3 if ragged else 1)
                    for k in range({"team": 4, "base": 1}[system] if more else count):
                        if ragged and rng.random() < 0.1:
                            continue  # not run
                        solved = rng.random() < chance
                        if silent and system == "team" and not solved and rng.random() < silent:
                            continue
                        number = there if more else k
                        outcomes.append(
                            Outcome(
                                f"p{p}", system, float(solved), number, seed if system == "team" else None,
                                f"f{int(p**0.8) // 2}" if ragged else "",
                            )
                        )  # fmt: skip
                        there += 1
        tables = arrange(outcomes)[0]
        found = judge_outcomes(tables, "base", SETTINGS, info, only_common=not silent).comparisons["team"]
        wrong += found.verdict in ("IMPROVED", "WORSE")
        covered += found.difference.low is None or found.difference.low <= 0 <= (found.difference.high or 0.0)
    return wrong / runs, covered / runs


@pytest.mark.parametrize(
    ("seeds", "ragged", "silent", "more"),
    [(1, False, 0, False), (2, True, 0, False), (1, False, 0.5, False), (2, True, 0.5, False), (3, False, 0.6, True)],
    ids=["one seed", "unequal", "failures without a row", "unequal failures without a row", "of more samples"],
)
def test_false_verdicts_and_coverage(seeds: int, ragged: bool, silent: float, more: bool) -> None:
    wrong, covered = often_wrong(seeds, ragged, silent, more)
    limit = 3 * math.sqrt(0.05 * 0.95 / 250)  # three standard errors of the simulation
    assert wrong <= 0.05 + limit
    assert covered >= 0.95 - limit


def test_unpaired_systems_never_get_a_verdict_and_their_means_are_covered() -> None:
    rng = np.random.default_rng(9)
    covered = 0
    for _ in range(150):
        outcomes = [
            Outcome(f"{system}{p}", system, float(rng.random() < rng.beta(1, 1)), 0)
            for system, count in (("base", 25), ("team", 60))
            for p in range(count)
        ]
        found = judge_outcomes(arrange(outcomes)[0], "base", SETTINGS, Metric("solved", share=True)).comparisons["team"]
        assert found.verdict == "INCONCLUSIVE"
        covered += (found.means[0].low or 0.0) <= 0.5 <= (found.means[0].high or 1.0)
    assert covered / 150 >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 150)


# Files


TABLE = "problem,system,value\n" + "".join(f"p{i},{s},{(i + n) % 2}\n" for i in range(12) for n, s in enumerate("ab"))


def from_file(path: Path, **asked: Any) -> OutcomeVerdict:
    columns = {name: asked.pop(name) for name in list(asked) if name in Columns.__slots__}
    return verdict_on([str(path)], Columns(**columns), Asked(**asked))


def test_the_same_table_as_csv_tsv_jsonl_and_parquet(tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text(TABLE)
    (tmp_path / "o.tsv").write_text(TABLE.replace(",", "\t"))
    heads, *lines = (line.split(",") for line in TABLE.splitlines())
    rows = [dict(zip(heads, line, strict=True)) for line in lines]
    (tmp_path / "o.jsonl").write_text("\n".join(map(json.dumps, rows)))
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "o.parquet")
    found = [from_file(tmp_path / f"o.{kind}").to_json() for kind in ("csv", "tsv", "jsonl", "parquet")]
    assert found[0]["verdicts"] == {"b": "INCONCLUSIVE"}
    assert all(one == found[0] for one in found)


def test_columns_have_other_names_and_rows_may_be_nested(tmp_path: Path) -> None:
    rows = [
        {"task": {"id": i, "topic": i // 2}, "model": m, "acc": bool(i % (2 + n))}
        for i in range(12)
        for n, m in enumerate(("x", "y"))
    ]
    (tmp_path / "o.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = from_file(tmp_path / "o.jsonl", problem="task.id", system="model", value="acc", family="task.topic")
    assert (found.metric, found.baseline) == ("acc", "x")
    assert (found.comparisons["y"].problems, found.comparisons["y"].families) == (12, 6)


OBJECT = {"problem": "p", "system": "a", "value": 1, "sample": 1, "seed": 1, "family": "f"}
OBJECTS = "".join(json.dumps({**OBJECT, "system": name}) + "\n" for name in "ab")
DAMAGED: list[tuple[str, str, bytes | str, dict[str, Any], str]] = [
    ("an empty file", "o.csv", "", {}, "o.csv: the file is empty"),
    ("only the heads", "o.csv", "problem,system,value\n", {}, "o.csv: there are no rows of outcomes"),
    ("no such kind", "o.xlsx", "x", {}, "o.xlsx: unknown kind of file; known are .csv"),
    ("a name that is near", "o.csv", TABLE.replace("system", "sytem", 1), {}, "no column 'system'; did you mean sytem"),
    ("a named column", "o.csv", TABLE, {"value": "valeu"}, r"no column 'valeu' \(--value\); did you mean value"),
    ("nothing near", "o.csv", TABLE, {"seed": "xyz"}, r"no column 'xyz' \(--seed\); there are: problem, system, value"),
    ("a column twice", "o.csv", TABLE.replace("system", "value", 1), {}, "line 1: the column 'value' occurs twice"),
    ("a cell too few", "o.csv", TABLE + "p1,a\n", {}, "o.csv, line 26: 2 cells, where line 1 names 3 columns"),
    ("a cell too many", "o.csv", TABLE + "p1,a,1,1\n", {}, "o.csv, line 26: 4 cells"),
    ("an open quotation", "o.csv", TABLE + '"p1,a,1\n', {}, "o.csv, line 26: a quotation begins here and never ends"),
    (
        "an open quotation far above",
        "o.csv",
        'problem,system,value\np0,a,1\n"p1,a,1\n' + "p2,a,1\n" * 9,
        {},
        "o.csv, line 3: a quotation begins here and never ends",
    ),
    (
        "a list as id",
        "o.jsonl",
        '{"problem": ["p", 1], "system": "a", "value": 1}\n',
        {},
        r"o.jsonl, line 1, column 'problem': \['p', 1\] is neither a text nor a number",
    ),
    (
        "an open quotation below cells of two lines",
        "o.csv",
        'problem,system,value\n"p\n0",a,1\n"p\n0",b,1\n"p1,a,1\np2,a,1\n',
        {},
        "o.csv, line 6: a quotation begins here and never ends",
    ),
    (
        "a list as system",
        "o.jsonl",
        '{"problem": "p", "system": ["a"], "value": 1}\n',
        {},
        r"o.jsonl, line 1, column 'system': \['a'\] is neither a text nor a number",
    ),
    (
        "a name that also stands two objects deep",
        "o.jsonl",
        '{"problem": "p", "system": "a", "value": 1, "x": {"y.z": 1, "y": {"z": 2}}}\n',
        {},
        "o.jsonl, line 1: 'x.y.z' stands here twice, as a name and inside of an object",
    ),
    (
        "a list as family",
        "o.jsonl",
        '{"problem": "p", "system": "a", "value": 1, "family": []}\n',
        {},
        r"o.jsonl, line 1, column 'family': \[\] is neither a text nor a number",
    ),
    (
        "a name that also stands inside of an object",
        "o.jsonl",
        '{"task.id": "p", "task": {"id": "q"}, "system": "a", "value": 1}\n',
        {"problem": "task.id"},
        "o.jsonl, line 1: 'task.id' stands here twice, as a name and inside of an object",
    ),
    ("a word", "o.csv", TABLE + "p99,a,good\n", {}, "o.csv, line 26, column 'value': 'good' is not a number"),
    ("a comma", "o.tsv", TABLE.replace(",", "\t") + "p99\ta\t0,5\n", {}, "line 26, column 'value': '0,5' is not a"),
    ("no end", "o.csv", TABLE + "p99,a,inf\n", {}, "line 26, column 'value': the value is infinite"),
    ("a number without end", "o.jsonl", '{"problem": 1, "system": "a", "value": %s}' % ("9" * 400), {}, "is infinite"),
    ("more digits than Python reads", "o.jsonl", '{"problem": %s}' % ("9" * 5_000), {}, "line 1: not JSON"),
    ("semicolons", "o.csv", TABLE.replace(",", ";"), {}, "line 1: the columns are separated by ';', not by ','"),
    ("a huge value", "o.csv", TABLE + "p99,a,1e51\n", {}, r"column 'value': 1e\+51 is too large to compute with"),
    ("an endless range", "o.csv", TABLE, {"metric_range": (0.0, math.inf)}, "--metric-range: 0 to inf is too large"),
    ("a huge margin", "o.csv", TABLE, {"margin": math.inf}, "--margin: inf is too large"),
    ("an idle margin", "o.csv", TABLE, {"margin": 5.0}, "--margin: 5 is not less than the whole range of value, 0 to"),
    ("out of range", "o.csv", TABLE + "p99,a,1.5\n", {"metric_range": SHARE}, "line 26: 'value' is 1.5, outside the"),
    ("no problem", "o.csv", TABLE + ",a,1\n", {}, "line 26, column 'problem': the cell is empty"),
    ("no system", "o.csv", TABLE + "p99, ,1\n", {}, "line 26, column 'system': the cell is empty"),
    ("not text", "o.csv", TABLE.encode() + b"p\xff,a,1\n", {}, "o.csv, line 26: not UTF-8 text"),
    ("a key twice", "o.jsonl", '{"problem": 1, "problem": 2}', {}, "o.jsonl, line 1: the key 'problem' occurs twice"),
    ("a broken line", "o.jsonl", '{"problem": 1}\n{"problem": \n', {}, "o.jsonl, line 2: not JSON"),
    ("no object", "o.jsonl", "[1, 2]\n", {}, "o.jsonl, line 1: not an object with a value for every column"),
    ("too deep", "o.jsonl", "[" * 100_000, {}, "o.jsonl, line 1: not JSON"),
    ("a list", "o.jsonl", '{"problem": 1, "system": "a", "value": [1]}', {}, r"column 'value': \[1\] is not a number"),
    *(
        (f"an object as {name}", "o.jsonl", OBJECTS + json.dumps({**OBJECT, name: {"x": 1}}), {}, message)
        for name in OBJECT
        for message in (f"o.jsonl, line 3, column '{name}': an object stands here, not a single value",)
    ),
    ("no Parquet", "o.parquet", "PAR1", {}, "o.parquet: not a Parquet file that can be read"),
    ("no log", "o.json", "{}", {}, "o.json: a .json file must be a log of Inspect"),
    ("a seed", "o.csv", "problem,system,value,seed\np,a,1,x\n", {}, "column 'seed': 'x' is not a whole number"),
    ("a sample", "o.csv", "problem,system,value,sample\np,a,1,-1\n", {}, "column 'sample': '-1' is not a whole number"),
    (
        "seeds in part",
        "o.csv",
        "problem,system,value,seed\np,a,1,1\nq,a,1,\n",
        {},
        "line 3: 'a' has no training seed here",
    ),
    (
        "samples in part",
        "o.csv",
        "problem,system,value,sample\np,a,1,1\nq,a,1,\n",
        {},
        "line 3: there is no number of the",
    ),
    (
        "two families",
        "o.csv",
        "problem,system,value,family\np,a,1,f\np,b,1,g\n",
        {},
        "line 3: problem 'p' is of family 'g'",
    ),
    ("one system", "o.csv", "problem,system,value\np,a,1\n", {}, "there is one system only, 'a'"),
    (
        "no value",
        "o.csv",
        "problem,system,value\np,a,1\np,b,\n",
        {},
        "'b' has no value that counts: 1 value of b is missing",
    ),
    (
        "rows that contradict each other",
        "o.csv",
        "problem,system,value,sample\np,a,1,1\np,b,1,1\np,b,0,1\n",
        {},
        "'b' has no value that counts: 1 outcome of b occurs more than once with different values, .* Keep one row of",
    ),
    (
        "a value close to the range",
        "o.csv",
        "problem,system,value\np,a,1.0000001\np,b,1\n",
        {"metric_range": (0.0, 1.0)},
        "line 2: 'value' is 1.0000001, outside the range 0 to 1",
    ),
    ("no other system", "o.csv", TABLE, {"systems": ["a"]}, "--systems names 'a' only, .*: there are a, b"),
    ("the baseline", "o.csv", TABLE, {"baseline": "c"}, "no outcomes of a system 'c'; there are: a, b"),
]


@pytest.mark.parametrize(
    ("name", "content", "asked", "message"), [row[1:] for row in DAMAGED], ids=[r[0] for r in DAMAGED]
)
def test_a_damaged_file(tmp_path: Path, name: str, content: bytes | str, asked: dict[str, Any], message: str) -> None:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(OutcomesError, match=message):
        from_file(tmp_path / name, **asked)


def test_a_file_that_is_not_there_or_given_twice(tmp_path: Path) -> None:
    with pytest.raises(OutcomesError, match=r"o\.csv: no such file"):
        from_file(tmp_path / "o.csv")
    with pytest.raises(OutcomesError, match="is a directory"):
        (tmp_path / "folder.csv").mkdir()
        from_file(tmp_path / "folder.csv")
    for name in "xy":
        (tmp_path / f"{name}.csv").write_text(TABLE)
    with pytest.raises(OutcomesError, match=r"y\.csv has the same content as .*x\.csv"):
        verdict_on([str(tmp_path / "x.csv"), str(tmp_path / "y.csv")], Columns(), Asked())


# Logs of other programs: files that they wrote, with a tiny random model, Inspect's mock model, or an endpoint that
# answers from a table

LOGS = Path(__file__).parent / "outcome_logs"


def test_samples_of_lm_eval() -> None:
    files = [str(next((LOGS / f"tiny-{n}").iterdir())) for n in (1, 2)]
    with pytest.raises(OutcomesError, match=r"the file has 2 metrics \(acc, acc_norm\); --value names one"):
        verdict_on(files, Columns(), Asked())
    found = verdict_on(files, Columns(value="acc"), Asked(baseline="tiny-2"))
    assert (found.metric, found.comparisons["tiny-1"].problems, found.info.share) == ("acc", 8, True)
    lines = [json.loads(line) for line in Path(files[1]).read_text().splitlines()]
    assert found.systems["tiny-2"]["mean"] == np.mean([line["acc"] for line in lines])
    assert "sums/0/d5b49512" in found.problems


def test_problems_of_lm_eval_with_another_text_are_other_problems(tmp_path: Path) -> None:
    own = next((LOGS / "tiny-1").iterdir())
    (tmp_path / own.name).write_text(own.read_text().replace('"doc_hash": "d5', '"doc_hash": "e6'))
    found = verdict_on([f"old={own}", f"new={tmp_path / own.name}"], Columns(value="acc"), Asked())
    assert "1 of 9 outcomes of new have no row" in details(found)


def test_logs_of_inspect_as_json() -> None:
    found = verdict_on([f"{name}={LOGS / name}.json" for name in ("one", "two")], Columns(), Asked())
    assert (found.metric, found.baseline, list(found.problems)) == ("match_unless_broken", "one", ["asks/1", "asks/2"])


@pytest.mark.needs("Inspect")
def test_logs_of_inspect_by_its_own_reader() -> None:
    found = verdict_on([f"{name}={LOGS / name}.eval" for name in ("one", "two")], Columns(), Asked())
    assert found.systems["two"] | {"mean": 0} == {
        "problems": 6, "families": 6, "outcomes": 12, "lost": 1, "seeds": [], "mean": 0,
    }  # fmt: skip


def test_two_logs_of_one_model_need_names_and_damage_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutcomesError, match="there is one system only, 'mockllm/model'"):
        verdict_on([str(LOGS / "one.json"), str(LOGS / "two.json")], Columns(), Asked())
    log = json.loads((LOGS / "one.json").read_text())
    del log["samples"][1]["epoch"]
    (tmp_path / "o.json").write_text(json.dumps(log))
    with pytest.raises(OutcomesError, match=r"o\.json, sample 2: 'epoch' is missing"):
        from_file(tmp_path / "o.json")
    (tmp_path / "o.eval").write_text("no zip")
    with pytest.raises(
        OutcomesError, match=r"o\.eval: (reading .eval files needs Inspect|Inspect cannot read this log)"
    ):
        from_file(tmp_path / "o.eval")


def test_completions_of_trl() -> None:
    files = [f"{name}={LOGS}/completions_0000{n}.parquet" for n, name in ((1, "first"), (2, "second"))]
    found = verdict_on(files, Columns(), Asked())
    assert (found.metric, found.systems["first"]["outcomes"]) == ("even", 4)
    assert "were sampled during training" in details(found)


SUMS = [LOGS / f"tiny_sums--tiny--{size}" / "results.jsonl" for size in ("small", "large")]


def gains(metric: str) -> list[float]:
    """Return the gain of the large model's mean for each example: rollouts have no numbers, and one broke off."""
    values: list[dict[int, list[float]]] = []
    for path in SUMS:
        values.append({})
        for row in map(json.loads, path.read_text().splitlines()):
            value = math.nan if row["error"] else {**row["metrics"], "reward": row["reward"]}[metric]
            values[-1].setdefault(row["example_id"], []).append(value)
    assert np.isnan(list(values[1].values())).sum() == 1 and math.isnan(values[1][6][1])
    return [float(np.nanmean(values[1][k]) - np.nanmean(values[0][k])) for k in range(8)]


def without(example: int, folder: Path) -> list[str]:
    """Copy the results of verifiers without an example."""
    for path in SUMS:
        copy = folder / path.parent.name
        copy.mkdir()
        (copy / "metadata.json").write_bytes((path.parent / "metadata.json").read_bytes())
        kept = [row for row in path.read_text().splitlines(True) if json.loads(row)["example_id"] != example]
        (copy / "results.jsonl").write_text("".join(kept))
    return [str(folder / path.parent.name / "results.jsonl") for path in SUMS]


@pytest.mark.parametrize("metric", ["reward", "letters"])
def test_results_of_verifiers(metric: str) -> None:
    columns = Columns() if metric == "reward" else Columns(value=metric)
    found = verdict_on([str(path) for path in SUMS], columns, Asked(margin=0.05))
    assert (found.metric, found.baseline, found.systems["tiny/large"]["lost"]) == (metric, "tiny/small", 1)
    assert {problem.rpartition("/")[0] for problem in found.problems} == {f"tiny_sums/{k}" for k in range(8)}
    estimate = found.comparisons["tiny/large"].difference.estimate
    assert estimate == pytest.approx(np.mean(gains(metric)), abs=1e-9)
    assert "rollouts, where" not in details(found)


def test_results_of_verifiers_that_stopped_early(tmp_path: Path) -> None:
    found = verdict_on(without(6, tmp_path), Columns(), Asked(margin=0.05))
    for key, wanted in by_hand(np.delete(gains("reward"), 6), 7).items():
        assert getattr(found.comparisons["tiny/large"].difference, key) == pytest.approx(wanted, abs=1e-9), key
    assert "14 rollouts, where metadata.json says 8 examples of 2 each" in details(found)


def test_a_reward_of_verifiers_has_no_range_unless_it_is_given() -> None:
    found = verdict_on([str(path) for path in SUMS], Columns(), Asked(margin=0.05))
    assert found.verdicts == {"tiny/large": "INCONCLUSIVE"}
    assert "No range of reward is declared" in details(found)
    given = verdict_on([str(path) for path in SUMS], Columns(), Asked(margin=0.05, metric_range=(0.0, 1.2)))
    assert "No range" not in details(given)
    with pytest.raises(
        OutcomesError, match=r"small/results\.jsonl, line 3: 'reward' is 1\.2, outside the range 0 to 1"
    ):
        verdict_on([str(path) for path in SUMS], Columns(), Asked(margin=0.05, metric_range=SHARE))


def test_problems_of_verifiers_are_paired_by_their_text_but_not_by_the_system_prompt(tmp_path: Path) -> None:
    old, new = SUMS[0], Path(without(-1, tmp_path)[0])
    new.write_text(new.read_text().replace('"Add."', '"Add well."'))
    files = [f"old={old}", f"new={new}"]
    assert verdict_on(files, Columns(), Asked(margin=0.05)).comparisons["new"].problems == 8
    new.write_text(new.read_text().replace("1 + 3 = ?", "1 + 4 = ?"))
    assert "2 of 18 outcomes of new have no row" in details(verdict_on(files, Columns(), Asked(margin=0.05)))


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("metadata.json", None, None, r"results\.jsonl: verifiers' metadata\.json, which .* is not beside it"),
        ("metadata.json", "{", "", r"metadata\.json: not JSON"),
        ("metadata.json", "", "[1]", r"metadata\.json: 'env_id' is missing"),
        ("metadata.json", '"model"', '"modle"', r"metadata\.json: 'model' is missing"),
        ("metadata.json", '"tiny_sums"', "null", r"metadata\.json: 'env_id' is missing"),
        ("results.jsonl", '"example_id": 7', '"id": 7', r"small/results\.jsonl, line 15, column 'example_id': the"),
        ("results.jsonl", '"example_id": 7', '"example_id": null', r"line 15, column 'example_id': the cell is empty"),
        ("results.jsonl", '"reward": 0.2', '"rewrd": 0.2', r"small/results\.jsonl, line \d+: 'reward' is missing"),
        ("results.jsonl", '"reward": 0.2', '"reward": "good"', r"line \d+, column 'reward': 'good' is not a number"),
        ("results.jsonl", '"metrics": {"exact": 0.0', '"metrics": 5, "m": {"x": 0', r"line \d+: 'metrics' is not an"),
        ("results.jsonl", '"prompt"', '"promt"', r"small/results\.jsonl, line 1: 'prompt' is missing"),
    ],
)  # fmt: skip
def test_damaged_results_of_verifiers(tmp_path: Path, file: str, old: str | None, new: str, message: str) -> None:
    files = without(-1, tmp_path)
    path = Path(files[0]).with_name(file)
    if old is None:
        path.unlink()
    else:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new) if old else new)
    with pytest.raises(OutcomesError, match=message):
        verdict_on(files, Columns(), Asked(margin=0.05))


TRACES = [LOGS / f"my-task--tiny-{name}/traces.jsonl" for name in "ba"]  # the fields that are read, of real files


def mean_by_problem(path: Path, value: Callable[[dict[str, Any]], float]) -> dict[str, float]:
    """Return the mean of a value over the episodes of each problem that did not end with an error."""
    found: dict[str, list[float]] = {}
    for row in map(json.loads, path.read_text().splitlines()):
        if row["ok"]:
            found.setdefault(row["task"]["key"], []).append(value(row["traces"][0]))
    return {key: sum(values) / len(values) for key, values in found.items()}


@pytest.mark.parametrize("metric", ["reward", "right"])
def test_traces_of_verifiers(metric: str) -> None:
    def value(trace: dict[str, Any]) -> float:
        rewards = trace["rewards"]
        return (
            sum(one["score"] * one["weight"] for one in rewards.values())
            if metric == "reward"
            else rewards["right"]["score"]
        )

    columns = Columns() if metric == "reward" else Columns(value=metric)
    found = verdict_on([str(path) for path in TRACES], columns, Asked(margin=0.05, metric_range=(0.0, 1.5)))
    small, large = (mean_by_problem(path, value) for path in TRACES)
    assert (found.metric, found.baseline, found.systems["tiny-a"]["lost"]) == (metric, "tiny-b", 3)
    assert {problem.partition("/")[0] for problem in found.problems} == {"my-task"} and len(small) == 4
    wanted = np.mean([large[key] - small[key] for key in small])
    assert found.comparisons["tiny-a"].difference.estimate == pytest.approx(wanted, abs=1e-9)


def test_of_several_agents_each_has_its_own_metrics(tmp_path: Path) -> None:
    files = []
    for path in TRACES:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            other = json.loads(json.dumps(row["traces"][0]))
            other["agent"]["name"] = "judge"
            row["traces"].append(other)
        (copy := tmp_path / path.parent.name).mkdir()
        (copy / "traces.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        files.append(str(copy / "traces.jsonl"))
    with pytest.raises(OutcomesError, match=r"agent/reward.*judge/right"):
        verdict_on(files, Columns(), Asked(margin=0.05, metric_range=(0.0, 1.5)))
    found = verdict_on(files, Columns(value="judge/right"), Asked(margin=0.05, metric_range=SHARE))
    assert found.comparisons["tiny-a"].difference.estimate > 0
    low, high = bounds(found.comparisons["tiny-a"]) or (0.0, 0.0)
    assert -1 < low < 0 < high <= 1, "no difference of shares is above 1, whatever was lost"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"ok": true, "is_timeout"', '"okay": true, "is_timeout"', r"tiny-b/traces\.jsonl, line 1: 'ok' is missing"),
        ('"traces": [', '"traces": 5, "x": [', r"line 1: 'traces' is not a list"),
        ('"traces": [{', '"traces": [1, {', r"line 1: 'trace' is not an object"),
        ('"model": "tiny-b"', '"modle": "tiny-b"', r"line 1, column 'model': the cell is empty"),
        ('"score": 0.0', '"score": "good"', r"line \d+: 'score' is 'good', which is not a number"),
        ('"weight": 1.0', '"wait": 1.0', r"line \d+: 'weight' is missing"),
        ('"key":', '"kye":', r"line 1, column 'key': the cell is empty"),
        ('"metrics": {', '"metrics": null, "x": {', r"line 1: 'metrics' is not an object"),
        ('"env": {"id"', '"env": {"di"', r"line 1, column 'id': the cell is empty"),
    ],
)  # fmt: skip
def test_damaged_traces_of_verifiers(tmp_path: Path, old: str, new: str, message: str) -> None:
    (copy := tmp_path / "my-task--tiny-b").mkdir()
    text = TRACES[0].read_text()
    first = text.partition("\n")[0]
    assert old in text
    # The first line tells of what kind the file is.
    (copy / "traces.jsonl").write_text(
        first + "\n" + text.replace(old, new) if "'ok'" in message else text.replace(old, new)
    )
    with pytest.raises(OutcomesError, match=message.replace("line 1: 'ok'", "line 2: 'ok'")):
        verdict_on([str(copy / "traces.jsonl"), str(TRACES[1])], Columns(), Asked(margin=0.05))
