"""A filter decides as its policy says."""

import ctypes
import itertools
import platform
import struct

import pytest

from pipeline_lib.sandbox import seccomp
from pipeline_lib.sandbox.seccomp import (
    ALLOW,
    ARCHITECTURES,
    ENOSYS,
    EPERM,
    FORK_SERVER,
    FORK_SERVER_CONNECTING,
    KILL,
    NUMBERS,
    PROGRAM,
    PROGRAM_AMONG_FILES,
    PROGRAM_CONNECTED,
    Policy,
    error,
)
from tests.needs import needs

MACHINE = platform.machine()
POLICIES = {
    "fork_server": FORK_SERVER,
    "fork_server_connecting": FORK_SERVER_CONNECTING,
    "program": PROGRAM,
    "program_among_files": PROGRAM_AMONG_FILES,
    "program_connected": PROGRAM_CONNECTED,
}


def decide(program: bytes, number: int, args: tuple[int, ...] = (), architecture: int | None = None) -> int:
    """Interpret a filter as the kernel does; return its action."""
    padded = (*args, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, architecture or ARCHITECTURES[MACHINE], 0, *padded)
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, constant = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, constant)
        elif operation == 0x54:
            accumulator &= constant
        elif operation == 0x05:
            at += constant
        elif operation == 0x06:
            return constant
        else:
            met = {0x15: accumulator == constant, 0x25: accumulator > constant, 0x35: accumulator >= constant}[
                operation
            ]
            at += if_true if met else if_false


def by_policy(policy: Policy, name: str, args: tuple[int, ...]) -> int:
    """Return the action that the policy states."""
    padded = (*args, 0, 0, 0, 0, 0, 0)[:6]
    for rule in policy.rules:
        if rule.name == name and all((padded[c.index] & c.mask == c.value) is not c.differs for c in rule.conditions):
            return rule.action
    return policy.default


def arguments(policy: Policy, name: str) -> list[tuple[int, ...]]:
    """Return arguments around everything that the rules for a call look at."""
    conditions = [condition for rule in policy.rules if rule.name == name for condition in rule.conditions]
    if not conditions:
        return [(), ((1 << 64) - 1,) * 6]
    words = {0, 1, 0xFFFFFFFF, (1 << 64) - 1, 1 << 32}
    for condition in conditions:
        words |= {condition.value, condition.value ^ 1, condition.value | 1 << 40, condition.mask & ((1 << 64) - 1)}
    looked_at = min(2, 1 + max(condition.index for condition in conditions))
    return [*itertools.product(*[sorted(words)] * looked_at), (3, 4, 0), (3, 4, 0x2000), (0, 7, 1), (0, 7, 1 << 32)]


@pytest.mark.parametrize("name", POLICIES)
def test_a_filter_does_what_the_policy_says(name: str) -> None:
    policy = POLICIES[name]
    program = seccomp.assemble(policy, MACHINE)
    for call, number in NUMBERS[MACHINE].items():
        for args in arguments(policy, call):
            assert decide(program, number, args) == by_policy(policy, call, args), (call, args)
    assert decide(program, 4000) == policy.default


@needs("libseccomp")
@pytest.mark.parametrize("machine", NUMBERS)
def test_numbers_of_system_calls(machine: str) -> None:
    library = ctypes.CDLL("libseccomp.so.2")
    for name, number in NUMBERS[machine].items():
        found = library.seccomp_syscall_resolve_name_arch(ctypes.c_uint32(ARCHITECTURES[machine]), name.encode())
        assert found in (number, -1), name  # -1: newer than the library


@pytest.mark.parametrize("program", seccomp.filters().values(), ids=list(seccomp.filters()))
def test_other_architectures_end_the_program(program: bytes) -> None:
    assert decide(program, 20, architecture=0x40000003) == KILL
    if MACHINE == "x86_64":
        assert decide(program, 0x40000000 + 39) == KILL


def test_what_matters() -> None:
    numbers = NUMBERS["x86_64"]
    server, program = (seccomp.assemble(policy, "x86_64") for policy in (FORK_SERVER, PROGRAM))

    def acts(name: str, *args: int) -> tuple[int, int]:
        return tuple(decide(part, numbers[name], args, 0xC000003E) for part in (server, program))  # type: ignore[return-value]

    fork, thread = 0x1200011, 0x3D0F00
    assert acts("clone", fork) == (ALLOW, error(EPERM))
    assert acts("clone", thread) == (ALLOW, ALLOW)
    assert acts("clone", fork | 0x10000000)[0] == KILL
    assert acts("kill", 1, 9) == (ALLOW, error(EPERM))
    assert acts("setrlimit", 0)[1] == acts("prlimit64", 0, 7, 1)[1] == acts("prlimit64", 0, 7, 1 << 32)[1] == error(0)
    assert acts("prlimit64", 0, 7, 0) == (ALLOW, ALLOW)  # reads them
    assert acts("prctl", 22)[1] == error(EPERM)
    assert decide(server, 435, (), 0xC000003E) == error(ENOSYS)  # clone3
    assert acts("socket", 2, 1)[0] == acts("execve")[0] == error(EPERM)
    assert acts("socketpair", 1, 1)[0] == ALLOW
    assert acts("socketpair", 1, 2)[0] == error(ENOSYS)  # datagrams could be sent elsewhere
    assert acts("fcntl", 3, 8, 1)[0] == acts("fcntl", 3, 4, 0x2000)[0] == error(ENOSYS)
    assert acts("ptrace")[0] == acts("bpf")[0] == acts("mount")[0] == KILL


def test_only_the_fork_server_connects_and_only_on_this_machine() -> None:
    numbers = NUMBERS["x86_64"]
    pair = (FORK_SERVER_CONNECTING, PROGRAM_CONNECTED)
    server, program = (seccomp.assemble(policy, "x86_64") for policy in pair)
    for name, args in (("socket", (1, 1)), ("connect", (3,))):
        assert decide(server, numbers[name], args, 0xC000003E) == ALLOW
        assert decide(program, numbers[name], args, 0xC000003E) == error(EPERM)
    for family in (2, 10, 16, 1 << 32 | 1):
        assert decide(server, numbers["socket"], (family, 1), 0xC000003E) == error(ENOSYS)
    assert decide(server, numbers["bind"], (3,), 0xC000003E) == error(EPERM)
