"""A verdict on the outcomes of any systems: tables, or the logs of lm-eval, Inspect, verifiers and TRL.

symposium verdict outcomes.csv --baseline base --metric-range 0 1
symposium verdict base=logs/one.eval team=logs/two.eval --page verdict.html
symposium verdict --plan plan.json --baseline base --systems team --problems 200 --metric-range 0 1
symposium verdict outcomes.csv --plan plan.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.runtime.arguments import ArgumentError, number, program_parser, whole
from tasks.runtime.exit_status import explained

if TYPE_CHECKING:
    from pipeline_lib.evaluation.outcome_verdict import OutcomeVerdict

_LEAST, _MOST = -1e300, 1e300


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("outcomes", __doc__)
    reader.add_argument("files", nargs="*", metavar="FILE", help="or NAME=FILE, if a file does not name its system")
    reader.add_argument("--baseline", help="system to compare with (default: baseline, base, or the first)")
    reader.add_argument("--systems", nargs="+", metavar="NAME", help="the others (default: all)")
    reader.add_argument("--margin", type=number(1e-300, _MOST), help="smallest difference that matters (a share: 0.05)")
    reader.add_argument(
        "--metric-range",
        type=number(_LEAST, _MOST),
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="least and greatest value; without it no verdict, but on values of 0 and 1 alone",
    )
    reader.add_argument("--alpha", type=number(1e-6, 0.499), help="family-wise error rate (default: 0.05)")
    reader.add_argument("--power", type=number(0.501, 0.999), help="for detectable differences (default: 0.8)")
    reader.add_argument(
        "--only-common",
        action="store_true",
        help="leave out what only one of two systems has, instead of taking the other's outcome as lost",
    )
    reader.add_argument("--plan", type=Path, help="file of a plan: written without FILE, compared with FILE")
    reader.add_argument("--json", action="store_true", help="print everything as JSON")
    reader.add_argument("--page", type=Path, metavar="FILE.html", help="write the verdict as a page, too")
    columns = reader.add_argument_group("columns of a table", "each is by default the column of the same name")
    columns.add_argument("--problem", metavar="COLUMN", help="id of the problem")
    columns.add_argument("--system", metavar="COLUMN", help="name of the system")
    columns.add_argument("--value", metavar="COLUMN", help="the metric, greater is better; in logs its name")
    columns.add_argument("--sample", metavar="COLUMN", help="number of the sample, if there are several")
    columns.add_argument("--seed", metavar="COLUMN", help="training seed, if there is one")
    columns.add_argument("--family", metavar="COLUMN", help="family of problems, if there is one")
    planned = reader.add_argument_group("for writing a plan")
    planned.add_argument("--problems", type=whole(1, 10**9), help="number of problems")
    planned.add_argument("--samples", type=whole(1, 10**6), help="samples per problem, system and seed (default: 1)")
    planned.add_argument("--seeds", type=whole(0, 10**6), help="training seeds of each system (default: 0, none)")
    return reader


def run(asked: argparse.Namespace) -> None:
    """Print the verdict, or write the plan; raises ArgumentError if a file, a row or an option is wrong."""
    # It loads scipy, which `--help` and a wrong argument can do without.
    from pipeline_lib.evaluation.outcome_verdict import Asked, Columns, OutcomesError, plan_outcomes, verdict_on
    from pipeline_lib.report.text import harmless

    ends = None if asked.metric_range is None else (asked.metric_range[0], asked.metric_range[1])
    wanted = Asked(asked.baseline, asked.systems, asked.margin, ends, asked.alpha, asked.power, asked.only_common)
    sizes = [f"--{name}" for name in ("problems", "samples", "seeds") if getattr(asked, name) is not None]
    try:
        if asked.files:
            if sizes:
                raise ArgumentError(f"{sizes[0]} is for writing a plan; files show their own numbers")
            columns = Columns(asked.problem, asked.system, asked.value, asked.sample, asked.seed, asked.family)
            verdict = verdict_on(asked.files, columns, wanted, asked.plan)
        elif asked.plan is None:
            raise ArgumentError("give files of outcomes, or --plan FILE for writing a plan")
        else:
            plan = plan_outcomes(asked.plan, wanted, asked.value, asked.problems, asked.samples or 1, asked.seeds or 0)
            print(f"{asked.plan}: written {plan.written}, digest {plan.digest[:12]}")
            return
    except OutcomesError as error:
        raise ArgumentError(harmless(str(error))) from None
    if asked.page is not None:
        from pipeline_lib.report.outcomes import build_outcomes  # as above

        build_outcomes(verdict, asked.page)
    print(json.dumps(verdict.to_json(), indent=1, allow_nan=False) if asked.json else harmless(told(verdict)))


def told(verdict: OutcomeVerdict) -> str:
    """Return the verdict for a terminal: the lines, then what they rest on."""
    parts = list(verdict.lines)
    parts += [f"- {text}" for caveat in verdict.caveats for text in caveat.details]
    for name, comparison in verdict.comparisons.items():
        parts += ["", f"{name}: {comparison.sentence}"]
        if verdict.could_detect[name] not in comparison.sentence:
            parts.append(verdict.could_detect[name])
        parts.append(verdict.other_runs[name])
    if verdict.plan is not None:
        kept = "was not kept; the caveats say where" if verdict.plan.deviations else "was kept"
        if verdict.plan.changed:
            kept += ", and files are older than it" if verdict.plan.deviations else ", but files are older than it"
        parts += ["", f"The plan ({verdict.plan.plan[:12]}) {kept}."]
    return "\n".join(parts)


def main() -> None:
    """Print the verdict (status 0, whatever it is), or say what is wrong (status 2)."""
    asked = parser().parse_args()
    with explained():
        run(asked)


if __name__ == "__main__":
    main()
