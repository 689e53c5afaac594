"""Serve a team with an OpenAI-compatible API on 127.0.0.1: one model name per agent, and `team` for the joint result.

symposium serve                                     # the selected team on http://127.0.0.1:8000/v1
SYMPOSIUM_API_KEY=secret symposium serve --port 9000 --team models/trained/team-0/step-00010
"""

import argparse
import os

from pipeline_lib.settings import load_params
from tasks.runtime.arguments import PORTS, program_parser, whole
from tasks.runtime.exit_status import explained
from tasks.use.choosing import choose_team

KEY = "SYMPOSIUM_API_KEY"
TEAM = "selected (default), champion, base, single, single-base, or the folder of a checkpoint"


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("endpoint", __doc__)
    reader.add_argument("--team", default="selected", help=TEAM)
    reader.add_argument("--port", type=whole(*PORTS), default=8000, help="port; 0: any free port")
    reader.add_argument(
        "--max-tokens", type=whole(1), help="largest number of tokens of an action (default: rollouts.max_new_tokens)"
    )
    reader.add_argument("--body-kb", type=whole(1), default=256, help="size limit of a request, KiB")
    reader.add_argument(
        "--waiting", type=whole(0), default=256, help="number of requests that may wait; further ones get status 429"
    )
    return reader


def main() -> None:
    """Serve until Ctrl-C, or say what is missing."""
    asked = parser().parse_args()
    with explained():
        # It loads torch, which `--help` and a wrong argument can do without.
        from tasks.use.endpoint import serve

        params = load_params()
        key = os.environ.get(KEY, "")
        choice = choose_team(params, asked.team)
        most = asked.max_tokens or params.rollouts.max_new_tokens

        def ready(url: str, models: list[str]) -> None:
            print(f"{choice.title} at {url}/v1; models: {', '.join(models)}")
            print(
                f"The key is the value of {KEY}. Ctrl-C ends it."
                if key
                else f"No key ({KEY} is not set). Ctrl-C ends it.",
                flush=True,
            )

        serve(params, choice, asked.port, most, asked.body_kb, asked.waiting, key, ready)


if __name__ == "__main__":
    main()
