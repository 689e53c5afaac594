"""Create a new project in a folder: params.yaml, presets, dvc.yaml, .gitignore.

symposium init                # in the current folder
symposium init my-project     # in a new folder
"""

import argparse
import shlex
from pathlib import Path

from tasks.runtime.arguments import program_parser
from tasks.runtime.exit_status import explained
from tasks.services.new_project import make_project


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("init", __doc__)
    reader.add_argument(
        "folder", nargs="?", type=Path, default=Path(), help="folder of the project (default: the current one)"
    )
    return reader


def main() -> None:
    """Write the files, or say why not."""
    folder = parser().parse_args().folder
    with explained():
        for name in make_project(folder):
            print(folder / name)
        there = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
        print(f"\nNext: {there}git add -A && git commit -m start && symposium run")


if __name__ == "__main__":
    main()
