"""The flow of a study: its cells one after the other, each a flow of its own with its stages side by side."""

from collections.abc import Mapping
from pathlib import Path

from prefect import flow, get_run_logger

from flows.chain import in_workspace
from pipeline_lib.settings import Params
from pipeline_lib.settings.study import StudySettings, reference_of
from tasks.chain.cells import cell_folder, identity_of, keep, kept, known_cells, slug
from tasks.chain.graph import ChainError
from tasks.chain.study_plan import PAGES, fix_plan
from tasks.chain.workspaces import change_settings, free_name, git, uncommitted, workspace
from tasks.runtime.progress import Progress


@flow(name="study")
def cells(name: str, study: StudySettings, settings: Mapping[str, Params], jobs: int) -> str:
    """Write the plan, then run every cell whose result is not known; return what is to be said of the plan."""
    logger, project = get_run_logger(), Path.cwd()
    if left_out := uncommitted(project):
        logger.warning("changes that are not committed are not part of this study: %s", ", ".join(left_out))
    path, commit = project / PAGES / name / "plan.json", git(project, "rev-parse", "HEAD")
    plan = fix_plan(path, study, settings[reference_of(study)], known_cells(name))
    with Progress("study", "study-progress", own_estimate=True) as progress:
        for number, (found, params) in enumerate(settings.items(), start=1):
            cell.with_options(flow_run_name=f"{name}: {found}")(name, found, params, study.seeds, jobs)
            same_commit(project, commit)
            progress(number, len(settings), found)
    return plan


def same_commit(project: Path, commit: str) -> None:
    """Refuse to go on when somebody has committed: the next cell would be made by other code than those before.

    Raises:
        ChainError: the project's commit is not ``commit`` any more.
    """
    if (now := git(project, "rev-parse", "HEAD")) != commit:
        raise ChainError(
            f"the project's commit changed from {commit[:8]} to {now[:8]} while the study ran; run it again: cells "
            "that the change does not concern are kept"
        )


@flow(name="cell")
def cell(study: str, name: str, params: Params, seeds: tuple[int, ...], jobs: int) -> None:
    """Run one cell as a DVC experiment, unless what it would leave is there."""
    project = Path.cwd()
    run = free_name(project, f"{study}-{slug(name)}")
    with workspace(project, run) as place:
        change_settings(place / "params.yaml", params)
        identity = identity_of(place)
        if kept(cell_folder(study, name), identity, seeds):
            get_run_logger().info("%s: nothing has changed since it was run", name)
            return
        in_workspace(place, project, params, run, jobs, lambda: keep(place, study, name, identity, seeds, run))
