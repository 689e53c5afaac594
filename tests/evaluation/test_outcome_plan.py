"""Plans of outcomes that are still to come: written once, and compared with what came."""

import json
import os
from pathlib import Path

import pytest

from pipeline_lib.evaluation.outcome_files import Columns
from pipeline_lib.evaluation.outcome_verdict import Asked, plan_outcomes, verdict_on
from pipeline_lib.evaluation.outcomes import OutcomesError

WANTED = Asked("a", ["b"], 0.1, (0.0, 1.0))


def table(folder: Path, problems: int = 30, systems: str = "ab") -> str:
    rows = "".join(f"p{i},{s},{(i * (n + 3)) % 5 % 2}\n" for i in range(problems) for n, s in enumerate(systems))
    path = folder / f"{systems}{problems}.csv"
    path.write_text(f"problem,system,value\n{rows}")
    later = path.stat().st_mtime + 5  # a plan's time has whole seconds
    os.utime(path, (later, later))
    return str(path)


def test_a_plan_that_was_kept_gives_the_verdict_its_margin_and_range(tmp_path: Path) -> None:
    plan_outcomes(tmp_path / "plan.json", WANTED, None, 30)
    found = verdict_on([table(tmp_path)], Columns(), Asked(), tmp_path / "plan.json")
    assert found.plan is not None and found.plan.followed
    assert (found.comparisons["b"].margin, found.info.low, found.info.high) == (0.1, 0.0, 1.0)
    assert "no plan" not in [caveat.what for caveat in found.caveats]


def test_every_deviation_is_named(tmp_path: Path) -> None:
    plan_outcomes(tmp_path / "plan.json", WANTED, None, 30)
    found = verdict_on([table(tmp_path, 40, "abc")], Columns(), Asked(margin=0.2), tmp_path / "plan.json")
    assert found.plan is not None and not found.plan.followed
    assert found.plan.deviations == (
        'systems: planned ["b"], done ["b","c"]',
        "problems: planned 30, done 40",
        "margin: planned 0.1, done 0.2",
    )
    assert found.lines[-1].startswith("Caveats: 3 deviations from the plan")


def test_outcomes_that_are_older_than_the_plan(tmp_path: Path) -> None:
    path = table(tmp_path)
    os.utime(path, (1, 1))
    plan_outcomes(tmp_path / "plan.json", WANTED, None, 30)
    found = verdict_on([path], Columns(), Asked(), tmp_path / "plan.json")
    assert found.plan is not None and found.plan.changed == (
        "ab30.csv is older than the plan, so the plan may have been made to fit it",
    )
    (older,) = [caveat for caveat in found.caveats if "older" in caveat.what]
    assert older.details == ("ab30.csv is older than the plan, so the plan may have been made to fit it.",)


def test_a_plan_is_never_replaced_and_an_edited_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan_outcomes(path, WANTED, None, 30)
    with pytest.raises(OutcomesError, match="the file exists, and a plan is never replaced"):
        plan_outcomes(path, WANTED, None, 40)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"problems": 40}))
    with pytest.raises(OutcomesError, match="was changed after it was written"):
        verdict_on([table(tmp_path)], Columns(), Asked(), path)
    kept = path.read_text()
    for number in ("NaN", "1e999"):
        path.write_text(kept.replace('"margin": 0.1', f'"margin": {number}'))
        assert number in path.read_text()
        with pytest.raises(OutcomesError, match="was changed after it was written"):
            verdict_on([table(tmp_path)], Columns(), Asked(), path)
    path.write_text(kept.replace("{", '{"margin": 0.9, ', 1))
    with pytest.raises(OutcomesError, match="the key 'margin' occurs twice"):
        verdict_on([table(tmp_path)], Columns(), Asked(), path)
    path.write_text("{}")
    with pytest.raises(OutcomesError, match="not a plan of outcomes"):
        verdict_on([table(tmp_path)], Columns(), Asked(), path)
    with pytest.raises(OutcomesError, match="there is no plan; it is written before the data are there"):
        verdict_on([table(tmp_path)], Columns(), Asked(), tmp_path / "none.json")


@pytest.mark.parametrize(
    ("wanted", "problems", "message"),
    [
        (Asked(None, ["b"], 0.1), 30, "give --baseline, --systems and --problems"),
        (WANTED, None, "give --baseline, --systems and --problems"),
        (Asked("a", ["a", "b"], 0.1), 30, "every other system once, without the baseline"),
        (Asked("a", ["b"], 0.1), 30, "a metric without a declared range gets no verdict: give --metric-range"),
        (Asked("a", ["b"], None, (0.0, 9.0)), 30, "give --margin, in its unit"),
        (Asked("a", ["b"], 0.1, (1.0, 0.0)), 30, "--metric-range: 1 is not less than 0"),
    ],
)
def test_a_plan_that_leaves_a_choice_open(tmp_path: Path, wanted: Asked, problems: int | None, message: str) -> None:
    with pytest.raises(OutcomesError, match=message):
        plan_outcomes(tmp_path / "plan.json", wanted, None, problems)
    assert not (tmp_path / "plan.json").exists()
