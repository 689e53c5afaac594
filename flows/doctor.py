"""Check what works on this machine, and what to install for the rest.

symposium doctor         # status 1 if the default run would not work here
"""

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipeline_lib.sandbox.backend import SandboxUnavailable
from pipeline_lib.sandbox.executor import Executor
from pipeline_lib.settings.rollouts import VllmRollouts
from tasks.chain.graph import mend_locks
from tasks.chain.sharing import refusal
from tasks.runtime.arguments import program_parser
from tasks.runtime.exit_status import explained
from tasks.runtime.training_copies import StoreError, try_store
from tasks.services.clocks import of_server
from tasks.services.new_project import unusable
from tasks.services.process_environment import places, server_url
from tasks.services.servers import ServerError, check_tracking, refused, require, without_password

OK, MISSING, OPTIONAL = "ok", "missing", "optional"
LEAST_FREE_GB = 2.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    name: str  #: the checked item
    #: ``ok``; ``missing``: the default run does not work without it; ``optional``: it is missing and not needed for the
    #: default run.
    status: str
    text: str  #: details, and what to do if it is missing


def examine(project: Path) -> list[Finding]:
    """Return the result of every check for a project, those for the default run first."""
    checks: tuple[Callable[[Path], Finding], ...] = (
        _python, _libraries, _git, _dvc, _disk, _servers, _jail, _docker, _gvisor, _gpu, _vllm, _ray, _store,
    )  # fmt: skip
    return [check(project) for check in checks]


def _python(project: Path) -> Finding:
    return Finding("Python", OK, f"{platform.python_version()} on {os.cpu_count()} cores, {sys.executable}")


def _libraries(project: Path) -> Finding:
    names = ("torch", "transformers", "peft", "prefect", "mlflow", "dvc")
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        return Finding("libraries", MISSING, f"not installed: {', '.join(missing)}; run `make environment`")
    return Finding("libraries", OK, ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names))


def _git(project: Path) -> Finding:
    if shutil.which("git") is None:
        return Finding("git", MISSING, "git is not installed; looks, plans and experiments need it")
    if _said("git", "-C", str(project), "rev-parse", "HEAD") is None:
        make = "" if _said("git", "-C", str(project), "rev-parse", "--git-dir") else "`git init`, "
        return Finding("git", MISSING, f"{project} has no commit; {make}`git add -A`, `git commit -m start`")
    return Finding("git", OK, "a repository with a commit")


def _dvc(project: Path) -> Finding:
    if not (project / "dvc.yaml").exists():
        return Finding("project", MISSING, f"no dvc.yaml in {project}; go to the project's folder, or `symposium init`")
    if why := unusable(project):
        return Finding("project", MISSING, why)
    if not (project / ".dvc").is_dir():
        return Finding("project", MISSING, "no folder .dvc; run `dvc init`")
    return Finding("project", OK, f"{project}{f'; {mended}' if (mended := mend_locks(project)) else ''}")


def _disk(project: Path) -> Finding:
    free = shutil.disk_usage(project).free / 2**30
    text = f"{free:.1f} GB free"
    if free < LEAST_FREE_GB:
        return Finding("disk", MISSING, f"{text}; the default run needs {LEAST_FREE_GB:g} GB")
    if not os.access(project, os.W_OK):
        return Finding("disk", MISSING, f"{project} cannot be written to")
    return Finding("disk", OK, text)


def _servers(project: Path) -> Finding:
    if given := os.environ.get("PREFECT_API_URL"):
        try:
            require(given)
        except ServerError as error:
            return Finding("servers", MISSING, str(error))
        if said := of_server(f"{given}/health", f"the Prefect server at {given}"):
            return Finding("servers", MISSING, said)
    try:
        check_tracking()
    except ServerError as error:
        return Finding("servers", MISSING, str(error))
    if (tracking := os.environ.get("MLFLOW_TRACKING_URI", "")).startswith("http") and (why := refused(tracking)):
        return Finding("servers", MISSING, why)
    if given or tracking:
        return Finding("servers", OK, ", ".join(filter(None, [given, without_password(tracking)])))
    running = [f"{name} {url}" for name in ("prefect", "mlflow") if (url := server_url(name))]
    if running:
        return Finding("servers", OK, ", ".join(running))
    return Finding("servers", OK, f"not running, and not needed; `symposium ui` starts them (state: {places().home})")


def _jail(project: Path) -> Finding:
    try:
        with Executor("process", slots=1) as executor:
            return Finding("sandbox", OK, f"programs run in processes, isolation: {executor.health()['isolation']}")
    except SandboxUnavailable as error:
        return Finding("sandbox", MISSING, str(error))


def _docker(project: Path) -> Finding:
    version = _said("docker", "version", "--format", "{{.Server.Version}}")
    if version is None:
        return Finding("Docker", OPTIONAL, "no daemon answers; only `sandbox.kind: docker` needs one")
    return Finding("Docker", OK, version)


def _gvisor(project: Path) -> Finding:
    version = _said("runsc", "--version")
    if version is None:
        return Finding("gVisor", OPTIONAL, "`runsc` is not installed; only `sandbox.runtime: runsc` needs it")
    return Finding("gVisor", OK, version.splitlines()[0])


def _gpu(project: Path) -> Finding:
    # It loads for seconds, which `--help` can do without.
    import torch

    if not torch.cuda.is_available():
        built = (
            f"this torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "this torch is a CPU build"
        )
        return Finding("GPU", OPTIONAL, f"none that torch can use ({built}); the embedded model does not need one")
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Finding("GPU", OK, ", ".join(names))


def _vllm(project: Path) -> Finding:
    """Look in this environment, then in the one that `rollouts.python` names if nothing else is set."""
    here = _package("vLLM", "vllm", "")
    if here.status == OK:
        return here
    python = VllmRollouts.model_fields["python"].default
    version = _said(str(project / python), "-c", "import importlib.metadata as m; print(m.version('vllm'))")
    if version:
        return Finding("vLLM", OK, f"{version}, in {Path(python).parent.parent}")
    return Finding(
        "vLLM",
        OPTIONAL,
        "not installed; only `rollouts.kind: vllm` needs it: install vllm in an environment of its own, and name its "
        f"interpreter in rollouts.python (default {python})",
    )


def _ray(project: Path) -> Finding:
    return _package("Ray", "ray", "only needed to judge programs, or to play checkpoints, on several machines")


def _store(project: Path) -> Finding:
    """Try DVC's default remote, if the project names one: then runs with ``--share`` need it."""
    settings = dict(line.partition("=")[::2] for line in (_dvc_says(project, "config", "--list") or "").splitlines())
    if not (remote := settings.get("core.remote", "")):
        text = "no default remote; `dvc remote add --default NAME URL` names one, for `symposium run --share`"
        return Finding("store", OPTIONAL, text)
    rest = "only `symposium run --share` and workers need it"
    if reason := refusal(settings.get(f"remote.{remote}.url", "")):
        return Finding("store", OPTIONAL, f"{reason}; {rest}")
    try:
        found, taken = try_store(project)
    except StoreError as error:
        return Finding("store", OPTIONAL, f"{error}; {rest}")
    if taken:
        text = "Files are compared when they are fetched; what is damaged on the way there may be noticed only then"
        return Finding("store", OPTIONAL, f"{found}; it takes {', and '.join(taken)}, which S3 refuses. {text}")
    if settings.get(f"remote.{remote}.verify", "").lower() != "true":
        # A damaged file would be taken by `dvc pull` under the digest of the sound one.
        text = f"DVC believes what it says its files are; `dvc remote modify {remote} verify true` has them compared"
        return Finding("store", OPTIONAL, f"{found}; {text}")
    return Finding("store", OK, found)


def _dvc_says(project: Path, *arguments: str) -> str | None:
    return _said(sys.executable, "-m", "dvc", "--cd", str(project), *arguments)


def _package(name: str, module: str, why: str) -> Finding:
    try:  # a folder of this name may lie on the path, so it is not asked whether it can be imported
        return Finding(name, OK, importlib.metadata.version(module))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, OPTIONAL, f"not installed; {why}")


def _said(*command: str) -> str | None:
    """Return the output of a program, or None if it is missing, fails, or takes longer than ten seconds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


_COLOURS = {OK: "green", MISSING: "red", OPTIONAL: "yellow"}


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line, which takes no arguments."""
    return program_parser("doctor", __doc__)


def main() -> None:
    """Print a line per thing."""
    parser().parse_args()
    with explained():
        findings = examine(Path.cwd())
        table = Table(box=None, pad_edge=False, show_header=False)
        for finding in findings:
            table.add_row(finding.name, f"[{_COLOURS[finding.status]}]{finding.status}[/]", finding.text)
        Console().print(table)
        sys.exit(any(finding.status == MISSING for finding in findings))


if __name__ == "__main__":
    main()
