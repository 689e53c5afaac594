"""Write a trained team as folders that transformers and peft load without this project, with a model card.

symposium export team/                              # the selected checkpoint with the best validation result
symposium export team/ --seed 1 --step 50           # another checkpoint
symposium export team/ --form merged                # LoRA adapters become part of the weights
"""

import argparse
from pathlib import Path

from pipeline_lib.project import selected_checkpoint
from pipeline_lib.settings import load_params
from pipeline_lib.training.checkpoint_folders import step_folder
from tasks.experiment.arms import TEAM, trained_folder
from tasks.runtime.arguments import SEEDS, ArgumentError, program_parser, whole
from tasks.runtime.exit_status import explained


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("export", __doc__)
    reader.add_argument("output", type=Path, help="new folder for the team; it must not exist")
    reader.add_argument("--seed", type=whole(*SEEDS), help="training seed")
    reader.add_argument("--step", type=whole(0), help="number of updates at the checkpoint")
    reader.add_argument("--form", choices=("trained", "merged"), default="trained", help="see above")
    return reader


def main() -> None:
    """Write the folders, or say what is missing."""
    reader = parser()
    asked = reader.parse_args()
    if (asked.seed is None) != (asked.step is None):
        reader.error("--seed and --step must be given together")
    with explained():
        seed, step = selected_checkpoint() if asked.seed is None else (asked.seed, asked.step)
        if not (checkpoint := step_folder(trained_folder(TEAM, seed), step)).is_dir():
            raise ArgumentError(f"{checkpoint}: there is no such checkpoint")
        if asked.output.exists():
            raise ArgumentError(f"{asked.output} exists already; give another folder, or remove it")
        try:  # before the team is loaded
            asked.output.mkdir(parents=True)
            asked.output.rmdir()
        except OSError as error:
            raise ArgumentError(f"{asked.output}: {error.strerror}; give a folder that can be made") from None
        # It loads torch, which `--help` and a wrong argument can do without.
        from tasks.use.exporting import export

        holds = export(load_params(), asked.output, seed, step, asked.form)
        for agent, held in holds.items():
            print(f"{asked.output / agent}: {held}")
        print(f"{asked.output / 'README.md'}: the model card")
        print(f"{asked.output / 'load.py'}: loads every agent and prompts it")


if __name__ == "__main__":
    main()
