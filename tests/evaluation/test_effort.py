"""Several attempts of which one is kept, against an enumeration of all choices; and equal tokens of two teams."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.effort import curve, equal_effort, kept, with_attempts
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.verdict import EQUAL_EFFORT, SINGLE_AGENT, summarise_test
from pipeline_lib.settings import SettingsError, load_params
from pipeline_lib.settings.evaluate import EvaluateSettings, HeldOutSettings, VerdictSettings
from tasks.experiment.plans import comparisons, family_size

ROOT = Path(__file__).parents[2]

SHARE = Metric("passed", share=True)


def enumerated(signs: list, attempts: int) -> list[Fraction]:
    """Return the probability that each episode is kept, over all choices of attempts, ties decided by chance."""
    chances = [Fraction(0)] * len(signs)
    choices = list(itertools.combinations(range(len(signs)), attempts))
    for chosen in choices:
        if isinstance(signs[0], str):
            votes = Counter(signs[i] for i in chosen)
            winners = [answer for answer, count in votes.items() if count == max(votes.values())]
            # One of the winning answers; which of its episodes stands for it does not matter, all with it share.
            for answer in winners:
                alike = [i for i in range(len(signs)) if signs[i] == answer]
                for i in alike:
                    chances[i] += Fraction(1, len(winners) * len(alike) * len(choices))
        else:
            best = [i for i in chosen if signs[i] == max(signs[j] for j in chosen)]
            for i in best:
                chances[i] += Fraction(1, len(best) * len(choices))
    return chances


@pytest.mark.parametrize("seed", range(12))
def test_what_is_kept_is_what_all_choices_say(seed: int) -> None:
    chance = random.Random(seed)
    m = chance.randint(1, 8)
    shares = [chance.choice((0.0, 0.5, 1.0)) for _ in range(m)]
    answers = [chance.choice("abcd") for _ in range(m)]
    for attempts in range(1, m + 1):
        for signs in (shares, answers):
            expected = [float(one) for one in enumerated(signs, attempts)]
            assert kept(signs, attempts) == pytest.approx(expected, abs=1e-12), (signs, attempts)


def test_a_fraction_of_an_attempt_is_made_in_that_share_of_cases() -> None:
    signs = [0.0, 1.0, 0.5]
    assert kept(signs, 1.25) == pytest.approx(0.75 * kept(signs, 1) + 0.25 * kept(signs, 2))


def episode(problem: str, sample: int, passed: float | None, visible: float, tokens: int) -> EpisodeRecord:
    return EpisodeRecord(
        problem=problem,
        family=problem,
        sample=sample,
        reward=passed,
        turns=1,
        terms={},
        metrics={} if passed is None else {"passed": passed},
        tokens=tokens,
        details={"visible": visible, "critical_path_tokens": tokens / 2},
    )


def team(rng: np.random.Generator, right: float, told: float, tokens: int, problems: int = 40) -> list[EpisodeRecord]:
    """Return 8 episodes per problem: right with this chance; visible tests tell the truth with the chance ``told``."""
    records = []
    for problem in range(problems):
        for sample in range(8):
            passed = float(rng.random() < right)
            visible = passed if rng.random() < told else float(rng.random() < 0.5)
            records.append(episode(f"p{problem}", sample, passed, visible, tokens))
    return records


def test_tokens_are_equal_and_the_more_expensive_side_makes_the_attempts() -> None:
    rng = np.random.default_rng(0)
    dear, cheap = team(rng, 0.5, 1.0, 300), team(rng, 0.5, 1.0, 100)
    effort = equal_effort({0: dear, 1: dear}, {0: cheap}, 2, "visible")
    assert effort.attempts == effort.wanted == (2.0, 6.0)
    assert effort.tokens == (300, 100)
    assert equal_effort({0: cheap}, {0: dear}, 1, "visible").attempts == (3.0, 1.0)
    few = equal_effort({0: dear}, {0: cheap}, 4, "visible")
    assert few.wanted == (4.0, 12.0) and few.attempts == (4.0, 8.0), "no more than were played"
    assert "raise evaluate.test.samples to 12" in few.sentence
    assert "No answer of the single agent was cut off" in effort.sentence
    cut = [replace(record, details={**record.details, "cut_off": record.sample == 0}) for record in cheap]
    told = equal_effort({0: dear}, {0: cut}, 1, "visible")
    assert told.cut_off == 1 / 8 and "In 12.5 % of its episodes an answer of the single agent was cut" in told.sentence
    silent = team(rng, 0.5, 1.0, 0)
    assert equal_effort({0: silent}, {0: silent}, 2, "visible").attempts == (2.0, 2.0)
    assert equal_effort({0: silent}, {0: cheap}, 1, "visible").wanted == (100.0, 1.0), "no number beyond sense"


def test_more_attempts_help_only_if_what_agents_see_says_which() -> None:
    rng = np.random.default_rng(1)
    metric = "passed"
    records = team(rng, 0.5, 1.0, 10)
    told = curve({0: records}, metric, SHARE, "visible", 0.95, 0.1)
    blind = curve({0: team(rng, 0.5, 0.0, 10)}, metric, SHARE, "visible", 0.95)
    values = [point.value.value or 0.0 for point in told]
    solved = {record.problem for record in records if record.metrics["passed"]}
    assert values == sorted(values) and values[7] == pytest.approx(len(solved) / 40), "any right attempt is kept"
    assert max(abs((p.value.value or 0.0) - (blind[0].value.value or 0.0)) for p in blind) < 0.12
    assert [point.tokens for point in told] == [10 * n for n in range(1, 9)]
    assert [point.sequential_tokens for point in told] == [5.0] * 8, "attempts are made at the same time"
    assert told[3].seconds == pytest.approx(0.4) and blind[3].seconds is None


def test_a_problem_with_a_lost_episode_is_lost() -> None:
    records = team(np.random.default_rng(2), 0.5, 1.0, 10, problems=3)
    records[0] = replace(records[0], reward=None, metrics={})
    table = with_attempts({0: records}, "passed", "visible", 4, "the team")
    assert np.isnan(table.values[0, 0, 0]) and table.gone[0, 0, 0]
    assert not np.isnan(table.values[0, 1:, 0]).any() and not table.gone[0, 1:].any()


def summary(samples: int = 8, right: float = 0.5) -> dict:
    """Return a test in which one agent, with a third of the tokens, is right as often as the team."""
    rng = np.random.default_rng(3)
    trained, base, single = team(rng, 0.5, 1.0, 300), team(rng, 0.1, 1.0, 300), team(rng, right, 1.0, 100)
    evaluate = EvaluateSettings(metric="passed", test=HeldOutSettings(samples=samples), equal_effort=1)
    return summarise_test(
        selected={0: trained, 1: trained},
        base=base,
        last={0: trained, 1: trained},
        baselines={SINGLE_AGENT: {0: single}},
        selected_steps={0: 1, 1: 1},
        last_steps={0: 1, 1: 1},
        evaluate=evaluate,
        verdict=VerdictSettings(),
        metrics={"passed": SHARE},
        chosen_by="visible",
    )


def test_a_cheaper_agent_with_the_same_tokens_is_better_though_one_attempt_is_not() -> None:
    found = summary()["comparisons"]
    assert found[SINGLE_AGENT]["verdict"] == "INCONCLUSIVE"
    equal = found[EQUAL_EFFORT]
    assert equal["verdict"] == "WORSE"
    # One attempt is right in half of the cases, one of three in 7 of 8.
    assert equal["difference"]["estimate"] == pytest.approx(0.5 - 0.875, abs=0.08)
    assert equal["family_size"] == found["base"]["family_size"] == 3, "base, single agent, single agent at equal tokens"
    assert "the single agent of 3 with 100" in equal["sentence"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seeds: {single_agent: []}", "seeds.single_agent is empty"),
        ("environment: writing", "shows agents nothing by which they could choose"),
        ("problems: {visible_tests: 0}", "problems.visible_tests is 0"),
        ("evaluate: {equal_effort: 2, test: {samples: 1}}", "set evaluate.equal_effort to 1"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(text if "equal_effort" in text else f"{text}\nevaluate: {{equal_effort: 2}}\n")
    with pytest.raises(SettingsError, match=words):
        load_params(file, ROOT / "conf")


def test_it_is_one_more_comparison_of_the_family(tmp_path: Path) -> None:
    (file := tmp_path / "params.yaml").write_text("evaluate: {equal_effort: 2}\n")
    params = load_params(file, ROOT / "conf")
    file.write_text("{}\n")
    without = load_params(file, ROOT / "conf")
    assert set(comparisons(params)) - set(comparisons(without)) == {EQUAL_EFFORT}
    assert family_size(params) == family_size(without) + 1
