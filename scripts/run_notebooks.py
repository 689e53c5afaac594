"""Runs the notebooks of the docs, each in an empty folder, and keeps what they show.

python -m scripts.run_notebooks                  # all of docs/notebooks
python -m scripts.run_notebooks quick-start      # one of them
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "docs/notebooks"
_TIMEOUT_S = 600


def run(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with what its cells show now.

    Raises:
        CellExecutionError: a cell fails; the message holds its source and the traceback.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, timeout=_TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        client.execute()
    return notebook


def without_times(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Remove when cells ran, which differs every time and tells nobody anything."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    return notebook


def main() -> None:
    """Run the notebooks that are asked for, and write them back."""
    known = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
    parser = argparse.ArgumentParser(
        prog="python -m scripts.run_notebooks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", default=known, metavar="notebook", help=", ".join(known))
    for name in parser.parse_args().names:
        path = NOTEBOOKS / f"{name}.ipynb"
        nbformat.write(without_times(run(path)), path)


if __name__ == "__main__":
    main()
