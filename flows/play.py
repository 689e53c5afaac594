"""A team plays one problem while you watch: prompts, actions, joint result, tests, reward.

symposium play                                     # the selected team on the first validation problem
symposium play --beside base                       # and the base beside it, with the same random draws
symposium play problem.json                        # a problem from a file; an id works too, and - reads typed text
symposium play --team models/trained/team-0/step-00010
"""

import argparse
import json
from pathlib import Path

from rich.console import Console

from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.environment_api.registry import find
from pipeline_lib.report.text import harmless
from pipeline_lib.settings import load_params
from tasks.runtime.arguments import SEEDS, program_parser, whole
from tasks.runtime.exit_status import explained
from tasks.use.choosing import choose_problem, choose_team
from tasks.use.episode import Show, as_json
from tasks.use.showing import TerminalShow, side_by_side

TEAM = "selected (default), champion, base, single, single-base, or the folder of a checkpoint"


def _problem(text: str) -> str:
    if Path(text).suffix in {".json", ".jsonl", ".txt"} and not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text!r}")
    return text


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("play", __doc__)
    reader.add_argument(
        "problem",
        nargs="?",
        type=_problem,
        help="id of a problem, a file, or - for standard input (default: the first validation problem)",
    )
    reader.add_argument("--team", default="selected", help=TEAM)
    reader.add_argument("--beside", help="a second team that plays the same problem")
    reader.add_argument(
        "--seed", type=whole(*SEEDS), default=0, help="seed of all random draws; the same seed gives the same episode"
    )
    reader.add_argument("--json", action="store_true", help="print only the episodes, as JSON")
    return reader


def main() -> None:
    """Play, or say what is missing."""
    asked = parser().parse_args()
    with explained():
        # It loads torch, which `--help` and a wrong argument can do without.
        from tasks.use.playing import opened, play, typed_on_terminal

        params = load_params()
        choices = [choose_team(params, words) for words in (asked.team, asked.beside) if words]
        problem = choose_problem(params, typed_on_terminal() if asked.problem == "-" else asked.problem)
        metrics = find(params.environment.kind).metrics()
        console, told, episodes = Console(highlight=False), set[str](), []
        for choice in choices:
            if not asked.json:
                console.print(f"\n{choice.title} plays {harmless(str(problem.id))}", style="bold", markup=False)
            show = Show() if asked.json else TerminalShow(console, metrics, told)
            with opened(params, choice, problem) as player:
                episodes.append(play(player, choice.title, problem, asked.seed, show))
        if asked.json:
            labels = {name: describe(name, metrics).label for played in episodes for name in played.turns[-1].metrics}
            print(json.dumps([as_json(played, labels) for played in episodes], indent=1))
        elif len(episodes) > 1:
            console.print()
            console.print(side_by_side(episodes, metrics))


if __name__ == "__main__":
    main()
