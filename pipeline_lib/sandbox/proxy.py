"""The judge's proxy of the program: sends calls as plain values and receives answers as plain values.

Promises: a malformed, large, late or missing answer only fails the case that made the call.  After a call without an
answer the program is restarted for the following calls, at most `RESTARTS` times.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

from pipeline_lib.sandbox import calls
from pipeline_lib.sandbox.calls import NoAnswer, same_arguments
from pipeline_lib.sandbox.exchange import CALLED_IN_FORK, Exchange
from pipeline_lib.sandbox.imports import is_well_known
from pipeline_lib.sandbox.inside import messages, shared, values
from pipeline_lib.sandbox.inside.folders import Folder
from pipeline_lib.sandbox.inside.values import BadValue
from pipeline_lib.sandbox.jobs import Limits
from pipeline_lib.sandbox.objects import Handles, exception, is_class, is_handle
from pipeline_lib.sandbox.randomness import seed_of_program
from pipeline_lib.sandbox.tests_source import Planned
from pipeline_lib.sandbox.worker import ProgramWorker, Usage

_PROGRAM = "__symposium_program__"


class Candidate:
    """A proxy of the program's function.

    Args:
        program: answers the calls.
        name: of the function.
    """

    __slots__ = (_PROGRAM, "__symposium_name__")
    __module__ = "program"

    def __init__(self, program: Program, name: str) -> None:
        object.__setattr__(self, _PROGRAM, program)
        object.__setattr__(self, "__symposium_name__", name)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the program's function and return a copy of its value.

        Arguments are copied, too, but the program's changes to them are applied to the tests' objects: see
        `inside.shared`.

        Raises:
            Exception: the exception known to the tests that is nearest to the one that the program raised.
            CallFailed: the program raised an exception that no test may expect.
            NoAnswer: there is no answer.
        """
        return _program(self).call(args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(_program(self).function(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_program(self).function(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_program(self).function(), name)

    def __get__(self, thing: Any, kind: Any = None) -> Any:
        """Return a bound method, as for a function that is an attribute of a class."""
        return self if thing is None else MethodType(self, thing)

    def __copy__(self) -> Candidate:
        return self

    def __deepcopy__(self, memo: Any) -> Candidate:
        return self

    def __repr__(self) -> str:
        return f"<function {object.__getattribute__(self, '__symposium_name__')}>"

    @property
    def __signature__(self) -> Any:
        """Raise ValueError, as ``inspect.signature`` does for builtins: the signature is not known here."""
        raise ValueError("no signature found for a function that stays in the program")


class _Documentation:
    """Makes ``__doc__`` of a candidate the program's documentation and not that of `Candidate`."""

    def __get__(self, thing: Any, kind: Any) -> Any:
        return None if thing is None else _program(thing).function().__doc__


type.__setattr__(Candidate, "__doc__", _Documentation())


def _program(candidate: Candidate) -> Program:
    program: Program = object.__getattribute__(candidate, _PROGRAM)
    return program


MAX_BYTES = 1 << 16  # sent with a program, its source included; every socket takes this much without blocking


class PipelinedCalls:
    """The calls that were sent to one program in advance.

    The program answers them until the first answer that is more than a copy, and skips the others, which the tests then
    make like any call.
    """

    def __init__(self, planned: Planned) -> None:
        self._planned = planned
        self._mispredicted = False
        self._sent: deque[tuple[bytes, bytes]] = deque()  # arguments and frames

    def requests(self, calls: int, max_bytes: int) -> bytes:
        """Return the frames of the calls after the first ``calls``, at most ``max_bytes`` of them."""
        plan = self._planned.plan
        if self._mispredicted:
            return b""
        frames = []
        for call in plan.foreseen[calls:]:
            max_bytes -= len(call[1])
            if max_bytes < 0:
                break
            frames.append(call[1])
            self._sent.append(call)
        return b"".join(frames)

    def take_if_next(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether the call that the tests make is the next one sent; if so, remove it from the queue."""
        if self._sent and not kwargs and same_arguments(args, self._sent[0][0]):
            self._sent.popleft()
            return True
        return False

    def mispredict(self) -> bool:
        """Return whether the program was sent calls that the tests do not make; if so, send no more in advance."""
        self._mispredicted = self._mispredicted or bool(self._sent)
        return bool(self._sent)

    def clear(self) -> None:
        """Drop the calls: the program will not answer them, or its process has ended."""
        self._sent.clear()


RESTARTS = 3
_MOST_OPERATIONS = 20_000  # on a program's objects


class Program(Exchange):
    """The program of a job with one plan, across restarts, and its usage.

    Attributes:
        failures: exceptions that calls raised instead of an answer; the tests may have lost them.
        space: the tests' namespace, in which exceptions are looked up.
        asked: the tests have called the program.
        handles: the tests' handles of the program's objects; None as long as they have received only values.
        candidate: the object that the tests call.
    """

    def __init__(self, planned: Planned, limits: Limits, worker: ProgramWorker) -> None:
        super().__init__(limits, worker)
        self.planned = planned
        self.job = planned.job
        self.failures: list[NoAnswer] = []
        self.space: dict[str, Any] = {}
        self.handles: Handles | None = None
        self._calls = 0
        self._operations = 0
        self.asked = False
        self.candidate = Candidate(self, self.job.entry_point)
        self._is_class = False
        self._names_classes = False
        self._restarts = 0
        self._pipelined = PipelinedCalls(planned)
        self._lock = threading.RLock()  # tests may call from threads
        self._left = False
        self._scratch = str(Path.cwd())

    def load(self) -> bool:
        """Start a child and load the program in it; on failure record the event and return False."""
        job = self.job
        self.begin()
        message = {
            "code": job.code,
            "prelude": job.prelude,
            "entry_point": job.entry_point,
            "seed": seed_of_program(job),
        }
        request = messages.framed(messages.write_request("load", message))
        plan = self.planned.plan
        if not any(f"class {name}" in job.code for name in plan.names):  # else `bind` asks for classes first
            request += self._pipelined.requests(self._calls, MAX_BYTES - len(request))
        try:
            _, kind, *rest = self.exchange(request)
        except NoAnswer:
            return False
        if kind == "loaded":
            self._is_class = rest == ["class"]
            if self._is_class:
                self._pipelined.clear()  # the program skips them
            return True
        raised = calls.exception(rest)
        self.end()
        self.events.append(("oom" if "MemoryError" in raised.names else "load_error", raised.describe()))
        return False

    def end(self, gone: bool = False) -> Usage | None:
        """End the process, if there is one, and drop its calls and handles."""
        self._drop()
        return super().end(gone)

    def leave(self) -> None:
        """Close the channel for good, and drop calls and handles; threads of the tests that call on get no other."""
        with self._lock:
            self._left = True
            if self.called_in_fork:
                self.failures.append(NoAnswer("error", CALLED_IN_FORK))
            self._drop()
            super().leave()

    def _drop(self) -> None:
        self._pipelined.clear()
        if self.handles is not None:
            self.handles.ended = True
            self.handles = None

    def fail(self, failure: NoAnswer) -> None:
        """Record an event that keeps the program from passing, even if the tests catch the exception."""
        self.events.append((failure.kind, str(failure)))
        self.failures.append(failure)

    def bind(self) -> None:
        """Define the names in the tests' namespace: the entry point, and the program's classes that the tests name."""
        entry_point, plan = self.job.entry_point, self.planned.plan
        self.space[entry_point] = self.space["candidate"] = self.candidate
        if not plan.names and not self._is_class and not plan.files:
            return
        names = sorted(name for name in plan.names if self._may_name(name))
        self._names_classes = self._names_classes or bool(names)
        if not names and not self._is_class and not plan.files:
            return
        found = self._handles().do("names", entry_point, *names)
        for name, value in zip((entry_point, *names), found if isinstance(found, tuple) else (), strict=False):
            if is_class(value):
                self.space[name] = value
        if self._is_class:
            self.space["candidate"] = self.space[entry_point]

    def _may_name(self, name: str) -> bool:
        """Return whether a free name of the tests may be a class of the program."""
        return name not in self.space and not is_well_known(name) and f"class {name}" in self.job.code

    def restart(self) -> None:
        """Restart the program if it has ended, at most `RESTARTS` times."""
        if not self.alive and self._restarts < RESTARTS and not self.in_fork:
            self._restarts += 1
            if self.load():
                self.bind()
            else:
                self._restarts = RESTARTS

    def operate(self, operation: str, message: Any) -> Any:
        """Have the program execute an operation on its own objects; return the value.

        Raises as a call of `Candidate` does.
        """
        self.refuse_in_fork()
        with self._lock:
            return self._recorded(self._operate, operation, message)

    def _operate(self, operation: str, message: Any) -> Any:
        self.asked = self.asked or operation != "names"
        self._operations -= 1
        if self._operations < -_MOST_OPERATIONS:
            raise self.failed("output_limit", f"more than {_MOST_OPERATIONS} operations on its objects")
        return self._answer(self._operations, messages.write_request(self._operations, operation, message))

    def _answer(self, request: int, data: bytes | None) -> Any:
        """Send a request, None for one that has been sent, and return the value of its answer."""
        number, kind, *rest = self.exchange(b"" if data is None else messages.framed(data))
        try:
            while kind == "callback" and len(rest) == 2 and self.handles is not None:
                answer = self.handles.call(*rest)
                number, kind, *rest = self.exchange(messages.framed(messages.write_request(0, "return", answer)))
            if number != request:
                raise self.failed("output_limit", "the program answered a call that was not made")
            return self._value(kind, rest)
        except BadValue as error:
            raise self.failed("output_limit", f"a reply that is no value: {error}") from None

    def _handles(self) -> Handles:
        if self.handles is None:
            plan = self.planned.plan
            folder = Folder(self._scratch, self.limits.file_mb << 20) if plan.files else None
            self.handles = Handles(self.operate, not plan.methods and not self._names_classes, folder)
        return self.handles

    def _value(self, kind: str, rest: list[Any]) -> Any:
        """Return the value of a reply; raises `BadValue` for a malformed one.

        A reply without a message of `shared` says that the program has forgotten every container.
        """
        if kind == "value" and len(rest) == 1:
            if self.handles is not None:
                self.handles.forget_all()
            return values.decode(rest[0])
        if kind == "raised" and len(rest) == 1:
            if self.handles is not None:
                self.handles.forget_all()
            raise self._raised(rest).rebuild(self.space, self.job.tests)
        self._pipelined.clear()  # the program skips them from now on
        if kind == "shared" and len(rest) == 1:
            (value,) = self._handles().receive(rest[0])
            return value
        if kind == "raised" and len(rest) == 2:
            (handle,) = self._handles().receive(rest.pop())
            raised = self._raised(rest)
            if isinstance(handle, Exception) and not is_handle(handle):
                raise handle  # raised by a function of the tests that the program called
            if handle is None or raised.is_known(self.space):
                raise raised.rebuild(self.space, self.job.tests)
            raise exception(handle, raised)
        if kind == "bad" and len(rest) == 2 and all(type(text) is str for text in rest):
            if rest[0] == "size":
                self.events.append(("output_limit", rest[1][:300]))
            raise NoAnswer("error", rest[1][:300])
        raise self.failed("output_limit", "the program sent no value")

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the program's function; see `Candidate`."""
        self.refuse_in_fork()
        with self._lock:
            return self._recorded(self._ask, args, kwargs)

    def function(self) -> Any:
        """Return a handle of the program's function; tests may read its attributes, such as ``cache_info``."""
        if self._channel is None:
            raise NoAnswer("error", "the program's process has ended")
        (function,) = self._handles().do("names", self.job.entry_point)
        return function

    def _recorded(self, ask: Callable[..., Any], *args: Any) -> Any:
        """Return the value of ``ask``, and record its exceptions that the tests may lose."""
        if self._left:
            raise NoAnswer("error", "the tests have ended")
        try:
            return ask(*args)
        except NoAnswer as failure:
            self.failures.append(failure)
            raise

    def _ask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._channel is None:
            if self._restarts >= RESTARTS:
                raise NoAnswer("skipped", "the program was not restarted after too many failures")
            self._restarts += 1
            self._load_again()
        data = None
        self._calls += 1
        if not self._pipelined.take_if_next(args, kwargs):
            if self._pipelined.mispredict():
                self.end()
                self._load_again()
            if (self.handles is not None and self.handles.shares()) or not shared.is_immutable(
                (args, *kwargs.values())
            ):
                return self._handles().do("call", None, args, tuple(kwargs.items()))
            data = messages.write_call(self._calls, list(args), kwargs, early=False)
        self.asked = True
        return self._answer(self._calls, data)

    def _raised(self, rest: list[Any]) -> calls.Raised:
        raised = calls.exception(rest)
        if "MemoryError" in raised.names:
            self.events.append(("oom", raised.describe()))
        return raised

    def _load_again(self) -> None:
        """Restart the program for the following calls; if it fails to load, it is not restarted again."""
        if not self.load():
            self._restarts = RESTARTS
            raise NoAnswer(*self.events[-1])
        self.bind()
