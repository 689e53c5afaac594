"""What a result depends on, and why a stage is stale.

python -m flows.identity train --seed 0            # what goes into it, and what has changed since it ran
python -m flows.identity train --compare brave-owl # a run (experiment, branch, commit) and the working tree
python -m flows.identity train --compare a b       # two runs
python -m flows.identity --write                   # the first stage of dvc.yaml: an identity per stage
"""

import argparse
import sys
from pathlib import Path

from tasks.identity.files import changed_identities, write_identities
from tasks.identity.stages import STAGES
from tasks.runtime.endings import end


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.identity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", nargs="?", choices=STAGES, help="the stage; without one, all that have changed")
    parser.add_argument("--seed", type=int, help="of a stage that there is once per training seed")
    parser.add_argument("--compare", nargs="+", metavar="RUN", help="one run with the working tree, or two runs")
    parser.add_argument("--json", action="store_true", help="print the identity as JSON")
    parser.add_argument("--changed", action="store_true", help="print only the names of stages that have changed")
    parser.add_argument("--write", action="store_true", help="write results/identity/, as the stage identity does")
    asked = parser.parse_args(words)
    if asked.compare and len(asked.compare) > 2:
        parser.error("--compare takes one run or two")
    if (asked.compare or asked.seed is not None or asked.json) and not asked.stage:
        parser.error("name a stage")
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
