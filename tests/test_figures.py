"""Figures of docs: quoted measurements are in the file that the passage links to, limits and defaults in the code."""

import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from math import prod
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from pydantic import BaseModel

from flows import reward_function
from pipeline_lib.audit.run import MARGIN
from pipeline_lib.credit.plans import MAX_CELLS
from pipeline_lib.environments.coding.feedback import MAX_CODE, MAX_CRITIC, MAX_EDITS, MAX_OWN_TEXT
from pipeline_lib.environments.coding.settings import FineCodingReward
from pipeline_lib.environments.modules.settings import SoundModulesReward
from pipeline_lib.environments.writing.settings import SoundWritingReward
from pipeline_lib.evaluation.evidence import FEW_CARRYING, MIN_RUNS
from pipeline_lib.evaluation.run import MOST_AGENTS
from pipeline_lib.monitors import AT_BEST, FOLLOWS, GAP, IDLE, LEAST_PAIRS, TREND
from pipeline_lib.settings import load_params
from pipeline_lib.settings.study import MIN_SEEDS
from pipeline_lib.training.advantages import EQUAL
from pipeline_lib.training.budget import MOST_TIMES
from pipeline_lib.training.fidelity import CLEAR
from pipeline_lib.training.optimiser import MAX_REFUSED
from tasks.services.servers import PAGE_PORT
from tasks.use.api_requests import Limits as ServerLimits
from tests.audit.public_rewards import BAD, SOUND
from tests.play.test_tools import BOUND
from tests.rollouts.test_vllm_engine import BOUND as VLLM_BOUND
from tests.test_claims import COUNTS

ROOT = Path(__file__).parents[1]
WORDS = {number: word for word, number in COUNTS.items()}
FIGURE = re.compile(r"(?<![\w.:])[-+]?\d*\.\d+(?![\w.])")

QUOTED = [
    ("studies.md", "### Group size", ["docs/studies/group-size.json"]),
    ("studies.md", "### Shared or separate weights", ["docs/studies/sharing.json"]),
    ("studies.md", "### KL penalty", ["docs/studies/kl.json"]),
    (
        "studies.md",
        "### Credit plans",
        ["docs/studies/credit-equal-tokens.json", "docs/studies/credit-equal-executions.json"],
    ),
    ("studies.md", "### The first experiments", ["docs/studies/first-experiments.json"]),
    ("studies.md", "### A large and a small agent", ["docs/studies/pairs.json"]),
    ("studies.md", "### Three rewards", ["docs/studies/reward.json"]),
    ("studies.md", "### Turns and feedback", ["docs/studies/turns.json"]),
    (
        "studies.md",
        "### Own rewards",
        [f"docs/studies/own-rewards-{name}.json" for name in ("coding", "philosophers", "modules")],
    ),
    ("feedback.md", "Seen, with `environment=coding-two-turns`", ["docs/runs/two-turns.json"]),
    ("modules.md", "**The whole chain**", ["docs/runs/modules.json"]),
    (
        "feedback.md",
        "**Against a further turn",
        ["benchmarks/results/equal-tokens-coding-tools.json", "benchmarks/results/tools.json"],
    ),
    (
        "documents.md",
        "> Against the base: IMPROVED. Answers with their support: 52.2",
        ["benchmarks/results/documents-verdict.json"],
    ),
    (
        "documents.md",
        "> Against the base: IMPROVED. Answers with their support: 72.6",
        ["docs/runs/documents-smollm2.json"],
    ),
    ("documents.md", "The base often answers", ["docs/runs/documents-smollm2.json"]),
    ("documents.md", "Useless talk falls", ["benchmarks/results/documents-verdict.json"]),
    (
        "documents.md",
        "> Against the base: IMPROVED. Answers with their support: 89.2",
        ["benchmarks/results/documents-tools-verdict.json"],
    ),
    (
        "documents.md",
        "Where agents read all",
        ["benchmarks/results/documents-tools-verdict.json", "benchmarks/results/documents-verdict.json"],
    ),
    (
        "planning.md",
        "> Against the base: IMPROVED. Plans that satisfy everything: 89",
        ["benchmarks/results/planning-verdict.json"],
    ),
    ("planning.md", "The single agent reads", ["benchmarks/results/planning-verdict.json"]),
    (
        "planning.md",
        "> Against the base: IMPROVED. Plans that satisfy everything: 95",
        ["docs/runs/planning-smollm2.json"],
    ),
    ("planning.md", "The base agrees too early", ["docs/runs/planning-smollm2.json"]),
    ("planning.md", "The audit plays 23", ["benchmarks/results/planning-verdict.json"]),
    ("modules.md", "| modules | system tests, base", ["benchmarks/results/modules.md"]),
    ("modules.md", "**An orchestrated team**", ["benchmarks/results/modules-orchestrated-verdict.json"]),
    ("modules.md", "**At equal tokens**", ["benchmarks/results/equal-tokens-modules-orchestrated.json"]),
    ("rewards.md", "The whole chain, three training runs", ["docs/runs/fine-reward.json"]),
    ("writing.md", "> **IMPROVED**", ["benchmarks/results/writing-summary.md"]),
    ("writing.md", "The team is **IMPROVED**", ["benchmarks/results/writing-summary.md"]),
    ("writing.md", "**Introductions**", ["benchmarks/results/writing-introduction.md"]),
    ("writing.md", "**The published reward** does", ["benchmarks/results/writing-paper.md"]),
    (
        "writing.md",
        "Rewarding 10,000 pairs",
        ["benchmarks/results/writing.json", "benchmarks/results/training-writing.md"],
    ),
    (
        "real-models.md",
        "| | here, bfloat16 | others |",
        [
            f"benchmarks/results/{name}.md"
            for name in ("training_pretrained-smollm2-135m", "rollouts_pretrained-smollm2-135m")
        ],
    ),
    (
        "real-models.md",
        "With Qwen2.5-Coder-0.5B an update",
        [f"benchmarks/results/training_pretrained-{name}.md" for name in ("qwen2.5-coder-0.5b", "smollm2-135m")],
    ),
    (
        "real-models.md",
        "On two cores of an Intel Xeon",
        ["benchmarks/results/training_pretrained-smollm2-135m-xeon.md"],
    ),
    ("philosophers.md", "So it does worse than chance", ["benchmarks/results/philosophers_pretrained.md"]),
    ("philosophers.md", "| Qwen2.5-Coder-0.5B-Instruct | 70 %", ["benchmarks/results/philosophers_pretrained.md"]),
    ("credit.md", "| 2 agents | executed |", ["benchmarks/results/credit.md"]),
    ("credit.md", "- **No plan is biased**", ["benchmarks/results/credit.md"]),
    ("monitors.md", "`python -m benchmarks.monitors` simulates", ["benchmarks/results/monitors.json"]),
    ("statistics.md", "`python -m benchmarks.calibration` simulates", ["benchmarks/results/calibration.md"]),
    ("statistics.md", "`python -m benchmarks.calibration_grid`", ["benchmarks/results/calibration-grid.md"]),
]


def passage(page: str, start: str) -> str:
    """Return a section if ``start`` is a heading, else the block that begins with it."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert text.count(f"\n{start}") == 1, f"{page} has no one passage that begins with {start!r}"
    rest = text[text.index(f"\n{start}") + 1 :]
    return re.split(r"\n#+ ", rest)[0] if start.startswith("#") else rest.split("\n\n")[0]


def numbers(value: Any) -> Iterator[float]:
    """Yield all numbers of a value of JSON, those in its texts too, and the mean of a list of numbers."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield float(value)
    elif isinstance(value, str):
        yield from (float(found) for found in re.findall(r"[-+]?\d+(?:\.\d+)?", value))
    else:
        if isinstance(value, list) and value and all(isinstance(inner, int | float) for inner in value):
            yield fmean(value)
        for inner in value.values() if isinstance(value, dict) else value:
            yield from numbers(inner)


def missing(text: str, files: list[str]) -> list[str]:
    """Return the figures of a text that no number of the files is when it is rounded as they are, as a share or not."""
    there: list[float] = []
    for name in files:
        content = (ROOT / name).read_text(encoding="utf-8")
        there += numbers(json.loads(content) if name.endswith(".json") else content)
    found = []
    for figure in FIGURE.findall(re.sub(r"\([^)]*\.(?:md|json|svg|png)\)", "", text)):
        decimals, value = len(figure.partition(".")[2]), abs(float(figure))
        step = 10.0**-decimals
        if not any(abs(abs(number) * unit - value) <= 0.5001 * step for number in there for unit in (1, 100)):
            found.append(figure)
    return found


@pytest.mark.parametrize(("page", "start", "files"), QUOTED, ids=[f"{page}: {start}" for page, start, _ in QUOTED])
def test_a_figure_that_a_page_quotes_is_that_of_the_measurement(page: str, start: str, files: list[str]) -> None:
    text = passage(page, start)
    assert FIGURE.search(text)
    assert missing(text, files) == []


def test_the_cost_of_monitors_is_the_measured_one() -> None:
    runs = json.loads((ROOT / "benchmarks/results/monitors_cost.json").read_text())["runs"]
    shares = {what: 100 * sum(run[what] for run in runs) / sum(run["training"] for run in runs) for what in runs[0]}
    told = FIGURE.findall(passage("monitors.md", "On the embedded default monitors"))
    assert told == [f"{shares['together']:.1f}", f"{shares['episodes without an agent']:.1f}"]


@pytest.mark.parametrize(
    ("page", "start", "preset"),
    [
        ("feedback.md", "**Against a further turn", "coding-tools"),
        ("modules.md", "**At equal tokens**", "modules-orchestrated"),
    ],
)
def test_teams_that_are_compared_at_equal_tokens_sampled_equally_many(page: str, start: str, preset: str) -> None:
    found = json.loads((ROOT / f"benchmarks/results/equal-tokens-{preset}.json").read_text())
    verdicts = {sentence.partition(":")[0] for sentence in found["comparisons"].values()}
    assert {*re.findall("IMPROVED|WORSE|EQUIVALENT|INCONCLUSIVE", passage(page, start))} == verdicts
    first, second = (
        {name: team["training"]["tokens"] for name, team in found[name].items() if name != "base"}
        for name in found["command"].split()[-2:]
    )
    assert list(first) == list(second) == ["seed 0", "seed 1", "seed 2"]
    assert all(second[seed] <= tokens < 1.05 * second[seed] for seed, tokens in first.items())


def test_meals_on_larger_tables_are_the_measured_ones() -> None:
    rows = json.loads((ROOT / "benchmarks/results/philosophers_curriculum.json").read_text())

    def of(philosophers: int, arm: str, metric: str = "meals_share") -> list[float]:
        return [100 * row[metric] for row in rows if (row["philosophers"], row["arm"]) == (philosophers, arm)]

    five, more = of(10, "five"), of(15, "five")
    told = [of(10, "base", "deadlock")[0], of(15, "base", "deadlock")[0], of(10, "base")[0], of(15, "base")[0]]
    told += [min(five), max(five), min(more), max(more)]
    told += [fmean(of(size, arm)) for size in (10, 15) for arm in ("curriculum", "direct")]
    assert FIGURE.findall(passage("philosophers.md", "The base has deadlocks")) == [f"{value:.1f}" for value in told]


def test_the_rewards_of_the_table_of_the_audit_are_counted_right() -> None:
    rows = json.loads((ROOT / "benchmarks/results/audit.json").read_text())
    refused = [row["label"] for row in rows if row["audit"] == "FAIL"]
    told = passage("rewards.md", "**Error rates.**")
    counts = [int(count) for count in re.findall(r"\b(\d+)\b", told)[:4]]
    labels = [row["label"] for row in rows]
    assert counts == [len(rows), labels.count("bad"), labels.count("sound"), labels.count("arguable")]
    assert refused.count("bad") == labels.count("bad") and "sound" not in refused


def weights(reward: type[BaseModel], *names: str) -> str:
    """Return the defaults of some settings as a pattern of a table's cells writes them."""
    return "; ".join(f"{reward.model_fields[name].default:g}" for name in names)


LIMITS = [
    ("credit.md", r"More than ([\d,]+) cells", f"{MAX_CELLS:,}"),
    ("credit.md", r"Up to (\w+) agents only", WORDS[MOST_AGENTS]),
    ("credit.md", r"true advantage is beyond ([\d.]+)", str(CLEAR)),
    ("statistics.md", r"at most (\w+) times `train.steps`", WORDS[MOST_TIMES]),
    ("statistics.md", r"needs at least (\w+) runs", WORDS[MIN_RUNS]),
    ("statistics.md", r"Below (\d+) the sentence describes how reliable", f"{FEW_CARRYING:g}"),
    ("studies.md", r"of every cell, at least (\w+)", WORDS[MIN_SEEDS]),
    ("training.md", r"the (\w+) one in a row ends training", {3: "third"}[MAX_REFUSED]),
    ("training.md", r"equal \(to (\S+) of their size\)", "1e-9" if EQUAL == 1e-9 else ""),
    ("feedback.md", r"its own text, cut to ([\d,]+) characters", f"{MAX_OWN_TEXT:,}"),
    ("feedback.md", r"at most (\w+) edits are used", WORDS[MAX_EDITS]),
    ("feedback.md", r"the new code, at most (\d+) characters", str(MAX_CODE)),
    ("feedback.md", r"would write in its place, cut to (\d+) characters", str(MAX_CRITIC)),
    ("feedback.md", r"in the tests: below ([\d.]+) nats", f"{BOUND:.5f}"),
    ("feedback.md", r"nats, with vLLM below ([\d.]+)\)", f"{VLLM_BOUND:.4f}"),
    ("monitors.md", r"the last five of these and at least (\d+) pairs", str(LEAST_PAIRS)),
    ("monitors.md", r"empty in more than (\d+) %", f"{100 * IDLE:g}"),
    ("monitors.md", r"not within (\d+) % of its best", f"{100 * AT_BEST:g}"),
    ("monitors.md", r"rank correlation is below ([\d.]+)", str(FOLLOWS)),
    ("monitors.md", r"exceeds that of hidden ones by more than ([\d.]+)", str(GAP)),
    ("monitors.md", r"is above -([\d.]+) of the metric's range", str(MARGIN)),
    ("monitors.md", r"Over the last (\d+) updates \(at least 15", str(TREND)),
    ("using.md", r"up to (\d+) with `n`", str(ServerLimits(1).answers)),
    ("using.md", r"`--port` the port \((\d+)\)", str(PAGE_PORT)),
    ("writing.md", r"`coverage`, ([\d.]+)", weights(SoundWritingReward, "coverage")),
    ("modules.md", r"`system` \(([\d.]+):", f"{SoundModulesReward.model_fields['system'].default}"),
    ("rewards.md", r"all ([\d,]+) pairs of memoryless policies", f"{432**2:,}"),
    ("rewards.md", r"up to `mutants` \((\d+)\)", weights(FineCodingReward, "mutants")),
    ("audit-any-reward.md", r"has (\d+) functions in the style", str(len(BAD) + len(SOUND))),
    ("audit-any-reward.md", r"At most (\d+) are played", str(reward_function.parser().get_default("limit"))),
    ("orchestration.md", r"MLflow ([\d.]+) shows no runs", ".".join(version("mlflow").split(".")[:2])),
]


@pytest.mark.parametrize(
    ("page", "pattern", "value"), LIMITS, ids=[f"{page}: {pattern}" for page, pattern, _ in LIMITS]
)
def test_a_limit_or_default_that_a_page_names_is_that_of_the_code(page: str, pattern: str, value: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = [match[1] for match in re.finditer(pattern.replace(" ", r"\s+"), text) if match[1]]
    assert found == [value], f"{page} says {found}, the code {value}"


def test_the_number_of_actions_of_the_default_run_is_computed_right() -> None:
    params = load_params(ROOT / "params.yaml", ROOT / "conf")
    factors = [params.train.steps, params.train.problems_per_step, params.train.group_size, 2, len(params.seeds.train)]
    text = " ".join((ROOT / "docs/using.md").read_text(encoding="utf-8").split())
    assert f"{' x '.join(map(str, factors))} = {prod(factors):,}" in text


def test_a_figure_that_is_not_in_a_file_is_found() -> None:
    text = passage("studies.md", "### KL penalty")
    assert missing(text.replace("85.2 %", "85.7 %"), ["docs/studies/kl.json"]) == ["85.7"]


def test_the_run_of_qwen_on_a_cpu_is_as_the_page_says() -> None:
    kept = json.loads((ROOT / "docs/runs/coding-qwen.json").read_text())
    page = " ".join((ROOT / "docs/real-models.md").read_text().split()).replace(" > ", " ")
    assert kept["verdict"][0] in page and kept["verdict"][1] in page
    teams = kept["metrics"]
    rows = {
        "base": ["the base"],
        "base, as a sequential pipeline": ["the base, sequential pipeline"],
        "base, after a round of discussion": ["the base, one-round discussion"],
        "teams, seeds 0 and 1": ["selected, seed 0", "selected, seed 1"],
        "single agent, before and after": ["the base as a single agent", "single agent, selected"],
    }
    for row, names in rows.items():
        passed, there = (
            ", ".join(f"{100 * teams[name][metric]:.1f}" for name in names)
            for metric in ("hidden tests passed", "functions there")
        )
        tokens = ", ".join(f"{teams[name]['tokens one after another']:.0f}" for name in names)
        assert f"| {row} | {passed} % | {there} % | {tokens} |" in page
        assert {teams[name]["episodes"] for name in names} == {132}
    verdicts = [one["verdict"] for one in kept["comparisons"]]
    assert verdicts == ["IMPROVED", "EQUIVALENT", "INCONCLUSIVE", "IMPROVED", "IMPROVED", "IMPROVED"]
    texts = [kept["helper's text"][name] for name in ("the base", "selected, seed 0", "selected, seed 1")]
    instead = [one["main agent's function instead"] for one in texts]
    assert "in {} of 132 episodes, the trained ones in {} and {}".format(*instead) in page
    template = texts[1]["the prompt's template"]
    assert f"In {template} episodes of seed 0" in page
    assert max(teams[name]["helper called"] for name in ("selected, seed 0", "selected, seed 1")) < 0.02
    cost = kept["cost"]
    assert all(25 < seconds / 60 < 40 for seconds in cost["training (s)"].values())
    assert cost["resident in training (MB, most)"] == pytest.approx(4300, abs=50)
    assert f"and {cost['resident in the test (GiB, seen)']} GiB" in page


def test_the_trained_real_philosophers_are_as_the_page_says() -> None:
    kept = json.loads((ROOT / "docs/runs/philosophers-smollm2.json").read_text())
    page = " ".join((ROOT / "docs/philosophers.md").read_text().split()).replace(" > ", " ")
    assert kept["verdict"][0] in page and (ROOT / "docs/runs/philosophers-smollm2.png").is_file()
    assert [one["verdict"] for one in kept["comparisons"]] == ["INCONCLUSIVE", "INCONCLUSIVE"]
    teams, names = kept["metrics"], ["the base", "selected, seed 0", "selected, seed 1"]
    deadlocks = [f"{100 * teams[name]['deadlock']:.1f}" for name in names]
    assert "from {} to {} and {} %".format(*deadlocks) in page
    last = kept["comparisons"][1]
    low, high = -100 * last["high"], -100 * last["low"]
    assert f"get {-100 * last['difference']:.1f} points more ({low:.1f} to {high:+.1f})" in page
    pairs = [teams[f"selected, seed {seed}, one of them waits"] for seed in (0, 1)]
    meals = " and ".join(f"{100 * pair['meals_share']:.1f}" for pair in pairs)
    (stuck,) = {f"{100 * pair['deadlock']:.1f}" for pair in pairs}
    assert f"{meals} %, with deadlocks in {stuck} %" in page
    reached, counts = [], {"WAIT": 0, "RELEASE": 0, "all": 0}
    for name in names:
        by_forks = kept["answers by forks"][name]
        left, right = by_forks["left in your hand, right free"], by_forks["left free, right in your hand"]
        reached.append(f"{left['GRAB_RIGHT'] + right['GRAB_LEFT']} of {sum(left.values()) + sum(right.values())}")
        for answers in by_forks.values():
            counts["all"] += sum(answers.values())
            for action in ("WAIT", "RELEASE"):
                counts[action] += answers.get(action, 0)
    assert "in {} answers, the teams in {} and {}".format(*reached) in page
    assert counts == {"WAIT": 3, "RELEASE": 7, "all": 2200}
    assert max(one["resident (MB)"] for run in kept["learning"].values() for one in run) == pytest.approx(2840, abs=5)


def test_the_second_turn_of_a_real_model_is_as_the_page_says() -> None:
    kept = json.loads((ROOT / "docs/runs/two-turns-smollm2.json").read_text())
    page = " ".join((ROOT / "docs/real-models.md").read_text().split()).replace(" > ", " ")
    assert kept["verdict"][0] in page and (ROOT / "docs/runs/two-turns-smollm2.png").is_file()
    assert kept["command"].replace('"', "'") in page.replace("\\ ", "")
    verdicts = {one["against"]: one for one in kept["comparisons"]}
    first = verdicts["its own first turn"]
    mean, gain, low, high = (100 * first[key] for key in ("mean", "difference", "low", "high"))
    told = f"({mean:.1f} %) it is {first['verdict']}, {gain:+.1f} points ({low:+.1f} to {high:+.1f}, p = "
    assert f"{told}{first['p (Holm)']:.2g})" in page
    assert "these 40; if it differs" in kept["in_words"][-1] and "55 families would exclude" in kept["in_words"][-1]
    trained = [kept["metrics"][f"selected, seed {seed}"] for seed in (0, 1)]
    base = kept["metrics"]["the base"]
    of, solved = "with a second turn", "of these solved in it"
    told = f"solves {sum(one[solved] for one in trained)} of {sum(one[of] for one in trained)} episodes"
    assert f"{told}, the base's {base[solved]} of {base[of]}." in page
    assert max(one["resident (MB)"] for run in kept["learning"].values() for one in run) == 3601


@pytest.mark.parametrize("task", ["planning", "documents"])
def test_dialogues_of_a_real_model_are_as_their_pages_say(task: str) -> None:
    kept = json.loads((ROOT / f"docs/runs/{task}-smollm2.json").read_text())
    page = " ".join((ROOT / f"docs/{task}.md").read_text().split()).replace(" > ", " ")
    assert kept["verdict"][0] in page and kept["command"] in page
    assert f"runs/{task}-smollm2.png" in page and (ROOT / f"docs/runs/{task}-smollm2.png").is_file()
    most = max(row["resident (MB)"] for run in kept["learning"].values() for row in run)
    told = f"{kept['cost']['minutes']} minutes on two cores with other work beside it, {most / 1000:.1f} GB in training"
    assert told in page


def test_the_agents_of_a_real_model_agree_to_the_same_plan() -> None:
    kept = json.loads((ROOT / "docs/runs/planning-smollm2.json").read_text())
    trained = [kept["metrics"][f"selected, seed {seed}"]["differed"] for seed in range(3)]
    assert max(trained) == 0 < kept["metrics"]["base"]["differed"]
    misspelt, other = kept["failures of the selected teams"].values()
    failed = sum(1 - kept["metrics"][f"selected, seed {seed}"]["satisfied"] for seed in range(3))
    assert round(192 * failed) == misspelt + other
    page = " ".join((ROOT / "docs/planning.md").read_text().split())
    assert f"Of the {misspelt + other} plans that fail, {misspelt} have a misspelt word" in page
