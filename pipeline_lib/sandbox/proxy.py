"""Stands for the program in the judge's process: calls go out as plain values, answers come back as plain values.

Promises: no answer, however malformed, large, late or missing, does more than fail the case that asked; time is
measured by the program's own CPU clock, with the wall clock as back-stop.  After a call without an answer the program
is started afresh for the calls that follow, at most `RESTARTS` times.
"""

from __future__ import annotations

import select
import signal
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipeline_lib.sandbox import calls
from pipeline_lib.sandbox.handles import Handles, exception, is_class
from pipeline_lib.sandbox.imports import is_well_known
from pipeline_lib.sandbox.inside import values
from pipeline_lib.sandbox.inside.common import Common
from pipeline_lib.sandbox.inside.folder import Folder
from pipeline_lib.sandbox.inside.recorder import NoAnswer
from pipeline_lib.sandbox.jobs import Limits
from pipeline_lib.sandbox.randomness import seed_of_program
from pipeline_lib.sandbox.starvation import waited_for_processor
from pipeline_lib.sandbox.tests_source import Planned
from pipeline_lib.sandbox.watch import Watch
from pipeline_lib.sandbox.worker import Usage, Worker, WorkerDied

RESTARTS = 3
_FRAME_SLACK = 1 << 16  # bytes of a reply around a value, or instead of one
_AHEAD = 1 << 16  # bytes sent with a program, its own included; every socket takes so many at once
_MOST_OPERATIONS = 20_000  # on a program's objects
_MOST_GRACE = 3.0  # wall limits by which a busy machine may put off the end of a job
_NEARLY_ALL = 0.8  # of the memory limit: a process killed then was killed for it


class Program:
    """The program of a job with one plan, across restarts, and what it has used.

    Attributes:
        events: what went wrong so far, as ``(kind, text)``; kinds are the statuses of a verdict.
        failures: what calls raised instead of an answer; the tests may have lost it.
        broken: the jail died under a call.
        cpu_s, peak_mb: of all ended children.
        space: the tests' namespace, in which exceptions are looked up.
        handles: what the tests hold of the program's objects; None as long as they have been given values alone.
    """

    def __init__(self, planned: Planned, limits: Limits, worker: Worker) -> None:
        self.planned = planned
        self.job = planned.job
        self.limits = limits
        self.worker = worker
        self.events: list[tuple[str, str]] = []
        self.failures: list[NoAnswer] = []
        self.broken: WorkerDied | None = None
        self.cpu_s = 0.0
        self.peak_mb = 0.0
        self.space: dict[str, Any] = {}
        self.handles: Handles | None = None
        self.wall_end = time.monotonic() + limits.wall_s
        self._calls = 0
        self._operations = 0
        self._asked = False
        self._is_class = False
        self._graced = 0.0
        self._waited = 0.0
        self._answered = time.monotonic()
        self._channel: Any = None
        self._restarts = 0
        self._poll = select.poll()
        self._buffer = bytearray()
        # Calls that the program knows of and the tests have not made yet: arguments and requests.
        self._sent: deque[tuple[bytes, bytes]] = deque()
        self._early: deque[list[Any] | _Settled] = deque()  # the program's answers to the first of them
        self._surprised = False
        self._known = Common(0)
        self._gone: list[int] = []  # containers that the program must forget
        self._turn = threading.RLock()  # tests may call from threads

    # -- life of a child ------------------------------------------------------------------------------------------

    def load(self) -> bool:
        """Start a child and load the program in it; on failure record the event and return False."""
        job = self.job
        limits = {name: getattr(self.limits, name) for name in Limits.__dataclass_fields__}
        self._channel = self.worker.take(None if limits == self.worker.usual_limits else limits)
        self._channel.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._channel, select.POLLIN)
        self._poll.register(self.worker.control, select.POLLIN)
        self._buffer.clear()
        self._known, self._gone = Common(0), []
        self._waited = 0.0
        message = {
            "code": job.code,
            "prelude": job.prelude,
            "entry_point": job.entry_point,
            "seed": seed_of_program(job),
            "plan": calls.inline_form(self.planned) if job.mode == "inline" else None,
        }
        request = _framed(values.write_request("load", message))
        try:
            _, kind, *rest = self._exchange(request + self._foresee(_AHEAD - len(request)))
        except NoAnswer:
            return False
        if kind == "loaded":
            self._is_class = rest == ["class"]
            return True
        raised = calls.exception(rest)
        self.end()
        self.events.append(("oom" if "MemoryError" in raised.names else "load_error", raised.describe()))
        return False

    def _foresee(self, room: int) -> bytes:
        """Return the requests of the calls that the tests make next, so far as they are known and fit into ``room``.

        Sent together with the program, they spare both sides waiting for each other call by call.  The program hears
        of arguments earlier, of nothing else: its answers are taken, and its time is taken, when the tests ask.
        """
        (plan,) = self.planned.plans
        if self._surprised or self.job.mode == "inline":
            return b""
        frames = []
        for call in plan.foreseen[self._calls :]:
            frames.append(_framed(call[1]))
            room -= len(frames[-1])
            if room < 0:
                frames.pop()
                break
            self._sent.append(call)
        return b"".join(frames)

    def inline_results(self) -> list[tuple[str, str]] | None:
        """Inline mode: return what the program says of the tests it ran itself, or None if it said nothing usable."""
        try:
            rest = self._exchange(b"", self.limits.cpu_s)[2:]
            results = calls.results(rest, self.planned.total)
            if results is None:
                self._fail("output_limit", "a reply that is no list of results")
            return results
        except NoAnswer:
            return None

    def end(self, gone: bool = False) -> Usage | None:
        """End the child, if there is one, and count what it used; ``gone`` if it closed its channel."""
        if self._channel is None:
            return None
        self._channel.close()
        self._channel = None
        self._sent.clear()
        self._early.clear()
        if self.handles is not None:
            self.handles.ended = True
            self.handles = None
        usage = self.worker.finish(gone)
        self.cpu_s += usage.cpu_s
        self.peak_mb = max(self.peak_mb, usage.peak_mb)
        return usage

    def grace(self) -> float:
        """Return the seconds by which to put the end off: those in which the child was kept from running."""
        waited = waited_for_processor(self.worker.jail.host_pid)
        if waited is None:
            return 0.0
        grace = min(waited - self._waited, _MOST_GRACE * self.limits.wall_s - self._graced)
        self._waited = waited
        self._graced += grace
        self.wall_end += grace
        return grace

    @property
    def asked(self) -> bool:
        """Return whether the tests have called the program."""
        return self._asked

    def fail(self, failure: NoAnswer) -> None:
        """Count an event that keeps the program from passing, whatever the tests make of it."""
        self.events.append((failure.kind, str(failure)))
        self.failures.append(failure)

    # -- objects --------------------------------------------------------------------------------------------------

    def bind(self) -> None:
        """Give the tests what they know by name: the entry point, and the program's classes that they speak of."""
        entry_point, (plan,) = self.job.entry_point, self.planned.plans
        self.space |= {entry_point: self, "candidate": self}
        names = sorted(name for name in plan.names if self._may_name(name))
        if not names and not self._is_class and not (plan.files and plan.methods):
            return
        found = self._hold().do("names", entry_point, *names)
        for name, value in zip((entry_point, *names), found if isinstance(found, tuple) else (), strict=False):
            if is_class(value):
                self.space[name] = value
        if self._is_class:
            self.space["candidate"] = self.space[entry_point]

    def _may_name(self, name: str) -> bool:
        """Return whether a name that the tests leave open may be that of a class of the program."""
        return name not in self.space and not is_well_known(name) and f"class {name}" in self.job.code

    def revive(self) -> None:
        """Start the program afresh if it has ended, as often as that is allowed."""
        if self._channel is None and self._restarts < RESTARTS:
            self._restarts += 1
            if self.load():
                self.bind()
            else:
                self._restarts = RESTARTS

    def operate(self, operation: str, message: Any) -> Any:
        """Have the program do something to objects of its own; return the value.

        Raises:
            What `__call__` raises.
        """
        with self._turn:
            return self._counted(self._operate, operation, message)

    def _operate(self, operation: str, message: Any) -> Any:
        handles = self._hold()
        while len(self._early) < len(self._sent):  # the program answers in the order in which it was asked
            self._early.append(self._settled(self._exchange(b"")))
        self._asked = self._asked or operation != "names"
        self._operations -= 1
        if self._operations < -_MOST_OPERATIONS:
            raise self._fail("output_limit", f"more than {_MOST_OPERATIONS} operations on its objects")
        asked = self._operations
        number, kind, *rest = self._exchange(_framed(values.write_request(asked, operation, message)))
        try:
            while kind == "callback" and len(rest) == 2:
                answer = handles.call(*rest)
                number, kind, *rest = self._exchange(_framed(values.write_request(0, "return", answer)))
            if number != asked:
                raise self._fail("output_limit", "the program answered what it was not asked")
            return self._value(kind, rest)
        except values.BadValue as error:
            raise self._fail("output_limit", f"a reply that is no value: {error}") from None

    def _settled(self, reply: list[Any]) -> list[Any] | _Settled:
        """Take over an answer that comes early: later ones speak of the classes and containers that it brings."""
        number, kind, *rest = reply
        if kind != "shared" and (kind, len(rest)) != ("raised", 2):
            return reply
        try:
            return _Settled(number, self._value(kind, rest), None)
        except values.BadValue as error:
            raise self._fail("output_limit", f"a reply that is no value: {error}") from None
        except NoAnswer:
            raise
        except BaseException as error:
            return _Settled(number, None, error)

    def _hold(self) -> Handles:
        if self.handles is None:
            (plan,) = self.planned.plans
            folder = Folder(self.limits.file_mb << 20) if plan.files else None
            self.handles = Handles(self.operate, bool(plan.methods), folder)
            self.handles.take_over(self._known.cells, self._gone)
            self._known, self._gone = Common(0), []
        return self.handles

    def _value(self, kind: str, rest: list[Any]) -> Any:
        """Return the value of a reply with handles; raises `BadValue` for what is none."""
        if kind == "shared" and len(rest) == 1:
            (value,) = self._hold().arrived(rest[0])
            return value
        if kind == "raised" and len(rest) == 2:
            (handle,) = self._hold().arrived(rest.pop())
            raised = self._raised(rest)
            if handle is None or raised.is_known(self.space):
                raise raised.rebuild(self.space, self.job.tests)
            raise exception(handle, raised)
        raise self._no_value(kind, rest)

    # -- calls ----------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the program's function and return a copy of its value.

        Arguments are copies, too, but what the program does to them is done to the tests' own: see `common`.

        Raises:
            Exception: the exception known to the tests that is nearest to the one that the program raised.
            CallFailed: it raised one that no test may expect.
            NoAnswer: there is no answer.
        """
        with self._turn:
            return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the value of a call."""
        return self._counted(self._ask, args, kwargs)

    def _counted(self, ask: Callable[..., Any], *args: Any) -> Any:
        """Return what ``ask`` does, and remember what it raised instead if the tests may lose it."""
        if self.broken is not None:
            raise self.broken
        try:
            return ask(*args)
        except NoAnswer as failure:
            self.failures.append(failure)
            raise
        except WorkerDied as error:
            self.broken = error
            raise

    def _ask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._channel is None:
            if self._restarts >= RESTARTS:
                raise NoAnswer("skipped", "the program was given up after too many failures")
            self._restarts += 1
            self._load_again()
        frame = b""
        if self._sent and not kwargs and calls.same_arguments(args, self._sent[0][0]):
            self._sent.popleft()
        else:
            if self._sent:  # the tests do other than their text says
                self._surprised = True
                self.end()
                self._load_again()
            request = None
            if self.handles is None:
                request = calls.request(self._calls + 1, list(args), kwargs, self._known, self._gone)
            if request is None:
                return self._hold().do("call", None, args, tuple(kwargs.items()))
            frame, self._gone = _framed(request), []
        self._calls += 1
        self._asked = True
        reply = self._early.popleft() if self._early else self._exchange(frame)
        number = reply.number if isinstance(reply, _Settled) else reply[0]
        if number != self._calls:
            raise self._fail("output_limit", "the program answered a call that was not made")
        if isinstance(reply, _Settled):
            if reply.error is not None:
                raise reply.error
            return reply.value
        _, kind, *rest = reply
        try:
            if kind == "value" and len(rest) in (1, 3):
                return calls.value(rest, self._known)
            if kind == "shared" or (kind == "raised" and len(rest) == 2):
                return self._value(kind, rest)
            if kind == "raised" and len(rest) in (1, 3):
                calls.take_over(rest[1:], self._known)
                raise self._raised(rest).rebuild(self.space, self.job.tests)
        except values.BadValue as error:
            raise self._fail("output_limit", f"a reply that is no value: {error}") from None
        raise self._no_value(kind, rest)

    def _raised(self, rest: list[Any]) -> calls.Raised:
        raised = calls.exception(rest)
        if "MemoryError" in raised.names:
            self.events.append(("oom", raised.describe()))
        return raised

    def _no_value(self, kind: str, rest: list[Any]) -> NoAnswer:
        """Return what to raise for a reply without a value."""
        if kind == "bad" and len(rest) == 2 and all(type(text) is str for text in rest):
            self._known.clear()
            if rest[0] == "size":
                self.events.append(("output_limit", rest[1][:300]))
            return NoAnswer("error", rest[1][:300])
        return self._fail("output_limit", "the program sent no value")

    def _load_again(self) -> None:
        """Start the program afresh for the calls that follow; a program that fails to load is given up."""
        if not self.load():
            self._restarts = RESTARTS
            raise NoAnswer(*self.events[-1])
        self.bind()

    # -- the exchange of one frame ----------------------------------------------------------------------------------

    def _exchange(self, request: bytes, cpu_s: float | None = None) -> list[Any]:
        """Send ``request``, a frame or several or none, and return the program's next reply.

        Args:
            cpu_s: CPU seconds it may take; by default those of a call.
        """
        if not request and (frame := self._frame()) is not None:
            return self._parse(frame)  # it was there when it was asked for
        self.wall_end += time.monotonic() - self._answered  # the tests' own time is not the program's
        try:
            return self._wait(memoryview(request), Watch(self, cpu_s or self.limits.call_cpu_s))
        finally:
            self._answered = time.monotonic()

    def _wait(self, outgoing: memoryview, watch: Watch) -> list[Any]:
        """Send what is outgoing and wait for the next reply, for as long as ``watch`` allows."""
        while True:
            if not outgoing and (frame := self._frame()) is not None:
                return self._parse(frame)
            if outgoing:
                try:
                    outgoing = outgoing[self._channel.send(outgoing) :]
                except BlockingIOError:
                    pass
                except OSError:
                    raise self._dead() from None
            self._poll.modify(self._channel, select.POLLIN | (select.POLLOUT if outgoing else 0))
            ready = dict(self._poll.poll(watch.nap_ms()))
            if self.worker.control.fileno() in ready:
                raise WorkerDied("the fork server ended during a job")
            if ready.get(self._channel.fileno(), 0) & ~select.POLLOUT:
                try:
                    part = self._channel.recv(1 << 16)
                except BlockingIOError:
                    part = None
                except OSError:
                    part = b""
                if part == b"":
                    raise self._dead()
                self._buffer += part or b""
                if len(self._buffer) > (self.limits.reply_kb << 10) + 2 * _FRAME_SLACK:
                    raise self._fail("output_limit", "more than one reply at a time")
            late = watch.look()
            if late:
                raise self._fail(*late)

    def _frame(self) -> bytes | None:
        """Take a whole frame out of what the program has sent; None if there is none yet."""
        if len(self._buffer) < 4:
            return None
        (length,) = struct.unpack_from("!I", self._buffer)
        limit = self.limits.reply_kb << 10
        if length > limit + _FRAME_SLACK:
            raise self._fail("output_limit", f"a reply of {length} bytes, {limit} are allowed")
        if len(self._buffer) < 4 + length:
            return None
        frame = bytes(self._buffer[4 : 4 + length])
        del self._buffer[: 4 + length]
        return frame

    def _parse(self, frame: bytes) -> list[Any]:
        try:
            return values.read_reply(frame)
        except values.BadValue as error:
            raise self._fail("output_limit", f"a reply that is none: {error}") from None

    def _dead(self) -> NoAnswer:
        """End the child that closed its channel and say what became of it."""
        usage = self.end(gone=True)
        assert usage is not None
        if usage.signal == signal.SIGSYS:
            event = ("violation", "the program made a forbidden system call")
        elif usage.signal in (signal.SIGKILL, signal.SIGXCPU) and self.cpu_s >= self.limits.cpu_s:
            event = ("timeout", f"more than {self.limits.cpu_s:g} s of CPU time")
        elif usage.forced:
            event = ("crash", "the program closed its channel")
        elif usage.signal == signal.SIGKILL and usage.peak_mb > _NEARLY_ALL * self.limits.memory_mb:
            event = ("oom", f"more than {self.limits.memory_mb} MiB of memory")
        elif usage.signal == signal.SIGKILL:
            raise WorkerDied("the program's process was killed", outside=True)
        elif usage.signal:
            event = ("crash", f"the program died of signal {usage.signal}")
        else:
            event = ("crash", f"the program ended itself with exit code {usage.exit_code}")
        self.events.append(event)
        return NoAnswer(*event)

    def _fail(self, kind: str, text: str) -> NoAnswer:
        self.end()
        self.events.append((kind, text))
        return NoAnswer(kind, text)


@dataclass(frozen=True, slots=True)
class _Settled:
    """An answer that was taken over before the tests asked for it."""

    number: int
    value: Any
    error: BaseException | None


def _framed(request: bytes) -> bytes:
    """Return a request with four bytes of length before it."""
    return struct.pack("!I", len(request)) + request
