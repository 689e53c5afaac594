"""One program: loads the code and answers calls.  Everything in this process is in the program's hands.

Promises nothing: the judge believes no word of it.  It only makes honest programs work: values are flattened, errors
are named, replies are kept short.
"""

from __future__ import annotations

import builtins
import math
import os
import struct
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

from . import common, messages, objects, recorder, values
from .plain import ATOMS, BadValue

CHANNEL = 3
NAME = "program"  # not "__main__": a main guard must not fire
_SLACK = 1 << 16  # bytes of a reply that is not a value


def serve(limits: dict[str, Any], probe: Callable[[int], dict[str, bool]]) -> NoReturn:
    """Read the job from the channel, load the program, answer calls; never return.

    Args:
        limits: what the job may use.
        probe: tries what must not work; for the first child of a fork server only.
    """
    values.bound(math.inf, math.inf)  # the tests may pass whatever they like
    values.keep_iterators()
    try:
        kind, job = messages.read_request(receive())
        if kind == "probe":
            send(_SLACK, 0, "probe", probe(job))
            os._exit(0)
        space = load(job)
        if space is None:
            os._exit(0)
        if job["plan"]:
            send(1 << 24, 0, "results", _run_inline(job, limits, space))
        else:
            function, limit = space[job["entry_point"]], limits["reply_kb"] << 10
            known = common.Common(1)
            host = objects.Host(space, function, limit, known, Channel)
            host.answer = lambda request: _answer(function, request, limit, known, host)
            while True:
                write(_answer(function, messages.read_request(receive()), limit, known, host))
    except EOFError:
        pass
    finally:
        os._exit(0)


def load(job: dict[str, Any]) -> dict[str, Any] | None:
    """Run the program's source; return its namespace, or None after reporting why there is none."""
    seed(job["seed"])
    module = types.ModuleType(NAME)
    sys.modules[NAME] = module
    space = module.__dict__
    space["__builtins__"] = builtins
    try:
        if job["prelude"]:
            exec(compile(job["prelude"], "<prelude>", "exec", dont_inherit=True), space)
        exec(compile(job["code"].removeprefix("\ufeff"), "<program>", "exec", dont_inherit=True), space)
        if not callable(space.get(job["entry_point"])):
            raise NameError("the program defines no function " + job["entry_point"])
    except BaseException as error:
        send(_SLACK, 0, "load_error", _describe(error))
        return None
    send(_SLACK, 0, "loaded", *(["class"] if isinstance(space[job["entry_point"]], type) else []))
    return space


def seed(number: int) -> None:
    """Seed the random numbers of the standard library, and numpy's where it is loaded."""
    import random  # not above, for there it would come before the fork server sees to it that forks do not seed it

    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number % (1 << 32))


def _answer(function: Callable[..., Any], call: Any, limit: int, known: common.Common, host: objects.Host) -> bytes:
    """Call the function; return the reply: its value, the exception it raised, or why the value cannot leave.

    A call that the judge has foreseen brings copies and takes copies; any other comes with what ``known`` has to know.
    """
    if len(call) == 3:
        return host.operate(call)
    number, news, plain, args, kwargs = call
    raised = None
    value: list[Any] = []
    try:
        if news is not None:
            known.forget(news[1])
            known.change(news[0])
        if not plain:
            args, kwargs = values.decode(args, known), values.decode(kwargs, known)
        if news is not None:
            known.note()
        value.append(function(*args, **kwargs))
        if news is None or (not known.cells and type(value[0]) in ATOMS):
            return frame(limit, number, "value", values.encode(value[0]))  # nothing to share: the common case
    except BadValue as error:
        if error.kind == "type" and value:
            return host.value(number, value[0])
        known.clear()
        return frame(_SLACK, number, "bad", error.kind, str(error)[:300])
    except BaseException as error:
        if getattr(error, "__dict__", None):
            return host.raised(number, error)  # tests may ask for more than its class and text
        raised = _describe(error)
    held = set(known.cells)
    try:
        if raised is not None:
            form = raised
        else:
            form = values.encode(value[0], 0, known if common.shared(value) else None)
        value.clear()
        del args, kwargs
        changes = known.changes()
        known.prune()
        known.note()  # now, for a thread may go on
        rest = [changes, list(known.cells)] if changes or known.cells else []
        return frame(limit, number, "value" if raised is None else "raised", form, *rest)
    except BaseException as error:  # a generator runs while its values are read
        if isinstance(error, BadValue) and error.kind == "type" and value:
            known.forget([cell for cell in known.cells if cell not in held])
            return host.value(number, value[0])
        known.clear()
        if isinstance(error, BadValue):
            return frame(_SLACK, number, "bad", error.kind, str(error)[:300])
        return frame(_SLACK, number, "raised", _describe(error))


def _run_inline(job: dict[str, Any], limits: dict[str, Any], space: dict[str, Any]) -> list[Any]:
    """Run tests next to the program; what comes back is only as good as the program is honest."""
    plan = job["plan"]
    seed(job["seed"])
    record = recorder.Recorder(plan["total"], plan["unreached"], plan["once"], limits["error_kb"] << 10)
    inner = {**space, "__name__": "tests", plan["recorder"]: record}
    inner |= {plan["failed"]: recorder.CallFailed, plan["uncatchable"]: recorder.NoAnswer}
    inner.setdefault("candidate", space[job["entry_point"]])
    try:
        exec(compile(plan["source"], "<tests>", "exec", dont_inherit=True), inner)
        if plan["has_check"]:
            inner["check"](space[job["entry_point"]])
        record.finish()
    except BaseException as error:
        record.stop(error)
    return [list(result) for result in record.outcome()]


def _describe(error: BaseException) -> list[Any]:
    """Return an exception's classes with their modules, its text, the program's line where it arose, its arguments."""
    try:
        text = str.__getitem__(str(error), slice(500))  # even of a subclass
    except BaseException:
        text = ""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<program>":
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == "<program>":
        text, line = str(error.msg), error.lineno or 0
    names = [
        kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
        for kind in type(error).__mro__[:12]
    ]
    return [[name[:100] for name in names], text, line, _arguments(error)]


def _arguments(error: BaseException) -> Any:
    """Return the form of the exception's arguments, None if they have none or a long one."""
    try:
        form = values.encode(list(error.args))
        return form if len(messages.write_reply(_SLACK // 2, form)) else None
    except BaseException:
        return None


class Channel:
    """What `objects` needs of this module."""

    @staticmethod
    def frame(limit: int, *parts: Any) -> bytes:
        """Return a reply."""
        return frame(limit, *parts)

    @staticmethod
    def ask(data: bytes) -> Any:
        """Send a reply and return the request that comes next."""
        write(data)
        return messages.read_request(receive())

    @staticmethod
    def describe(error: BaseException) -> list[Any]:
        """Return what the judge is told of an exception."""
        return _describe(error)


def warm_up() -> None:
    """Do before any fork, and so often that the interpreter has adapted to it, what every program does after one."""
    for number in range(_WARM_ROUNDS):
        space: dict[str, Any] = {"__builtins__": builtins}
        exec(compile(_WARM_UP, "<warm-up>", "exec", dont_inherit=True), space)
        news: Any
        for news in (None, ([], [])):  # of a call that was foreseen, and of another
            request = messages.read_request(messages.write_request(number, news, news is None, [[1, 2]], {}))
            known = common.Common(1)
            _answer(space["f"], request, 1 << 10, known, objects.Host(space, None, 0, known, Channel))
        seed(number)


_WARM_ROUNDS = 64
_WARM_UP = """
from typing import List

def f(numbers: List[int]) -> List[int]:
    found = []
    for number in numbers:
        if number > 1:
            found.append(number + 1)
    return sorted(found)
"""


def frame(limit: int, *parts: Any) -> bytes:
    """Return a reply with four bytes of length before it."""
    data = messages.write_reply(limit, *parts)
    return struct.pack("!I", len(data)) + data


def send(limit: int, *parts: Any) -> None:
    """Send a reply to the judge."""
    write(frame(limit, *parts))


def receive() -> bytes:
    """Return the next frame from the judge; raises EOFError when the channel is closed."""
    _fill(4)
    end = 4 + struct.unpack_from("!I", _arrived)[0]
    _fill(end)
    with memoryview(_arrived) as view:
        data = bytes(view[4:end])  # a large message is held twice, not three times
    del _arrived[:end]
    return data


_arrived = bytearray()


def _fill(length: int) -> None:
    """Read until there are ``length`` bytes that have arrived and were not taken."""
    while len(_arrived) < length:
        part = os.read(CHANNEL, 1 << 15)
        if not part:
            raise EOFError
        _arrived.extend(part)


def write(data: bytes) -> None:
    """Write all of ``data`` to the channel."""
    while data:
        data = data[os.write(CHANNEL, data) :]
