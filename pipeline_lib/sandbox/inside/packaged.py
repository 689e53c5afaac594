"""Values of packages that have a plain form: arrays and scalars of numpy, and small images of Pillow.

C code accepts no handles, so tests that pass such a value to a function of its package need the value itself.

Promises, like `values`: for any form, `value` returns an object built from plain numbers and bytes, or raises one of
`plain.BROKEN` or `plain.BadValue`.
"""

from __future__ import annotations

from typing import Any

from . import values
from .plain import BadValue

TAGS = ("array", "image")
_NUMBERS = "?bBhHiIlLqQfd"  # characters of numpy's types that have plain items
_MODES = ("1", "L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "I", "F")  # images that need no palette
_SOURCE = ("format", "filename")  # attributes of an image that was read from a file
_MOST_BYTES = 1 << 16  # of an image; a larger one stays in the program


def form(value: Any, kind: type) -> Any:
    """Return the form of an array or image, None for any other value."""
    if kind.__module__ == "numpy" and hasattr(value, "dtype") and value.dtype.char in _NUMBERS:
        return {"array": [value.dtype.char, list(value.shape), value.tolist()]}
    if str(kind.__module__).startswith("PIL.") and getattr(value, "mode", None) in _MODES:
        width, height = value.size
        if len(value.mode) * width * height <= _MOST_BYTES:
            source = {name: getattr(value, name, None) for name in _SOURCE}
            known = {name: text for name, text in source.items() if type(text) is str}
            return {"image": [value.mode, width, height, value.tobytes().hex(), known]}
    return None


def value(tag: str, body: Any) -> Any:
    """Return the array or scalar, nested lists if numpy is not installed, or the image."""
    if tag == "image":
        return _image(*body)
    kind, shape, items = body
    if type(kind) is not str or kind not in _NUMBERS or len(kind) != 1:
        raise BadValue("form", "not an array of numbers")
    if any(type(length) is not int or not 0 <= length <= values.MOST_ITEMS for length in shape):
        raise BadValue("size", "not the lengths of an array")  # an empty array may have any number of rows
    items = values.decode(items)
    try:
        import numpy
    except ImportError:
        return items
    return numpy.array(items, dtype=kind).reshape(shape)[()]


def _image(mode: str, width: int, height: int, pixels: str, source: dict[str, str]) -> Any:
    if mode not in _MODES or type(width) is not int or type(height) is not int or not 0 < width * height <= _MOST_BYTES:
        raise BadValue("form", "not an image")
    try:
        from PIL import Image
    except ImportError:
        raise BadValue("form", "an image, but Pillow is not installed") from None
    image: Any = Image.frombytes(mode, (width, height), bytes.fromhex(pixels))
    for name, text in source.items():
        if name in _SOURCE and type(text) is str:
            setattr(image, name, text)
    return image
