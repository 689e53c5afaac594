"""Scenarios: reproducible, disjoint, playable, and refused in words where that cannot be."""

import pytest

from pipeline_lib.environments.philosophers.scenarios import Scenario, dpbench, generate_scenarios
from pipeline_lib.environments.philosophers.settings import ScenarioFamily, ScenarioProblems
from pipeline_lib.environments.philosophers.table import make_table
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.settings.problems import SplitSizes

SMALL = SplitSizes(train=60, validation=20, test=30)
VARIED = ScenarioFamily(
    philosophers=(2, 5, 8), graphs=("ring", "chain", "grid"), labels="shuffled", held=1.0, eating_time=(1, 3),
    horizon=(20, 30), wordings=3,
)  # fmt: skip


def test_the_same_seed_gives_the_same_scenarios_and_another_seed_others():
    first, again = (generate_scenarios(ScenarioProblems(sizes=SMALL, family=VARIED)) for _ in range(2))
    other = generate_scenarios(ScenarioProblems(sizes=SMALL, family=VARIED, seed=8))
    assert first == again
    assert first["train"] != other["train"]


def test_every_scenario_is_drawn_once_and_can_be_played():
    settings = ScenarioProblems(sizes=SMALL, family=VARIED)
    splits = generate_scenarios(settings)
    assert {split: len(found) for split, found in splits.items()} == {
        "train": 60, "validation": 20, "test": 30,
    }  # fmt: skip
    everything = [scenario for found in splits.values() for scenario in found]
    assert len({scenario.content_hash for scenario in everything}) == len(everything)
    for s in everything:
        table = make_table(s.plan, [s.priority], s.horizon, s.eating_time, [s.holdings])
        assert not table.taken().all(), "a deadlock from the start"
        assert len(set(s.labels)) == s.philosophers
    assert {s.philosophers for s in splits["train"]} == {2, 5, 8}
    assert {s.graph for s in splits["train"]} == {"ring", "chain", "grid"}


def test_splits_are_written_checked_and_read_back(tmp_path):
    settings = ScenarioProblems(sizes=SMALL)
    manifest = prepare("philosophers", settings, tmp_path)
    expected = generate_scenarios(settings)
    assert manifest["source"] == "scenarios"
    for split in ("train", "validation", "test"):
        assert load_split(tmp_path, split) == expected[split]
    with pytest.raises(ProblemsError, match="splits are train, validation, test"):
        load_split(tmp_path, "extra")


def test_the_published_condition_is_the_published_one_and_never_trained_on():
    scenario = dpbench(5)
    assert scenario == Scenario(
        id=scenario.id, source="scenarios", family=scenario.id, level=5, graph="ring", philosophers=5,
        labels=(0, 1, 2, 3, 4), priority=(0, 1, 2, 3, 4), holdings=(0,) * 5, eating_time=1, horizon=30, wording=0,
    )  # fmt: skip
    plain = ScenarioFamily(philosophers=(3, 5), held=0.2)
    splits = generate_scenarios(ScenarioProblems(sizes=SMALL, family=plain, published_test=(3, 5)))
    assert [s.content_hash for s in splits["test"]] == [dpbench(3).content_hash, dpbench(5).content_hash]
    hidden = {s.content_hash for s in splits["test"]}
    assert not hidden & {s.content_hash for s in splits["train"] + splits["validation"]}


def test_asking_for_more_than_there_are_is_refused_in_words(tmp_path):
    nothing_varies = ScenarioFamily(philosophers=(5,), priority="seat", held=0.0)
    settings = ScenarioProblems(sizes=SplitSizes(train=3, validation=1, test=1), family=nothing_varies)
    with pytest.raises(ProblemsError, match=r"validation needs 1 different scenarios.*vary more"):
        prepare("philosophers", settings, tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"family": {"philosophers": [1]}}, "philosophers: got 1; accepted: 2 to 50"),
        ({"family": {"horizon": [0]}}, "horizon: got 0; accepted: 1 to 10000"),
        ({"family": {"eating_time": [0]}}, "eating_time: got 0"),
        ({"published_test": [51]}, "published_test: got 51"),
    ],
)
def test_impossible_tables_are_refused_by_the_settings(change, words):
    with pytest.raises(ValueError, match=words):
        ScenarioProblems.model_validate(change)
