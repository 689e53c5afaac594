"""Create a new project: the files that people edit, and .gitignore, in a folder.

In a checkout the files are copied from their places; a wheel contains a copy (setup.py, which reads the list below).
"""

import importlib.util
import shutil
import subprocess
from pathlib import Path

FILES = (
    "params.yaml",
    "dvc.yaml",
    "conf",
    ".gitignore",
    ".dvcignore",
    ".dvc/config",
    ".dvc/plots.html",
    ".dvc/.gitignore",
)


class ProjectError(RuntimeError):
    """The project cannot be made here; the message says why."""


def unusable(folder: Path) -> str:
    """Return why DVC cannot work in a project of this name; "" if it can."""
    if set("{}") & set(str(folder.resolve())):  # its progress bar takes them for fields of a text
        return f"DVC fails in a folder with {{ or }} in its path, as {folder.resolve()}; take another name"
    return ""


def make_project(folder: Path) -> list[str]:
    """Copy the files into ``folder``, and make it a git repository if it is in none; return what was written.

    Raises:
        ProjectError: one of the files is there already, git cannot make a repository, or DVC could not work there.
    """
    if why := unusable(folder):
        raise ProjectError(why)
    source = _source()
    if there := [name for name in FILES if (folder / name).exists()]:
        raise ProjectError(f"{folder / there[0]} exists already; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target)
        else:
            shutil.copyfile(source / name, target)
    written = list(FILES)
    if _git(folder, "rev-parse", "--git-dir").returncode != 0:
        made = _git(folder, "init", "-q")
        if made.returncode != 0:
            raise ProjectError(f"git cannot create a repository in {folder}: {made.stderr.strip()}")
        written.append(".git")
    return written


def _source() -> Path:
    spec = importlib.util.find_spec("symposium")
    assert spec is not None and spec.origin is not None, "this command belongs to it"
    package = Path(spec.origin).parent
    return package / "project" if (package / "project").is_dir() else package.parent


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ProjectError("git is not installed; looks, plans and experiments need it") from None
