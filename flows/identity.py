"""What a result depends on, and why a stage is stale.

symposium identity train --seed 0            # what goes into it, and what has changed since it ran
symposium identity train --compare brave-owl # a run (experiment, branch, commit) and the working tree
symposium identity train --compare a b       # two runs
symposium identity --write                   # the first stage of dvc.yaml: an identity per stage
"""

import argparse
import sys
from pathlib import Path

from tasks.identity.files import changed_identities, write_identities
from tasks.identity.stages import STAGES
from tasks.runtime.arguments import program_parser
from tasks.runtime.endings import end


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    found = program_parser("identity", __doc__)
    found.add_argument("stage", nargs="?", choices=STAGES, help="the stage; without one, all that have changed")
    found.add_argument("--seed", type=int, help="of a stage that there is once per training seed")
    found.add_argument("--compare", nargs="+", metavar="RUN", help="one run with the working tree, or two runs")
    found.add_argument("--json", action="store_true", help="print the identity as JSON")
    found.add_argument("--changed", action="store_true", help="print only the names of stages that have changed")
    found.add_argument("--write", action="store_true", help="write results/identity/, as the stage identity does")
    return found


def parse() -> argparse.Namespace:
    """Read the command line."""
    own = parser()
    asked = own.parse_args()
    if asked.compare and len(asked.compare) > 2:
        own.error("--compare takes one run or two")
    if (asked.compare or asked.seed is not None or asked.json) and not asked.stage:
        own.error("name a stage")
    return asked


def main() -> None:
    """Write, print or compare."""
    asked = parse()
    try:
        if asked.write:
            write_identities()
        elif asked.changed:
            print("\n".join(changed_identities()))
        else:
            from tasks.chain.why_stale import explain

            print(explain(Path.cwd(), asked.stage, asked.seed, asked.compare or [], asked.json))
    except BaseException as error:
        end(error)


if __name__ == "__main__":
    main()
    sys.exit(0)
