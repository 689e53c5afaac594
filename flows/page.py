"""Watch a team play in a browser: a page on 127.0.0.1 for what `symposium play` shows in the terminal.

symposium page                                      # then open the address that it prints; symposium ui starts it too
SYMPOSIUM_PAGE_KEY=secret symposium page --port 9001
"""

import argparse
import os
import secrets

from tasks.runtime.arguments import PORTS, program_parser, whole
from tasks.runtime.exit_status import explained
from tasks.services.servers import PAGE_KEY, PAGE_PORT
from tasks.use.page import serve_page


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("page", __doc__)
    reader.add_argument("--port", type=whole(*PORTS), default=PAGE_PORT, help="0: any free one")
    return reader


def main() -> None:
    """Serve until Ctrl-C (status 0), or say why that cannot be."""
    asked = parser().parse_args()
    with explained():

        def ready(url: str) -> None:
            print(f"{url}\nWhoever has this address may play, and run tests. Ctrl-C ends it.", flush=True)

        serve_page(asked.port, os.environ.get(PAGE_KEY) or secrets.token_urlsafe(16), ready)


if __name__ == "__main__":
    main()
