"""Makes seccomp filters out of policies: by libseccomp where it is installed, else by a small assembler.

Promises: both ways decide alike (a test compares them call by call); a call by another architecture's numbers
(32-bit, x32) ends the program.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import struct
import tempfile
from functools import lru_cache

from pipeline_lib.sandbox.policy import (
    FORK_SERVER,
    FORK_SERVER_CONNECTING,
    KILL,
    PROGRAM,
    PROGRAM_AMONG_FILES,
    PROGRAM_CONNECTED,
    Policy,
    Rule,
)
from pipeline_lib.sandbox.syscall_numbers import ARCHITECTURES, NUMBERS

_BAD_ARCHITECTURE, _OPTIMIZE = 2, 8  # attributes of a libseccomp filter
_DIFFERENT, _MASKED_EQUAL = 1, 7  # comparisons of libseccomp
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32_BIT = 0x40000000
_WORD = 0xFFFFFFFF


@lru_cache(maxsize=1)
def filters() -> dict[str, bytes]:
    """Return the filters of `policy` for this machine by name; empty where seccomp cannot be had.

    ``fork_server``, ``program``, and ``program_among_files`` for jails without a file system of their own;
    ``fork_server_connecting`` and ``program_connected`` for those that cannot pass descriptors out.
    """
    policies = {
        "fork_server": FORK_SERVER,
        "program": PROGRAM,
        "program_among_files": PROGRAM_AMONG_FILES,
        "fork_server_connecting": FORK_SERVER_CONNECTING,
        "program_connected": PROGRAM_CONNECTED,
    }
    machine = platform.machine()
    library = find_libseccomp()
    if not _kernel_has_seccomp() or (library is None and machine not in NUMBERS):
        return {}
    if library is not None:
        return {name: by_libseccomp(policy, library) for name, policy in policies.items()}
    return {name: by_assembler(policy, machine) for name, policy in policies.items()}


def _kernel_has_seccomp() -> bool:
    get_mode = 21
    return platform.system() == "Linux" and bool(ctypes.CDLL(None).prctl(get_mode, 0, 0, 0, 0) >= 0)


def find_libseccomp() -> ctypes.CDLL | None:
    """Return libseccomp, or None where it is not installed."""
    try:
        return ctypes.CDLL("libseccomp.so.2", use_errno=True)
    except OSError:
        return None


class _Comparison(ctypes.Structure):
    _fields_ = (("index", ctypes.c_uint), ("op", ctypes.c_int), ("mask", ctypes.c_uint64), ("value", ctypes.c_uint64))


def by_libseccomp(policy: Policy, library: ctypes.CDLL) -> bytes:
    """Return the filter of ``policy`` made by libseccomp.

    Raises:
        OSError: libseccomp refuses a rule.
    """
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(policy.default)))
    if not context:
        raise OSError("libseccomp cannot make a filter")
    try:
        library.seccomp_attr_set(context, _BAD_ARCHITECTURE, ctypes.c_uint32(KILL))
        library.seccomp_attr_set(context, _OPTIMIZE, ctypes.c_uint32(2))
        for rule in policy.rules:
            number = library.seccomp_syscall_resolve_name(rule.name.encode())
            if number < 0:
                continue  # unknown to this library or not a call of this machine: the default applies
            array = (_Comparison * max(1, len(rule.conditions)))(
                *(
                    _Comparison(c.index, _DIFFERENT, c.value, 0)
                    if c.differs
                    else _Comparison(c.index, _MASKED_EQUAL, c.mask, c.value)
                    for c in rule.conditions
                )
            )
            result = library.seccomp_rule_add_array(
                context, ctypes.c_uint32(rule.action), number, len(rule.conditions), array
            )
            if result < 0:
                raise OSError(-result, f"libseccomp refuses the rule for {rule.name}")
        with tempfile.TemporaryFile() as file:
            result = library.seccomp_export_bpf(context, file.fileno())
            if result < 0:
                raise OSError(-result, f"libseccomp cannot write the filter: {os.strerror(-result)}")
            file.seek(0)
            return file.read()
    finally:
        library.seccomp_release(context)


def by_assembler(policy: Policy, machine: str) -> bytes:
    """Return the filter of ``policy`` for ``machine`` (as `platform.machine` names it), made by hand."""
    numbers = NUMBERS[machine]
    program = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        _instruction(_JUMP_EQUAL, ARCHITECTURES[machine], 1, 0),
        _instruction(_RETURN, KILL),
        _instruction(_LOAD, _NUMBER_AT),
    ]
    if machine == "x86_64":
        program += [_instruction(_JUMP_GREATER_EQUAL, _X32_BIT, 0, 1), _instruction(_RETURN, KILL)]
    blocks: dict[int, list[Rule]] = {}
    for rule in policy.rules:
        if rule.name in numbers:
            blocks.setdefault(numbers[rule.name], []).append(rule)
    for number, rules in blocks.items():
        block = b"".join(map(_assemble_rule, rules))
        if rules[-1].conditions:
            block += _instruction(_RETURN, policy.default)
        program += [_instruction(_JUMP_EQUAL, number, 0, len(block) // 8), block]
    program.append(_instruction(_RETURN, policy.default))
    return b"".join(program)


def _assemble_rule(rule: Rule) -> bytes:
    """Return instructions that return the rule's action if all conditions hold, and else fall through."""
    tests: list[tuple[int, int, int]] = []  # offset of a word, mask, value
    rest = _instruction(_RETURN, rule.action)
    for condition in rule.conditions:
        offset = _ARGUMENTS_AT + 8 * condition.index
        if condition.differs:  # then the rest follows if one of the words does
            step = _instruction(_LOAD, offset) + _instruction(_JUMP_EQUAL, condition.value & _WORD, 0, 2)
            step += _instruction(_LOAD, offset + 4)
            rest = step + _instruction(_JUMP_EQUAL, condition.value >> 32, len(rest) // 8, 0) + rest
            continue
        for shift, place in ((0, offset), (32, offset + 4)):  # both machines store the low word first
            mask = condition.mask >> shift & _WORD
            if mask:
                tests.append((place, mask, condition.value >> shift & _WORD))
    for place, mask, value in reversed(tests):
        step = _instruction(_LOAD, place) + (_instruction(_AND, mask) if mask != _WORD else b"")
        step += _instruction(_JUMP_EQUAL, value, 0, len(rest) // 8)
        rest = step + rest
    return rest


def _instruction(code: int, constant: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, constant)
