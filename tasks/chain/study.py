"""A study's cells, its plan, and its page.

The results of cells are kept in the project as long as a new run of the cell would give the same results.  A cell is an
ordinary experiment in a workspace.  The workspace's own code computes its identity, that of all stages together, before
anything runs.  If results with the same identity are kept, the cell is not run again.
"""

import contextlib
import itertools
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_lib import storage
from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.evaluation.episodes import EpisodeRecord, value_of
from pipeline_lib.evaluation.looks import Look, looks_at
from pipeline_lib.evaluation.results import to_json
from pipeline_lib.locks import locked
from pipeline_lib.report.alarms import alarms
from pipeline_lib.settings import Params, SettingsError
from pipeline_lib.settings.base import result_settings
from pipeline_lib.settings.study import StudySettings, cell_params, cells_of, changes_of, load_study, reference_of
from pipeline_lib.storage import folder_digest, new_folder, read_json, write_json
from pipeline_lib.tracking import TrackedRun
from tasks.chain.graph import ChainError
from tasks.chain.workspaces import slug
from tasks.experiment.arms import IDENTITIES, PLAN_FILE, RESULTS, TEAM, TESTED, training_file
from tasks.experiment.check_run import check_reasons
from tasks.experiment.episode_files import BOUNDS, read_episodes, tested_file, tested_metrics
from tasks.looks.records import LOOKS, RecordsError, counted_since, records
from tasks.services.process_environment import child_environment, places

KEPT = "kept.json"

#: Sections of the settings that make a team; the others say how teams are judged.
_MAKING = ("environment", "problems", "policy", "rollouts", "sandbox", "train")


def cell_folder(study: str, cell: str) -> Path:
    """Return the folder of a cell's results; different names never share a folder."""
    return places().home / "studies" / study / f"{slug(cell) or 'cell'}-{storage.digest(cell)[:8]}"


@contextlib.contextmanager
def alone(study: str) -> Iterator[None]:
    """Let no other process run the study, which would run the same cells again.

    Raises:
        ChainError: another process is running it.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked(places().home / "studies" / f"{study}.lock", wait=False))
        except BlockingIOError:
            raise ChainError(
                f"the study {study} is running already; wait for it, or end it, and start this again"
            ) from None
        yield


def identity_of(workspace: Path) -> str:
    """Return the digest of everything that all results of a workspace depend on.

    Raises:
        ChainError: the settings are wrong, or the identity cannot be computed.
    """
    command = [sys.executable, "-m", "flows.identity", "--write"]
    done = subprocess.run(command, cwd=workspace, env=child_environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ChainError(f"{' '.join(command[1:])}: {done.stderr.strip()}")
    return folder_digest(workspace / IDENTITIES)


def kept(folder: Path, identity: str, seeds: Sequence[int]) -> bool:
    """Return whether ``folder`` has the complete, undamaged results of a cell with this identity."""
    try:
        record = read_json(folder / KEPT)
        undamaged = all(storage.file_digest(folder / name) == digest for name, digest in record["files"].items())
        return bool(record["identity"] == identity and undamaged and set(_files(seeds)) == set(record["files"]))
    except (OSError, KeyError, TypeError, storage.CorruptFileError):
        return False


def content_of(params: Params) -> str:
    """Return the digest of what a cell is: the settings that make its teams, however they are judged and named.

    Seeds do not count: who knows how some training runs of a cell ended knows something of all.
    """
    return storage.digest({section: result_settings(getattr(params, section)) for section in _MAKING})


def known_cells(study: str, settings: Mapping[str, Params]) -> list[str]:
    """Return the names of all cells of a study with stored results, of whatever study they were a cell then.

    All cells that the study had count, also those that it no longer has, by the name of the folder if the record is
    damaged; its present cells (``settings``, by name) count wherever results of the same settings are stored.
    """
    names = {content_of(params): cell for cell, params in settings.items()}
    cells = set()
    for path in (places().home / "studies").glob(f"*/*/{KEPT}"):
        of_this_study = path.parent.parent.name == study
        try:
            record = read_json(path)
            if cell := names.get(record["content"], str(record["cell"]) if of_this_study else ""):
                cells.add(cell)
        except (OSError, KeyError, TypeError, storage.CorruptFileError):
            if of_this_study:
                cells.add(path.parent.name)  # its results were known all the same
    return sorted(cells)


def keep(workspace: Path, study: str, cell: str, identity: str, seeds: Sequence[int], run: str, params: Params) -> None:
    """Copy a cell's results from a workspace into its folder, atomically."""
    files, folder = _files(seeds), cell_folder(study, cell)
    with new_folder(folder) as new:
        for name, source in files.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(workspace / source, new / name)
        digests = {name: storage.file_digest(new / name) for name in files}
        record = {"cell": cell, "content": content_of(params), "identity": identity, "run": run, "files": digests}
        write_json(new / KEPT, record)


def _files(seeds: Sequence[int]) -> dict[str, Path]:
    """Return the files of a cell's results: path in the workspace by name in its folder."""
    return {
        "verdict.json": RESULTS / "verdict.json",
        "plan.json": PLAN_FILE,
        "test/base.jsonl": tested_file(TEAM, "base"),
        f"test/{BOUNDS}": TESTED / BOUNDS,
        **{f"test/{(path := tested_file(TEAM, 'selected', seed)).name}": path for seed in seeds},
        **{f"train/{seed}.jsonl": training_file(TEAM, seed) for seed in seeds},
    }


def tested(folder: Path, seeds: Sequence[int]) -> dict[int, list[EpisodeRecord]]:
    """Return a kept cell's test episodes of the selected teams, by training seed."""
    return {seed: read_episodes(folder / "test" / tested_file(TEAM, "selected", seed).name) for seed in seeds}


PAGES = Path("studies")
"""Folder of the project with one folder per study, for its plan and its page."""


def fix_plan(path: Path, study: StudySettings, params: Params, known: Sequence[str]) -> list[dict[str, Any]]:
    """Write the plan, or add a version to it if it has changed; return all versions, for `plan_history`.

    Args:
        path: file of the plan.
        study: the study.
        params: settings of the reference cell; all cells have the same problems, evaluation and verdict.
        known: cells that already have results.
    """
    plan = {
        "question": study.question,
        "cells": {name: changes_of(study, name) for name in cells_of(study)},
        "reference": reference_of(study),
        "seeds": list(study.seeds),
        "test": "t over training runs and problems, crossed random effects; Holm over all comparisons",
        **{section: result_settings(getattr(params, section)) for section in ("problems", "evaluate", "verdict")},
    }
    versions: list[dict[str, Any]] = read_json(path)["versions"] if path.exists() else []
    if not versions or versions[-1]["plan"] != plan:
        written = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        versions.append({"written": written, "known": sorted(known), "plan": plan})
        write_json(path, {"versions": versions})
    return versions


def plan_history(versions: Sequence[dict[str, Any]], test_content: str) -> str:
    """Return sentences that say when the current one of a plan's versions was fixed, and what was known then.

    ``test_content`` is the digest of the test problems of all cells; looks at them count, whoever made them.
    """
    last = versions[-1]
    before, told = _looks(test_content, _moment(last["written"]))
    seen = "when none of its results was kept here" if before else "before any cell was run"
    if last["known"]:
        seen = f"when {len(last['known'])} of its cells were known ({', '.join(last['known'])})"
    if len(versions) == 1:
        return f"The plan was written on {last['written']}, {seen}, and kept. {told}"
    return (
        f"The plan was changed {len(versions) - 1} time{'s' if len(versions) > 2 else ''}, last on {last['written']}, "
        f"{seen}; its versions are in plan.json. {told}"
    )


def _looks(test_content: str, written: str) -> tuple[int, str]:
    """Return how many looks at the test problems were made before the plan was written, and sentences about all."""
    try:
        since = counted_since()
        every_look = [Look.from_json(value) for value in records(LOOKS)]
    except RecordsError as error:
        return 0, f"Looks at the test split of its cells are not counted: {error}."
    same = [look for look in every_look if look.plan.get("test_content") == test_content]
    looks = looks_at({problem for look in same for problem in look.problems}, every_look)
    before = [look for look in looks if _moment(look.time) < written]
    by = f" (by {', '.join(dict.fromkeys(look.run for look in before))})" if before else ""
    return len(before), (
        f"Looks at problems of this test split: {len(looks)}, of which {len(before)} before that{by}; the p values are "
        f"corrected for the study's comparisons, not for looks. {since}"
    )


def _moment(text: str) -> str:
    """Return a time in UTC in a form that can be compared, to the second."""
    return text[:19].replace("T", " ")


def write_page(
    name: str, study: StudySettings, settings: Mapping[str, Params], versions: Sequence[dict[str, Any]], folder: Path
) -> Path:
    """Compare the cells, write ``study.json`` and ``index.html`` to ``folder``, and return the page.

    Raises:
        EvaluationError: the cells cannot be compared.
        ChainError: they were evaluated on different problems.
    """
    plan = plan_history(versions, _same_problems(name, settings))
    first = settings[reference_of(study)]
    metric, level = first.evaluate.metric, 1 - first.verdict.alpha
    places = {cell: cell_folder(name, cell) for cell in settings}
    metrics = tested_metrics(first.environment.kind, places[reference_of(study)] / "test")
    info = describe(metric, metrics)
    episodes = {cell: tested(place, study.seeds) for cell, place in places.items()}
    # They load scipy, and the process that serves the forms lives without.
    from pipeline_lib.evaluation.study import cell_means, contrasts
    from pipeline_lib.report.study import StudyCell, StudyData, build_study

    means = cell_means(episodes, metric, info)
    levels = {cell: tuple(found.values()) for cell, found in cells_of(study).items()}
    found = contrasts(means, levels, reference_of(study), info, first.verdict)
    cells = []
    for cell, place in places.items():
        base = [
            value
            for record in read_episodes(place / "test/base.jsonl")
            if (value := value_of(record, metric)) is not None
        ]
        train = {seed: list(storage.read_jsonl(place / f"train/{seed}.jsonl")) for seed in study.seeds}
        cells.append(
            StudyCell(
                name=cell,
                base=float(np.mean(base)),
                mean=means.mean(cell, info, level),
                by_seed=means.by_seed(cell),
                train=train,
                run=storage.read_json(place / KEPT)["run"],
                further=_further(itertools.chain.from_iterable(episodes[cell].values()), metric),
                alarms=alarms(train),
            )
        )
    data = StudyData(
        name=name,
        question=study.question,
        reference=reference_of(study),
        cells=cells,
        contrasts=found,
        info=info,
        metric=metric,
        metrics=metrics,
        settings={cell: changes_of(study, cell) for cell in settings},
        plan=plan,
        design={
            "training seeds": ", ".join(map(str, study.seeds)),
            "problems": f"{means.clusters.size} of the test split, in {int(means.clusters.max()) + 1} families",
            "test": "difference of means, as a claim about new training runs and new problems (crossed random effects)",
            "correction": f"Holm over {len(found)} comparisons",
            "smallest difference that matters": info.difference(first.verdict.margin).lstrip("+"),
            "selection": f"for every run, the checkpoint that `{first.evaluate.select}` selects on validation problems",
        },
    )
    storage.write_json(
        folder / "study.json",
        {
            "question": study.question,
            "plan": plan,
            "design": data.design,
            "metric": metric,
            "label": info.label,
            "cells": {
                cell.name: {
                    "run": cell.run,
                    "base": cell.base,
                    "mean": to_json(cell.mean),
                    "by_seed": list(cell.by_seed),
                    "further": dict(cell.further),
                    "alarms": list(cell.alarms),
                }
                for cell in cells
            },
            "contrasts": [contrast.to_json() for contrast in found],
        },
    )
    page = folder / "index.html"
    build_study(data, page)
    return page


def _further(episodes: Iterable[EpisodeRecord], metric: str) -> dict[str, float]:
    """Return the means of the reward and of every metric of a cell's episodes, the primary one left out."""
    rewarded = [record for record in episodes if record.reward is not None]
    names = ["reward", *(rewarded[0].metrics if rewarded else ())]
    by_name = {name: [value for record in rewarded if (value := value_of(record, name)) is not None] for name in names}
    return {name: float(np.mean(values)) for name, values in by_name.items() if values and name != metric}


def _same_problems(name: str, cells: Iterable[str]) -> str:
    """Return the digest of the test problems of all cells.

    Raises:
        ChainError: cells were evaluated on different problems, because a file changed while the study ran.
    """
    contents = {}
    for cell in cells:
        plan = storage.read_json(cell_folder(name, cell) / "plan.json")
        contents[cell] = plan["validation_content"], plan["test_content"]
    first, *others = contents
    for cell in others:
        if contents[cell] != contents[first]:
            raise ChainError(
                f"the cells '{first}' and '{cell}' were evaluated on different problems: their source changed while "
                "the study ran; run it again, and only the cells with the older problems are repeated"
            )
    return str(contents[first][1])


def conclusion(page: Path) -> str:
    """Return the conclusions of a study: a sentence for each comparison, and the path of its page."""
    sentences = [str(contrast["sentence"]) for contrast in storage.read_json(page.parent / "study.json")["contrasts"]]
    return "\n".join([*sentences, "", f"The page: {page}"])


def record_study(page: Path, tracked: TrackedRun) -> None:
    """Record the results of a study in its MLflow run: numbers, verdicts and sentences, and the page."""
    result = storage.read_json(page.parent / "study.json")
    contrasts = result["contrasts"]
    numbers = {f"{c['name']}/{key}": c["test"][key] for c in contrasts for key in ("estimate", "p")}
    tracked.summary(numbers)
    tracked.tag({"verdict": ", ".join(f"{contrast['name']}: {contrast['verdict']}" for contrast in contrasts)})
    tracked.artifact(page.parent)
    sentences = "\n".join(f"- {contrast['sentence']}" for contrast in contrasts)
    tracked.describe(f"{result['question']}\n\n{sentences}", page.name)


STUDIES = Path("conf/studies")


def read_study(name_or_file: str) -> tuple[str, StudySettings, dict[str, Params]]:
    """Return the name of a study (a file, or the name of one in `STUDIES`), its settings, and those of its cells.

    Raises:
        SettingsError: there is no such study, or its settings are wrong.
    """
    given = Path(name_or_file)
    path = given if given.suffix in (".yaml", ".yml") else STUDIES / f"{name_or_file}.yaml"
    study, project = load_study(path), Path.cwd()
    settings = {cell: cell_params(study, cell, project / "params.yaml", project / "conf") for cell in cells_of(study)}
    for params in settings.values():
        check_reasons(params)
    check_same_evaluation(settings)
    refuse_equal(settings)
    return path.stem, study, settings


def check_same_evaluation(settings: Mapping[str, Params]) -> None:
    """Check that all cells are evaluated with the same settings.

    Raises:
        SettingsError: a factor changes how teams are evaluated.
    """
    first, *others = settings.items()
    sections = ["evaluate", "verdict", "problems", "sandbox"]
    if first[1].evaluate.metric == "reward":
        sections.append("environment")  # another reward is another scale
    for section in sections:
        for name, params in others:
            if result_settings(getattr(params, section)) != result_settings(getattr(first[1], section)):
                raise SettingsError(
                    f"the cells '{first[0]}' and '{name}' differ in {section}; settings that judge teams must be "
                    "the same in all cells: put them under changes"
                )


def refuse_equal(settings: Mapping[str, Params]) -> None:
    """Refuse cells whose results are the same by construction.

    Raises:
        SettingsError: two cells differ at most in settings of the machine.
    """
    for (one, its), (other, theirs) in itertools.combinations(settings.items(), 2):
        if result_settings(its) == result_settings(theirs):
            raise SettingsError(
                f"the cells '{one}' and '{other}' have the same settings, so there is nothing to compare; change a "
                "level, or remove it"
            )
