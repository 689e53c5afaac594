"""The whole experiment: every stage, those that do not wait for each other side by side.

``python -m flows.experiment [--jobs 2] [stage ...]``.  DVC decides what has to run; a second call does nothing.
"""

import argparse
import os
from pathlib import Path

from prefect import flow, get_run_logger, runtime, tags
from prefect.settings import PREFECT_API_URL, temporary_settings

from pipeline_lib.settings import load_params
from pipeline_lib.storage import read_json
from pipeline_lib.tracking.processes import own_process
from tasks.arms import RESULTS
from tasks.chain import outdated, read_chain
from tasks.crashed import mark_crashed
from tasks.endings import end, explain_in_logs
from tasks.identity import run_name
from tasks.progress import Progress, duration
from tasks.servers import prefect_server
from tasks.side_by_side import run_chain


@flow(name="experiment")
def experiment(targets: list[str], jobs: int) -> dict[str, bool]:
    """Bring the stages of the project up to date; returns for each whether it did any work."""
    return bring_up_to_date(Path.cwd(), str(runtime.flow_run.name), jobs, targets)


def bring_up_to_date(project: Path, run: str, jobs: int, targets: list[str]) -> dict[str, bool]:
    """Look what is stale and run that; to be called in a flow."""
    logger = get_run_logger()
    chain = read_chain(project, targets)
    stale = outdated(project, chain)
    if not stale:
        logger.info("everything is up to date (%d stages)", len(chain))
        return dict.fromkeys(chain, False)
    expected = sum(chain[name].seconds for name in stale)
    logger.info("%d of %d stages to look at, about %s of work", len(stale), len(chain), duration(expected))
    with Progress("experiment", "experiment-progress", own_estimate=False) as progress:
        return run_chain(chain, stale, project, run, jobs, progress)


def outcome(project: Path) -> str:
    """Return what the project now knows: the verdict's sentences and where the page lies; empty without a verdict."""
    path, page = project / RESULTS / "verdict.json", project / "report/index.html"
    if not path.exists():
        return ""
    result = read_json(path)
    where = f"\n\nThe report: {page}" if page.exists() else ""
    return f"\n{result['sentence']}\n{result['price_of_the_default']}{where}"


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m flows.experiment", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="stage", help="only these stages and what they need")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="stages side by side (default: cores)")
    return parser.parse_args(words)


def main() -> None:
    """Run the experiment as the program: it ends with status 0, or with a message and another status."""
    try:
        asked = arguments()
        run = run_name(load_params().model_dump(mode="json"))
        explain_in_logs()
        with prefect_server() as url, temporary_settings({PREFECT_API_URL: f"{url}/api"}):
            mark_crashed()
            with tags(f"run:{run}", f"process:{own_process()}"):
                experiment.with_options(flow_run_name=run)(asked.targets, asked.jobs)
        if not asked.targets:
            print(outcome(Path.cwd()))
    except BaseException as error:
        end(error)


if __name__ == "__main__":
    main()
