"""Show what a result depends on, and why a stage is stale.

symposium identity train --seed 0            # what the identity contains, and what has changed since the stage ran
symposium identity train --compare brave-owl # a run (experiment, branch, commit) and the working tree
symposium identity train --compare a b       # two runs
symposium identity --write                   # the first stage of dvc.yaml: one identity per stage
"""

import argparse
import sys

from tasks.chain.why_stale import explain
from tasks.experiment.check_run import refuse_lost_overrides
from tasks.identity.files import changed_identities, write_identities
from tasks.identity.stages import STAGES
from tasks.runtime.arguments import SEEDS, fit, one_of, program_parser, whole
from tasks.runtime.exit_status import explained


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("identity", __doc__)
    reader.add_argument(
        "stage",
        nargs="?",
        type=one_of("stage", STAGES),
        choices=STAGES,
        metavar="stage",
        help=f"one of {', '.join(STAGES)} (default: all that have changed)",
    )
    reader.add_argument("--seed", type=whole(*SEEDS), help="training seed, for stages that exist once per seed")
    reader.add_argument(
        "--compare", nargs="+", metavar="RUN", help="compare one run with the working tree, or two runs"
    )
    reader.add_argument("--json", action="store_true", help="print the identity as JSON")
    reader.add_argument("--changed", action="store_true", help="print only the names of stages that have changed")
    reader.add_argument("--write", action="store_true", help="write results/identity/, like the stage identity")
    return reader


def parse() -> argparse.Namespace:
    """Read the command line."""
    reader = parser()
    asked = reader.parse_args()
    if asked.compare and len(asked.compare) > 2:
        reader.error("--compare takes one or two runs")
    if (asked.compare or asked.seed is not None or asked.json) and not asked.stage:
        reader.error("give the name of a stage")
    return asked


def main() -> None:
    """Write, print or compare."""
    asked = parse()
    with explained():
        if asked.write:
            refuse_lost_overrides()
            write_identities()
        elif asked.changed:
            print("\n".join(changed_identities()))
        else:
            found = explain(asked.stage, asked.seed, asked.compare or [], asked.json)
            print(found if asked.json else fit(found))


if __name__ == "__main__":
    main()
    sys.exit(0)
