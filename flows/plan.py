"""Compute, before any work, the data that detects a difference, or the memory that each stage needs.

symposium plan --difference 0.02 0.05          # variances from results/test, if a test has been run
symposium plan --between 0.05 --within 0.1       # or given by hand, squared natural units
symposium plan --memory                          # memory of every stage, on this machine
symposium plan --memory --gpu 24                 # on a GPU of 24 GiB
symposium plan --memory -S environment=coding-qwen -S rollouts.rows=64   # with other settings than those of params.yaml
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipeline_lib.assembly.memory import GIB, STAGES, longest_prompt, need, policy_names
from pipeline_lib.assembly.memory_check import (
    BESIDE_THEM,
    expected_problems,
    model_refusal,
    refusal,
    room_of_run,
    with_type,
)
from pipeline_lib.environment_api.metrics import Metric, describe, with_reward
from pipeline_lib.environment_api.registry import find
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.evaluation.evidence import families_against
from pipeline_lib.evaluation.planning import Variances, requirements, variances
from pipeline_lib.evaluation.sentences import no_range
from pipeline_lib.policies.sizes import known_sizes
from pipeline_lib.settings import Params, SettingsError, load_params
from pipeline_lib.settings.load import changed_params
from tasks.chain.form import requested_changes
from tasks.experiment.arms import BASE, PROBLEMS, TEAM, seeds_of
from tasks.experiment.episode_files import read_episodes, tested_file
from tasks.experiment.plans import family_size
from tasks.identity.dvc_record import refuse_false_records
from tasks.runtime.arguments import ArgumentError, add_overrides, number, program_parser, whole
from tasks.runtime.exit_status import explained


def plan(arguments: argparse.Namespace) -> None:
    """Print the requirements of each wanted difference."""
    params = settings(arguments)
    metric = metric_of(params)
    check_bounds(metric, arguments)
    pilot = from_hand(arguments) if arguments.between is not None else from_pilot(params)
    comparisons = family_size(params)
    console = Console()
    console.print(
        f"Variances: {pilot.between:.4f} between problems, {pilot.within_a:.4f} and {pilot.within_b:.4f} within a "
        f"problem, {pilot.runs:.4f} between training runs."
    )
    # Without borders, so that numbers of millions fit into 80 columns.
    table = Table(
        box=None,
        pad_edge=False,
        title=f"To detect a difference at alpha {params.verdict.alpha}, corrected for {comparisons} comparison"
        f"{'s' if comparisons != 1 else ''}, with power {params.verdict.power}",
    )
    headings = {
        "difference": "wanted",
        "samples": "samples",
        "runs": "seeds",
        "problems": "problems",
        "problems_new_runs": "new seeds",
        "test_episodes": "test",
        "sweep_episodes": "sweep",
        "optimism": "luck",
    }
    for heading in headings.values():
        table.add_column(heading, justify="right")
    rows = requirements(
        pilot,
        arguments.difference,
        arguments.samples,
        arguments.seeds,
        params.verdict.alpha / comparisons,
        params.verdict.power,
        params.train.steps // params.train.checkpoint_every,
    )
    for row in rows:
        table.add_row(*(_text(row[key]) for key in headings))
    console.print(table)
    console.print(
        "problems: needed for a claim about the trained teams. new seeds: problems needed for a claim about other "
        "training runs (a dash: more seeds are needed). test, sweep: episodes. luck: what the best of equal "
        "checkpoints gains by chance."
    )
    if text := no_range(metric):
        console.print(text)
        return
    wanted, alpha = sorted(arguments.difference), params.verdict.alpha
    least = [families_against(difference / (metric.reach + difference), alpha) for difference in wanted]
    console.print(
        "A verdict needs problems of more families than can hide a rare kind that undoes the difference: "
        f"{', '.join(f'{count:,}' for count in least)} for these differences, the least first."
    )


def metric_of(params: Params) -> Metric:
    """Return the metric of the verdict with its range, which of a reward the environment knows."""
    metrics = find(params.environment.kind).metrics()
    if params.evaluate.metric == "reward":
        environment = make_environment(params.environment, params.sandbox)
        metrics = with_reward(metrics, *environment.episode_bounds)
        environment.close()
    return describe(params.evaluate.metric, metrics)


def settings(arguments: argparse.Namespace) -> Params:
    """Return the settings of ``params.yaml`` with those of the command line; the file stays as it is."""
    changes = requested_changes({}, {}, arguments.set_param)
    return changed_params(changes, Path("params.yaml"), Path("conf"), "-S") if changes else load_params()


def plan_memory(arguments: argparse.Namespace) -> None:
    """Print the memory of each stage at its peak, by what holds it, and what to set where it does not fit.

    Of a GPU, if the arguments have one; else of this machine.
    """
    params, gpu = settings(arguments), arguments.gpu
    written = load_params() if arguments.set_param else params
    # Where the file says other problems, what is prepared says nothing.
    known = (params.problems, params.environment) == (written.problems, written.environment)
    sizes = known_sizes(params.policy, policy_names(params), fetch=True)
    asked = params
    if gpu is None:
        params = with_type(params, BASE, measured=True)
    limit, on_gpu = room_of_run(params.policy) if gpu is None else (gpu * GIB, True)
    if sizes is None:
        raise FileNotFoundError("policy.models: a folder has no config.json, and the sizes of the model are not known")
    if text := model_refusal(params, sizes):
        raise SettingsError(text)
    problems, counts = expected_problems(params, PROBLEMS if known else None)
    prompt = longest_prompt(params, problems, sizes)
    needs = {stage: need(params, stage, sizes, prompt, limit, on_gpu, counts) for stage in STAGES}
    table = Table(box=None, pad_edge=False, title="GiB at the peak of each stage")
    for heading in ("", *needs):
        table.add_column(heading.replace("_", " "), justify="left" if not heading else "right")
    parts = dict.fromkeys(name for stage_need in needs.values() for name, size in stage_need.parts.items() if size)
    for part in sorted(parts, key=lambda name: name == "allocator"):
        table.add_row(part, *(_gib(stage_need.parts.get(part, 0)) for stage_need in needs.values()))
    table.add_row("together", *(_gib(stage_need.total) for stage_need in needs.values()), style="bold")
    table.add_row("actions at the same time", *(str(stage_need.rows or "-") for stage_need in needs.values()))
    console = Console()
    console.print(table)
    console.print(
        f"There are {limit / GIB:.1f} GiB{' on the GPU' if on_gpu else BESIDE_THEM}. The longest prompt is taken "
        f"to have {prompt} tokens. A stage that does not fit beside others waits until they end (--jobs)."
    )
    if params is not asked and params.policy.kind == "pretrained":
        console.print(f"policy.dtype: auto stands for {params.policy.dtype}.")
    if text := refusal(params, STAGES, sizes, prompt, limit, on_gpu, counts, "" if on_gpu else BESIDE_THEM):
        console.print(text)


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}" if size >= 0.005 * GIB else "-"


def check_bounds(metric: Metric, arguments: argparse.Namespace) -> None:
    """Refuse differences and variances that the metric cannot have; raises ArgumentError if one is too large."""
    if metric.low is None or metric.high is None:
        return
    width = metric.high - metric.low
    # Values within [low, high] have a variance of at most a quarter of the width's square, their differences of all.
    largest = {"difference": width, "between": width**2, "within": width**2 / 4, "between_runs": width**2}
    for name, most in largest.items():
        given = getattr(arguments, name)
        if max(given if isinstance(given, list) else [given or 0.0]) > most:
            raise ArgumentError(
                f"--{name.replace('_', '-')}: {metric.label} lies between {metric.low:g} and {metric.high:g}, so this "
                f"is at most {most:g}"
            )


def from_hand(arguments: argparse.Namespace) -> Variances:
    """Return the variances given on the command line."""
    return Variances(arguments.between, arguments.within, arguments.within, arguments.between_runs)


def from_pilot(params: Params) -> Variances:
    """Return the variances of the last test of this project.

    Raises:
        FileNotFoundError: no test has been run; the message says what to do.
        IdentityError: as `refuse_false_records`.
    """
    refuse_false_records()
    seeds = seeds_of(params, TEAM)
    files = [tested_file(TEAM, "base"), *(tested_file(TEAM, "selected", seed) for seed in seeds)]
    if missing := [file for file in files if not file.exists()]:
        raise FileNotFoundError(
            f"{missing[0]}: no pilot; run `make pipeline` once (small is enough), or give --between and --within"
        )
    selected = {seed: read_episodes(tested_file(TEAM, "selected", seed)) for seed in seeds}
    return variances(selected, read_episodes(files[0]), params.evaluate.metric)


def _text(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else f"{value:,}"


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("plan", __doc__)
    reader.add_argument(
        "--difference", type=number(1e-6), nargs="+", default=[0.02, 0.05, 0.1], help="true differences to detect"
    )
    reader.add_argument("--samples", type=whole(1, 10**6), nargs="+", default=[1, 4, 16], help="episodes per problem")
    reader.add_argument("--seeds", type=whole(1, 10**6), nargs="+", default=[1, 3, 5], help="training runs")
    reader.add_argument("--between", type=number(0), help="variance between problems of the true difference")
    reader.add_argument("--within", type=number(0), default=0.0, help="variance of episodes within a problem")
    reader.add_argument("--between-runs", type=number(0), default=0.0, help="variance between training runs")
    reader.add_argument("--memory", action="store_true", help="show the memory that each stage needs instead")
    reader.add_argument("--gpu", type=number(1, 10_000), metavar="GIB", help="memory of a GPU; default: this machine's")
    add_overrides(reader, "the settings of params.yaml")
    return reader


def refuse_unread(wanted: argparse.Namespace) -> None:
    """Refuse arguments that nothing would read.

    Raises:
        ArgumentError: one of data with ``--memory``, or a variance beside those of a test that was run.
    """
    of_data = ("difference", "samples", "seeds", "between", "within", "between_runs")
    given = [f"--{name.replace('_', '-')}" for name in of_data if getattr(wanted, name) != parser().get_default(name)]
    if wanted.memory and given:
        raise ArgumentError(f"--memory plans no data; leave {given[0]} out, or --memory")
    if wanted.between is None and (variances := [name for name in given if name in ("--within", "--between-runs")]):
        raise ArgumentError(f"{variances[0]} goes with --between; give both, or none for the variances of a test")


def main() -> None:
    """Print the table, or say what is missing."""
    wanted = parser().parse_args()
    with explained():
        if wanted.gpu is not None and not wanted.memory:
            raise ArgumentError("--gpu says where the memory is; give --memory, too")
        refuse_unread(wanted)
        plan_memory(wanted) if wanted.memory else plan(wanted)


if __name__ == "__main__":
    main()
    sys.exit(0)
