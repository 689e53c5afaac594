"""Evaluation on validation problems: of one team, or of every checkpoint of some training runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline_lib.assembly.memory_check import check_memory
from pipeline_lib.environment_api.task import Problem
from pipeline_lib.evaluation.episodes import check_ranges
from pipeline_lib.evaluation.run import evaluate_team, refuse_losses
from pipeline_lib.evaluation.selection import select
from pipeline_lib.training.checkpoint_folders import step_folder
from pipeline_lib.training.checkpoints import read_checkpoint
from symposium.arguments import check_list, check_type, check_whole
from symposium.experiments import AN_EXPERIMENT, Experiment
from symposium.results import Checkpoints, Evaluation, TrainingRun
from symposium.showing import progress
from symposium.teams import Project, Team, setup_of


def load_team(
    source: Experiment | TrainingRun | str | Path, step: int | None = None, *, team: str = "selected"
) -> Team:
    """Return a team: the untrained one of an experiment, that of a checkpoint, or one of a project of the chain.

    Args:
        source: an experiment, for its untrained team; a training run; or the folder of a project (`symposium init`)
            in which `symposium run` has trained.
        step: a step of the run that has a checkpoint.  There is no default, because the last checkpoint need not be
            the best; `sweep` selects one by a rule.
        team: of a project: ``"selected"`` (the selected checkpoint with the best validation result), ``"champion"``
            (the best tested team of all runs; this asks MLflow), ``"base"``, or a checkpoint such as
            ``"team-0/step-00010"``.

    Raises:
        TypeError: the source is something else.
        ValueError: the run has no checkpoint of this step, a step was given for something else than a training run, a
            team for something else than a project, or the project has no such team.
        SettingsError: the folder is no project.
        CorruptFileError: a file of the checkpoint is missing or damaged.
    """
    if isinstance(source, str | Path):
        if step is not None:
            raise ValueError(f'a project has several training runs; say team="team-0/step-{step:05d}"')
        return _of_project(Project(Path(source)), team)
    check_type("source", source, (Experiment, TrainingRun), f"{AN_EXPERIMENT}, a run of `symposium.train`, or a path")
    if team != "selected":
        raise ValueError(f"team is {team!r}, but only the teams of a project have names; give the folder of one")
    if isinstance(source, Experiment):
        if step is not None:
            raise ValueError("an experiment's team is untrained and has no steps; give a training run")
        return Team(source)
    if step not in source.steps:
        raise ValueError(f"the run has no checkpoint of step {step}; it has: {', '.join(map(str, source.steps))}")
    folder = step_folder(source.folder, step)
    read_checkpoint(folder)
    return Team(source.experiment, source.seed, step, folder)


def _of_project(project: Project, team: str) -> Team:
    folder = project.checkpoint(team)
    if folder is None:
        return Team(project)
    step = int(read_checkpoint(folder)["step"])
    return Team(project, int(folder.parent.name.partition("-")[2]), step, folder)


def evaluate(
    team: Team, *, samples: int | None = None, seed: int | None = None, problems: Sequence[Any] | None = None
) -> Evaluation:
    """Play a team on validation problems.

    Args:
        team: of `load_team`.
        samples: episodes per problem, at least 1; by default ``evaluate.validation.samples``.
        seed: of everything drawn, by default ``evaluate.validation.seed``; with the same seed, episode j of a problem
            is paired between any two teams.
        problems: by default the whole validation split.

    Returns:
        All episodes; the first one on each problem includes its texts.

    Raises:
        TypeError: it is no team, or something in the list is no problem.
        EvaluationError: the infrastructure lost a greater share of the episodes than ``sandbox.infra_error_share``.
        SettingsError: there is not enough memory.
        ValueError: there are no problems, one is of the test split, ids repeat, or ``samples`` or ``seed`` is no
            integer or too small.
    """
    check_type("team", team, Team, "a team of `symposium.load_team`")
    if samples is not None:
        check_whole("samples", samples, 1)
    if seed is not None:
        check_whole("seed", seed, 0)
    if problems is not None:
        for problem in check_list("problems", problems, "at least one problem of `Experiment.problems`"):
            check_type("problem", problem, Problem, "one of `Experiment.problems`")
    params = team.experiment.params
    played = team.experiment.problems("validation") if problems is None else list(problems)
    hidden = team.experiment.test_hashes()
    if tested := [problem.id for problem in played if problem.content_hash in hidden]:
        raise ValueError(
            f"{tested[0]} is a problem of the test split; only the chain looks at it, and git counts every look"
        )
    drawn = params.evaluate.validation
    check_memory(params, "sweep", played, setup_of(team.experiment).base, {"validation": len(played)})
    with team.open() as player:
        episodes = evaluate_team(
            player,
            played,
            drawn.samples if samples is None else samples,
            drawn.seed if seed is None else seed,
            keep_texts=True,
        )
        found = Evaluation(team, tuple(episodes), player.environment.episode_bounds)
    check_ranges(episodes, found.metrics)
    refuse_losses(episodes, params.sandbox.infra_error_share, team.title)
    return found


def sweep(*runs: TrainingRun) -> Checkpoints:
    """Evaluate every checkpoint of some training runs on validation problems, and select one checkpoint of each run.

    ``evaluate.select`` is the rule of selection, and ``evaluate.guards`` are limits that a checkpoint must keep.

    Args:
        runs: of one experiment, with different seeds.

    Raises:
        TypeError: one of them is no training run.
        ValueError: there are no runs, they are of different experiments, or a seed occurs twice.
    """
    for run in runs:
        check_type("run", run, TrainingRun, "a run of `symposium.train`; for a list of runs write sweep(*runs)")
    if not runs or any(run.experiment is not runs[0].experiment for run in runs):
        raise ValueError("sweep takes at least one training run, and all of the same experiment")
    if len({run.seed for run in runs}) < len(runs):
        raise ValueError("two of the runs have the same seed; a run counts once")
    experiment = runs[0].experiment
    base = evaluate(load_team(experiment))
    found: dict[int, dict[int, Evaluation]] = {run.seed: {} for run in runs}
    todo = [(run, step) for run in runs for step in run.steps if step > 0]
    with progress("checkpoints") as report:
        for number, (run, step) in enumerate(todo, start=1):
            found[run.seed][step] = evaluate(load_team(run, step))
            report(number, len(todo), f"seed {run.seed}, step {step}")
    episodes = {seed: {step: one.episodes for step, one in by_step.items()} for seed, by_step in found.items()}
    params = experiment.params
    selection = select(episodes, base.episodes, params.evaluate, params.verdict, experiment.metrics)
    return Checkpoints(selection, base, found)
