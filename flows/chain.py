"""The flow of the whole chain: every stale stage; independent stages run side by side.

It runs in the project itself (`experiment`), or in a separate workspace that becomes a DVC experiment (`in_workspace`).
"""

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from rich.console import Console

from pipeline_lib.settings import Params, load_params
from pipeline_lib.storage import read_json
from pipeline_lib.tracking.tracker import send_waiting
from tasks.chain.graph import chain_and_stale
from tasks.chain.live_table import DRAWING, LiveTable
from tasks.chain.sharing import send_experiment, sharing
from tasks.chain.side_by_side import ChainRun, run_chain
from tasks.chain.stage_process import log_plain_lines
from tasks.chain.workspaces import save_experiment
from tasks.experiment.arms import REPORT, RESULTS
from tasks.experiment.result_text import in_markdown
from tasks.identity.run import NOTE, told
from tasks.runtime.exit_status import explain_in_logs
from tasks.runtime.flow_runs import mark_crashed, recorded_soon, tagged
from tasks.runtime.progress import Progress, duration, shared_console
from tasks.runtime.stage import shown
from tasks.runtime.tracked_run import record_results, run_in_mlflow, tracked_run
from tasks.services.preloaded import preloaded
from tasks.services.process_environment import places
from tasks.services.servers import prefect_at

PAGE = REPORT / "index.html"
_MLFLOW_S = 900.0


@contextlib.contextmanager
def on_terminal(plain: bool, server: Callable[[], str]) -> Iterator[None]:
    """Show the flows of a ``with`` block in the terminal, as a table or as ``plain`` lines.

    ``server`` returns the address of the Prefect server that they run on, once it answers.
    """
    explain_in_logs()
    DRAWING.set(sys.stderr.isatty() and not plain)
    log_plain_lines(logging.WARNING if DRAWING.get() else logging.INFO)
    with prefect_at(server()):
        mark_crashed()
        yield


@flow(name="experiment")
def experiment(run: ChainRun) -> dict[str, bool]:
    """Bring the stages of the project up to date; returns for each whether it did any work."""
    params = load_params()
    settings = params.model_dump(mode="json")
    with recorded_soon(), tracked_run(params.environment.kind, run.name, settings, told()) as tracked:
        worked = bring_up_to_date(run)
        record_results(tracked, params, run.project, worked, run.began)
        if "verdict" in worked:
            page = f"`{run.project / PAGE}`"
            show_verdict(run.project, page, run_in_mlflow(tracked, run.name, PAGE.name))
    return worked


def run_on_terminal(
    run: ChainRun, libraries: Callable[[], Mapping[str, str]], plain: bool, server: Callable[[], str]
) -> None:
    """Run `experiment` with the variables that ``libraries`` returns; for the rest see `on_terminal`."""
    with on_terminal(plain, server), tagged(run.name):
        experiment.with_options(flow_run_name=run.name)(replace(run, variables=libraries()))


def in_workspace(
    folder: Path,
    project: Path,
    params: Params,
    name: str,
    jobs: int,
    study: str = "",
    title: str = "",
    share: bool = False,
) -> tuple[str, str]:
    """Run the chain in a workspace, save it as a DVC experiment; return its commit and name; to be called in a flow.

    With ``share`` its name gets a number if another machine has sent an experiment of that name meanwhile.

    Args:
        folder: the workspace; its ``params.yaml`` has the same settings as ``params``.
        project: the project that gets the experiment.
        params: the settings.
        name: of the experiment.
        jobs: number of stages that run side by side.
        study: name in MLflow of the study that the run is a cell of.
        title: name of the run, by default that of the experiment.
        share: take and give results through DVC's default remote, and send the experiment to git's ``origin``.
    """
    settings, run, began = params.model_dump(mode="json"), title or name, time.monotonic()
    with tracked_run(params.environment.kind, run, settings, told(folder), study) as tracked:
        with sharing(folder) if share else contextlib.nullcontext() as shared:
            chain, stale = chain_and_stale(folder)
            with preloaded(folder, len(stale), jobs) as libraries:
                worked = bring_up_to_date(ChainRun(run, folder, chain, stale, jobs, libraries(), shared))
        record_results(tracked, params, folder, worked, began)
        _send_to_mlflow()
        if "verdict" in worked:
            show_verdict(folder, f"`{PAGE}`, after `dvc exp apply {name}`", run_in_mlflow(tracked, run, PAGE.name))
        commit = save_experiment(folder, project, name)
        tracked.tag({"dvc.exp_name": name, "dvc.exp_rev": commit})
        if share and (sent := send_experiment(project, name)) != name:
            tracked.tag({"dvc.exp_name": (name := sent)})
    return commit, name


def _send_to_mlflow() -> None:
    """Wait until MLflow has what the stages of a run in a workspace have recorded.

    Later the files of the workspace are gone, and before the run's own end its stages, which name it as their owner,
    leave it running.
    """
    logger = get_run_logger()
    if not send_waiting(
        places().tracking,
        _MLFLOW_S,
        lambda: logger.warning(
            "MLflow does not have all of this run; it is waited for, at most %s", duration(_MLFLOW_S)
        ),
    ):
        logger.warning("MLflow does not answer; the next run here sends it what is left, but for the report")


def bring_up_to_date(run: ChainRun) -> dict[str, bool]:
    """Run the stages that are stale; to be called in a flow.  Returns for each stage whether it did any work."""
    expected = sum(run.chain[name].seconds for name in run.stale)
    get_run_logger().info(
        "%d of %d stages to check, about %s of work", len(run.stale), len(run.chain), duration(expected)
    )
    quiet = Console(quiet=True) if DRAWING.get() else None
    with (
        Progress("experiment", "experiment-progress", own_estimate=False, console=quiet) as progress,
        _table(run.name) as table,
    ):

        def tell(done: int, total: int, text: str) -> None:
            progress(done, total, text)
            if table:
                table(done, total, text)

        watch = table.watch if table else lambda board: None
        return run_chain(run, tell, watch)


def show_verdict(project: Path, page: str, tracked: str) -> None:
    """Show the project's verdict on the flow run, with the run's note and links to the ``page`` and to MLflow."""
    result = read_json(project / RESULTS / "verdict.json")
    parts = [os.environ.get(NOTE), in_markdown(result), f"The report: {page}", tracked]
    shown(lambda: create_markdown_artifact("\n\n".join(part for part in parts if part), key="verdict"))


@contextlib.contextmanager
def _table(run: str) -> Iterator[LiveTable | None]:
    if not DRAWING.get():
        yield None
        return
    with LiveTable(shared_console(), run) as table:
        yield table
