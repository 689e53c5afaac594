"""The messages between the judge and a program, as bytes, and the program's end of the channel.

Requests to the program are ``marshal`` data, which are fast to read and come from the judge, who is trusted.  Replies
are tagged JSON.  Promises: for any bytes from a program, `read_reply` returns JSON values or raises `BadValue`.
"""

from __future__ import annotations

import builtins
import itertools
import json
import marshal
import os
import re
import struct
import sys
from typing import Any

from . import values
from .values import BROKEN, BadValue

_MOST_NESTED = 5 * values.MAX_DEPTH + 8  # nested brackets: a dict is a list of pairs, with a tag and a number
_USUAL_DIGITS = 4300  # Python's default limit for a decimal integer; an encoded one has at most 19
_MARSHAL_VERSION = 2  # read by every Python 3
_json: Any = json.encoder
# json.JSONEncoder would create this for every text it writes, and of what a program has made of the module: some change
# how it writes numbers.  No indent, sorting or skipping, NaN allowed.
_pieces = _json.c_make_encoder(
    None, json.JSONEncoder().default, _json.encode_basestring, None, ":", ",", False, False, True
)
_from_json = json.JSONDecoder(parse_constant=float).decode  # every NaN is a new object


def write_request(*parts: Any) -> bytes:
    """Return the bytes of a request; its parts must be supported by ``marshal``."""
    return marshal.dumps(parts, _MARSHAL_VERSION)


def write_call(number: int, args: list[Any], kwargs: dict[str, Any], early: bool) -> bytes:
    """Return the request of a call with copies of its arguments; raises `BadValue` for those without a plain form.

    Args:
        number: of the call.
        args, kwargs: its arguments.
        early: the tests have not made the call yet.
    """
    forms, named = values.encode(args), values.encode(kwargs)
    plain = not kwargs and bool(forms == args)  # plain arguments need no decoding in the program
    return write_request(number, early, plain, forms, {} if plain else named)


def framed(data: bytes) -> bytes:
    """Return a message with its length in four bytes before it."""
    return struct.pack("!I", len(data)) + data


def take_frame(buffer: bytearray, most: int) -> bytes | None:
    """Remove the first message from the bytes that have arrived and return it; None if it is not complete.

    Raises:
        BadValue: it is longer than ``most`` bytes; the text is its length.
    """
    if len(buffer) < 4:
        return None
    (length,) = struct.unpack_from("!I", buffer)
    if length > most:
        raise BadValue("size", str(length))
    if len(buffer) < 4 + length:
        return None
    frame = bytes(buffer[4 : 4 + length])
    del buffer[: 4 + length]
    return frame


def read_request(data: bytes) -> Any:
    """Return the parts of a request.  Only for bytes from the judge: ``marshal`` must not read a program's."""
    return marshal.loads(data)


def write_reply(limit: int, *parts: Any) -> bytes:
    """Return the bytes of a reply made of forms of `values.encode`; raises `BadValue` beyond ``limit`` bytes."""
    data = "".join(_pieces(parts, 0)).encode("utf-8", "surrogatepass")  # escaped, two surrogates would become one
    if len(data) > limit:
        raise BadValue("size", f"the value needs {len(data)} bytes, {limit} are allowed")
    return data


def read_reply(data: bytes) -> list[Any]:
    """Return the parts of a reply: a number, a kind, and the forms that follow, not yet decoded.

    The ranges and counters in all values of a reply together may have at most `values.MOST_ITEMS` items.

    Raises:
        BadValue: the bytes are not a reply.
    """
    allowed = 0
    if len(data) > _MOST_NESTED:
        if data.count(b"[") + data.count(b"{") > _MOST_NESTED and _nested_too_deep(data):
            raise BadValue("form", "nested too deep")
        allowed = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(_USUAL_DIGITS)  # tests may have raised it
    if b"{" in data:  # only tagged values can expand
        values.set_limits(values.MOST_ITEMS, values.MOST_DIGITS)
    try:
        parts = _from_json(data.decode("utf-8", "surrogatepass"))
    except BROKEN as error:
        raise BadValue("form", f"not JSON: {type(error).__name__}") from None
    finally:
        if len(data) > _MOST_NESTED:
            sys.set_int_max_str_digits(allowed)
    if type(parts) is not list or len(parts) < 2 or type(parts[0]) is not int or type(parts[1]) is not str:
        raise BadValue("form", "not a reply")
    return parts


def _nested_too_deep(data: bytes) -> bool:
    """Return whether brackets are nested deeper than in a value: the JSON parser's limit depends on the tests."""
    steps = map(_STEPS.__getitem__, _NO_BRACKETS.sub(b"", data))
    return max(itertools.accumulate(steps), default=0) > _MOST_NESTED


_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[^][{}"]+')


def text(form: Any) -> str:
    """Return a form as text."""
    return "".join(_pieces(form, 0))


CHANNEL = 3


def frame(limit: int, *parts: Any) -> bytes:
    """Return a reply with its length in four bytes before it."""
    return framed(write_reply(limit, *parts))


def ask(data: bytes) -> Any:
    """Send a reply and return the next request."""
    write(data)
    return read_request(receive())


def receive(channel: int = CHANNEL) -> bytes:
    """Return the next frame from the judge; raises EOFError when the channel is closed."""
    _fill(channel, 4)
    end = 4 + struct.unpack_from("!I", _arrived)[0]
    _fill(channel, end)
    with memoryview(_arrived) as view:
        data = bytes(view[4:end])  # a view, so that a large message is in memory twice, not three times
    del _arrived[:end]
    return data


_arrived = bytearray()


def _fill(channel: int, length: int) -> None:
    while len(_arrived) < length:
        part = os.read(channel, 1 << 15)
        if not part:
            raise EOFError
        _arrived.extend(part)


def write(data: bytes, channel: int = CHANNEL) -> None:
    """Write all of ``data`` to the channel."""
    while data:
        data = data[os.write(channel, data) :]


_MOST_BYTES = 1 << 15  # of its arguments


def describe(error: BaseException) -> list[Any]:
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
    names = [_full_name(kind) for kind in type(error).__mro__[:12]]
    return [[name[:100] for name in names], text, line, _arguments(error)]


def _full_name(kind: type) -> str:
    return (
        kind.__name__ if getattr(builtins, kind.__name__, None) is kind else f"{values.module_of(kind)}.{kind.__name__}"
    )


def arguments(error: BaseException) -> tuple[Any, ...]:
    """Return the arguments with which an exception was created, also one that is not in its ``args``."""
    named = isinstance(error, OSError) and len(error.args) == 2 and type(error.filename) is str
    return (*error.args, error.filename) if named else error.args  # type: ignore[attr-defined]


def _arguments(error: BaseException) -> Any:
    """Return the form of the exception's arguments, None if they have none or a long one."""
    try:
        form = values.encode(list(arguments(error)))
        return form if len(write_reply(_MOST_BYTES, form)) else None
    except BaseException:
        return None
