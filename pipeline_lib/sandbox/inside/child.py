"""One program: loads the code and answers calls.  The program controls everything in this process.

Promises nothing: the judge trusts none of its replies.  It only makes honest programs work: it flattens values, names
errors and limits the length of replies.
"""

from __future__ import annotations

import builtins
import math
import os
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from . import messages, objects, shared, values
from .values import ATOM_IDS, BadValue

NAME = "program"  # not "__main__": a main guard must not fire
_SLACK = 1 << 16  # bytes of a reply that is not a value


def serve(limits: dict[str, Any], probe: Callable[[int], dict[str, bool]]) -> NoReturn:
    """Read the job from the channel, load the program, answer calls; never return.

    Args:
        limits: what the job may use.
        probe: tries forbidden operations; used by the first child of a fork server only.
    """
    try:
        kind, job = messages.read_request(messages.receive())
        if kind == "probe":
            messages.write(messages.frame(_SLACK, 0, "probe", probe(job)))
            os._exit(0)
        space, reply = load(job)
        messages.write(reply)
        if space is None:
            os._exit(0)
        program = Program(space, space[job["entry_point"]], limits["reply_kb"] << 10)
        while True:
            messages.write(program.answer(messages.read_request(messages.receive())))
    except EOFError:
        pass
    finally:
        os._exit(0)


def configure() -> None:
    """Before any fork, accept values of any size from the tests, let iterators have no plain form; note the folder."""
    objects.Objects.scratch = os.getcwd()
    values.set_limits(math.inf, math.inf)
    values.refuse_iterators()


def load(job: dict[str, Any]) -> tuple[dict[str, Any] | None, bytes]:
    """Run the program's source; return its namespace, None if it fails, and the reply to the judge."""
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
        return None, messages.frame(_SLACK, 0, "load_error", messages.describe(error))
    return space, messages.frame(
        _SLACK, 0, "loaded", *(["class"] if isinstance(space[job["entry_point"]], type) else [])
    )


def seed(number: int) -> None:
    """Seed the random numbers of the standard library, and numpy's where it is loaded."""
    import random  # here, because `zygote.preload` must import it first, without its hook for forks

    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number % (1 << 32))


class Program:
    """A loaded program.

    Args:
        space, entry: its namespace, and the function or class that the tests call.
        limit: largest reply, bytes.
    """

    def __init__(self, space: dict[str, Any], entry: Any, limit: int) -> None:
        self.space = space
        self.entry = entry
        self.limit = limit
        self.host: Any = None  # created when needed: each page that a forked process writes to costs time

    def answer(self, request: Any) -> bytes:
        """Return the reply to a request: a value, the exception that was raised, or why the value cannot be sent.

        After the first reply that is more than a copy, early calls are skipped: tests might use or change what they
        have got before they make the call.
        """
        if len(request) == 3:
            return self._hosting().operate(request)
        number, early, plain, args, kwargs = request
        del request  # another reference to the arguments
        if early and (self.host is not None or isinstance(self.entry, type)):
            return b""
        holder: list[Any] = []
        try:
            if not plain:
                args, kwargs = values.decode(args), values.decode(kwargs)
            holder.append(self.entry(*args, **kwargs))
        except BaseException as error:
            own = getattr(builtins, type(error).__name__, None) is not type(error) or error.__dict__
            if self.host is not None or own:
                return self._hosting().raised(number, error)  # tests may read its class, its attributes and its text
            return messages.frame(_SLACK, number, "raised", messages.describe(error))
        del args, kwargs
        if self.host is None and (id(type(holder[0])) in ATOM_IDS or not shared.is_shared(holder)):
            with suppress(BadValue):
                return messages.frame(self.limit, number, "value", values.encode(holder[0]))
        return self._hosting().reply(number, holder)

    def _hosting(self) -> objects.Host:
        if self.host is None:
            self.host = objects.Host(self.space, self.entry, self.limit, self.answer)
        host: objects.Host = self.host
        return host
