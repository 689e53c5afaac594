"""A new project: params.yaml, presets, dvc.yaml and what git leaves out, in a folder of your own.

symposium init                # here
symposium init my-project     # in a folder, which is made
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tasks.runtime.arguments import program_parser
from tasks.runtime.endings import end


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    found = program_parser("init", __doc__)
    found.add_argument("folder", nargs="?", type=Path, default=Path(), help="where (default: here)")
    return found


def main() -> None:
    """Write the files, or say why not."""
    folder = parser().parse_args().folder
    try:
        from tasks.services.new_project import make_project

        for name in make_project(folder):
            print(folder / name)
        there = "" if folder == Path() else f"cd {folder} && "
        print(f"\nNext: {there}git add -A && git commit -m start && symposium run")
    except BaseException as error:
        end(error)


if __name__ == "__main__":
    main()
