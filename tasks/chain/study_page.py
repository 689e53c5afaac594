"""The result of a study, computed from the results of its cells: ``study.json`` and a page."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_lib import storage
from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.metrics import value_of
from pipeline_lib.evaluation.results import to_json
from pipeline_lib.evaluation.study import cell_means, contrasts
from pipeline_lib.monitors.history import alarms
from pipeline_lib.report.study import StudyCell, StudyData, build_study
from pipeline_lib.settings import Params
from pipeline_lib.settings.study import StudySettings, cells_of, changes_of, reference_of
from pipeline_lib.tracking import TrackedRun
from tasks.chain.cells import KEPT, cell_folder, tested
from tasks.chain.graph import ChainError
from tasks.chain.study_plan import plan_history
from tasks.experiment.episode_files import read_episodes, tested_metrics


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
    known = [record for record in episodes if record.reward is not None]
    names = ["reward", *(known[0].metrics if known else ())]
    found = {name: [value for record in known if (value := value_of(record, name)) is not None] for name in names}
    return {name: float(np.mean(values)) for name, values in found.items() if values and name != metric}


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
    tracked.summary({name: value for name, value in numbers.items() if value is not None})
    tracked.tag({"verdict": ", ".join(f"{contrast['name']}: {contrast['verdict']}" for contrast in contrasts)})
    tracked.artifact(page.parent)
    sentences = "\n".join(f"- {contrast['sentence']}" for contrast in contrasts)
    tracked.describe(f"{result['question']}\n\n{sentences}", page.name)
