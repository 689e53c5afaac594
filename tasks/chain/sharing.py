"""Results that several machines share: through DVC's default remote, and git's remote ``origin``.

Before a run, the stages that any machine has made come from the run cache of the remote.  After each stage its results
go there, and the records of looks to ``origin``, beside the stages that run on: a machine that is lost takes only
unfinished stages with it.

What cannot be sent is tried again a few times, and again at the end.  If it still cannot, the run has its results, and
ends with an error all the same, so that nothing looks shared that is not.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from tasks.chain.graph import ChainError, ask
from tasks.chain.workspaces import free_name, git
from tasks.looks.records import RecordsError, send_to_origin
from tasks.runtime.training_copies import remove_copies, wrong_clock

log = logging.getLogger("symposium.stage")

#: Seconds before each further attempt.
WAITS_S = (1.0, 4.0, 15.0)
_CLOCKS = "the difference between the request time and the server's time is too large"  # S3: more than 15 minutes
_FULL = "no space left on device"  # what a store says that is a folder, and what this machine's disk says
_FAULT = "we encountered an internal error, please try again"  # what SeaweedFS says when it is full
_ROOM = 16 << 20


@contextmanager
def sharing(project: Path) -> Iterator["SimpleQueue[str]"]:
    """Fetch what others have made; yield a queue of the stages whose results are to be sent.

    Raises:
        ChainError: there is no default remote, or one without a run cache, or it refuses this machine's clock; or, at
            the end of a run that did not fail, something could not be sent.
    """
    prepare_remote(project)
    try:
        _dvc(project, "fetch", "--run-cache")
    except ChainError as error:
        if said := wrong_clock(project):  # nothing that is computed here could be shared
            raise ChainError(f"results cannot be shared: {said}") from None
        log.warning("not everything could be fetched, the rest is computed here: %s", error)
    ended: SimpleQueue[str] = SimpleQueue()
    over = threading.Event()
    sender = threading.Thread(target=_send_each, args=(project, ended, over), daemon=True)
    sender.start()
    failed = True
    try:
        yield ended
        failed = False
    finally:
        over.set()
        ended.put("")
        sender.join()
        try:  # what failed before, and what was made without sharing; a run that failed does not wait
            _send(project, pause=over.wait if failed else time.sleep)
        except ChainError as error:
            if not failed:
                raise
            log.warning("%s", error)  # how the run ended is its own error


def prepare_remote(project: Path) -> None:
    """Raise ChainError if there is no remote that can be shared; else have what comes from it checked."""
    settings = dict(line.partition("=")[::2] for line in _dvc(project, "config", "--list").splitlines())
    remote = settings.get("core.remote", "")
    if not remote:
        raise ChainError(
            "there is no DVC remote through which results could be shared; set one, for example "
            "`dvc remote add --default store s3://bucket/path`"
        )
    if reason := refusal(settings.get(f"remote.{remote}.url", "")):
        raise ChainError(reason)
    if settings.get(f"remote.{remote}.verify", "").lower() != "true":
        # DVC believes what a store says of its files, unless it is told to compare what it has fetched with its digest.
        _dvc(project, "config", "--local", f"remote.{remote}.verify", "true")


def refusal(url: str) -> str:
    """Return why nothing can be shared through a remote with this address; "" if something can."""
    if url.startswith(("http://", "https://")):
        return f"results cannot be shared through {url}: DVC keeps no run cache over http; take another store"
    if url.startswith("file:"):  # no other machine would ever see that folder, and nothing would say so
        wrong = "DVC makes a folder `file:` here of it; give the path, without file:"
        return f"results cannot be shared through {url}: {wrong}"
    if set("{}") & set(url):
        return f"results cannot be shared through {url}: DVC fails with {{ or }} in an address; take another name"
    return ""


def send_experiment(project: Path, name: str) -> str:
    """Send a DVC experiment to git's ``origin``; return its name, which gets a number if another run has it there.

    Names are chosen when runs begin, and until this one has ended another machine may have sent its own.

    Raises:
        ChainError: origin does not take it.
    """
    for wait_s in (*WAITS_S, None):
        try:
            if not _is_at_origin(project, name):
                ask(project, "exp", "push", "--no-cache", "origin", name)  # the data are in the remote already
                if not _is_at_origin(project, name):
                    raise ChainError("it takes the experiment, and does not have it then")
            return name
        except _NameTakenError:
            name, taken = free_name(project, name, share=True), name
            ask(project, "exp", "rename", taken, name)
            log.warning("meanwhile another run has sent an experiment called %s; this one is %s", taken, name)
        except ChainError as error:
            if wait_s is None:
                rest = "its results are in the store; the same command takes them from there and sends it later"
                raise ChainError(f"experiment {name} could not be sent to git's origin: {error}\n{rest}") from None
            log.warning("experiment %s could not be sent, tried again in %.0f s: %s", name, wait_s, error)
            time.sleep(wait_s)
    raise ChainError(f"experiment {name}: other runs take every name at git's origin")


class _NameTakenError(ChainError):
    """Another experiment has the name at ``origin``."""


def _is_at_origin(project: Path, name: str) -> bool:
    """Return whether ``origin`` has the project's experiment ``name``; raises if it has another one so called."""
    own = git(project, "for-each-ref", "--format=%(objectname)\t%(refname)", "refs/exps/")
    there = git(project, "ls-remote", "origin", "refs/exps/*")
    mine, theirs = ({line for line in text.splitlines() if line.endswith(f"/{name}")} for text in (own, there))
    if theirs - mine:
        raise _NameTakenError(name)
    return bool(theirs)


def _send_each(project: Path, ended: "SimpleQueue[str]", over: threading.Event) -> None:
    """Send the results of each stage that ends, until the run is over: then everything is sent at once."""
    while (stage := ended.get()) and not over.is_set():
        try:
            _send(project, stage, pause=over.wait)
        except ChainError as error:
            log.warning("%s", error)


def _send(project: Path, *stages: str, pause: Callable[[float], object]) -> None:
    """Send the results of some stages, or of all; ``pause`` waits some seconds, and returns whether to give up."""
    for wait_s in (*WAITS_S, None):
        what, where = f"results{' of ' if stages else ''}{', '.join(stages)}", "the store"
        try:
            _dvc(project, "push", "--run-cache", *stages)
            what, where = "records of plans, sweeps and looks", "git's origin"
            send_to_origin()
            break
        except (ChainError, RecordsError) as error:
            lines = str(error).splitlines()  # DVC and git name every file and every ref
            why = "\n".join(lines if len(lines) < 5 else [lines[0], f"({len(lines) - 2} further lines)", lines[-1]])
            if _CLOCKS in why.lower():
                why = "the clocks of this machine and of the store differ by more than 15 minutes; set the wrong one"
            if _FULL in why.lower() and shutil.disk_usage(project).free > _ROOM:
                why = f"{where} is full"
            if _FAULT in why.lower():
                why = f"{where} takes no files because of an error of its own, as SeaweedFS does when its disk is full"
            if wait_s is not None:
                log.warning("%s could not be shared, tried again in %.0f s: %s", what, wait_s, why.splitlines()[-1])
            if wait_s is None or pause(wait_s):
                rest = f"they are on this machine only; the same command sends them when {where} takes them"
                raise ChainError(f"{what} could not be shared: {why}\n{rest}") from None
    try:
        remove_copies(project, stages)
    except Exception as error:  # each kind of store has its own; they are in nobody's way
        log.warning("copies of trainings that have ended could not be removed from the store: %s", error)


def _dvc(project: Path, *arguments: str) -> str:
    return ask(project, "--wait-for-lock", *arguments)
