"""Explain what a stage's result depends on, what differs between two runs, and why a stage is stale."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from pipeline_lib.identity.differences import differences
from pipeline_lib.settings import load_params
from pipeline_lib.settings.base import machine_settings
from pipeline_lib.storage import digest
from tasks.chain.graph import ChainError, ask
from tasks.chain.workspaces import git
from tasks.experiment.arms import IDENTITIES, planned_seeds
from tasks.identity.dvc_record import contradiction
from tasks.identity.stages import STAGES, identity_of
from tasks.runtime.arguments import ArgumentError

_FRESH = "up to date"


def explain(project: Path, stage: str | None, seed: int | None, runs: Sequence[str], as_json: bool) -> str:
    """Return the output of ``python -m flows.identity``.

    Args:
        project: folder with ``dvc.yaml``.
        stage: name in `STAGES`; None for all that have changed.
        seed: training seed of a stage that exists once per seed; by default the first one.
        runs: none: compare the working tree with the last run; one: that run with the working tree; two: one with the
            other.  A run is the name of an experiment, a branch or a commit.
        as_json: return only the identity, as JSON.

    Raises:
        ArgumentError: there is no such run.
        ChainError: it never ran the stage.
    """
    if stage is None:
        return _all(project)
    if as_json:
        return json.dumps(identity_of(stage), indent=2, ensure_ascii=False)
    name = f"{stage}@{seed}" if seed is not None else next(iter(_planned(project, stage)), stage)
    if runs:
        sides = [(run, *_recorded(project, name, run)) for run in runs]
        if len(sides) == 1:
            sides.append(("the working tree", identity_of(stage), _present(project, name)))
        (first, old, old_inputs), (second, new, new_inputs) = sides
        lines = _compared(old, new, old_inputs, new_inputs)
        return "\n".join([f"{name}: {first} -> {second}", *(f"  {line}" for line in lines or ["no difference"])])
    return "\n".join([_shown(stage, name), *_stale(project, name, stage)])


def _all(project: Path) -> str:
    lines = []
    for stage in STAGES:
        for name in _planned(project, stage):
            if (reasons := _reasons(project, name, stage)) != [_FRESH]:
                lines += [f"{name} is stale", *(f"  {reason}" for reason in reasons)]
    return "\n".join(lines) or "no stage is stale"


def _shown(stage: str, name: str) -> str:
    identity = identity_of(stage)
    out = io.StringIO()
    console = Console(file=out, width=120, highlight=False)
    console.print(f"[bold]{name}[/bold]  identity {digest(identity)[:16]}")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for section, values in identity["settings"].items():
        for key, value in values.items():
            table.add_row(f"{section}.{key}", json.dumps(value, ensure_ascii=False))
    for part in ("versions", "named", "content"):
        for key, value in identity[part].items():
            files = value.items() if isinstance(value, Mapping) else [("", value)]
            for file, found in files:
                table.add_row(f"{part} {key} {file}".rstrip(), str(found)[:16])
    for module, found in identity["code"].items():
        table.add_row(f"code {module}", found[:16])
    console.print(table)
    machine = ", ".join(f"{key} {json.dumps(value)}" for key, value in machine_settings(load_params()))
    console.print(f"settings of the machine (not part of the identity): {machine}", style="dim")
    return out.getvalue().rstrip()


def _stale(project: Path, name: str, stage: str) -> list[str]:
    reasons = _reasons(project, name, stage)
    if reasons == [_FRESH]:
        return [f"{name} is up to date"]
    return [f"{name} is stale:", *(f"  {reason}" for reason in reasons)]


def _reasons(project: Path, name: str, stage: str) -> list[str]:
    """Return the reasons for which DVC would run the stage, one line each; ``[_FRESH]`` if it would not."""
    if name not in _lock(project, None):
        return ["it has not run yet"]
    old, old_inputs = _recorded(project, name, None)
    lines = _compared(old, identity_of(stage), old_inputs, _present(project, name))
    lines += [f"output {path} is missing or changed" for path in _outputs_changed(project, name)]
    others = contradiction(name, _lock(project, None)[name])
    lines += [f"it was not made with {path}, as dvc.lock says (`dvc commit --force`?)" for path in others]
    return lines or [_FRESH]


def _compared(
    old: Mapping[str, Any], new: Mapping[str, Any], old_inputs: Mapping[str, str], new_inputs: Mapping[str, str]
) -> list[str]:
    lines = differences(old, new)
    for path in sorted({*old_inputs, *new_inputs}):
        if old_inputs.get(path) != new_inputs.get(path):
            lines.append(f"input {path} differs")
    return lines


def _planned(project: Path, stage: str) -> list[str]:
    """Return DVC's names of a stage: one, or one per training seed."""
    entry = yaml.safe_load((project / "dvc.yaml").read_text(encoding="utf-8"))["stages"][stage]
    arm = STAGES[stage].arm
    return [f"{stage}@{seed}" for seed in planned_seeds(arm)] if "matrix" in entry else [stage]


def _lock(project: Path, run: str | None) -> dict[str, Any]:
    """Return the stages of ``dvc.lock`` in the working tree, or in a run."""
    if run is None:
        path = project / "dvc.lock"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    else:
        revision = run
        for ref in git(project, "for-each-ref", "--format=%(refname)", "refs/exps/").splitlines():
            if ref.endswith(f"/{run}"):
                revision = ref
        try:
            text = git(project, "show", f"{revision}:dvc.lock")
        except ChainError:
            raise ArgumentError(
                f"{run}: there is no experiment, branch or commit of this name with a dvc.lock; "
                "`dvc exp list --all` names the experiments"
            ) from None
    return dict((yaml.safe_load(text) or {}).get("stages", {}))


def _recorded(project: Path, name: str, run: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the identity under which a stage ran last, and DVC's digests of its other inputs."""
    stages = _lock(project, run)
    if name not in stages:
        raise ChainError(f"{run or 'dvc.lock'}: the stage {name} has not run there")
    inputs = {item["path"]: item["md5"] for item in stages[name].get("deps", [])}
    own = (IDENTITIES / f"{name.partition('@')[0]}.json").as_posix()
    return _from_cache(project, inputs.pop(own, ""), f"the identity of {name} in {run or 'dvc.lock'}"), inputs


def _from_cache(project: Path, md5: str, what: str) -> dict[str, Any]:
    cache = project / _cache(project) / "files" / "md5" / md5[:2] / md5[2:]
    try:
        return dict(json.loads(cache.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise ChainError(f"{what} is not in DVC's cache; `dvc fetch` or run the stage again") from None


def _present(project: Path, name: str) -> dict[str, str]:
    """Return DVC's digests of a stage's other inputs as they are in the working tree now."""
    inputs = {}
    for path, md5 in _recorded(project, name, None)[1].items() if name in _lock(project, None) else ():
        inputs[path] = md5
    for change in _status(project, name):
        for path in change.get("changed deps", {}):
            inputs[path] = "changed"
    inputs.pop((IDENTITIES / f"{name.partition('@')[0]}.json").as_posix(), None)
    return inputs


def _outputs_changed(project: Path, name: str) -> list[str]:
    return [path for change in _status(project, name) for path in change.get("changed outs", {})]


def _status(project: Path, name: str) -> list[dict[str, Any]]:
    return [change for change in _whole_status(project).get(name, []) if isinstance(change, dict)]


@functools.cache
def _whole_status(project: Path) -> dict[str, Any]:
    return dict(json.loads(ask(project, "status", "--json") or "{}"))


@functools.cache
def _cache(project: Path) -> str:
    return ask(project, "cache", "dir").strip()
