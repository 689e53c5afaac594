"""The flow of the whole chain: every stage that is stale, those that do not wait for each other side by side."""

from collections.abc import Mapping
from pathlib import Path

from prefect import flow, get_run_logger, runtime

from pipeline_lib.settings import load_params
from tasks.chain.graph import Stage
from tasks.chain.side_by_side import run_chain
from tasks.runtime.conducting import conducted
from tasks.runtime.progress import Progress, duration


@flow(name="experiment")
def experiment(chain: Mapping[str, Stage], stale: set[str], jobs: int, variables: Mapping[str, str]) -> dict[str, bool]:
    """Bring the stages of the project up to date; returns for each whether it did any work."""
    run = str(runtime.flow_run.name)
    with conducted(load_params(), run):
        return bring_up_to_date(chain, stale, Path.cwd(), run, jobs, variables)


def bring_up_to_date(
    chain: Mapping[str, Stage], stale: set[str], project: Path, run: str, jobs: int, variables: Mapping[str, str]
) -> dict[str, bool]:
    """Run the stages that are stale, with these environment variables; to be called in a flow."""
    logger = get_run_logger()
    expected = sum(chain[name].seconds for name in stale)
    logger.info("%d of %d stages to look at, about %s of work", len(stale), len(chain), duration(expected))
    with Progress("experiment", "experiment-progress", own_estimate=False) as progress:
        return run_chain(chain, stale, project, run, jobs, progress, variables)
