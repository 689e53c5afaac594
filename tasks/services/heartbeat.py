"""A rank that no longer runs ends the training of all ranks, in words; one that only takes long does not.

A process that was killed closes its connections, and the others fail at once.  One that was stopped or suspended, or
whose machine has lost power or network, closes nothing, and the others would wait for its part.  So each rank counts
its beats in the store by which the ranks have found each other, and looks at the counts of the others.

Time is measured in beats of one's own: no clocks are compared, and whoever wakes up finds nobody silent.  Beats go on
while the rank samples, updates, loads or waits for the sandbox; only an extension in C that holds Python's lock for
longer than the limit looks like a stop.
"""

import datetime
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from pipeline_lib.training.optimiser import TrainingError
from pipeline_lib.training.parallel import Processes, join_processes

BEAT_S = 2.0
MISSED = 15
"""A rank that has not beaten for so many beats of another one no longer runs."""

_PATIENCE = datetime.timedelta(days=7)  # of collectives, which cannot tell long work from a stop
_JOIN_S = 10.0  # a store that hangs keeps the thread for longer
_ENDED = "ended"
_NOT_REACHED = (
    "the training processes have not reached each other: each machine must reach the others, at any port, by the "
    "network interface that leads to the first one, or by the one that GLOO_SOCKET_IFNAME names"
)
_BROKEN = "another training process has ended, as its own message says; the same command continues"


@contextmanager
def together() -> Iterator[Processes]:
    """Join the other ranks; end this process, with status 1 and a sentence on stderr, if another one stops.

    All ranks that end the block without an error leave it together, so that none misses one that has done its part.

    Raises:
        TrainingError: another rank was not reached, or work together failed, since another one has ended or stopped.
    """
    try:
        processes = join_processes()
    except (RuntimeError, OSError) as error:  # OSError: an unknown name, or no way to the address
        raise TrainingError(f"{_NOT_REACHED} ({error})") from error
    if processes.world == 1:
        yield processes
        return
    heart = _Heart(processes)
    try:
        heart.hosts = processes.gather(socket.gethostname())
        yield processes
        processes.gather(None)
    except RuntimeError as error:
        if heart.ended or isinstance(error, dist.DistError) or "gloo" in str(error):
            raise TrainingError(heart.ended or f"{_BROKEN} ({error})") from error
        raise
    finally:
        heart.stop()
    dist.destroy_process_group()  # its threads, too, must have ended before Python does


class _Heart:
    """The beats of all ranks, as one of them sees them."""

    def __init__(self, processes: Processes) -> None:
        assert dist.group.WORLD is not None
        dist.group.WORLD.set_timeout(_PATIENCE)
        # A connection of its own: the other one may wait for something.
        self._store = dist.group.WORLD.get_group_store().clone()  # type: ignore[attr-defined]
        self._rank = processes.rank
        self._counts = [0] * processes.world
        self._silent = [0] * processes.world  # beats of this rank since the last one that was seen of each
        self._seen = [time.time()] * processes.world  # for the message only
        self._over = threading.Event()
        self.hosts = ["an unknown machine"] * processes.world
        self.ended = ""  # why all end
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._beat, self._watch)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Beat no more; a thread that comes back from a library when Python has ended would abort the process."""
        self._over.set()
        for thread in self._threads:
            thread.join(_JOIN_S)

    def _beat(self) -> None:
        """Beat, and see who has beaten; a store that does not answer keeps this thread waiting."""
        try:
            while not self._over.wait(BEAT_S):
                for rank in range(len(self._counts)):
                    count = self._store.add(f"beats-{rank}", int(rank == self._rank))
                    if count > self._counts[rank]:
                        self._counts[rank], self._silent[rank], self._seen[rank] = count, 0, time.time()
                if self.ended:
                    self._store.set(_ENDED, self.ended)
                elif self._store.check([_ENDED]):
                    self.ended = self._store.get(_ENDED).decode()
        except dist.DistError:  # from now on all are silent here, unless this is the end of the work
            self._over.wait()

    def _watch(self) -> None:
        """End this process when a rank, or the store, has been silent for too long, or another rank says so."""
        while not self._over.wait(BEAT_S):
            for rank in range(len(self._silent)):
                self._silent[rank] += 1
            self.ended = self.ended or self._judge()
            if self.ended and not self._over.wait(2 * BEAT_S):  # by then the others have read why
                sys.stderr.write(f"error: {self.ended}\n")
                os._exit(1)  # the main thread waits for the others inside a library, where no exception reaches it

    def _judge(self) -> str:
        if self._silent[self._rank] > MISSED:
            who, seen = "the store of the training processes, with the first one,", self._seen[self._rank]
        elif max(self._silent) > MISSED:
            rank = self._silent.index(max(self._silent))
            who, seen = f"training process {rank} on {self.hosts[rank]}", self._seen[rank]
        else:
            return ""
        return (
            f"{who} has not answered since {time.strftime('%H:%M:%S', time.localtime(seen))}: stopped, suspended, or "
            "without a network; so all training processes end. The same command continues from the last checkpoint, "
            "also on the machines that are left"
        )
