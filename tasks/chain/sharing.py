"""Results that several machines share: through DVC's default remote, and git's remote ``origin``.

Before a run, the stages that any machine has made come from the run cache of the remote.  After each stage its results
go there, and the records of looks to ``origin``, beside the stages that run on: a machine that is lost takes only
unfinished stages with it.

What cannot be sent is tried again a few times, and again at the end.  If it still cannot, the run has its results, and
ends with an error all the same, so that nothing looks shared that is not.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from tasks.chain.graph import ChainError, ask
from tasks.looks.records import RecordsError, send_to_origin

log = logging.getLogger("symposium.stage")

#: Seconds before each further attempt.
WAITS_S = (1.0, 4.0, 15.0)


@contextmanager
def sharing(project: Path) -> Iterator["SimpleQueue[str]"]:
    """Fetch what others have made; yield a queue of the stages whose results are to be sent.

    Raises:
        ChainError: there is no default remote; or, at the end, something could not be sent.
    """
    if not _dvc(project, "config", "core.remote").strip():
        raise ChainError(
            "there is no DVC remote through which results could be shared; set one, for example "
            "`dvc remote add --default store s3://bucket/path`"
        )
    try:
        _dvc(project, "fetch", "--run-cache")
    except ChainError as error:
        log.warning("not everything could be fetched, the rest is computed here: %s", error)
    ended: SimpleQueue[str] = SimpleQueue()
    sender = threading.Thread(target=_send_each, args=(project, ended), daemon=True)
    sender.start()
    try:
        yield ended
    finally:
        ended.put("")
        sender.join()
        _send(project)  # what failed before, and what was made without sharing


def _send_each(project: Path, ended: "SimpleQueue[str]") -> None:
    while stage := ended.get():
        try:
            _send(project, stage)
        except ChainError as error:
            log.warning("%s", error)


def _send(project: Path, *stages: str) -> None:
    """Send the results of some stages, or of all."""
    for wait_s in (*WAITS_S, None):
        try:
            _dvc(project, "push", "--run-cache", *stages)
            send_to_origin()
            return
        except (ChainError, RecordsError) as error:
            what = f"results{' of ' if stages else ''}{', '.join(stages)} could not be shared"
            if wait_s is None:
                rest = "they are on this machine only; the same command sends them when the store answers"
                raise ChainError(f"{what}: {error}\n{rest}") from None
            log.warning("%s, tried again in %.0f s: %s", what, wait_s, str(error).splitlines()[-1])
            time.sleep(wait_s)


def _dvc(project: Path, *arguments: str) -> str:
    try:
        return ask(project, "--wait-for-lock", *arguments)
    except ChainError:
        if arguments == ("config", "core.remote"):  # it is not set
            return ""
        raise
