"""Puts the files that make a project into the wheel; everything else about the package stands in pyproject.toml."""

import runpy
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
#: What `symposium init` copies; the module needs nothing but Python.
PROJECT = runpy.run_path(str(ROOT / "tasks/services/new_project.py"))["FILES"]


class BuildWithProject(build_py):
    """Copies them to ``symposium/project`` of the wheel; in a checkout they are read where they are."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if self.editable_mode:
            return
        for name in PROJECT:
            source, target = ROOT / name, Path(self.build_lib) / "symposium/project" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                shutil.copy2(source, target)


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildWithProject})
