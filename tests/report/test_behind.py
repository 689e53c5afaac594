"""What is behind the numbers, and what names mean."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline_lib.report import results, training_figures
from pipeline_lib.report.style import Link
from pipeline_lib.report.team_tables import for_a_paper
from tests.flows.project import ROOT
from tests.report.build import experiment
from tests.report.html import Document


def test_the_curve_of_rewards_says_which_term_a_single_agent_cannot_earn():
    data = experiment(1)
    caption = training_figures.learning(data).caption
    assert "sampled as in training. A single agent cannot earn the term cooperation" in caption
    for fields in ({"team_terms": ()}, {"baseline_train": {}}):
        assert "cannot earn" not in training_figures.learning(dataclasses.replace(data, **fields)).caption


def test_curves_of_each_agent_are_there_unless_all_share_one_policy():
    data = experiment(1)
    assert training_figures.by_policy(data).table.columns[:3] == (
        "step", "tokens per action: helper", "tokens per action: main",
    )  # fmt: skip
    shared = [{k.replace("/helper", "/team"): v for k, v in row.items() if "/main" not in k} for row in data.train[0]]
    assert training_figures.by_policy(dataclasses.replace(data, train={0: shared})) is None


def test_every_number_of_the_comparisons_and_metrics_leads_to_its_episodes(built: tuple[str, Document]):
    page, _ = built
    data = experiment()
    compared, teams = results.comparisons(data), results.teams(data)
    p_values, effects = ([row[place] for row in compared.rows] for place in (-2, -1))
    assert p_values[0] == "<\N{NO-BREAK SPACE}10⁻⁶" and effects[0] == "5.81", "as in the sentences"
    for rows in ([row[:-2] for row in compared.rows], teams.rows):
        for row in rows:
            linked = [cell.target for cell in row if isinstance(cell, Link)]
            numbers = [cell for cell in row[1:] if isinstance(cell, str) and re.fullmatch(r"[\d.]+( %)?", cell)]
            assert not numbers, row
            assert linked or row[0] == "episodes lost"
    assert 'href="episodes.html#team=single-agent%20GRPO"' in page
    assert results.linked("1.0 %", "base", dataclasses.replace(data, tested=())) == "1.0 %"


def test_names_of_metrics_terms_and_schemes_are_explained(built: tuple[str, Document]):
    _, document = built
    for name, text in (
        ("thin wrappers", "The main function adds nothing to the helper."),
        ("tests", "Share of the hidden tests passed."),
        ("strategy filter", "A condition chooses between"),
    ):
        assert re.search(rf"{name}\s*{text}", document.text), name


def test_the_first_sentence_names_task_model_data_date_and_machine(built: tuple[str, Document]):
    _, document = built
    sentence = "A team for the task coding: a tiny model; generated problems (96 test); tested on 2026-01-01 (UTC); "
    place = document.text.index(f"{sentence}this page was made on a small machine.")
    assert place < document.text.index("IMPROVED")


def test_the_summary_for_a_paper_says_what_was_done_and_cites_what_the_project_wants_cited(tmp_path: Path):
    data = experiment()
    parts = dict(for_a_paper(data))
    assert "3 training runs of up to 80 updates" in parts["Method"]
    assert "96 held-out problems with 4 episodes each" in parts["Method"]
    assert "were fixed before any checkpoint was evaluated" in parts["Method"] and "Caveats" not in parts["Method"]
    compared = data.verdict["comparisons"]
    assert f"corrected for {compared['base']['family_size']} comparisons (Holm)" in parts["Method"]
    for name, told in zip(("base", "single-agent GRPO"), parts["Result"].split("\n\n"), strict=True):
        assert told in compared[name]["sentence"].replace("IMPROVED: on", "On"), "both comparisons of the headline"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    for value in (citation["title"], citation["version"], citation["authors"][0]["name"], citation["license"]):
        assert value in parts["BibTeX"]
    paper = citation["references"][0]
    assert paper["url"].rpartition("/")[2] in parts["BibTeX"]
    assert [author["family-names"] in parts["BibTeX"] for author in paper["authors"]] == [True] * 4
    conditional = {**data.plan, "outside": {"last": "if it is the selected checkpoint"}}
    assert for_a_paper(dataclasses.replace(data, plan=conditional)) == list(parts.items()), "it was tested"
    plan = {**data.verdict["plan"], "followed": False, "changed": ["alpha was changed after look 1"]}
    lines = [*data.verdict["lines"][:2], "Caveats: 1 change of the plan."]
    verdict = {**data.verdict, "plan": plan, "lines": lines, "caveats": [{"what": "1 change", "details": ["."]}]}
    told = dict(for_a_paper(dataclasses.replace(data, verdict=verdict)))["Method"]
    assert told.endswith("Caveats: 1 change of the plan.") and "fixed before" not in told
    assert for_a_paper(dataclasses.replace(data, plan=None)) == []


@pytest.mark.parametrize(
    ("train", "told"),
    [
        ({"individual_reward": 0.25}, "on what it earned by itself (25 %) and on the joint reward (75 %)."),
        ({"individual_reward": 1.0}, "Each agent was trained on what it earned by itself."),
        ({"advantage": {"baseline": "critic"}}, "The baseline of the advantages was learned (critic)."),
        ({"credit": {"kind": "cross"}}, "advantages of its own (credit plan cross)."),
    ],
)
def test_the_summary_for_a_paper_says_what_agents_were_trained_on(train: dict[str, Any], told: str):
    data = experiment()
    defaults = {"individual_reward": 0.0, "advantage": {"baseline": "mean"}, "credit": {"kind": "aligned"}}
    settings = {**data.settings["train"], **defaults}
    plain, other = (
        dict(for_a_paper(dataclasses.replace(data, settings={"train": found})))["Method"]
        for found in (settings, {**settings, **train})
    )
    assert told in other and told not in plain
    assert plain == dict(for_a_paper(data))["Method"]
