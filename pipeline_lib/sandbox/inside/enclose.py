"""Creates namespaces without bubblewrap, then starts the fork server in them.

Promises: the fork server is process 1 of its own process namespace, sees a file system of read-only mounts and a small
scratch folder, and has a network without interfaces.  It ends when this process or its parent is killed.

Started by `runtime.start` with two arguments: the descriptor of the control socket, and a JSON object with ``uid``,
``binds`` (source by mount point), ``links``, ``command``, ``environment``, ``scratch`` (path of the scratch folder),
``scratch_mb`` and ``user`` (whether to create a user namespace).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

from . import confine

_NEW_NS, _NEW_CGROUP, _NEW_UTS, _NEW_IPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
_NEW_USER, _NEW_PID, _NEW_NET = 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_DETACH = 2
_SCRATCH_ENTRIES = 1024
_ROOT = "/tmp"  # the mount on it exists only in the new namespace

_libc = ctypes.CDLL(None, use_errno=True)


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
    os.mkdir(_ROOT + "/tmp")  # stays empty: the root becomes read-only
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
    confine.die_with_parent()
    _unshare(_NEW_NS | _NEW_PID | _NEW_NET | _NEW_IPC | _NEW_UTS | _NEW_CGROUP)
    pid = os.fork()
    if pid:
        os.close(close)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os._exit(code if code >= 0 else 128 - code)  # as shells say that a signal ended a process
    confine.die_with_parent()
    build_root(plan)
    if plan["user"]:
        confine.drop_capabilities()


def main() -> None:
    """Enter the namespaces and start the fork server."""
    plan = json.loads(sys.argv[2])
    enter(plan, int(sys.argv[1]))
    os.execve(plan["command"][0], [*plan["command"], sys.argv[1]], plan["environment"])
