"""Values of packages that exist on both sides: arrays and scalars of numpy, and small images of Pillow.

C code accepts no handles, so tests that pass such a value to a function of its package need the value itself.  Arrays
and images can change, and are containers of `shared`.

Promises, like `values`: for any form, `scalar` and `make` return an object built from plain numbers and bytes, or raise
one of `values.BROKEN` or `values.BadValue`.
"""

from __future__ import annotations

import sys
from typing import Any

from . import values
from .values import BadValue

KINDS = ("ndarray", "image")
_NUMBERS = "?bBhHiIlLqQfdFD"  # characters of numpy's types that have plain items
_SCALARS = _NUMBERS + "U"
_MODES = ("1", "L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "I", "F")  # images that need no palette
_SOURCE = ("format", "filename")  # attributes of an image that was read from a file
_MOST_BYTES = 1 << 16  # of an image; a larger one stays in the program


def kind_of(value: Any, kind: type) -> str | None:
    """Return ``scalar`` for a number or text of numpy, one of `KINDS`, or None for any other value."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and kind.__module__ == "numpy" and getattr(numpy, kind.__name__, None) is kind:
        if kind is numpy.ndarray:
            return "ndarray" if value.dtype.char in _NUMBERS else None
        return "scalar" if issubclass(kind, numpy.generic) and value.dtype.char in _SCALARS else None
    image = sys.modules.get("PIL.Image")
    if image is not None and str(kind.__module__).startswith("PIL.") and issubclass(kind, image.Image):
        width, height = value.size
        return "image" if value.mode in _MODES and 0 < len(value.mode) * width * height <= _MOST_BYTES else None
    return None


def scalar_form(value: Any) -> list[Any]:
    """Return the form of a scalar of numpy."""
    return [value.dtype.char, values.encode(value.item())]


def scalar(code: Any, item: Any) -> Any:
    """Return the scalar of numpy with that form; a plain number or text if numpy is not installed."""
    if _numpy() is None:
        return values.decode(item)
    return _array(code, [], item)[()]


def body(value: Any, kind: str) -> list[Any]:
    """Return the form of an array or an image."""
    if kind == "ndarray":
        return [value.dtype.char, list(value.shape), values.encode(value.tolist())]
    source = {name: getattr(value, name, None) for name in _SOURCE}
    known = {name: text for name, text in source.items() if type(text) is str}
    return [value.mode, *value.size, value.tobytes().hex(), known]


def make(kind: str, parts: list[Any]) -> Any:
    """Return a new array or image."""
    return _array(*parts) if kind == "ndarray" else _image(*parts)


def fill(container: Any, kind: str, new: Any) -> None:
    """Give an array or image the content of another of the same size."""
    if kind == "ndarray":
        if (container.shape, container.dtype) != (new.shape, new.dtype):
            raise BadValue("form", "an array has changed its shape")
        container[...] = new
    elif (container.mode, container.size) != (new.mode, new.size):
        raise BadValue("form", "an image has changed its size")
    else:
        container.frombytes(new.tobytes())


def content(value: Any, kind: str) -> Any:
    """Return what changes with the content of an array or image."""
    return (value.dtype.str, value.shape, value.tobytes()) if kind == "ndarray" else (value.mode, value.tobytes())


def overlap(left: Any, right: Any) -> bool:
    """Return whether two values may be arrays that share memory."""
    numpy = sys.modules.get("numpy")
    arrays = numpy is not None and isinstance(left, numpy.ndarray) and isinstance(right, numpy.ndarray)
    return arrays and bool(numpy.may_share_memory(left, right))  # type: ignore[union-attr]


def _numpy() -> Any:
    """Return numpy, which only some images hold; None if it is not installed."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _array(code: Any, shape: Any, items: Any) -> Any:
    if type(code) is not str or code not in _SCALARS or len(code) != 1:
        raise BadValue("form", "not an array of numbers")
    if any(type(length) is not int or not 0 <= length <= values.MOST_ITEMS for length in shape):
        raise BadValue("size", "not the lengths of an array")  # an empty array may have any number of rows
    if (numpy := _numpy()) is None:
        raise BadValue("form", "an array, but numpy is not installed")
    return numpy.array(values.decode(items), dtype=code).reshape(shape)


def _image(mode: str, width: int, height: int, pixels: str, source: dict[str, str]) -> Any:
    if mode not in _MODES or type(width) is not int or type(height) is not int or not 0 < width * height <= _MOST_BYTES:
        raise BadValue("form", "not an image")
    try:
        from PIL import Image  # as numpy
    except ImportError:
        raise BadValue("form", "an image, but Pillow is not installed") from None
    image: Any = Image.frombytes(mode, (width, height), bytes.fromhex(pixels))
    for name, text in source.items():
        if name in _SOURCE and type(text) is str:
            setattr(image, name, text)
    return image
