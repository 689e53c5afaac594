"""A slot of the broker: a judge process, how it is started, heard and ended, and the job it has."""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from pipeline_lib.sandbox import judge, wire

START_S = 60.0  # a judge that takes longer to start its jail is stuck
_END_S = 3.0  # a judge that takes longer to end is killed


@dataclass(slots=True)
class Entry:
    """A job on its way.

    Attributes:
        number: the client's.
        body: the job, unread.
        wall_s: seconds it may take.
        attempts: times it was given to a judge.
        deaths: workers it brought down.
        losses: workers it lost to a SIGKILL, which no known act of a program can cause.
        suspicion: those of them that were lost while the program ran and nothing else is known to have been killed.
        alone: those of them that were lost while no other program ran.
        unstarted: times that no worker could be started for it.
        first_lost: when the first of them was lost, on the monotonic clock.
        late: it was late once; the next time is final.
        avoid: the slot where it lost a worker last.
    """

    number: int
    body: bytes
    wall_s: float
    attempts: int = 0
    deaths: int = 0
    losses: int = 0
    suspicion: int = 0
    alone: int = 0
    unstarted: int = 0
    first_lost: float = 0.0
    late: bool = False
    avoid: int = -1


@dataclass(slots=True)
class Slot:
    """A judge process and what it is doing.

    Attributes:
        index: number of the slot.
        pid: of the judge, 0 while there is none.
        connection: to the judge.
        ready: its jail has started.
        entry: the job it has.
        deadline: when it is stuck, on the monotonic clock.
        start_at: when it may be started again.
        broken: failed starts in a row.
    """

    index: int
    pid: int = 0
    connection: socket.socket | None = None
    frames: wire.Frames = field(default_factory=wire.Frames)
    ready: bool = False
    entry: Entry | None = None
    deadline: float = 0.0
    start_at: float = 0.0
    broken: int = 0

    def start(self, config: dict[str, Any]) -> socket.socket:
        """Fork a judge and return the connection to it."""
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                gc.freeze()  # sockets in the broker's garbage must not be closed here by a number that is another's now
                os.dup2(theirs.fileno(), 3)
                os.closerange(4, 4096)  # the selector's, the client's and the other slots' descriptors
                judge.serve(socket.socket(fileno=3), self.index, config)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        theirs.close()
        self.connection, self.ready, self.entry = ours, False, None
        self.frames = wire.Frames()
        self.deadline = time.monotonic() + START_S
        return ours

    def hear(self) -> list[tuple[wire.Head, bytes]] | None:
        """Return the frames that have come from the judge, None if it is gone."""
        assert self.connection is not None
        try:
            data = self.connection.recv(1 << 20)
        except OSError:
            data = b""
        return self.frames.feed(data) if data else None

    def stop(self) -> int:
        """End the judge and wait for it; return its wait status."""
        status = 0
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        if self.pid:
            os.kill(self.pid, signal.SIGTERM)  # it is not waited for yet, so the number is still its own
            end = time.monotonic() + _END_S
            while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                if time.monotonic() > end:
                    os.kill(self.pid, signal.SIGKILL)
                time.sleep(0.002)
            _, status = os.waitpid(self.pid, 0)
        self.pid, self.ready, self.entry = 0, False, None
        return status
