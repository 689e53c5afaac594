"""Stages ``train`` and ``train_single``: one training run.  ``python -m flows.train --arm team --seed 0``."""

import shutil
from pathlib import Path
from typing import Any

from prefect import get_run_logger

from pipeline_lib import storage
from pipeline_lib.assembly.training import train_team
from pipeline_lib.audit.result import permit
from pipeline_lib.problems.splits import load_manifest
from pipeline_lib.settings import Params
from pipeline_lib.tracking import Checkpoint
from pipeline_lib.training.budget import Budget, most_steps, used
from pipeline_lib.training.checkpoint_folders import planned_steps, steps_in
from pipeline_lib.training.checkpoints import publish, read_checkpoint
from pipeline_lib.training.metrics_log import NAME as METRICS
from pipeline_lib.training.trainer import TrainResult
from tasks.experiment.arms import (
    BASE,
    PROBLEMS,
    RESULTS,
    TEAM,
    compute_file,
    environment_section,
    trained_folder,
    training_file,
)
from tasks.experiment.compute import budget_of
from tasks.experiment.setups import setup_of
from tasks.identity.files import dvc_has_taken
from tasks.identity.stages import settings_of, work_digest
from tasks.runtime.arguments import arm_and_seed
from tasks.runtime.exit_status import explained
from tasks.runtime.stage import StageRun, leave_out_training, run_stage_of_arm
from tasks.runtime.tracked_run import record_update
from tasks.runtime.training_copies import copied
from tasks.services.caches import contents
from tasks.services.heartbeat import together
from tasks.services.process_environment import places
from tasks.services.ranks import is_first_rank, other_ranks


def training_identity(params: Params, arm: str, seed: int) -> str:
    """Return the digest of everything that this run's checkpoints depend on (64 hexadecimal digits).

    Left out are the number of steps and the checkpoint interval, so that a run can be continued or get more
    checkpoints (with a schedule that ends at the last step, the number of steps counts), and the reason for training
    on a reward that failed the audit.
    """
    splits = load_manifest(PROBLEMS)["splits"]
    inputs: dict[str, Any] = {
        "base": contents().of(BASE),
        "problems": splits["train"]["digest"],
        # Only a curriculum looks at the validation split while it trains.
        "trials": splits["validation"]["digest"] if params.train.curriculum.kind == "levels" else "",
        "arm": arm,
        "seed": seed,
    }
    if budget := budget_of(params, arm):
        inputs["budget"] = [budget.measure, budget.amount]
    free = ["audit.override", "train.checkpoint_every"]
    if params.train.schedule == "constant":
        free.append("train.steps")
    return work_digest(training_stage(arm), params, inputs, without=tuple(free))


def training_stage(arm: str) -> str:
    """Return the name of an arm's training in ``dvc.yaml``."""
    return "train" if arm == TEAM else "train_single"


def scratch_folder(params: Params, arm: str, seed: int) -> Path:
    """Return the folder with the files that a run needs to continue."""
    return places().scratch / "train" / f"{arm}-{training_identity(params, arm, seed)[:16]}"


def train_arm(run: StageRun) -> None:
    """Train one arm with one seed, or continue where a killed run left; publish its checkpoints and its metrics."""
    params, arm, seed = run.params, run.arm, run.seed
    allow_by_audit(run)
    manifest = load_manifest(PROBLEMS)["splits"]["train"]
    run.tracked.dataset("train", manifest["digest"], {"path": str(PROBLEMS / manifest["file"])}, "training")
    scratch = scratch_folder(params, arm, seed)
    budget = budget_of(params, arm)
    if _is_finished(params, scratch, budget) and dvc_has_taken(training_stage(arm), seed):
        shutil.rmtree(scratch)  # DVC has this result already and wants it again (`dvc repro -f`)

    total = params.train.steps if budget is None else round(budget.amount)
    done = 0.0

    def on_step(step: int, metrics: dict[str, float]) -> None:
        run.log(step, metrics)
        record_update(run.whole, arm, seed, {"step": step, **metrics})
        nonlocal done
        done = step if budget is None else done + budget.of(metrics)
        run.progress(min(round(done), total), total, f"reward {metrics['reward/mean']:.2f}")

    def on_checkpoint(step: int, folder: Path) -> None:
        target = trained_folder(arm, seed) / folder.name  # where it will be when the stage has ended
        digest = str(read_checkpoint(folder)["team"])
        run.tracked.checkpoint(Checkpoint(f"{arm}-{seed}-step-{step}", step, digest, str(target)))
        send(step)

    with (
        copied(scratch, f"{training_stage(arm)}@{seed}", get_run_logger().info) as send,
        other_ranks(params.train.processes, "-m", "flows.train", "--arm", arm, "--seed", str(seed)),
    ):
        result = _train(params, arm, seed, on_step=on_step, on_checkpoint=on_checkpoint)
    publish(scratch, trained_folder(arm, seed), [step for step, _ in result.checkpoints])
    rows = list(storage.read_jsonl(result.metrics))
    if result.resumed_from:  # rows that were not logged before the run was killed; no row is logged twice
        for row in rows:
            run.log(int(row["step"]), {name: value for name, value in row.items() if name != "step"})
    storage.write_jsonl(training_file(arm, seed), rows)
    if arm == TEAM:
        storage.write_json(compute_file(seed), used(rows))


def _is_finished(params: Params, scratch: Path, budget: Budget | None) -> bool:
    """Return whether the run with its checkpoints in ``scratch`` has ended."""
    steps = steps_in(scratch)
    if budget is None:
        return set(planned_steps(params.train)) <= set(steps)
    if not steps or not (scratch / METRICS).exists():
        return False
    rows = [row for row in storage.read_jsonl(scratch / METRICS) if row["step"] <= steps[-1]]
    return steps[-1] >= most_steps(params.train, budget) or sum(map(budget.of, rows)) >= budget.amount


def train_along(arm: str, seed: int) -> None:
    """Take part in the training of an arm as one of several processes, the first of which reports and writes."""
    _train(settings_of("train", arm), arm, seed)


def _train(params: Params, arm: str, seed: int, **callbacks: Any) -> TrainResult:
    scratch, budget = scratch_folder(params, arm, seed), budget_of(params, arm)
    with together() as processes:
        return train_team(setup_of(params, arm), seed, scratch, budget, processes, **callbacks)


def allow_by_audit(run: StageRun) -> None:
    """Refuse to train on a reward that was not audited, or that failed the audit without an override.

    The override is recorded in the run.

    Raises:
        SettingsError: the audit is about another reward, or failed and ``audit.override`` is empty.
    """
    path, params = RESULTS / "audit.json", run.params
    if permit(storage.read_json(path), environment_section(params, TEAM), params.audit.override, str(path)):
        run.tracked.tag({"symposium.audit.override": params.audit.override})


if __name__ == "__main__":
    if is_first_rank():
        run_stage_of_arm("train", train_arm, leave_out_training, __doc__, training_identity)
    else:  # another process leads this run (``train.processes``, ``accelerate launch``)
        explained()(train_along)(**arm_and_seed(__doc__))
