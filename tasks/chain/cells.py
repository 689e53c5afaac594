"""The results of a study's cells, kept in the project as long as a new run of the cell would give the same results.

A cell is an ordinary experiment in a workspace.  The workspace's own code computes its identity, that of all stages
together, before anything runs.  If results with the same identity are kept, the cell is not run again.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipeline_lib import storage
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.locks import locked
from pipeline_lib.settings import Params
from pipeline_lib.settings.base import result_settings
from pipeline_lib.storage import folder_digest, new_folder, read_json, write_json
from tasks.chain.graph import ChainError
from tasks.chain.workspaces import slug
from tasks.experiment.arms import IDENTITIES, PLAN_FILE, RESULTS, TEAM
from tasks.experiment.episode_files import BOUNDS, TESTED, read_episodes, tested_file
from tasks.experiment.training_files import training_file
from tasks.services.process_environment import child_environment, places

KEPT = "kept.json"

#: Sections of the settings that make a team; the others say how teams are judged.
_MAKING = ("environment", "problems", "policy", "rollouts", "sandbox", "train")


def cell_folder(study: str, cell: str) -> Path:
    """Return the folder of a cell's results; different names never share a folder."""
    return places().home / "studies" / study / f"{slug(cell) or 'cell'}-{storage.digest(cell)[:8]}"


@contextlib.contextmanager
def alone(study: str) -> Iterator[None]:
    """Let no other process run the study, which would run the same cells again.

    Raises:
        ChainError: another process is running it.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked(places().home / "studies" / f"{study}.lock", wait=False))
        except BlockingIOError:
            raise ChainError(
                f"the study {study} is running already; wait for it, or end it, and start this again"
            ) from None
        yield


def identity_of(workspace: Path) -> str:
    """Return the digest of everything that all results of a workspace depend on.

    Raises:
        ChainError: the settings are wrong, or the identity cannot be computed.
    """
    command = [sys.executable, "-m", "flows.identity", "--write"]
    done = subprocess.run(command, cwd=workspace, env=child_environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ChainError(f"{' '.join(command[1:])}: {done.stderr.strip()}")
    return folder_digest(workspace / IDENTITIES)


def kept(folder: Path, identity: str, seeds: Sequence[int]) -> bool:
    """Return whether ``folder`` has the complete, undamaged results of a cell with this identity."""
    try:
        record = read_json(folder / KEPT)
        undamaged = all(storage.file_digest(folder / name) == digest for name, digest in record["files"].items())
        return bool(record["identity"] == identity and undamaged and set(_files(seeds)) == set(record["files"]))
    except (OSError, KeyError, TypeError, storage.CorruptFileError):
        return False


def content_of(params: Params) -> str:
    """Return the digest of what a cell is: the settings that make its teams, however they are judged and named.

    Seeds do not count: who knows how some training runs of a cell ended knows something of all.
    """
    return storage.digest({section: result_settings(getattr(params, section)) for section in _MAKING})


def known_cells(study: str, settings: Mapping[str, Params]) -> list[str]:
    """Return the names of all cells of a study with stored results, of whatever study they were a cell then.

    Args:
        study: name of the study.  All cells that it had count, also those that it no longer has; one whose record is
            damaged has the name of its folder.
        settings: of its cells, by name; they count wherever results of the same settings are stored.
    """
    names = {content_of(params): cell for cell, params in settings.items()}
    found = set()
    for path in (places().home / "studies").glob(f"*/*/{KEPT}"):
        own = path.parent.parent.name == study
        try:
            record = read_json(path)
            if cell := names.get(record["content"], str(record["cell"]) if own else ""):
                found.add(cell)
        except (OSError, KeyError, TypeError, storage.CorruptFileError):
            if own:
                found.add(path.parent.name)  # its results were known all the same
    return sorted(found)


def keep(workspace: Path, study: str, cell: str, identity: str, seeds: Sequence[int], run: str, params: Params) -> None:
    """Copy a cell's results from a workspace into its folder, atomically."""
    files, folder = _files(seeds), cell_folder(study, cell)
    with new_folder(folder) as new:
        for name, source in files.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(workspace / source, new / name)
        digests = {name: storage.file_digest(new / name) for name in files}
        record = {"cell": cell, "content": content_of(params), "identity": identity, "run": run, "files": digests}
        write_json(new / KEPT, record)


def _files(seeds: Sequence[int]) -> dict[str, Path]:
    """Return the files of a cell's results: path in the workspace by name in its folder."""
    return {
        "verdict.json": RESULTS / "verdict.json",
        "plan.json": PLAN_FILE,
        "test/base.jsonl": tested_file(TEAM, "base"),
        f"test/{BOUNDS}": TESTED / BOUNDS,
        **{f"test/{(path := tested_file(TEAM, 'selected', seed)).name}": path for seed in seeds},
        **{f"train/{seed}.jsonl": training_file(TEAM, seed) for seed in seeds},
    }


def tested(folder: Path, seeds: Sequence[int]) -> dict[int, list[EpisodeRecord]]:
    """Return a kept cell's test episodes of the selected teams, by training seed."""
    return {seed: read_episodes(folder / "test" / tested_file(TEAM, "selected", seed).name) for seed in seeds}
