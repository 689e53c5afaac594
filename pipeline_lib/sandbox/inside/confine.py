"""Drops rights of the calling process: identity, resources, files, system calls.

Promises: this process and its children cannot regain a dropped right.
Does not promise: namespaces; the code that starts the process creates them.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from collections.abc import Callable, Mapping, Sequence

_SET_PDEATHSIG, _SET_DUMPABLE, _SET_SECCOMP, _DROP_BOUNDING, _SET_NO_NEW_PRIVS = 1, 4, 22, 24, 38
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
# Number of file rights by Landlock version; requesting a right that the kernel does not know is an error.
_LANDLOCK_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_EXECUTE, _WRITE, _READ, _READ_FOLDER, _TRUNCATE, _IOCTL = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, what + ": " + os.strerror(number))


def forbid_new_privileges() -> None:
    """Disable set-uid programs and file capabilities."""
    _check(_libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies; call it after any change of user."""
    _check(_libc.prctl(_SET_PDEATHSIG, 9, 0, 0, 0), "pdeathsig")


def hide_memory() -> None:
    """Keep other processes of the same user from reading this one through /proc or ptrace."""
    _check(_libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0), "dumpable")


def become(uid: int) -> None:
    """Change from root to the unprivileged user ``uid`` for good; RLIMIT_NPROC needs a separate user."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def drop_capabilities() -> None:
    """Drop every capability, also for programs started later."""
    number = 0
    while _libc.prctl(_DROP_BOUNDING, number, 0, 0, 0) == 0:
        number += 1
    _check(_libc.capset(struct.pack("=Ii", 0x20080522, 0), bytes(24)), "capset")


def resource_limits(limits: Mapping[str, float]) -> list[tuple[int, tuple[int, int]]]:
    """Return the arguments of `limit_resources` for one program.

    Args:
        limits: has the keys of `jobs.Limits`.

    Raises:
        ValueError: a hard limit of this process is lower than what a program is promised.
    """
    mebi = 1 << 20
    wanted = (
        limits["cpu_s"] + 2,  # a back-stop: the judge measures more precisely
        limits["memory_mb"] * mebi,
        16 * mebi,
        limits["processes"],
        limits["open_files"],
        limits["file_mb"] * mebi,
    )
    for name, want in (*zip(_KINDS, wanted, strict=True), ("DATA", limits["memory_mb"] * mebi)):
        _, most = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
        if 0 <= most < want:
            raise ValueError(
                f"the hard limit RLIMIT_{name} is {most}, but programs are promised {int(want)}; "
                "raise it (ulimit -H), or lower the sandbox's limits"
            )
    kinds = [getattr(resource, f"RLIMIT_{name}") for name in _KINDS]
    return [(kind, (int(want), int(want))) for kind, want in zip(kinds, wanted, strict=True)]


def limit_resources(limits: Sequence[tuple[int, tuple[int, int]]]) -> None:
    """Set resource limits; this process cannot raise them again."""
    for kind, both in limits:
        resource.setrlimit(kind, both)


def forbid_persistent_resources() -> None:
    """Forbid core files, message queues and locked memory, for this process and its children."""
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_MSGQUEUE, resource.RLIMIT_MEMLOCK):
        try:
            resource.setrlimit(kind, (0, 0))
        except ValueError:
            if kind != resource.RLIMIT_MSGQUEUE:  # gVisor has neither this limit nor message queues
                raise


_KINDS = ("CPU", "AS", "STACK", "NPROC", "NOFILE", "FSIZE")


def prepare_filter(program: bytes) -> Callable[[], None]:
    """Return a function that installs the seccomp filter ``program``; needs no_new_privs.

    The program is classic BPF, eight bytes per instruction.  The buffers are created here, before the fork.
    """
    instructions = ctypes.create_string_buffer(program, len(program))
    record = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions)))
    prctl, arguments = _libc.prctl, (_SET_SECCOMP, 2, record, 0, instructions)  # the last keeps the buffer alive

    def install() -> None:
        _check(prctl(*arguments), "seccomp")

    return install


def landlock_version() -> int:
    """Return the kernel's Landlock version, 0 if it has none."""
    return max(0, int(_libc.syscall(_LANDLOCK_CREATE, None, 0, 1)))


def confine_files(readable: Sequence[str], writable: Sequence[str]) -> None:
    """Allow reading below ``readable`` and everything below ``writable``, and nothing else, through Landlock."""
    rights = (1 << _LANDLOCK_RIGHTS[min(5, landlock_version())]) - 1
    attributes = struct.pack("=Q", rights)
    ruleset = _libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0)
    _check(ruleset, "landlock")
    for paths, wanted in ((readable, _EXECUTE | _READ | _READ_FOLDER), (writable, rights)):
        for path in paths:
            if not os.path.exists(path):
                continue
            target = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = wanted & rights if os.path.isdir(path) else wanted & rights & _ON_FILES
            rule = struct.pack("=Qi", allowed, target)
            _check(_libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0), "landlock rule for " + path)
            os.close(target)
    _check(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "landlock")
    os.close(ruleset)
