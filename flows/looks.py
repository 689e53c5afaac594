"""List all recorded looks at the test split, and the changes of the plan between them.

Where no problems are prepared, as in a new clone, it lists those at any test split.

symposium looks
"""

import argparse

from pipeline_lib.evaluation.looks import Look, history
from pipeline_lib.problems.splits import MANIFEST, load_manifest
from tasks.experiment.arms import PROBLEMS
from tasks.looks.records import LOOKS, PLANS, counted_since, records
from tasks.runtime.arguments import fit, program_parser
from tasks.runtime.exit_status import explained


def listing() -> str:
    """Return one line per look at the present test split, or at any if there is none, and how many plans there were.

    Raises:
        RecordsError: git cannot give back what it remembers.
    """
    since = counted_since()
    known = [Look.from_json(value) for value in records(LOOKS)]
    is_prepared = (PROBLEMS / MANIFEST).exists()
    problems = load_manifest(PROBLEMS)["splits"]["test"]["hashes"] if is_prepared else _all_problems(known)
    rows = history(problems, known)
    plans = len(records(PLANS))
    split = "problems of this test split" if is_prepared else "any test split, since no problems are prepared here"
    looks = f"{len(rows)} look{'s' * (len(rows) != 1)} at {split}"
    lines = [f"{looks}; {plans} plan{'s' * (plans != 1)} registered in this repository"]
    for row in rows:
        words = f": {row['words']}" if row["words"] else ""
        when = row["time"][:16].replace("T", " ")
        lines.append(f"{row['look']}. {when} UTC, run {row['run']}, plan {row['plan'][:12]}{words}")
    lines.append(since)
    return "\n".join(lines)


def _all_problems(looks: list[Look]) -> list[str]:
    return sorted({problem for look in looks for problem in look.problems})


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line, which takes no arguments."""
    return program_parser("looks", __doc__)


def main() -> None:
    """Print the looks, or say what is missing."""
    parser().parse_args()
    with explained():
        print(fit(listing()))


if __name__ == "__main__":
    main()
