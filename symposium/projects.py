"""A project in which the chain has run (`symposium run`), for `load_team`: its teams, read where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline_lib.evaluation.selected import selected_checkpoint
from pipeline_lib.project import BASE, PROBLEMS, TRAINED
from pipeline_lib.settings import load_params
from pipeline_lib.training.checkpoint_folders import RECORD, read_record, step_folder
from symposium.experiments import Experiment


class Project(Experiment):
    """A folder with ``params.yaml``, as an experiment of which everything is there; nothing is made in it.

    Raises:
        SettingsError: there is no ``params.yaml``, or a setting is wrong.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.params = load_params(folder / "params.yaml", folder / "conf")

    def problems_folder(self) -> Path:
        """Return the folder of the problems that the chain has prepared."""
        return self.folder / PROBLEMS

    def base_folder(self) -> Path:
        """Return the folder of the base policy that the chain has made."""
        return self.folder / BASE

    def place(self, what: str, /, *more: Any, **sections: tuple[str, ...]) -> Path:
        """Refuse: only the chain writes into a project."""
        raise ValueError(f"{self.folder} is a project of the chain: use `symposium run` there to audit and to train")

    def checkpoint(self, team: str) -> Path | None:
        """Return the folder of the checkpoint that ``team`` names; see `load_team`.

        Raises:
            ValueError: there is none; the message says what to do.
        """
        if team == "base":
            return None
        if team == "selected":
            seed, step = selected_checkpoint(self.folder)
            return step_folder(self.folder / TRAINED / f"team-{seed}", step)
        if team == "champion":
            return self._champion()
        folder = self.folder / TRAINED / team
        if not team.startswith("team-") or not (folder / RECORD).is_file():
            there = sorted(path.parent.relative_to(self.folder / TRAINED) for path in self._records())
            known = f"{there[0]} to {there[-1]}" if there else "none yet"
            raise ValueError(f"{team!r}: no such team; accepted: selected, champion, base, or a checkpoint ({known})")
        return folder

    def _records(self) -> list[Path]:
        return sorted((self.folder / TRAINED).glob(f"team-*/step-*/{RECORD}"))

    def _champion(self) -> Path:
        from pipeline_lib.tracking.championship import registered_name
        from pipeline_lib.tracking.recorder import champion

        name = registered_name(self.params.environment.kind)
        found = champion(self.folder / ".symposium/mlflow", name)
        if found is None:
            raise ValueError(f"{name} has no champion yet (the verdict of each run says why)")
        for path in self._records():
            if str(read_record(path)["team"]) == found.weights:
                return path.parent
        raise ValueError(
            f"the champion is {found}, whose weights are not in {self.folder}; `dvc exp apply {found.run}` brings them"
        )
