"""Claims of the README that a program can check: figures are those of the measurements, counts those of the code."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement

from benchmarks import studies
from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.comparison import Basis
from pipeline_lib.evaluation.sentences import rare_families
from symposium.cli import PROGRAMS
from tasks.chain.form import OFTEN_CHANGED
from tasks.use.exporting import _ADAPTER, _FULL, _LOCAL

ROOT = Path(__file__).parents[1]
INFO = Metric("hidden tests passed", share=True)
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
COUNTS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}


def said(pattern: str) -> str:
    """Return what stands in the README at the group of a pattern, which must occur."""
    found = re.search(pattern, README)
    assert found, f"the README no longer says {pattern!r}; correct this test with it"
    return found[1]


def test_every_figure_of_the_tables_stands_in_the_measurement_that_its_row_names() -> None:
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if re.match(r"\|.* times the ", line)]
    source, checked = "", 0
    for row in rows:
        source = next(iter(re.findall(r"\((benchmarks/results/\w+\.md)\)", row)), source)
        measured = (ROOT / source).read_text()
        for figure in re.findall(r"\d+(?:\.\d+)?", row.split("|")[-2].replace(" 2 GB", "")):
            assert re.search(rf"(?<![\d.]){figure}(?![\d.]*\d)", measured), f"{figure}, in {row}, is not in {source}"
            checked += 1
    assert len(rows) == 6 and checked >= 8


def test_the_result_of_an_environment_is_that_of_its_page() -> None:
    told = {
        "writing": r"they tell (39\.6) % of its facts -> (98\.8) %",
        "modules": r"system tests passed: (10\.1) % -> (93\.4) %",
        "philosophers": r"learns to avoid deadlocks: (80\.9) % -> 0",
    }
    for page, pattern in told.items():
        figures = [figure for found in re.finditer(pattern, README) for figure in found.groups() if figure]
        assert figures, page
        text = (ROOT / f"docs/{page}.md").read_text()
        assert all(f"{figure} %" in text for figure in figures), (page, figures)


def test_counts_are_those_of_the_project() -> None:
    assert COUNTS[said(r"the (\w+) settings that are changed most often")] == len(OFTEN_CHANGED)
    assert COUNTS[said(r"(\w+) notebooks:").lower()] == len(list((ROOT / "docs/notebooks").glob("*.ipynb")))
    assert set(re.findall(r"`symposium (\w+)", README)) <= set(PROGRAMS)
    assert said(r"Python ([\d.]+) or newer") in (ROOT / "pyproject.toml").read_text()


def test_files_that_pages_name_are_there() -> None:
    folders = ("pipeline_lib", "tasks", "flows", "symposium", "benchmarks", "scripts", "tests", "docs", "conf")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*")] + list(ROOT.glob("*.*"))
    there = {"/" + path.relative_to(ROOT).as_posix() for path in files}
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    named = [
        (page.name, name) for page in pages for name in re.findall(r"`([\w./-]+\.(?:py|yaml|j2))`", page.read_text())
    ]
    assert len(named) > 40
    assert not [(page, name) for page, name in named if not any(path.endswith(f"/{name}") for path in there)]


def test_an_exported_team_needs_only_the_libraries_that_the_readme_names() -> None:
    imported = set(re.findall(r"^(?:from|import) (\w+)", "\n".join((_LOCAL, _FULL, _ADAPTER)), re.M))
    named = set(re.findall(r"\w+", said(r"python load\.py # needs only ([^;]+);")))
    assert imported - set(sys.stdlib_module_names) == named - {"for", "adapters", "too"}


def test_every_place_of_the_projects_local_state_is_listed() -> None:
    (listed,) = re.findall(r"^\.symposium/\n((?:  .*\n)+)", (ROOT / "docs/orchestration.md").read_text(), re.M)
    named = set(re.findall(r"^  ([\w.]+)/? ", listed, re.M))
    parts = ("tasks", "flows", "pipeline_lib")
    code = "".join(path.read_text() for part in parts for path in (ROOT / part).rglob("*.py"))
    made = re.findall(r'(?:places\(\)|self)\.home / "([\w.]+)"|"\.symposium(?:/|", ")([\w.]+)', code)
    assert {name for pair in made for name in pair if name} == named


def test_a_gpu_machine_needs_only_the_packages_that_the_readme_names(tmp_path: Path) -> None:
    """The library is imported where nothing else can be."""
    named = re.findall(r"\w+", said(r"a GPU machine needs only ([\w, ]+)\.").replace(" and ", " "))
    allowed: set[str] = set()
    waiting = list(named)
    while waiting:
        if (name := re.sub(r"[-_.]+", "-", waiting.pop()).lower()) in allowed:
            continue
        allowed.add(name)
        for text in requires(name) or ():
            needed = Requirement(text)
            if not needed.marker or needed.marker.evaluate({"extra": ""}):
                waiting.append(needed.name)
    hidden = sorted(
        module
        for module, names in packages_distributions().items()
        if not {re.sub(r"[-_.]+", "-", name).lower() for name in names} & allowed
        and module not in ("symposium", "pipeline_lib", "tasks", "flows", "tests")
    )
    program = f"""
import sys
for name in {hidden!r}:
    sys.modules[name] = None
import pipeline_lib.assembly.auditing, pipeline_lib.assembly.training, pipeline_lib.assembly.players
import pipeline_lib.evaluation.run, pipeline_lib.evaluation.selection, pipeline_lib.evaluation.verdict
import pipeline_lib.policies.lora, pipeline_lib.policies.pretrained, pipeline_lib.policies.warm_start
import pipeline_lib.training.trainer, symposium
symposium.train, symposium.sweep, symposium.compare, symposium.audit, symposium.Experiment("lab", "philosophers")
"""
    assert "mlflow" in hidden and "prefect" in hidden and "dvc" in hidden
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_verdicts_of_real_models_are_those_of_their_kept_runs() -> None:
    page = " ".join((ROOT / "docs/real-models.md").read_text().split()).replace(" > ", " ")
    for name in ("coding", "writing"):
        kept = json.loads((ROOT / f"docs/runs/{name}-smollm2.json").read_text())
        assert kept["verdict"][0] in page and kept["command"] in page
        assert kept["cost"]["most memory of a process"] in page
        assert f"runs/{name}-smollm2.png" in page and (ROOT / f"docs/runs/{name}-smollm2.png").is_file()
    coding = json.loads((ROOT / "docs/runs/coding-smollm2.json").read_text())
    assert coding["verdict"][0] in README.replace(" > ", " ") and coding["command"] in README
    minutes = coding["cost"]["wall clock of the command"].partition(" min")[0]
    assert f"in {minutes} minutes" in README and f"took {minutes} minutes" in page


def test_verdicts_of_kept_studies_and_runs_allow_for_kinds_of_family_that_are_missing() -> None:
    page = studies.document()
    assert studies.DOC.read_text(encoding="utf-8") == page
    checked = 0
    for path in sorted((ROOT / "docs/studies").glob("*.json")):
        for c in json.loads(path.read_text())["contrasts"]:
            test, corrected = c["test"], (c["p_adjusted"], c["equivalence_p_adjusted"])
            found = Basis((test["estimate"],), *corrected, test["n"][-1], INFO, 0.05, 0.05, len(c["cells"][0]))
            assert c["verdict"] == found.verdict() and c["sentence"].startswith(f"{c['verdict']}: "), c["name"]
            assert c["sentence"].endswith(rare_families(found, c["verdict"])), c["name"]
            numbers = (INFO.difference(test[key]).removesuffix(" points") for key in ("estimate", "low"))
            assert f"{c['verdict']}: {' ('.join(numbers)} to " in page, c["sentence"]
            checked += 1
    for path in (ROOT / "docs/runs").glob("*.json"):
        kept = json.loads(path.read_text())
        families = re.search(r"problems in (\d+) families", " ".join(kept["caveats"]))
        for c in kept["comparisons"] if families else ():
            if isinstance(c["p (Holm)"], float) and c["verdict"] != "INCONCLUSIVE":
                same = 0.0 if c["verdict"] == "EQUIVALENT" else None
                found = Basis((c["difference"],), c["p (Holm)"], same, int(families[1]), INFO, 0.05, 0.05)
                assert found.verdict() == c["verdict"], (path.name, c["against"])
                checked += 1
    assert checked > 30


def test_the_page_of_studies_says_the_verdicts_that_they_have() -> None:
    sections = dict(re.findall(r"^### (.+)\n\n((?:.+\n|\n(?!#))+)", (ROOT / "docs/studies.md").read_text(), re.M))
    told = {
        "Group size": ["group-size"],
        "Shared or separate weights": ["sharing"],
        "KL penalty": ["kl"],
        "Credit plans": ["credit-equal-tokens", "credit-equal-executions"],
        "The first experiments": ["first-experiments"],
        "A large and a small agent": ["pairs"],
        "Three rewards": ["reward"],
        "Turns and feedback": ["turns"],
        "Own rewards": ["own-rewards-coding", "own-rewards-philosophers", "own-rewards-modules"],
    }
    assert list(sections) == list(told)
    assert {name for names in told.values() for name in names} == {
        path.stem for path in (ROOT / "docs/studies").glob("*.json")
    }
    for title, names in told.items():
        kept = [json.loads((ROOT / f"docs/studies/{name}.json").read_text()) for name in names]
        found = set(re.findall(r"\b(IMPROVED|WORSE|EQUIVALENT|INCONCLUSIVE)\b", sections[title]))
        assert found == {contrast["verdict"] for one in kept for contrast in one["contrasts"]}, title
