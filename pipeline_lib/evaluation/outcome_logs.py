"""Logs of other programs, each turned into rows of cells."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline_lib import storage
from pipeline_lib.evaluation.cells import cell_of, label_of, list_of, number_of, object_of
from pipeline_lib.evaluation.outcomes import OutcomesError
from pipeline_lib.evaluation.table_files import Rows, content_of, json_of, text_of

#: Values of Inspect's scorers, as its own `value_to_float` reads them.
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "no": 0.0}


def lm_eval(path: Path, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Rows:
    """Samples of lm-eval (``--log_samples``): the folder names the model, the file the task.

    A problem is its number and the digest of its text, so other problems under the same number are not paired.
    """
    task = path.stem.removeprefix("samples_").rpartition("_")[0] or path.stem
    filters = {str(row.get("filter")) for _, row in rows}
    found, metrics = [], set()
    for place, row in rows:
        cells = dict(row)
        for metric in list_of(place, row, "metrics"):
            name = f"{metric},{row['filter']}" if len(filters) > 1 else str(metric)
            cells[name] = cell_of(place, row, str(metric))
            metrics.add(name)
        cells["problem"] = f"{task}/{cell_of(place, row, 'doc_id')}/{str(cell_of(place, row, 'doc_hash'))[:8]}"
        cells["system"] = path.absolute().parent.name
        found.append((place, cells))
    return Rows(path.name, found, {"problem": "problem", "system": "system"}, sorted(metrics))


def verifiers(path: Path, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Rows:
    """Results of verifiers' ``vf-eval --save-results``: environment and model are in ``metadata.json`` beside them.

    A problem is environment, number and digest of the prompt: another split of the data has other problems under the
    same numbers.  System messages are left out of the digest, so two system prompts can be compared.
    """
    beside = path.with_name("metadata.json")
    if not beside.is_file():
        raise OutcomesError(f"{path}: verifiers' metadata.json, which names model and environment, is not beside it")
    about = json_of(str(beside), text_of(beside))
    for name in ("env_id", "model"):
        if not isinstance(about, dict) or not isinstance(about.get(name), str) or not about[name].strip():
            raise OutcomesError(f"{beside}: {name!r} is missing")
    folder = path.absolute().parent.name  # every file is called results.jsonl
    found = []
    for line, row in rows:
        place = f"{folder}/{line}"
        cells = dict(row)
        scores = cell_of(place, row, "metrics")
        if not isinstance(scores, Mapping):
            raise OutcomesError(f"{place}: 'metrics' is not an object")
        cells |= {**scores, "reward": cell_of(place, row, "reward")}
        if row.get("error"):
            # verifiers gives a rollout that broke off 0 for everything, which nobody measured: it is lost.
            cells |= dict.fromkeys([*scores, "reward"])
        prompt = cell_of(place, row, "prompt")
        if isinstance(prompt, list):
            prompt = [said for said in prompt if not isinstance(said, Mapping) or said.get("role") != "system"]
        number = label_of(place, row, "example_id")
        cells["problem"] = f"{about['env_id']}/{number}/{storage.digest(prompt)[:8]}"
        cells["system"] = about["model"]
        found.append((place, cells))
    sizes = about.get("num_examples"), about.get("rollouts_per_example")
    notes = []
    if all(isinstance(size, int) for size in sizes) and len(rows) != sizes[0] * sizes[1]:
        notes.append(f"{path}: {len(rows)} rollouts, where metadata.json says {sizes[0]} examples of {sizes[1]} each")
    known = {"problem": "problem", "system": "system", "value": "reward"}
    return Rows(f"{folder}/{path.name}", found, known, notes=notes)


def verifiers_traces(path: Path, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Rows:
    """Episodes of verifiers from 0.4 on: each has the traces of its agents, with their rewards and metrics.

    A problem is the environment and the key of the task (the digest of its data), the system the models of the agents.
    Of several agents the reward of each is a metric, ``solver/reward``, since no reward of the team is recorded.
    """
    folder, found, metrics = path.absolute().parent.name, [], dict[str, None]()
    for line, row in rows:
        place, cells, models = f"{folder}/{line}", dict[str, Any](), dict[str, str]()
        traces = [object_of(place, {"trace": trace}, "trace") for trace in list_of(place, row, "traces")]
        for trace in traces:
            agent = object_of(place, trace, "agent")
            name = label_of(place, agent, "name")
            models[name] = label_of(place, object_of(place, agent, "config"), "model")
            rewards = {
                key: None if given is None else object_of(place, {key: given}, key)
                for key, given in object_of(place, trace, "rewards").items()
            }
            values = object_of(place, trace, "metrics") | {
                key: given and number_of(place, given, "score") for key, given in rewards.items()
            }
            paid = [
                number_of(place, each, "score") * number_of(place, each, "weight") for each in rewards.values() if each
            ]
            values["reward"] = sum(paid) if paid and len(paid) == len(rewards) else None
            prefix = f"{name}/" if len(traces) > 1 else ""
            for key, value in values.items():
                # What ended with an error was not measured: it is lost.
                cells[f"{prefix}{key}"] = value if cell_of(place, row, "ok") is True else None
        metrics |= dict.fromkeys(cells)
        task, env = object_of(place, row, "task"), object_of(place, row, "env")
        cells["problem"] = f"{label_of(place, env, 'id')}/{label_of(place, task, 'key')[:12]}"
        cells["system"] = " + ".join(dict.fromkeys(models.values()))
        found.append((place, cells))
    known = {"problem": "problem", "system": "system"} | ({"value": "reward"} if "reward" in metrics else {})
    filled = [(place, dict.fromkeys(metrics) | cells) for place, cells in found]
    return Rows(f"{folder}/{path.name}", filled, known, sorted(metrics))


def trl(path: Path, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Rows:
    """Completions of TRL's trainers (``log_completions``): a problem is a prompt, every reward function a metric."""
    own = {"step", "prompt", "completion", "advantage"}
    metrics = [name for name, value in rows[0][1].items() if name not in own and isinstance(value, float | None)]
    found = [(place, {**row, "problem": storage.digest(row["prompt"])[:12]}) for place, row in rows]
    notes = [
        f"{path.name}: these completions were sampled during training, by weights that change from step to step; "
        "they do not show how a finished system does on problems that it was not trained on"
    ]
    return Rows(path.name, found, {"problem": "problem"}, metrics, notes)


def inspect_log(path: Path) -> Mapping[str, Any]:
    """Return an ``.eval`` file as its JSON, read by Inspect itself: the format is its own."""
    try:
        log = importlib.import_module("inspect_ai.log")
    except ImportError:
        raise OutcomesError(
            f"{path.name}: reading .eval files needs Inspect; pip install inspect-ai, or convert the log to JSON with "
            "`inspect log convert --to json`"
        ) from None
    content_of(path)
    try:
        return dict(log.read_eval_log(str(path)).model_dump(mode="json"))
    except Exception as error:  # whatever its parsers raise, the file is what is wrong
        raise OutcomesError(f"{path.name}: Inspect cannot read this log ({type(error).__name__}: {error})") from None


def inspect(path: Path, log: Mapping[str, Any]) -> Rows:
    """A log of Inspect: a sample is a problem, an epoch one of its samples, every scorer a metric."""
    about = log["eval"]
    if not isinstance(about, Mapping) or not isinstance(log["samples"], list) or not log["samples"]:
        raise OutcomesError(f"{path.name}: the log has no samples")
    found: list[tuple[str, Mapping[str, Any]]] = []
    metrics: dict[str, None] = {}
    for number, sample in enumerate(log["samples"], start=1):
        place = f"{path.name}, sample {number}"
        if not isinstance(sample, Mapping):
            raise OutcomesError(f"{place}: not an object")
        cells: dict[str, Any] = dict(sample.get("metadata") or {})
        for scorer, score in (sample.get("scores") or {}).items():
            value = score.get("value") if isinstance(score, Mapping) else score
            parts = value.items() if isinstance(value, Mapping) else [("", value)]
            for part, grade in parts:
                name = f"{scorer}.{part}" if part else str(scorer)
                cells[name] = _GRADES.get(grade, grade) if isinstance(grade, str) else grade
                metrics[name] = None
        cells |= {
            "problem": f"{about.get('task', '')}/{cell_of(place, sample, 'id')}",
            "sample": cell_of(place, sample, "epoch"),
            "system": str(about.get("model", "")),
        }
        found.append((place, cells))
    # A sample that ended with an error has no score: it is lost.
    found = [(place, {**dict.fromkeys(metrics), **cells}) for place, cells in found]
    notes = [] if log["status"] == "success" else [f"{path.name}: Inspect's log has the status {log['status']!r}"]
    known = {name: name for name in ("problem", "system", "sample")}
    return Rows(path.name, found, known, list(metrics), notes)
