"""The audit of a reward, and training, which it may refuse."""

from __future__ import annotations

from typing import Any

from pipeline_lib import storage
from pipeline_lib.assembly.auditing import audit_team
from pipeline_lib.assembly.memory_check import check_memory
from pipeline_lib.assembly.reward_functions import audit_reward
from pipeline_lib.assembly.training import train_team
from pipeline_lib.audit.result import AuditResult, permit
from pipeline_lib.settings.params import AuditSettings
from pipeline_lib.training.checkpoint_folders import planned_steps, steps_in
from pipeline_lib.training.metrics_log import NAME as METRICS
from symposium.arguments import check_type, check_whole
from symposium.experiments import AN_EXPERIMENT, Experiment
from symposium.results import Audit, TrainingRun
from symposium.showing import progress
from symposium.teams import setup_of

#: What decides what a team does and earns.
_PLAYING = {"environment": (), "problems": (), "policy": (), "rollouts": (), "sandbox": ()}
#: Settings that determine the audit of a reward; an override of its result is not among them.
_AUDITED = tuple(name for name in AuditSettings.model_fields if name != "override")


def audit(subject: Any, problems: Any = None, **options: Any) -> Audit:
    """Test whether the best policy under a reward does the task: of an experiment, or of any reward function.

    ``audit(experiment)``: scripted teams and the base policy play (docs/rewards.md).  The result is kept in the
    experiment's folder.

    ``audit(reward, problems, metric=...)``: the reward is a function in the signature of TRL's trainers or of a rubric
    of verifiers, and texts that are made from the problems are played (docs/audit-any-reward.md).

    Args:
        subject: an experiment; or a reward function, several, a rubric with ``funcs`` and ``weights``, or names of
            functions (``"module:function"``).
        problems: for a reward function: a table (.csv, .tsv, .jsonl, .parquet), rows by column, or a data frame.
        options: for a reward function: ``metric`` (required), ``solution``, ``prompt``, ``weights``, ``reward_range``,
            ``model``, ``samples``, ``longest`` and ``limit``; `pipeline_lib.assembly.reward_functions.audit_reward`
            explains them.

    Returns:
        The checks with their sentences, and the rewards of the teams or texts that were played.

    Raises:
        TypeError: it is neither, or an option is unknown.
        RewardFunctionError: functions, problems, metric or solutions do not fit together.
        ProblemsError, PolicyError: the problems or the base policy cannot be made.
        SettingsError: there is not enough memory.
    """
    if not isinstance(subject, Experiment):
        if problems is None:
            check_type("experiment", subject, Experiment, f"{AN_EXPERIMENT}, or a reward function with its problems")
        with progress("audit") as report:
            return Audit(audit_reward(subject, problems, **options, progress=report), None)
    if problems is not None or options:
        raise TypeError("an experiment says what its audit needs; problems and options are for a reward function")
    experiment = subject
    params = experiment.params
    path = experiment.place("audit", audit=_AUDITED, **_PLAYING).with_suffix(".json")
    if not path.exists():
        setup = setup_of(experiment)
        check_memory(params, "audit", experiment.problems("train"), setup.base)
        with progress("audit") as report:
            result = audit_team(setup, report)
        storage.write_json(path, result.to_json())
    return Audit(AuditResult.from_json(storage.read_json(path)), path)


def train(experiment: Experiment, seed: int = 0) -> TrainingRun:
    """Train the team once, or continue an interrupted run.

    The reward is audited first.  If the audit fails, training is refused, unless the experiment has
    ``audit={"override": "the reason"}``; the run displays the reason.

    Args:
        experiment: the environment and its settings.
        seed: seed of the run, at least 0; a claim about training needs several runs with different seeds.

    Returns:
        The metrics of every step, and the checkpoints; step 0 is the untrained team.

    Raises:
        TypeError: it is no experiment.
        ValueError: the seed is not an integer of at least 0.
        SettingsError: the audit failed and there is no override, or there is not enough memory.
        TrainingStopped: it was interrupted; the same call continues.
        TrainingError: gradients that are not finite, too many lost episodes, out of memory.
    """
    check_type("experiment", experiment, Experiment, AN_EXPERIMENT)
    check_whole("seed", seed, 0)  # True and "1" would be other runs with the same name
    params = experiment.params
    audited = audit(experiment)
    override = params.audit.override
    overridden = permit(audited.result.to_json(), params.environment, override, str(audited.path))
    folder = experiment.place("team", seed, train=(), **_PLAYING)
    planned = planned_steps(params.train)
    if not set(planned) <= set(steps_in(folder)):
        setup, steps = setup_of(experiment), params.train.steps
        check_memory(params, "train", experiment.problems("train"), setup.base)
        with progress(f"training, seed {seed}") as report:

            def on_step(step: int, metrics: dict[str, float]) -> None:
                report(step, steps, f"reward {metrics['reward/mean']:.2f}")

            train_team(setup, seed, folder, on_step=on_step)
    rows = tuple(dict(row) for row in storage.read_jsonl(folder / METRICS))
    kept = tuple(step for step in planned if step <= rows[-1]["step"])  # a monitor may have ended the run
    return TrainingRun(experiment, seed, folder, kept, rows, override if overridden else "")
