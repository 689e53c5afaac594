"""One training run of one arm: from the base policy to checkpoints in ``models/trained/<arm>-<seed>``."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib import storage
from pipeline_lib.audit.audited import describe_reward, reward_digest
from pipeline_lib.audit.result import Status
from pipeline_lib.environments.make import make_environment
from pipeline_lib.problems.splits import load_manifest, load_split
from pipeline_lib.rollouts import make_engine
from pipeline_lib.settings import Params, SettingsError
from pipeline_lib.training.checkpoint_folders import planned_steps, steps_in
from pipeline_lib.training.checkpoints import publish, read_checkpoint
from pipeline_lib.training.parallel import join_processes
from pipeline_lib.training.trainer import TrainResult, train
from tasks.experiment.arms import BASE, PROBLEMS, RESULTS, TEAM, environment_section, trained_folder
from tasks.experiment.sampling import compute_dtype, protocol_of, sampling_of
from tasks.experiment.teams import base_team
from tasks.identity.files import dvc_has_taken
from tasks.identity.stages import contents, settings_of, work_digest
from tasks.services.process_environment import places
from tasks.services.ranks import other_ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline_lib.policies.policy import Team
    from pipeline_lib.seam.environment import Environment
    from tasks.runtime.stage import StageRun

LAST_STEPS = 10
"""Updates over which the summary of a run averages."""


def training_identity(params: Params, arm: str, seed: int) -> str:
    """Return the digest of everything that makes this run's checkpoints what they are (64 hexadecimal digits).

    The number of steps and the checkpoint interval are left out, so that a run can be lengthened or cut finer; with a
    schedule that ends at the last step, the number of steps counts.  So is the reason for training on a reward that
    the audit failed.
    """
    splits = load_manifest(PROBLEMS)["splits"]
    inputs = {
        "base": contents().of(BASE),
        "problems": splits["train"]["digest"],
        # Only a curriculum looks at the validation split while it trains.
        "trials": splits["validation"]["digest"] if params.train.curriculum.kind == "levels" else "",
        "arm": arm,
        "seed": seed,
    }
    free = ["audit.override", "train.checkpoint_every"]
    if params.train.schedule == "constant":
        free.append("train.steps")
    return work_digest(training_stage(arm), params, inputs, without=tuple(free))


def training_stage(arm: str) -> str:
    """Return the name of an arm's training in ``dvc.yaml``."""
    return "train" if arm == TEAM else "train_single"


def scratch_folder(params: Params, arm: str, seed: int) -> Path:
    """Return the folder in which a run keeps what it needs to continue."""
    return places().scratch / "train" / f"{arm}-{training_identity(params, arm, seed)[:16]}"


def train_arm(params: Params, arm: str, seed: int, run: StageRun) -> dict[str, float]:
    """Train one arm with one seed, or continue where a killed run left; publish its checkpoints.

    Returns:
        The means of every metric over the last `LAST_STEPS` updates, as written to ``results/train``.
    """
    allow_by_audit(params, run)
    manifest = load_manifest(PROBLEMS)["splits"]["train"]
    run.tracked.dataset("train", manifest["digest"], {"path": str(PROBLEMS / manifest["file"])}, "training")
    scratch = scratch_folder(params, arm, seed)
    steps = params.train.steps
    if set(planned_steps(params.train)) <= set(steps_in(scratch)) and dvc_has_taken(training_stage(arm), seed):
        shutil.rmtree(scratch)  # DVC has this very result and asks for it anew (`dvc repro -f`)

    def on_step(step: int, metrics: dict[str, float]) -> None:
        run.log(step, metrics)
        run.progress(step, steps, f"reward {metrics['reward/mean']:.2f}")

    def on_checkpoint(step: int, folder: Path) -> None:
        record = read_checkpoint(folder)
        target = trained_folder(arm, seed) / folder.name
        run.tracked.checkpoint(f"{arm}-{seed}-step-{step}", step, record["team"], str(target.absolute()))

    with other_ranks(params.train.processes, "-m", "flows.train", "--arm", arm, "--seed", str(seed)):
        result = _train(params, arm, seed, on_step=on_step, on_checkpoint=on_checkpoint)
    publish(scratch, trained_folder(arm, seed), planned_steps(params.train))
    rows = list(storage.read_jsonl(result.metrics))
    if result.resumed_from:  # what was in memory when the run was killed is told now; what was told is not told twice
        for row in rows:
            run.log(int(row["step"]), {name: value for name, value in row.items() if name != "step"})
    storage.write_jsonl(RESULTS / "train" / f"{arm}-{seed}.jsonl", rows)
    summary = average(rows[-LAST_STEPS:])
    storage.write_json(RESULTS / "train" / f"{arm}-{seed}.json", summary)
    return summary


def train_along(arm: str, seed: int) -> None:
    """Take part in the training of an arm as one of several processes, the first of which reports and writes."""
    _train(settings_of("train", arm), arm, seed)


def _train(params: Params, arm: str, seed: int, **callbacks: Any) -> TrainResult:
    processes = join_processes()
    problems = load_split(PROBLEMS, "train")
    with (
        contextlib.closing(make_environment(environment_section(params, arm), params.sandbox)) as environment,
        contextlib.closing(make_engine(params.rollouts)) as engine,
    ):
        return train(
            settings=params.train,
            sampling=sampling_of(params),
            protocol=protocol_of(params, arm),
            environment=environment,
            team=base_team(params, environment, problems),
            engine=engine,
            problems=problems,
            validation=load_split(PROBLEMS, "validation") if params.train.curriculum.kind == "levels" else (),
            seed=seed,
            scratch=scratch_folder(params, arm, seed),
            base=_reference(params, environment, problems),
            compute=compute_dtype(params),
            infra_error_share=params.sandbox.infra_error_share,
            processes=processes,
            **callbacks,
        )


def _reference(params: Params, environment: Environment[Any, Any], problems: Sequence[Any]) -> Team | None:
    """Return the base for the KL term, in memory beside the team; below an adapter it is there already."""
    if params.train.loss.kl == 0 or params.policy.adapter.kind == "lora":
        return None
    return base_team(params, environment, problems)


def allow_by_audit(params: Params, run: StageRun) -> None:
    """Refuse to train on a reward that was not audited, or that the audit failed unless an override says why.

    The override is recorded in the run.

    Raises:
        SettingsError: the audit is about another reward, or failed and ``audit.override`` is empty.
    """
    path = RESULTS / "audit.json"
    audit: dict[str, Any] = storage.read_json(path)
    if audit.get("identity", {}).get("reward") != reward_digest(environment_section(params, TEAM)):
        raise SettingsError(
            f"{path}: the reward was edited after the audit: run the audit stage again (`dvc repro` does). "
            f"It is about {audit.get('reward', 'another one')}; training was "
            f"to use {describe_reward(environment_section(params, TEAM))}, and the settings or the source differ"
        )
    if audit["status"] != Status.FAIL:
        return
    if not params.audit.override:
        raise SettingsError(
            f"{path}: the reward audit failed: {audit['summary']} Change the reward; to train all the same, give the "
            "reason in audit.override, which the run will record"
        )
    run.tracked.tag({"symposium.audit.override": params.audit.override})


def average(rows: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of every metric that all rows have, rounded to six digits; the step is left out."""
    names = set.intersection(*(set(row) for row in rows)) - {"step"} if rows else set()
    return {name: round(sum(row[name] for row in rows) / len(rows), 6) for name in sorted(names)}
