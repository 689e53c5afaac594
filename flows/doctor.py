"""Check what works on this machine, and what to install for the rest.

symposium doctor         # status 1 if the default run would not work here
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tasks.runtime.arguments import program_parser
from tasks.runtime.exit_status import explained
from tasks.services.doctor import MISSING, OK, OPTIONAL, examine

_COLOURS = {OK: "green", MISSING: "red", OPTIONAL: "yellow"}


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line, which takes no arguments."""
    return program_parser("doctor", __doc__)


def main() -> None:
    """Print a line per thing."""
    parser().parse_args()
    with explained():
        findings = examine(Path.cwd())
        table = Table(box=None, pad_edge=False, show_header=False)
        for finding in findings:
            table.add_row(finding.name, f"[{_COLOURS[finding.status]}]{finding.status}[/]", finding.text)
        Console().print(table)
        sys.exit(any(finding.status == MISSING for finding in findings))


if __name__ == "__main__":
    main()
