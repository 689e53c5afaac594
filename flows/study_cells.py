"""The flow of a study: its cells one after the other; each is a flow whose independent stages run side by side."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from pydantic import Field
from rich.console import Console

from flows.chain import in_workspace, on_terminal
from pipeline_lib.settings import Params
from pipeline_lib.settings.study import reference_of
from tasks.chain.form import choice
from tasks.chain.graph import ChainError
from tasks.chain.params_file import change_settings
from tasks.chain.study import (
    PAGES,
    STUDIES,
    alone,
    cell_folder,
    conclusion,
    fix_plan,
    identity_of,
    keep,
    kept,
    known_cells,
    read_study,
    record_study,
    write_page,
)
from tasks.chain.workspaces import free_name, git, slug, uncommitted, workspace
from tasks.runtime.exit_status import explain_in_logs
from tasks.runtime.flow_runs import recorded_soon
from tasks.runtime.progress import Progress, shared_console
from tasks.runtime.tracked_run import tracked_run


@flow(name="study", validate_parameters=False)
def study(
    study: Annotated[str, choice(str(STUDIES))],
    jobs: Annotated[int, Field(ge=1, le=64)] = 2,
) -> str:
    """Run the cells of a study whose results are not known, and write its page; returns the path of the page.

    Args:
        study: a file, or the name of one in conf/studies.
        jobs: stages side by side
    """
    explain_in_logs()
    logger, project = get_run_logger(), Path.cwd()
    name, asked, settings = read_study(study)
    # Settings are those of the working tree, code and data those of the commit.
    if left_out := [path for path in uncommitted(project) if Path(path).parts[0] not in ("params.yaml", "conf")]:
        logger.warning("changes that are not committed are not part of this study: %s", ", ".join(left_out))
    folder, commit, reference = project / PAGES / name, git(project, "rev-parse", "HEAD"), settings[reference_of(asked)]
    with (
        recorded_soon(),
        alone(name),
        tracked_run(reference.environment.kind, in_mlflow(name), {}, {"stage": "study"}) as tracked,
        Progress("study", "study-progress", own_estimate=True, console=Console(quiet=True)) as progress,
    ):
        versions = fix_plan(folder / "plan.json", asked, reference, known_cells(name, settings))
        for number, (cell_name, params) in enumerate(settings.items(), start=1):
            shared_console().print(
                f"\n{name}, cell {number} of {len(settings)}: {cell_name}", highlight=False, markup=False
            )
            cell.with_options(flow_run_name=f"{name}: {cell_name}")(name, cell_name, params, asked.seeds, jobs)
            same_commit(project, commit)
            progress(number, len(settings), cell_name)
        page = write_page(name, asked, settings, versions, folder)
        record_study(page, tracked)
    create_markdown_artifact(conclusion(page), key="study")
    return str(page)


def run_on_terminal(name: str, file: str, jobs: int, plain: bool, server: Callable[[], str]) -> str:
    """Run the study of a file, and return its conclusion; ``plain`` and ``server`` as for `on_terminal`."""
    with on_terminal(plain, server):
        page = study.with_options(flow_run_name=f"study {name}")(file, jobs)
    return conclusion(Path(page))


def in_mlflow(study: str) -> str:
    """Return the name of a study's run in MLflow, below which those of its cells are shown."""
    return f"study {study}"


def same_commit(project: Path, commit: str) -> None:
    """Stop the study if there is a new commit: the next cell would run other code than the cells before.

    Raises:
        ChainError: the project's commit is not ``commit`` any more.
    """
    if (now := git(project, "rev-parse", "HEAD")) != commit:
        raise ChainError(
            f"the project's commit changed from {commit[:8]} to {now[:8]} while the study ran; run it again: cells "
            "that do not depend on the change are kept"
        )


@flow(name="cell")
def cell(study: str, name: str, params: Params, seeds: tuple[int, ...], jobs: int) -> None:
    """Run one cell as a DVC experiment, unless what it would leave is there."""
    project = Path.cwd()
    run = free_name(project, f"{study}-{slug(name) or 'cell'}")
    with workspace(project, run) as place:
        change_settings(place / "params.yaml", params)
        identity = identity_of(place)
        if kept(cell_folder(study, name), identity, seeds):
            get_run_logger().info("%s: unchanged since its last run", name)
            return
        in_workspace(place, project, params, run, jobs, in_mlflow(study))
        # Last, because a cell that is kept is not run again: a study that ends before this saves its experiment again.
        keep(place, study, name, identity, seeds, run, params)
