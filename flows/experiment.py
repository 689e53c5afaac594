"""The whole experiment: all stages; independent stages run side by side.

symposium run                  # all stale stages; a second call does nothing
symposium run --jobs 1 audit   # one stage and the stages that it needs, one after the other
symposium run -S train.steps=20 -S problems=humaneval -S problems.source=/data/mine.jsonl   # with other settings
symposium run --share          # with the results of other machines, and for them: DVC's remote, git's origin
symposium run --on lab         # on a worker of the pool "lab" (`symposium worker`), at the commit that origin has
symposium run --name "longer warm start" --note "does the base learn to add?"   # `symposium runs` shows both

DVC decides which stages must run.  This is the same as ``python -m flows.experiment``.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from queue import SimpleQueue

from pipeline_lib.locks import locked
from pipeline_lib.settings import load_params
from pipeline_lib.settings.load import changed_params, put
from pipeline_lib.settings.reading import read_mapping
from pipeline_lib.storage import read_json
from tasks.chain.form import requested_changes
from tasks.chain.graph import ChainError, chain_and_stale, check_targets
from tasks.chain.params_file import write_changes
from tasks.chain.sharing import sharing
from tasks.chain.workspaces import slug
from tasks.experiment.arms import REPORT, RESULTS, check_seeds
from tasks.experiment.check_run import check_reasons
from tasks.experiment.result_text import costs
from tasks.identity.run import call, checked_name, run_name
from tasks.runtime.arguments import ArgumentError, add_jobs, add_overrides, program_parser
from tasks.runtime.exit_status import explained, sigterm_interrupts
from tasks.runtime.progress import duration
from tasks.services.preloaded import preloaded
from tasks.services.process_environment import start_side_by_side
from tasks.services.servers import starting_prefect_server

NEXT = """

Next: symposium play --beside base               # watch the team work, beside the base
      symposium ui                               # the run in Prefect and MLflow
      git add -A && git commit -m "A first run"  # keeps dvc.lock, with which later runs are compared"""


def outcome(project: Path, took_s: float) -> str:
    """Return the verdict's three lines, the time it took, the place of the page and what is next; empty: no verdict."""
    path, page = project / RESULTS / "verdict.json", project / REPORT / "index.html"
    if not path.exists():
        return ""
    work = sum(
        part["seconds"] for part in costs(load_params(project / "params.yaml", project / "conf"), project).values()
    )
    took = f"This command took {duration(took_s)}; training and test, whenever they ran, {duration(work)} of work."
    where = f"\nThe report: {page}" if page.exists() else ""
    return "\n".join(("", *read_json(path)["lines"], "", took)) + where + NEXT


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("experiment", __doc__)
    reader.add_argument("targets", nargs="*", metavar="stage", help="only these stages and the stages that they need")
    add_jobs(reader)
    add_overrides(reader, "params.yaml")
    reader.add_argument("--name", help="name of the run in Prefect, MLflow and its report")
    reader.add_argument("--note", default="", help="what the run is for; shown beside its name")
    reader.add_argument("--share", action="store_true", help="take and give results through DVC's default remote")
    reader.add_argument("--on", metavar="pool[:queue]", help="run on a worker of this pool, and share the results")
    reader.add_argument("--plain", action="store_true", help="lines instead of a table, also in a terminal")
    return reader


def change(overrides: list[str], targets: list[str]) -> None:
    """Write overrides into the project's ``params.yaml``, presets first, and print what they change.

    Raises:
        ArgumentError: with them there is none of the stages ``targets``; nothing is written.
        SettingsError: an override is wrong, or a run with them could not end well; nothing is written.
    """
    file, changes = Path("params.yaml"), requested_changes({}, {}, overrides)
    params = changed_params(changes, file, Path("conf"), "-S")
    check_reasons(params)
    check_targets(Path.cwd(), targets, params)
    content = read_mapping(file)
    put(content, changes, "-S")
    check_seeds(params, content)
    for key, (old, new) in write_changes(file, changes, "-S").items():
        print(f"params.yaml: {key}: {old} -> {new}")


@contextmanager
def alone() -> Iterator[None]:
    """Let no other ``symposium run`` of this folder begin, whose ``-S`` would make results of this one stale.

    Raises:
        ChainError: another one is running.
    """
    with ExitStack() as held:
        try:
            held.enter_context(locked(Path(".symposium/run.lock"), wait=False))
        except BlockingIOError:
            raise ChainError(
                "another `symposium run` works in this folder; wait until it ends (nothing was changed)"
            ) from None
        yield


def run_stale(given: argparse.Namespace, run: str, began: float, shared: "SimpleQueue[str] | None" = None) -> None:
    """Bring the project up to date, or say that it is; put the stages that did work into ``shared``.

    ``began`` is when the command did: `symposium runs` shows what all of it took.

    The server, the process with the libraries and this one's own imports of Prefect get ready side by side.
    """
    project = Path.cwd()
    chain, stale = chain_and_stale(project, given.targets)
    if not stale:
        print("everything is up to date")
        return
    start_side_by_side(min(given.jobs, len(stale)))
    with starting_prefect_server() as server, preloaded(project, len(stale), given.jobs) as libraries:
        # It loads Prefect, while its server and the libraries start.
        from flows.chain import ChainRun, run_on_terminal

        whole = ChainRun(run, project, chain, stale, given.jobs, shared=shared, began=began)
        run_on_terminal(whole, libraries, given.plain, server)


def elsewhere(given: argparse.Namespace) -> None:
    """Run the whole chain on a worker, and say where its results are.

    Raises:
        ArgumentError: only some stages are asked for.
        SettingsError: a setting is wrong.
    """
    if given.targets:
        raise ArgumentError("--on runs the whole chain; leave the stages out")
    check_reasons(changed_params(requested_changes({}, {}, given.set_param), Path("params.yaml"), Path("conf"), "-S"))
    # Prefect loads for a second; wrong arguments are told before.
    from flows.on_pool import run_on

    wanted = {"name": given.name or "", "note": given.note, "overrides": given.set_param}
    name = slug(run_on(given.on, wanted))
    print(f"\nIts results: dvc exp pull origin {name} && dvc exp apply {name}")


def main() -> None:
    """Run the experiment as the program: it ends with status 0, or with a message and another status."""
    began = time.monotonic()
    with explained(), sigterm_interrupts():
        given = parser().parse_args()
        call("" if given.name is None else checked_name(given.name), given.note)
        check_targets(Path.cwd(), given.targets)
        if given.on:
            elsewhere(given)
            return
        with alone():
            if given.set_param:
                change(given.set_param, given.targets)
            name = run_name(load_params().model_dump(mode="json"))
            with sharing(Path.cwd()) if given.share else nullcontext() as shared:
                run_stale(given, name, began, shared)
                if not given.targets:
                    print(outcome(Path.cwd(), time.monotonic() - began))


if __name__ == "__main__":
    main()
