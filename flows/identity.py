"""Show what a result depends on, and why a stage is stale.

symposium identity train --seed 0            # what the identity contains, and what has changed since the stage ran
symposium identity train --compare brave-owl # a run (experiment, branch, commit) and the working tree
symposium identity train --compare a b       # two runs
symposium identity --write                   # the first stage of dvc.yaml: one identity per stage
"""

import argparse
import functools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipeline_lib.settings import load_params
from pipeline_lib.settings.base import machine_settings
from pipeline_lib.storage import digest
from tasks.chain.graph import ChainError, ask
from tasks.chain.workspaces import git
from tasks.experiment.arms import IDENTITIES
from tasks.experiment.check_run import refuse_lost_overrides
from tasks.identity.dvc_record import Lock, content_of, contradiction, identity_file, read_lock, recorded
from tasks.identity.files import changed_identities, differences, made_with_other_libraries, write_identities
from tasks.identity.stages import STAGES, identity_of, planned
from tasks.runtime.arguments import SEEDS, ArgumentError, fit, one_of, program_parser, whole
from tasks.runtime.exit_status import explained


def explain(stage: str | None, seed: int | None, runs: Sequence[str], as_json: bool) -> str:
    """Return the output of ``python -m flows.identity`` in the folder of a project.

    Args:
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
        lines = []
        for name in [name for stage in STAGES for name in planned(stage)]:
            if reasons := _reasons(name):
                lines += [f"{name} is stale", *(f"  {reason}" for reason in reasons)]
        return "\n".join(lines) or "no stage is stale"
    name = f"{stage}@{seed}" if seed is not None else next(iter(planned(stage)), stage)
    if as_json:
        return json.dumps(identity_of(name), indent=2, ensure_ascii=False)
    if runs:
        sides = [(run, *_of_run(name, run)) for run in runs]
        if len(sides) == 1:
            sides.append(("the working tree", identity_of(name), _present_inputs(name)))
        (first, old, old_inputs), (second, new, new_inputs) = sides
        lines = _compared(old, new, old_inputs, new_inputs) or ["no difference"]
        return "\n".join([f"{name}: {first} -> {second}", *(f"  {line}" for line in lines)])
    reasons = _reasons(name)
    said = [f"{name} is stale:", *(f"  {reason}" for reason in reasons)] if reasons else [f"{name} is up to date"]
    return "\n".join([_shown(name), *said])


def _shown(name: str) -> str:
    identity = identity_of(name)
    lines = [f"{name}  identity {digest(identity)[:16]}"]
    for section, values in identity["settings"].items():
        for key, value in values.items():
            lines.append(f"{f'{section}.{key}':<30} {json.dumps(value, ensure_ascii=False)}")
    for part in ("versions", "named", "content"):
        for key, value in identity[part].items():
            for file, text in value.items() if isinstance(value, Mapping) else [("", value)]:
                lines.append(f"{f'{part} {key} {file}'.rstrip():<66} {str(text)[:13]}")
    lines += [f"{f'code {module}':<66} {code[:13]}" for module, code in identity["code"].items()]
    machine = ", ".join(f"{key} {json.dumps(value)}" for key, value in machine_settings(load_params()))
    return "\n".join([*lines, f"settings of the machine (not part of the identity): {machine}"])


def _reasons(name: str) -> list[str]:
    """Return the reasons for which DVC would run the stage, one line each; none if it would not."""
    lock = read_lock() or {}
    if name not in lock:
        return ["it has not run yet"]
    old, old_inputs = _of_run(name)
    lines = _compared(old, identity_of(name), old_inputs, _present_inputs(name))
    lines += [f"output {path} is missing or changed" for path in _changed(name, "outs")]
    others = contradiction(name, lock[name])
    return lines + [f"it was not made with {path}, as dvc.lock says (`dvc commit --force`?)" for path in others]


def _compared(
    old: Mapping[str, Any], new: Mapping[str, Any], old_inputs: Mapping[str, str], new_inputs: Mapping[str, str]
) -> list[str]:
    paths = sorted({*old_inputs, *new_inputs})
    return differences(old, new) + [f"input {p} differs" for p in paths if old_inputs.get(p) != new_inputs.get(p)]


def _of_run(name: str, run: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """Return the identity under which a run, by default the last one here, made a stage, and its inputs' digests."""
    where, lock = run or "dvc.lock", _lock_of(run) if run else read_lock() or {}
    if name not in lock:
        raise ChainError(f"{where}: the stage {name} has not run there")
    inputs = recorded(lock[name], "deps")
    # Runs of an earlier version have one file for all training seeds.
    file = next((Path(path) for path in inputs if Path(path).parent == IDENTITIES), identity_file(name))
    content = content_of(file, inputs.pop(file.as_posix(), ""))
    if content is None:
        raise ChainError(f"the identity of {name} in {where} is not in DVC's cache; `dvc fetch` or run the stage again")
    return dict(json.loads(content)), inputs


def _lock_of(run: str) -> Lock:
    """Return the stages in ``dvc.lock`` of an experiment, a branch or a commit."""
    refs = git(Path.cwd(), "for-each-ref", "--format=%(refname)", "refs/exps/").splitlines()
    revision = next((ref for ref in reversed(refs) if ref.endswith(f"/{run}")), run)
    try:
        text = git(Path.cwd(), "show", f"{revision}:dvc.lock")
    except ChainError:
        raise ArgumentError(
            f"{run}: there is no experiment, branch or commit of this name with a dvc.lock; "
            "`dvc exp list --all` names the experiments"
        ) from None
    return dict((yaml.safe_load(text) or {}).get("stages", {}))


def _present_inputs(name: str) -> dict[str, str]:
    """Return DVC's digests of a stage's inputs as they are in the working tree now; none if it has not run."""
    inputs = _of_run(name)[1] if name in (read_lock() or {}) else {}
    changed = [path for path in _changed(name, "deps") if Path(path) != identity_file(name)]
    return inputs | dict.fromkeys(changed, "changed")


def _changed(name: str, kind: str) -> list[str]:
    """Return the paths of a stage's ``deps`` or ``outs`` that DVC reports as changed."""
    changes = [item for item in _status().get(name, []) if isinstance(item, dict)]
    return [path for item in changes for path in item.get(f"changed {kind}", {})]


@functools.cache
def _status() -> dict[str, Any]:
    return dict(json.loads(ask(Path.cwd(), "status", "--json") or "{}"))


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("identity", __doc__)
    reader.add_argument(
        "stage",
        nargs="?",
        type=one_of("stage", STAGES),
        choices=STAGES,
        metavar="stage",
        help=f"one of {', '.join(STAGES)} (default: all that have changed)",
    )
    reader.add_argument("--seed", type=whole(*SEEDS), help="training seed, for stages that exist once per seed")
    reader.add_argument(
        "--compare", nargs="+", metavar="RUN", help="compare one run with the working tree, or two runs"
    )
    reader.add_argument("--json", action="store_true", help="print the identity as JSON")
    reader.add_argument("--changed", action="store_true", help="print only the names of stages that have changed")
    reader.add_argument("--write", action="store_true", help="write results/identity/, like the stage identity")
    return reader


def parse() -> argparse.Namespace:
    """Read the command line."""
    reader = parser()
    asked = reader.parse_args()
    if asked.compare and len(asked.compare) > 2:
        reader.error("--compare takes one or two runs")
    if (asked.compare or asked.seed is not None or asked.json) and not asked.stage:
        reader.error("give the name of a stage")
    return asked


def main() -> None:
    """Write, print or compare."""
    asked = parse()
    with explained():
        if asked.write:
            refuse_lost_overrides()
            write_identities()
        elif asked.changed:
            if changed := changed_identities():
                print("\n".join(changed))
                sys.stderr.write(made_with_other_libraries())
        else:
            found = explain(asked.stage, asked.seed, asked.compare or [], asked.json)
            print(found if asked.json else fit(found))


if __name__ == "__main__":
    main()
    sys.exit(0)
