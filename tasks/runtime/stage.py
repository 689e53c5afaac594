"""The common parts of every stage: name, progress bar, tracked run, links between the tools, error messages.

A stage is a function of a `StageRun`.  Its module in `flows` ends in ``run_stage("report", make_report)``, which checks
the settings before anything starts, connects to Prefect (the project's server, or a temporary one), calls the function
in a flow of this name, and turns errors into a message and an exit status.

DVC takes the seeds from the file ``params.yaml`` only.  A preset of ``environment`` may have other seeds, for example
no single-agent baseline if a task has no single-agent form.  The stage of a run that the settings do not need writes
empty files (`unless_left_out`), and like every other one from what it made them.
"""

import contextlib
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from prefect import Flow, get_run_logger
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from pipeline_lib import storage
from pipeline_lib.assembly.memory import STAGES
from pipeline_lib.assembly.memory_check import check_memory, expected_problems
from pipeline_lib.locks import locked
from pipeline_lib.sampling_progress import sampling_shown_by
from pipeline_lib.settings import Params, SettingsError, load_params
from pipeline_lib.storage import digest
from pipeline_lib.tracking import TrackedRun, Tracker
from pipeline_lib.tracking.tracker import Status
from tasks.experiment.arms import (
    BASE,
    PROBLEMS,
    TEAM,
    compute_file,
    seeds_of,
    sweep_folder,
    trained_folder,
    training_file,
)
from tasks.identity.files import check, finish
from tasks.identity.run import identity_tags, run_name, told
from tasks.identity.stages import Reads, inputs_of, read_settings, settings_of, whole, work_digest
from tasks.runtime.arguments import arm_and_seed
from tasks.runtime.exit_status import REFUSED, explain_in_logs, explained, was_interrupted
from tasks.runtime.flow_runs import PARENT_TASK, recorded_soon, run_as_subflow, tagged
from tasks.runtime.progress import Progress
from tasks.runtime.tracked_run import dvc_process, owner, run_in_mlflow
from tasks.services.end_with_parent import end_with_dvc
from tasks.services.process_environment import places
from tasks.services.servers import prefect_at, prefect_server, wait_until_back

log = logging.getLogger("symposium.stage")


class RefusedError(RuntimeError):
    """A stage has finished, and its result forbids to continue.

    The stage is shown as failed, but its exit status is 0, so that DVC keeps its outputs.
    """


@dataclass(frozen=True, slots=True)
class StageRun:
    """One run of a stage: what it is to do, and the channels through which it reports."""

    params: Params  #: the settings that the stage may read
    arm: str  #: of a stage that exists once per training run; else the team
    seed: int  #: of a stage that exists once per training run; else 0
    name: str  #: name of the whole run, the same in Prefect, DVC and MLflow
    key: str  #: prefix of the stage's artifacts in the Prefect UI
    tracked: TrackedRun  #: the stage's run in MLflow: metrics, checkpoints, data sets
    whole: TrackedRun  #: the whole run in MLflow: its results and artifacts
    progress: Progress  #: callback ``progress(done, total, text)`` of long work

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics at a step; after a resume, log the history again from the start (no value is stored twice)."""
        self.tracked.log(step, metrics)

    def table(self, key: str, rows: Sequence[Mapping[str, Any]], description: str = "") -> None:
        """Show a table in the Prefect UI."""
        show_table(artifact_key(self.key, key), rows, description or key)

    def markdown(self, key: str, text: str) -> None:
        """Show a text in the Prefect UI."""
        shown(lambda: create_markdown_artifact(text, key=artifact_key(self.key, key)))


@contextlib.contextmanager
def stage(
    name: str, params: Params, seed: int | None = None, identity: str = "", arm: str = TEAM
) -> Iterator[StageRun]:
    """Yield the run of a stage, whose flow does its work in the ``with`` block.

    Args:
        name: name of the stage.
        params: the settings.  They become parameters in MLflow: all of them of the parent run, and those that the stage
            depends on of the stage's run.
        seed: training seed, if the stage has one.
        identity: digest of the stage's inputs, by default of everything that it depends on.  The same identity joins
            the same MLflow run; another one creates a new run, because MLflow keeps the first value of a parameter, and
            of a metric at a step.
        arm: whose training run it belongs to, if it belongs to one.

    Raises:
        SettingsError: there is not the memory for this stage now.

    At the end of the body its MLflow run becomes FINISHED, KILLED if it was interrupted, else FAILED.
    """
    everything = whole(params)
    if (kind := name.partition(" ")[0]) in STAGES:
        problems, counts = expected_problems(everything, PROBLEMS)
        check_memory(everything, kind, problems, BASE, counts)
    settings = everything.model_dump(mode="json")
    title = name if seed is None else f"{name} seed {seed}"
    run_of_all = run_name(settings)
    identity = identity or _identity(params, seed)
    tracker = Tracker(
        places().tracking,
        everything.environment.kind,
        run_of_all,
        tags={**identity_tags(), **told()},
        params=settings,
        process=owner() or dvc_process(),
        owned=bool(owner()),
    )
    labels = {**identity_tags(), "symposium.identity": identity}
    tracked = tracker.start_run(name, seed, identity, labels, read_settings(params))
    key = artifact_key(title)
    status: Status = "FAILED"
    try:
        with (
            recorded_soon(),
            Progress(title, artifact_key(key, "progress")) as progress,
            sampling_shown_by(progress.sampling),
        ):
            run = StageRun(params, arm, seed or 0, run_of_all, key, tracked, tracker.whole, progress)
            began = time.monotonic()
            yield run
            progress.worked(time.monotonic() - began)
        status = "FINISHED"
    except BaseException as error:
        status = "KILLED" if was_interrupted(error) else "FAILED"
        raise
    finally:
        tracked.finish(status)
        if status == "FINISHED" and (text := run_in_mlflow(tracked, run.name)):
            run.markdown("mlflow", text)
        # Data that cannot be sent in time waits for the next run; an interrupt must not take long.
        tracker.close(4.0 if status == "KILLED" else 60.0)
        if status != "KILLED" and (missing := tracker.rejected()):
            _warn_missing(missing)


@explained()
def main(flow: Flow[..., Any], **parameters: Any) -> NoReturn:
    """Run a stage's flow and end the process: with status 0, or a message on stderr and another status.

    Settings are read and checked first, so a mistake in them is reported within a second.
    """
    try:
        end_with_dvc()
        name_of_all = run_name(load_params().model_dump(mode="json"))
        began = check()
        explain_in_logs()
        title = " ".join([name_of_all, flow.name, *(f"{name} {value}" for name, value in parameters.items())])
        with connected_prefect(), tagged(name_of_all):
            run_as_subflow(flow, title, parameters)
    except RefusedError as error:
        sys.stderr.write(f"{REFUSED}{error}\n")
    finish(began)
    sys.exit(0)


def run_stage(name: str, work: Callable[[StageRun], object]) -> NoReturn:
    """Do the work of a stage in a flow of its name, and end the process as `main` does."""

    def body() -> None:
        with stage(name, settings_of(name)) as run:
            work(run)

    main(Flow(body, name=name))


def run_stage_of_arm(
    name: str,
    work: Callable[[StageRun], object],
    leave_out: Callable[[str, int], None],
    about: str | None,
    identity: Callable[[Params, str, int], str] = lambda params, arm, seed: "",
) -> NoReturn:
    """Do the work of a stage that exists once per arm and training seed, and end the process as `main` does.

    Args:
        name: of the flow.
        work: does it.
        leave_out: writes the outputs of a run that the settings do not have.
        about: text of ``--help``.
        identity: digest of the inputs of the run of an arm and seed, as for `stage`.
    """
    given = arm_and_seed(about)
    unless_left_out(leave_out, **given)

    def body(arm: str, seed: int) -> None:
        params = settings_of(name, arm)
        with stage(f"{name} {arm}", params, seed, identity(params, arm, seed), arm) as run:
            work(run)

    main(Flow(body, name=name), **given)


def _identity(params: Params, seed: int | None) -> str:
    """Return the digest of a stage's inputs; of the settings if `STAGES` does not list the stage."""
    if isinstance(params, Reads):
        return work_digest(params.stage, params, inputs_of(params, seed))
    return digest(params.model_dump(mode="json"))


@contextlib.contextmanager
def connected_prefect() -> Iterator[None]:
    """Provide a Prefect server while the block runs: the one in ``PREFECT_API_URL``, else a new one.

    Servers of stages start one at a time, because several that create the same database at once fail.  A whole run has
    begun on a server that answered, so its stages wait for one that is away.

    Raises:
        ServerError: the server in ``PREFECT_API_URL`` does not answer.
    """
    if PARENT_TASK in os.environ and (given := os.environ.get("PREFECT_API_URL")):
        wait_until_back(given)
    with contextlib.ExitStack() as stack:
        with locked(places().prefect / "start.lock"):
            url = stack.enter_context(prefect_server())
        stack.enter_context(prefect_at(url))
        yield


def artifact_key(*parts: str) -> str:
    """Return a key that Prefect accepts: lowercase letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")


def _warn_missing(missing: Sequence[str]) -> None:
    """Log on the stage's flow run which data MLflow has rejected."""
    shown(lambda: get_run_logger().warning("not recorded in MLflow: %s", "; ".join(missing)))


def show_table(key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
    """Show a table in the Prefect UI."""
    content = [dict(row) for row in rows]
    shown(lambda: create_table_artifact(content, key=key, description=description))


def shown(show: Callable[[], object]) -> None:
    """Call a function that creates an artifact in the Prefect UI; its failure must not fail the stage."""
    try:
        show()
    except Exception as error:
        log.warning("cannot show an artifact in the Prefect UI: %s", error)


_REASON = (
    "left out: the settings, the environment's preset, or a task without a single-agent form, leave this run out\n"
)


@explained()
def unless_left_out(leave_out: Callable[[str, int], None], arm: str, seed: int) -> None:
    """End the process, with empty outputs, if the settings do not have this run; no server is started for it.

    The environment's preset belongs to the settings.
    """
    try:
        if seed in seeds_of(load_params(), arm):
            return
    except SettingsError:  # whoever does the work reports it
        return
    began = check()
    leave_out(arm, seed)
    finish(began)
    sys.stdout.write(f"{arm} {seed} {_REASON}")
    sys.exit(0)


def leave_out_training(arm: str, seed: int) -> None:
    """Write the outputs that DVC expects of a training run, without content."""
    with storage.new_folder(trained_folder(arm, seed)) as folder:
        (folder / "left-out.txt").write_text(_REASON)
    storage.write_jsonl(training_file(arm, seed), ())
    if arm == TEAM:
        storage.write_json(compute_file(seed), {})


def leave_out_sweep(arm: str, seed: int) -> None:
    """Write the outputs that DVC expects of a run's sweep, without content."""
    with storage.new_folder(sweep_folder(arm, seed)) as folder:
        (folder / "left-out.txt").write_text(_REASON)
