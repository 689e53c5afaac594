"""Compare ways of training: the same experiment at every level of one or two factors, with several seeds each.

symposium study group-size                  # conf/studies/group-size.yaml; the page: studies/group-size/index.html
symposium study group-size --jobs 1         # one stage after the other

Every cell is an ordinary DVC experiment.  A killed study continues where it stopped, and a new level costs only its own
cells.  This is the same as ``python -m flows.study``.
"""

import argparse

from tasks.chain.study import STUDIES, read_study
from tasks.runtime.arguments import add_jobs, program_parser
from tasks.runtime.exit_status import explained, sigterm_interrupts
from tasks.services.servers import starting_prefect_server


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("study", __doc__)
    there = sorted(path.stem for path in STUDIES.glob("*.yaml"))
    reader.add_argument("study", help=f"a file, or the name of a file in {STUDIES}: {', '.join(there) or 'none yet'}")
    add_jobs(reader)
    reader.add_argument("--plain", action="store_true", help="lines instead of tables, also in a terminal")
    return reader


def main() -> None:
    """Run the study as the program: it ends with status 0, or with a message and another status."""
    with explained(), sigterm_interrupts():
        asked = parser().parse_args()
        name, _, _ = read_study(asked.study)
        with starting_prefect_server() as server:
            from flows.study_cells import run_on_terminal  # loads Prefect, while its server starts

            print(f"\n{run_on_terminal(name, asked.study, asked.jobs, asked.plain, server)}")


if __name__ == "__main__":
    main()
