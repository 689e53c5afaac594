import dataclasses
import re
from pathlib import Path

import pytest

from pipeline_lib.environments.coding.task import METRICS
from pipeline_lib.evaluation.plan import PlanCheck
from pipeline_lib.evaluation.results import Estimate
from pipeline_lib.evaluation.selection import select
from pipeline_lib.evaluation.sentences import counted
from pipeline_lib.evaluation.tested_teams import TurnGain
from pipeline_lib.evaluation.verdict import add_plan_and_looks
from pipeline_lib.report.data import ReportData
from tests.evaluation.build import constant_team, summarise_test, team
from tests.report.build import EVALUATE, VERDICT, experiment
from tests.report.html import Document, build


def test_the_page_stands_alone(built: tuple[str, Document]) -> None:
    page, document = built
    assert "script" not in document.tags and "link" not in document.tags and "img" not in document.tags
    assert all(link.startswith(("#", "episodes.html")) for link in document.links), "and the page of episodes beside it"
    addresses = set(re.findall(r"https?://[^\"' )<]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not a place
    assert "default-src 'none'" in page and "@import" not in page and "url(http" not in page


def test_ids_are_unique_and_every_reference_has_a_target(built: tuple[str, Document]) -> None:
    page, document = built
    assert [name for name, count in document.ids.items() if count > 1] == []
    targets = {link[1:] for link in document.links if link.startswith("#")} | set(re.findall(r"url\(#([^)]+)\)", page))
    assert targets <= set(document.ids)


def test_the_verdict_comes_first(built: tuple[str, Document]) -> None:
    _, document = built
    order = ["IMPROVED", *experiment().verdict["lines"][:2], "the selected team", "Caveats: none.", "Each training run"]
    order += ["against the others", "Problem by problem", "Learning", "Every checkpoint", "How the team works together"]
    order += ["Cost", "Reward audit", "Plan"]
    text = document.text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")
    places = [text.index(part, text.index("How to read this") + 1) for part in order]
    assert places == sorted(places)
    assert "This is the only look at the test split that this repository knows of." in document.text
    assert "Hedges' g" in document.text and "p < 10⁻⁶" in document.text.replace("\N{NO-BREAK SPACE}", " ")


def test_every_figure_comes_in_two_widths_with_its_numbers(built: tuple[str, Document]) -> None:
    page, _ = built
    figures = re.findall(r'<figure id="([^"]+)">(.*?)</figure>', page, flags=re.S)
    assert [name for name, _ in figures] == [
        "effects", "problems", "learning", "terms", "policies", "lengths", "sweep", "checkpoints", "behaviour",
        "schemes", "time",
    ]  # fmt: skip
    for _, content in figures:
        assert content.count("<svg") == 2
        assert 'role="img" aria-label="' in content
        assert "<table>" in content and content.count("<tr>") > 2
    for label in ("training step", "reward (weighted)", "tokens per action", "difference in points", "seconds"):
        assert f">{label}<" in page or f"{label}</text>" in page, label


def test_selected_and_last_checkpoints_are_marked(built: tuple[str, Document]) -> None:
    page, document = built
    chosen = experiment().selection["seeds"]["1"]["step"]
    assert f"step {chosen} of seed 1" in document.text
    assert "last checkpoint</text>" in page and "selected</text>" in page


def test_the_same_data_give_the_same_bytes(built: tuple[str, Document], tmp_path: Path) -> None:
    assert build(experiment(), tmp_path)[0] == built[0]


def test_a_bare_run_has_a_page_too(tmp_path: Path) -> None:
    full = experiment(seeds=1)
    data = ReportData("one seed", {0: [{"step": 1}]}, full.selection, full.verdict)
    _, document = build(data, tmp_path)
    assert "1 training run: a statement about other runs needs at least 3" in document.text
    assert "Learning" not in document.text and "Reward audit" not in document.text


def test_cooperation_schemes_are_shown_by_team_success_and_change(built: tuple[str, Document], tmp_path: Path) -> None:
    page, document = built
    use = experiment().cooperation
    assert use is not None
    rate = use.teams["seed 1"]["fallback"]
    assert rate.value is not None and rate.low is not None and rate.high is not None
    assert f"{100 * rate.value:.0f} % ({100 * rate.low:.0f} to {100 * rate.high:.0f})" in page
    assert "Does a scheme go with success?" in document.text and "p (Holm)" in document.text
    (before, after), share = next(iter(use.moves.items()))
    row = f"{before}{after}{100 * share:.1f}%".replace("_", "").replace(" ", "")
    assert row in "".join(document.text.split())
    assert "20 more families have no room here" in document.text
    _, without = build(dataclasses.replace(experiment(), cooperation=None), tmp_path)
    assert "scheme is used" not in without.text


def test_what_each_turn_adds_is_shown_where_there_are_several(built: tuple[str, Document], tmp_path: Path) -> None:
    assert "What each turn adds" not in built[1].text
    gain = TurnGain(2, 120, 0.25, Estimate(0.125, 0.05, 0.2, 0.95, "t", 30), 0.3, 0.4, 0.015)
    _, document = build(dataclasses.replace(experiment(), turn_gains={"selected": [gain]}), tmp_path)
    row = "".join(document.text[document.text.index("What each turn adds") :].split()).replace("\N{NO-BREAK SPACE}", "")
    assert "selected212025.0%+12.5points+5.0to+20.0+0.3040.0%1.5%" in row


def test_a_curriculum_over_turns_is_told_below_the_learning_curve(tmp_path: Path) -> None:
    data = experiment()
    train = {
        seed: [{**row, "curriculum/turns": 1.0 + (seed == 0 and row["step"] > 3)} for row in rows]
        for seed, rows in data.train.items()
    }
    _, document = build(dataclasses.replace(data, train=train), tmp_path)
    assert "began with one turn: turn 2 from step 4 (seed 0); none added (seed 1)" in document.text


def test_baseline_protocols_are_shown_with_what_must_be_known_of_them(
    built: tuple[str, Document], tmp_path: Path
) -> None:
    page, document = built
    discussion = "untrained one-round discussion"
    for text in (f"against {discussion}", "untrained agents read 1 draft.", "correction for 5 comparisons"):
        assert text in document.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "prompts too long" not in document.text
    full = experiment()
    teams = {**full.verdict["teams"]}
    teams[discussion] = {**teams[discussion], "details": {**teams[discussion]["details"], "unread": 0.014}}
    page, document = build(dataclasses.replace(full, verdict={**full.verdict, "teams": teams}), tmp_path)
    assert "prompts too long to answer" in document.text
    (row,) = re.findall(rf"<tr><td[^>]*>{discussion}</td>(.*?)</tr>", page[page.index("One test episode") :], re.S)
    assert ">0.014<" in row


def test_calls_of_tools_are_told_where_agents_have_any(built: tuple[str, Document], tmp_path: Path) -> None:
    assert "tool calls" not in built[1].text
    full = experiment()
    teams = {
        name: {**team, "details": {**team["details"], "tool_calls": 1.3 * (name == "base")}}
        for name, team in full.verdict["teams"].items()
    }
    page, document = build(dataclasses.replace(full, verdict={**full.verdict, "teams": teams}), tmp_path)
    assert "tool calls" in document.text
    found = dict(re.findall(r"<tr><td[^>]*>(.*?)</td>(.*?)</tr>", page[page.index("One test episode") :], re.S))
    assert found["base"].rstrip().endswith(">1.3</td>") and found["selected"].rstrip().endswith(">0</td>")


def degenerate(metric: str, selected: list, base: list) -> ReportData:
    evaluate = EVALUATE.model_copy(update={"metric": metric})
    selection = select({0: {10: selected, 20: selected}}, base, evaluate, VERDICT)
    verdict = summarise_test(
        {0: selected}, base, {0: selected}, {}, {0: 10}, {0: 20}, evaluate, VERDICT, metrics=METRICS
    )
    return ReportData("degenerate", {0: []}, selection.to_json(), verdict, metrics=METRICS)


@pytest.mark.parametrize(
    ("selected", "base", "metric", "words"),
    [
        (
            constant_team([1.0] * 20),
            constant_team([0.0] * 20),
            "tests_passed",
            "100.0 % against 0.0 %, +100.0 points (bounds +",
        ),
        (constant_team([2.0] * 20, 2, False), team([0.2] * 20, 2, 0), "reward", "same in every recorded respect"),
        (team([0.5], 4, 0), team([0.2], 4, 1), "tests_passed", "All problems belong to one family"),
        (team([5.0] * 9, 2, 0), team([2.0] * 9, 2, 1), "reward", "IMPROVED"),
    ],
)
def test_degenerate_results_have_a_page(selected: list, base: list, metric: str, words: str, tmp_path: Path) -> None:
    page, document = build(degenerate(metric, selected, base), tmp_path)
    assert words in document.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "nan" not in re.sub(r"<[^>]+>", "", page).lower().split()


def test_guards_and_deviations_are_shown_and_text_is_escaped(tmp_path: Path) -> None:
    full = experiment()
    selection = {**full.selection, "notes": ["training seed 0: no checkpoint passes the guards"]}
    seed = dict(selection["seeds"]["0"])
    seed["curve"] = [{**seed["curve"][0], "faults": ["programs that parse is 10.0 %"]}, *seed["curve"][1:]]
    selection["seeds"] = {**selection["seeds"], "0": seed}
    changed = "the plan was changed after look 1 at this test split: alpha from 0.01 to 0.05"
    row = {**full.verdict["looks"]["history"][0], "look": 2, "words": "alpha from 0.01 to 0.05"}
    looks = {**full.verdict["looks"], "count": 2, "number": 2, "sentence": "This is look 2 of 2; p = 0.04."}
    looks["history"] = [*looks["history"], row]
    check = PlanCheck(False, ("margin: planned 0.2",), (changed,), "x")
    notes = counted(selection["notes"], "note", "notes")
    verdict = add_plan_and_looks(full.verdict, check, looks, notes)
    hostile = {"name": "<script>alert(1)</script>", "identity": {"<b>": "<i>"}}
    page, document = build(dataclasses.replace(full, selection=selection, verdict=verdict, **hostile), tmp_path)
    assert "<script>" not in page and "<i>" not in page
    assert "<script>alert(1)</script>" in document.text
    text = document.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "Margin: planned 0.2." in text
    assert "Caveats: look 2 of 2 at the test split, 1 deviation from the plan, 1 change of the plan, 1 note." in text
    assert "The plan was changed after look 1 at this test split: alpha from 0.01 to 0.05." in text
    assert "This is look 2 of 2; p = 0.04." in text and "only look" not in text
    assert text.count("2026-01-01 10:00") == 2, "a row for each look"
    assert "Step 10 of seed 0: programs that parse is 10.0" in document.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "Training seed 0: no checkpoint passes the guards." in document.text


def test_the_page_says_which_monitors_fired_and_which_runs_they_ended(
    built: tuple[str, Document], tmp_path: Path
) -> None:
    data = experiment()
    quiet = {seed: [{**row, "monitors/reward_hacking": 0.0} for row in rows] for seed, rows in data.train.items()}
    fired = {seed: [dict(row) for row in rows] for seed, rows in quiet.items()}
    fired[1][-1] |= {"monitors/reward_hacking": 1.0, "monitors/ended/reward_hacking": 1.0}
    assert "onitor of training" not in built[1].text
    _, silent = build(dataclasses.replace(data, train=quiet), tmp_path)
    assert "No monitor of training fired." in silent.text
    _, loud = build(dataclasses.replace(data, train=fired), tmp_path)
    assert "Seed 1, reward hacking: fired first at update 80" in loud.text
    assert "Training of seed 1 was ended after update 80 by the monitor reward hacking" in loud.text
