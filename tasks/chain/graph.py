"""The stages of the project as DVC sees them: which exist, which depend on which, which are up to date.

DVC decides; this module only asks it (``dvc dag``, ``dvc status``) and evaluates the answer.

DVC writes two files in place, so a kill in that moment leaves them empty or cut off, and then every command of DVC
fails: ``.dvc/tmp/rwlock``, which says who uses which file, and ``dvc.lock``.  They are mended (`mend_locks`,
`mend_record`).  Neither holds anything that is not elsewhere: locks of a process that is gone mean nothing, and DVC's
cache of runs has what ``dvc.lock`` said.
"""

import contextlib
import functools
import json
import logging
import re
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import yaml

from pipeline_lib.project import PROBLEMS
from pipeline_lib.settings import Params, SettingsError, load_params
from pipeline_lib.storage import digest, write_json
from tasks.runtime.arguments import ArgumentError, meant
from tasks.runtime.exit_status import SETTINGS_STATUS
from tasks.services.new_project import unusable
from tasks.services.process_environment import child_environment, places
from tasks.services.processes import ended, tied

log = logging.getLogger("symposium.chain")

UNKNOWN_S = 10.0
"""Expected seconds of a stage without any estimate."""

IDENTITY = "identity"
"""The stage that writes the identities of the others; it always runs, and only its outputs make others stale."""

_ALWAYS = "always changed"
_NODE = re.compile(r'^"(?P<name>[^"]+)";$')
_EDGE = re.compile(r'^"(?P<above>[^"]+)" -> "(?P<below>[^"]+)";$')


class ChainError(RuntimeError):
    """DVC failed; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: DVC's name such as ``train@0``, the stages that it depends on, and its expected seconds."""

    name: str
    above: frozenset[str]
    seconds: float


def chain_and_stale(project: Path, targets: Sequence[str] = ()) -> tuple[dict[str, Stage], set[str]]:
    """Return the stages of ``project`` (as `read_chain`) and those of them that are stale (as `outdated`).

    The identities of the stages are computed first (`tasks.identity.stages`); DVC then compares them with the last run.
    If no stage is stale and there are no targets, the list of stages is not read, and both results are empty.

    Raises:
        ChainError, ArgumentError: as `read_chain`.
        SettingsError: a setting is wrong.
    """
    _check_folder(project)
    mend_locks(project)
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(ask, project, "status", "--json")
        identities = threads.submit(_identities_changed, project)
        changed = identities.result()  # whose words about a wrong setting are better than DVC's
        status = asked.result()
        if changed:
            ask(project, "--wait-for-lock", "repro", "--quiet", "--single-item", IDENTITY)
            asked = threads.submit(ask, project, "status", "--json")
            chain = read_chain(project, targets)
            return chain, outdated(chain, asked.result())
        if not targets and all(said == [_ALWAYS] for said in json.loads(status or "{}").values()):
            return {}, set()
        chain = read_chain(project, targets)
        return chain, outdated(chain, status)


def check_targets(project: Path, targets: Sequence[str], params: Params | None = None) -> None:
    """Make sure that the stages exist, without asking DVC, so that a wrong name is told before anything changes.

    And that DVC can work in the project's folder.

    Args:
        project: its folder.
        targets: names of stages, or of kinds of stages.
        params: the settings, which say for which seeds there is a stage; None: any seed is accepted.

    Raises:
        ArgumentError: there is no such stage.
        ChainError: DVC cannot work there.
    """
    _check_folder(project)
    stages = _stages(project)
    for target in targets:
        kind = target.partition("@")[0]
        if kind not in stages:
            raise _no_stage(target, stages)
        known = None if params is None else _instances(kind, stages[kind], params)
        if params is not None and known is not None and target not in known and (target != kind or not known):
            every = [_instances(each, about, params) or [] for each, about in stages.items()]
            raise _no_stage(target, [name for names in every for name in names])


def read_chain(project: Path, targets: Sequence[str] = ()) -> dict[str, Stage]:
    """Return the stages of ``project`` in topological order, or only the targets with what they depend on.

    A target without ``@`` means all of its kind.

    Raises:
        ChainError: DVC rejects the project's files.
        ArgumentError: there is no such target.
    """
    above: dict[str, set[str]] = {}
    for line in ask(project, "dag", "--dot").splitlines():
        if match := _EDGE.match(line.strip()):
            above.setdefault(match["above"], set())
            above.setdefault(match["below"], set()).add(match["above"])
        elif match := _NODE.match(line.strip()):
            above.setdefault(match["name"], set())
    if targets:
        above = _needed(above, targets)
    seconds = expected_seconds(project, list(above))
    return {name: Stage(name, frozenset(above[name]), seconds[name]) for name in in_order(above, seconds)}


def outdated(chain: Mapping[str, Stage], status: str) -> set[str]:
    """Return the stages that the output of ``dvc status --json`` names as changed, and all stages below them."""
    report = json.loads(status or "{}")
    stale: set[str] = set()
    for name, stage in chain.items():
        if report.get(name, [_ALWAYS]) != [_ALWAYS] or stage.above & stale:
            stale.add(name)
    return stale


def ask(project: Path, *arguments: str) -> str:
    """Return the output of a DVC command; raises ChainError with its error message if it fails."""
    done = subprocess.run(
        tied([sys.executable, "-m", "dvc", *arguments]),
        cwd=project,
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 and mend_record(project, done.stderr):
        return ask(project, *arguments)
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip()).partition("Having any troubles?")[0].strip()
        words = words.removeprefix("ERROR: ").removeprefix("unexpected error - ")
        if (
            not words and done.returncode > 0 and "--quiet" in arguments
        ):  # which silences the reason, too: another run holds the files
            return ask(project, *(argument for argument in arguments if argument != "--quiet"))
        raise ChainError(_without_git(project) or f"dvc {' '.join(arguments)}: {words or ended(done.returncode)}")
    return done.stdout


def _check_folder(project: Path) -> None:
    if why := unusable(project):
        raise ChainError(why)


def _without_git(project: Path) -> str:
    """Return an error message if the project is not in a git repository, as in a copy from an archive; else empty."""
    try:
        asked = subprocess.run(["git", "-C", str(project), "rev-parse"], capture_output=True, check=False)
    except FileNotFoundError:
        return "git is not installed; DVC, plans and looks need it"
    if asked.returncode == 0:
        return ""
    return (
        f"{project} is not a git repository, which DVC, plans and looks need: `git init`, `git add -A`, "
        "`git commit -m start`, then the same command"
    )


def expected_seconds(project: Path, names: Sequence[str]) -> dict[str, float]:
    """Return the expected seconds of stages.

    As last time with this model; with a pretrained one: as last time with these settings, else by a short measurement
    of the model on this machine (`pipeline_lib.assembly.duration`).  Otherwise ``meta.seconds`` in dvc.yaml, or
    `UNKNOWN_S`.
    """
    last, stages, params = read_seconds(project), _stages(project), params_of(project)
    computed: dict[str, float] = {}
    if params is not None and params.policy.kind == "pretrained" and not set(names) <= set(last):
        # torch takes two seconds to load, and runs of embedded models do not need it here
        from pipeline_lib.assembly.duration import seconds_of_stages

        computed = seconds_of_stages(params, project / PROBLEMS, {name.partition("@")[0] for name in names})
    expected = {}
    for name in names:
        kind = name.partition("@")[0]
        default = ((stages.get(kind) or {}).get("meta") or {}).get("seconds", UNKNOWN_S)
        expected[name] = float(last.get(name, {}).get("seconds", computed.get(kind, default)))
    return expected


def _stages(project: Path) -> dict[str, Any]:
    """Return the stages in ``dvc.yaml``; none if it cannot be read, which DVC reports."""
    with contextlib.suppress(OSError, yaml.YAMLError, AttributeError):
        return yaml.safe_load((project / "dvc.yaml").read_text(encoding="utf-8")).get("stages") or {}
    return {}


def _instances(kind: str, stage: Mapping[str, Any], params: Params) -> list[str] | None:
    """Return DVC's names of the stages of a kind: one, or one per value of the setting that its matrix names.

    None: its stages are written in another way, which only DVC can read.
    """
    if "matrix" not in stage and "foreach" not in stage:
        return [kind]
    try:
        (setting,) = stage["matrix"].values()
        return [f"{kind}@{value}" for value in attrgetter(setting[2:-1])(params)]
    except (KeyError, ValueError, AttributeError, TypeError):
        return None


def in_order(above: Mapping[str, Set[str]], seconds: Mapping[str, float]) -> list[str]:
    """Return the stages in topological order, given what each depends on and its expected seconds.

    Among ready stages, the one with the longest path to the end is first.
    """
    below: dict[str, list[str]] = {name: [] for name in above}
    for name, waits_for in above.items():
        for other in waits_for:
            below[other].append(name)

    @functools.cache
    def way(name: str) -> float:
        return seconds[name] + max(map(way, below[name]), default=0.0)

    ordered: list[str] = []
    while len(ordered) < len(above):
        ready = [name for name in above if name not in ordered and above[name] <= set(ordered)]
        ordered += sorted(ready, key=lambda name: (-way(name), name))
    return ordered


def remember_seconds(project: Path, name: str, seconds: float, work_s: float | None = None) -> None:
    """Store the seconds that a stage took, for the next estimate, and those of its work, if it reported them."""
    took = {"seconds": round(seconds, 2)} | ({} if work_s is None else {"work": round(work_s, 2)})
    write_json(_seconds_file(project), {**read_seconds(project), name: took})


def remaining_s(left: Mapping[str, float], above: Mapping[str, frozenset[str]], jobs: int) -> float:
    """Return the seconds until all stages have ended, if ``jobs`` run side by side.

    Args:
        left: seconds of work left, for every unfinished stage.
        above: the stages that each one depends on.
        jobs: number of stages that run in parallel.
    """
    ends: dict[str, float] = {}
    running: dict[str, float] = {}
    now = 0.0
    while len(ends) < len(left):
        for name in left:
            waits = {other for other in above[name] if other in left}
            if name not in ends and name not in running and len(running) < jobs and waits <= ends.keys():
                running[name] = now + left[name]
        name = min(running, key=lambda key: running[key])
        now = ends[name] = running.pop(name)
    return now


def _identities_changed(project: Path) -> bool:
    """Return whether any stage's identity differs from the written one.

    Computed in a child process, because the identity is that of the project's code, not of this process's.

    Raises:
        SettingsError: a setting is wrong.
    """
    if IDENTITY not in _stages(project):
        return False
    command = [sys.executable, "-m", "flows.identity", "--changed"]
    environment = {key: value for key, value in child_environment().items() if key != "DVC_STAGE"}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == SETTINGS_STATUS:
        raise SettingsError(done.stderr.strip().removeprefix("error: "))
    if done.returncode != 0:
        raise ChainError(f"python -m flows.identity: {done.stderr.strip() or ended(done.returncode)}")
    if done.stderr.strip():
        log.warning("%s", done.stderr.strip())  # as of results that were committed by hand
    return bool(done.stdout.strip())


def _needed(above: Mapping[str, set[str]], targets: Sequence[str]) -> dict[str, set[str]]:
    waiting: list[str] = []
    for target in targets:
        chosen = [name for name in above if target in (name, name.partition("@")[0])]
        if not chosen:
            raise _no_stage(target, above)
        waiting += chosen
    kept: dict[str, set[str]] = {}
    while waiting:
        name = waiting.pop()
        kept[name] = set(above[name])
        waiting += [other for other in above[name] if other not in kept]
    return kept


def _no_stage(target: str, known: Collection[str]) -> ArgumentError:
    alike = meant(target, known) or "; known stages: " + ", ".join(known)
    return ArgumentError(f"there is no stage {target!r}{alike}")


def params_of(project: Path) -> Params | None:
    """Return the settings of a project; None if they are wrong, which the stages report."""
    with contextlib.suppress(SettingsError, OSError):
        return load_params(project / "params.yaml", project / "conf")
    return None


def _seconds_file(project: Path) -> Path:
    """Return the file of the run times with the project's model; of a pretrained one: with all of the settings."""
    params = params_of(project)
    if params is None:
        return places().home / "seconds" / "unknown.json"
    of = params.policy if params.policy.kind == "embedded" else params
    return places().home / "seconds" / f"{digest(of.model_dump(mode='json'))}.json"


def read_seconds(project: Path) -> dict[str, dict[str, float]]:
    """Return the last run time of each stage: ``seconds``, and ``work``, without starting up."""
    try:
        stored = json.loads(_seconds_file(project).read_text(encoding="utf-8")).items()
        return {name: {key: float(value) for key, value in took.items()} for name, took in stored}
    except (OSError, ValueError, AttributeError):
        return {}


_WRITING_S = 1.0
"""Seconds after which nobody is in the middle of writing so small a file."""

_BROKEN = re.compile(r"dvc\.lock' (validation failed|is invalid)")


def mend_locks(project: Path) -> str:
    """Remove the file of DVC's locks if it cannot be read; return what was done, empty if nothing was."""
    path = project / ".dvc/tmp/rwlock"
    try:
        while not _is_whole(path):
            if time.time() - path.stat().st_mtime > _WRITING_S:
                path.unlink()
                return _said(f"{path} was cut off by an interrupt; it was removed, which loses nothing")
            time.sleep(0.1)
    except FileNotFoundError:
        pass
    return ""


def mend_record(project: Path, said: str) -> str:
    """Put ``dvc.lock`` aside if ``said``, an error of DVC, is that it cannot be read; return what was done, else ""."""
    if not _BROKEN.search(" ".join(said.split())):
        return ""
    path, aside = project / "dvc.lock", project / "dvc.lock.broken"
    path.replace(aside)
    return _said(f"{path} was cut off by an interrupt; it is now {aside.name}, and DVC finds results in its cache")


def _is_whole(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except ValueError:
        return False


def _said(text: str) -> str:
    log.warning("%s", text)
    return text
