"""A separate workspace for an experiment: a clone of the commit with other settings, saved as a DVC experiment.

The user's working tree is never changed (``dvc exp run --temp`` resets and restores it, which is unsafe if it is killed
in between, or while an editor is open).  Git objects and DVC's cache are shared with the project, so nothing is copied,
and earlier results are not computed again.  Uncommitted changes are not part of the experiment.
"""

import configparser
import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline_lib.locks import locked
from pipeline_lib.settings import Params
from pipeline_lib.settings.base import referenced_names
from pipeline_lib.tracking.processes import is_alive, own_process
from tasks.chain.graph import ChainError, ask
from tasks.looks.records import PROJECT
from tasks.services.process_environment import child_environment, places

OWNER = "owner"


@contextlib.contextmanager
def workspace(project: Path, name: str) -> Iterator[Path]:
    """Yield a new clone of the project's commit, which shares git objects and DVC's cache; remove it afterwards.

    Raises:
        ChainError: another process runs an experiment of this name, the project has no commit, or git or DVC fails.
    """
    folder = places().home / "workspaces" / name
    owner = folder.with_name(f"{name}.{OWNER}")
    with contextlib.ExitStack() as held:
        with running() as names:
            if name in names:
                why = "another process runs an experiment of this name; start this one again"
                raise ChainError(f"{folder}: {why}")
            held.enter_context(locked(owner))
            owner.write_text(own_process())
        held.callback(owner.unlink, missing_ok=True)
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        git(project, "clone", "--quiet", "--shared", "--no-checkout", str(project), str(folder))
        git(folder, "checkout", "--quiet", "--detach", git(project, "rev-parse", "HEAD"))
        _share_cache(project, folder)
        _share_author(project, folder)
        git(folder, "config", PROJECT, str(project))  # a look at the test split counts for the project
        yield folder


@contextlib.contextmanager
def running() -> Iterator[set[str]]:
    """Yield the names of the experiments that run, while none begins; workspaces of others are removed before.

    Whose process has ended is known by its lock, also if that was in another container with the same folder.
    """
    folder = places().home / "workspaces"
    with locked(folder.with_suffix(".lock")):
        for owner in folder.glob(f"*.{OWNER}"):
            with contextlib.suppress(OSError), locked(owner, wait=False):
                if not is_alive(owner.read_text()):  # earlier versions, which a worker may run, hold no lock
                    shutil.rmtree(owner.with_suffix(""), ignore_errors=True)
                    owner.unlink(missing_ok=True)
        yield {owner.stem for owner in folder.glob(f"*.{OWNER}")}


def with_files_of(params: Params, project: Path, folder: Path) -> tuple[Params, list[str]]:
    """Return the settings with absolute paths of the project's uncommitted files, and these paths.

    The workspace ``folder`` contains only committed files, so relative paths of others would not exist there.
    """
    named = set().union(*(referenced_names(getattr(params, section))[1] for section in Params.model_fields))
    replacements = {
        name: str(project / name) for name in named if (project / name).exists() and not (folder / name).exists()
    }
    content = params.model_dump(mode="json")
    return Params.model_validate(_replaced(content, replacements)), sorted(replacements.values())


def _replaced(value: Any, texts: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(inner, texts) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, texts) for inner in value]
    return texts.get(value, value) if isinstance(value, str) else value


def save_experiment(folder: Path, project: Path, name: str) -> str:
    """Save the workspace with all outputs as the DVC experiment ``name`` of the project; return its commit.

    DVC alone would omit files that neither git nor its cache tracks (outputs with ``cache: false``); ``dvc exp apply``
    would then combine this run's settings with results of another run.
    """
    written = git(folder, "ls-files", "-z", "--others", "--exclude-standard").split("\0")
    ask(folder, "exp", "save", "--name", name, *(f"--include-untracked={path}" for path in written if path))
    refs = git(folder, "for-each-ref", "--format=%(refname)", "refs/exps/")
    saved = [ref for ref in refs.splitlines() if ref.endswith(f"/{name}")]
    if not saved:
        raise ChainError(f"dvc exp save: experiment {name} was not made")
    git(project, "fetch", "--quiet", str(folder), f"{saved[0]}:{saved[0]}")
    return git(project, "rev-parse", saved[0])


def slug(text: str) -> str:
    """Return a name as lowercase letters, digits and dashes, which git accepts in names of refs; may be empty."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def free_name(project: Path, wanted: str, share: bool = False) -> str:
    """Return ``wanted`` as a name that git and DVC accept, and that no experiment of the project has or will get.

    With ``share`` neither has one of git's ``origin`` it.
    """
    base = slug(wanted) or "run"
    refs = git(project, "for-each-ref", "--format=%(refname)", "refs/exps/").split()
    refs += git(project, "ls-remote", "origin", "refs/exps/*").split() if share else []
    taken = {ref.rpartition("/")[2] for ref in refs}
    with running() as names:
        taken |= names
    number = 1
    while (name := base if number == 1 else f"{base}-{number}") in taken:
        number += 1
    return name


def uncommitted(project: Path) -> list[str]:
    """Return the tracked files that differ from the commit; an experiment does not include these changes."""
    lines = git(project, "status", "--porcelain", "--untracked-files=no", strip=False).splitlines()
    return [line[3:] for line in lines if line[3:] != "dvc.lock"]


def git(folder: Path, *arguments: str, strip: bool = True) -> str:
    """Return the output of a git command; raises ChainError with git's error message if it fails."""
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=child_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ChainError(f"git {' '.join(arguments)} in {folder}: {done.stderr.strip()}")
    return done.stdout.strip() if strip else done.stdout


def _share_cache(project: Path, folder: Path) -> None:
    """Let the workspace use the cache and the local settings of the project, or of the worker whose clone that is."""
    worker = places().home.parent
    lasting = worker if (worker / ".dvc").is_dir() else project
    local = lasting / ".dvc" / "config.local"  # remotes and credentials, which are not in git
    if local.exists():
        shutil.copy(local, folder / ".dvc" / "config.local")
    cache = Path(ask(lasting, "cache", "dir").strip())
    ask(folder, "cache", "dir", "--local", str((lasting / cache).resolve()))
    for remote, place in _relative_remotes(folder / ".dvc").items():
        ask(folder, "config", "--local", f"remote.{remote}.url", os.path.normpath(lasting / ".dvc" / place))


def _relative_remotes(settings: Path) -> dict[str, str]:
    """Return the remotes that are folders named from DVC's folder ``settings``, which mean another one elsewhere."""
    found: dict[str, str] = {}
    for name in ("config", "config.local"):  # the second one wins
        reader = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
        with contextlib.suppress(configparser.Error):  # DVC names what is wrong there
            reader.read(settings / name, encoding="utf-8")
        for section in reader.sections():
            if section.strip("'").startswith("remote ") and (url := reader[section].get("url")):
                found[section.strip("'").removeprefix("remote ").strip('"')] = url.strip("'\"")
    return {remote: url for remote, url in found.items() if "://" not in url and not url.startswith(("/", "~"))}


def _share_author(project: Path, folder: Path) -> None:
    for key, default in (("user.name", "Symposium"), ("user.email", "symposium@localhost")):
        value = ""
        with contextlib.suppress(ChainError):
            value = git(project, "config", key)
        git(folder, "config", key, value or os.environ.get("EMAIL", "") or default)
