"""Drops rights of the calling process: identity, resources, files, system calls; and creates namespaces.

Promises: this process and its children cannot regain a dropped right.  In namespaces the fork server is process 1 of
its own process namespace, sees a file system of read-only mounts and a small scratch folder, and has a network without
interfaces.  It ends when this process or its parent is killed.

Started by `runtime.start` with two arguments, it creates namespaces and then starts the fork server in them: the
descriptor of the control socket, and a JSON object with ``uid``, ``binds`` (source by mount point), ``links``,
``command``, ``environment``, ``scratch`` (path of the scratch folder), ``scratch_mb`` and ``user`` (whether to create a
user namespace).
"""

from __future__ import annotations

import _socket as socket
import ctypes
import json
import os
import resource
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def probe(outside_pid: int) -> dict[str, bool]:
    """Return which operations a program cannot perform: processes, signals, network, files of the machine.

    Args:
        outside_pid: a process that a program must not be able to signal.
    """
    return {
        "no_processes": _refused(_fork),
        "no_signals": _refused(lambda: os.kill(outside_pid, 0)),
        "no_network": _refused(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()),
        "no_files": _refused(lambda: os.close(os.open("/etc/passwd", os.O_RDONLY))) and _refused(_list_proc),
    }


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _list_proc() -> None:
    os.close(os.open("/proc/self/environ", os.O_RDONLY))


def _refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return True
    return False


_SET_PDEATHSIG, _SET_DUMPABLE, _SET_SECCOMP, _DROP_BOUNDING = 1, 4, 22, 24
_SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVS = 36, 38
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
# Number of file rights by Landlock version; requesting a right that the kernel does not know is an error.
_LANDLOCK_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_SCOPE_SIGNAL = 2
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


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end."""
    _check(_libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "child_subreaper")


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
    ruleset = _ruleset(attributes)
    for paths, wanted in ((readable, _EXECUTE | _READ | _READ_FOLDER), (writable, rights)):
        for path in paths:
            if not os.path.exists(path):
                continue
            target = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = wanted & rights if os.path.isdir(path) else wanted & rights & _ON_FILES
            rule = struct.pack("=Qi", allowed, target)
            _check(_libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0), "landlock rule for " + path)
            os.close(target)
    _restrict(ruleset)


def confine_signals() -> None:
    """Let this process and its descendants signal nobody but each other; needs version 6 of Landlock."""
    _restrict(_ruleset(struct.pack("=QQQ", 0, 0, _SCOPE_SIGNAL)))


def _ruleset(attributes: bytes) -> int:
    ruleset: int = _libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0)
    _check(ruleset, "landlock")
    return ruleset


def _restrict(ruleset: int) -> None:
    _check(_libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "landlock")
    os.close(ruleset)


_NEW_NS, _NEW_CGROUP, _NEW_UTS, _NEW_IPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
_NEW_USER, _NEW_PID, _NEW_NET = 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_DETACH = 2
_SCRATCH_ENTRIES = 1024
_ROOT = "/tmp"  # the mount on it exists only in the new namespace


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    names = [text.encode() for text in (source, target, kind, options)]
    if _libc.mount(names[0], names[1], names[2], ctypes.c_ulong(flags), names[3]) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "mount " + target + ": " + os.strerror(number))


def _unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "unshare: " + os.strerror(number))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def new_user(uid: int) -> None:
    """Enter a user namespace in which the current user is ``uid``."""
    outside = os.geteuid(), os.getegid()
    _unshare(_NEW_USER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {outside[0]} 1")
    _write("/proc/self/gid_map", f"{uid} {outside[1]} 1")


def build_root(plan: dict[str, Any]) -> None:
    """Build a file system from ``plan`` and make it the root."""
    _mount("none", "/", "", _REC | _PRIVATE)
    sources = {place: os.open(source, os.O_PATH) for place, source in plan["binds"].items()}
    _mount("root", _ROOT, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=0755")
    for place, source in sources.items():
        target = _ROOT + place
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.isdir(f"/proc/self/fd/{source}"):
            os.makedirs(target, exist_ok=True)
        else:
            _write(target, "")
        _mount(f"/proc/self/fd/{source}", target, "", _BIND | _REC)
        # A device, too: it can be written to, but nobody can change the times and the mode of its node.
        _mount("none", target, "", _BIND | _REMOUNT | _RDONLY | _NOSUID | _kept_flags(target))
        os.close(source)
    for place, aim in plan["links"].items():
        os.symlink(aim, _ROOT + place)
    os.makedirs(_ROOT + "/tmp", exist_ok=True)  # there already if packages are below it; the root becomes read-only
    os.mkdir(_ROOT + plan["scratch"])
    options = f"size={plan['scratch_mb']}m,nr_inodes={_SCRATCH_ENTRIES},mode=1777"
    _mount("scratch", _ROOT + plan["scratch"], "tmpfs", _NOSUID | _NODEV | _NOEXEC, options)
    os.chdir(_ROOT)
    if _libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b".") != 0:
        raise OSError(ctypes.get_errno(), "pivot_root: " + os.strerror(ctypes.get_errno()))
    if _libc.umount2(b".", _DETACH) != 0:
        raise OSError(ctypes.get_errno(), "umount: " + os.strerror(ctypes.get_errno()))
    os.chdir(plan["scratch"])
    _mount("none", "/", "", _BIND | _REMOUNT | _RDONLY | _NOSUID | _NODEV)


_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


def _kept_flags(path: str) -> int:
    """Return the flags of a mount that a user namespace may not clear."""
    flags = os.statvfs(path).f_flag
    return sum(theirs for ours, theirs in ((os.ST_NODEV, _NODEV), (os.ST_NOEXEC, _NOEXEC)) if flags & ours)


def enter(plan: dict[str, Any], close: int) -> None:
    """Create the namespaces and return in a child that is process 1 of them; this process waits for its end.

    Args:
        plan: see the module.
        close: a descriptor that this process must not keep open.
    """
    if plan["user"]:
        new_user(plan["uid"])
    die_with_parent()
    _unshare(_NEW_NS | _NEW_PID | _NEW_NET | _NEW_IPC | _NEW_UTS | _NEW_CGROUP)
    pid = os.fork()
    if pid:
        os.close(close)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os._exit(code if code >= 0 else 128 - code)  # as shells say that a signal ended a process
    die_with_parent()
    build_root(plan)
    if plan["user"]:
        drop_capabilities()


def main() -> None:
    """Enter the namespaces and start the fork server."""
    plan = json.loads(sys.argv[2])
    enter(plan, int(sys.argv[1]))
    os.execve(plan["command"][0], [*plan["command"], sys.argv[1]], plan["environment"])
