"""A trained team as folders that transformers and peft load without this project, with a model card.

symposium export team/                              # the selected checkpoint that did best on validation problems
symposium export team/ --seed 1 --step 50           # another one
symposium export team/ --form merged                # LoRA adapters become part of the weights
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tasks.runtime.arguments import program_parser
from tasks.runtime.endings import end


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    found = program_parser("export", __doc__)
    found.add_argument("output", type=Path, help="folder to write; it must not exist")
    found.add_argument("--seed", type=int, help="training seed")
    found.add_argument("--step", type=int, help="updates done at the checkpoint")
    found.add_argument("--form", choices=("trained", "merged"), default="trained", help="see above")
    return found


def main() -> None:
    """Write the folders, or say what is missing."""
    asked = parser().parse_args()
    try:
        from pipeline_lib.settings import load_params
        from tasks.use.choosing import selected
        from tasks.use.exporting import ExportError, export

        if (asked.seed is None) != (asked.step is None):
            raise ExportError("give both --seed and --step, or neither")
        seed, step = selected() if asked.seed is None else (asked.seed, asked.step)
        holds = export(load_params(), asked.output, seed, step, asked.form)
        for agent, held in holds.items():
            print(f"{asked.output / agent}: {held}")
        print(f"{asked.output / 'README.md'}: the card; {asked.output / 'load.py'} loads and asks one agent")
    except BaseException as error:
        end(error)


if __name__ == "__main__":
    main()
