"""Compare ways of training: the same experiment at every level of one or two factors, with several seeds each.

symposium study group-size                  # conf/studies/group-size.yaml; the page: studies/group-size/index.html
symposium study group-size --jobs 1         # one stage after the other

Every cell is an ordinary DVC experiment.  A study that was killed goes on where it was, and one more level costs only
its own cells.  The same as ``python -m flows.study``.
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from pipeline_lib.settings import Params, SettingsError
from pipeline_lib.settings.base import result_settings
from pipeline_lib.settings.study import StudySettings, cell_params, cells_of, load_study
from pipeline_lib.storage import read_json
from tasks.chain.study_plan import PAGES
from tasks.runtime.arguments import program_parser
from tasks.runtime.endings import end, explain_in_logs
from tasks.services.servers import starting_prefect_server

STUDIES = Path("conf/studies")


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    found = program_parser("study", __doc__)
    there = sorted(path.stem for path in STUDIES.glob("*.yaml"))
    found.add_argument("study", help=f"a file, or the name of one in {STUDIES}: {', '.join(there) or 'none yet'}")
    found.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="stages side by side (default: cores)")
    return found


def run_study(name: str, study: StudySettings, jobs: int) -> Path:
    """Run the cells that are not known, and write the page; return its path."""
    project = Path.cwd()
    settings = {cell: cell_params(study, cell, project / "params.yaml", project / "conf") for cell in cells_of(study)}
    same_yardstick(settings)
    with starting_prefect_server() as server:
        from prefect.settings import PREFECT_API_URL, temporary_settings

        from flows.study_cells import cells
        from tasks.services.crashed import mark_crashed

        explain_in_logs()
        with temporary_settings({PREFECT_API_URL: f"{server()}/api"}):
            mark_crashed()
            plan = cells.with_options(flow_run_name=f"study {name}")(name, study, settings, jobs)
    from tasks.chain.study_page import write_page

    return write_page(name, study, settings, plan, project / PAGES / name)


def same_yardstick(settings: Mapping[str, Params]) -> None:
    """Refuse cells that are not measured alike.

    Raises:
        SettingsError: a factor changes how teams are judged.
    """
    first, *others = settings.items()
    sections = ["evaluate", "verdict", "problems", "sandbox"]
    if first[1].evaluate.metric == "reward":
        sections.append("environment")  # another reward is another scale
    for section in sections:
        for name, params in others:
            if result_settings(getattr(params, section)) != result_settings(getattr(first[1], section)):
                raise SettingsError(
                    f"the cells '{first[0]}' and '{name}' differ in {section}; what teams are judged by must be the "
                    "same in all cells: put it under changes"
                )


def main() -> None:
    """Run the study as the program: it ends with status 0, or with a message and another status."""
    try:
        asked = parser().parse_args()
        given = Path(asked.study)
        path = given if given.suffix == ".yaml" else STUDIES / f"{asked.study}.yaml"
        page = run_study(path.stem, load_study(path), asked.jobs)
        print()
        for contrast in read_json(page.parent / "study.json")["contrasts"]:
            print(contrast["sentence"])
        print(f"\nThe page: {page}")
    except BaseException as error:
        end(error)


if __name__ == "__main__":
    main()
