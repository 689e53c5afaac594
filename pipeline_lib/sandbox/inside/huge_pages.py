"""Moves the interpreter's code into huge pages.

The interpreter's code is mapped from a file, so a forked child has a page fault for each page of it, about fifty before
it runs a program.  Anonymous memory of the fork server is inherited; in huge pages this costs the fork almost nothing
and needs fewer TLB entries.

Promises only that the code stays the same: if it cannot be moved, programs take a little longer.
"""

from __future__ import annotations

import ctypes
import os
import struct

_HUGE = 1 << 21
_LOAD, _WRITABLE = 1, 2  # a segment's type, and one of its flags
_READ, _WRITE, _EXECUTE = 1, 2, 4  # protections
_PRIVATE, _ANONYMOUS = 0x2, 0x20
_ADVICE_HUGE_PAGE = 14
_MAY_MOVE, _FIXED = 1, 2
_FAILED = (1 << 64) - 1
_SIZE = ctypes.c_size_t


class _Symbol(ctypes.Structure):
    """The result of ``dladdr`` (Dl_info): the file of an address, where it is mapped, and the nearest symbol."""

    _fields_ = (
        *(("file", ctypes.c_char_p), ("base", ctypes.c_void_p)),
        *(("name", ctypes.c_char_p), ("address", ctypes.c_void_p)),
    )


def move_interpreter() -> None:
    """Move the part of the interpreter's code and constants that fills whole huge pages."""
    if os.uname().machine != "x86_64":
        return  # other processors need an explicit flush of the instruction cache
    libc = ctypes.CDLL(None)
    libc.mmap.restype = libc.mremap.restype = _SIZE
    start, end = _constant_part(libc)
    start, end = -(-start // _HUGE) * _HUGE, end // _HUGE * _HUGE
    if start >= end:
        return
    size = end - start
    room = libc.mmap(None, _SIZE(size + _HUGE), _READ | _WRITE, _PRIVATE | _ANONYMOUS, -1, 0)
    if room == _FAILED:
        return
    copy = -(-room // _HUGE) * _HUGE
    libc.madvise(_SIZE(copy), _SIZE(size), _ADVICE_HUGE_PAGE)
    ctypes.memmove(copy, start, size)
    if libc.mprotect(_SIZE(copy), _SIZE(size), _READ | _EXECUTE) == 0:
        libc.mremap(_SIZE(copy), _SIZE(size), _SIZE(size), _MAY_MOVE | _FIXED, _SIZE(start))
    if copy > room:
        libc.munmap(_SIZE(room), _SIZE(copy - room))
    libc.munmap(_SIZE(copy + size), _SIZE(room + _HUGE - copy))


def _constant_part(libc: ctypes.CDLL) -> tuple[int, int]:
    """Return start and end address of the interpreter up to a gap or the first writable segment."""
    symbol = _Symbol()
    if libc.dladdr(ctypes.cast(ctypes.pythonapi.Py_GetVersion, ctypes.c_void_p), ctypes.byref(symbol)) == 0:
        return 0, 0
    base = symbol.base or 0
    header = ctypes.string_at(base, 64)
    (table,) = struct.unpack_from("=Q", header, 32)
    size, count = struct.unpack_from("=HH", header, 54)
    page = os.sysconf("SC_PAGE_SIZE")
    first = end = None
    for number in range(count):
        entry = ctypes.string_at(base + table + number * size, 56)
        kind, flags, _, address, _, _, length, _ = struct.unpack("=IIQQQQQQ", entry)
        if kind == _LOAD:
            first = address if first is None else first
            if flags & _WRITABLE or (end is not None and address // page > -(-end // page)):
                break
            end = address + length
    return (0, 0) if first is None or end is None else (base, base - first + end)
