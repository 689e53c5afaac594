"""Compare ways of training: the same experiment at every level of one or two factors, with several seeds each.

symposium study group-size                  # conf/studies/group-size.yaml; the page: studies/group-size/index.html
symposium study group-size --jobs 1         # one stage after the other

Every cell is an ordinary DVC experiment.  A killed study continues where it stopped, and a new level costs only its own
cells.  This is the same as ``python -m flows.study``.
"""

import argparse
import logging
import sys
from pathlib import Path

from tasks.chain.study_file import STUDIES, read_study
from tasks.runtime.arguments import add_jobs, program_parser
from tasks.runtime.exit_status import explain_in_logs, explained, sigterm_interrupts
from tasks.services.servers import prefect_at, starting_prefect_server


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    found = program_parser("study", __doc__)
    there = sorted(path.stem for path in STUDIES.glob("*.yaml"))
    found.add_argument("study", help=f"a file, or the name of a file in {STUDIES}: {', '.join(there) or 'none yet'}")
    add_jobs(found)
    found.add_argument("--plain", action="store_true", help="lines instead of tables, also in a terminal")
    return found


def main() -> None:
    """Run the study as the program: it ends with status 0, or with a message and another status."""
    with explained(), sigterm_interrupts():
        asked = parser().parse_args()
        name, _, _ = read_study(asked.study)
        with starting_prefect_server() as server:
            from flows.study_cells import study
            from tasks.chain.live_table import DRAWING
            from tasks.chain.stage_logs import log_plain_lines
            from tasks.chain.study_page import conclusion
            from tasks.services.crashed import mark_crashed

            explain_in_logs()
            DRAWING.set(sys.stderr.isatty() and not asked.plain)
            log_plain_lines(logging.WARNING if DRAWING.get() else logging.INFO)
            with prefect_at(server()):
                mark_crashed()
                page = study.with_options(flow_run_name=f"study {name}")(asked.study, asked.jobs)
        print(f"\n{conclusion(Path(page))}")


if __name__ == "__main__":
    main()
