"""Create seccomp filters from policies with a small assembler, so that no library has to be installed.

Promises: a filter implements its policy (a test checks every call).  A call with another architecture's numbers
(32-bit, x32) ends the program.
"""

from __future__ import annotations

import ctypes
import platform
import struct
from functools import lru_cache

from pipeline_lib.sandbox.policy import (
    FORK_SERVER,
    FORK_SERVER_CONNECTING,
    KILL,
    PROGRAM,
    PROGRAM_AMONG_FILES,
    PROGRAM_CONNECTED,
    TESTS_AMONG_FILES,
    Policy,
    Rule,
)
from pipeline_lib.sandbox.syscall_numbers import ARCHITECTURES, NUMBERS

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_X32_BIT = 0x40000000
_WORD = 0xFFFFFFFF


@lru_cache(maxsize=1)
def filters() -> dict[str, bytes]:
    """Return the filters of `policy` for this machine by name; empty if the kernel has no seccomp.

    ``fork_server`` and ``program``; ``program_among_files`` and ``tests_among_files`` where there is no separate file
    system; ``fork_server_connecting`` and ``program_connected`` for jails that cannot pass descriptors out.
    """
    policies = {
        "fork_server": FORK_SERVER,
        "program": PROGRAM,
        "program_among_files": PROGRAM_AMONG_FILES,
        "tests_among_files": TESTS_AMONG_FILES,
        "fork_server_connecting": FORK_SERVER_CONNECTING,
        "program_connected": PROGRAM_CONNECTED,
    }
    machine = platform.machine()
    if not _kernel_has_seccomp() or machine not in NUMBERS:
        return {}
    return {name: assemble(policy, machine) for name, policy in policies.items()}


def _kernel_has_seccomp() -> bool:
    get_mode = 21
    return platform.system() == "Linux" and bool(ctypes.CDLL(None).prctl(get_mode, 0, 0, 0, 0) >= 0)


def assemble(policy: Policy, machine: str) -> bytes:
    """Return the filter of ``policy`` for ``machine`` (as `platform.machine` names it, a key of `NUMBERS`)."""
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
        if condition.differs:  # one differing word is enough
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
