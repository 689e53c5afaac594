"""What jails need of this machine: an interpreter's files, users, folders, and the marks of who has made them."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import socket
import sys
import sysconfig
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from pipeline_lib.sandbox.worker import JailError

INSIDE = Path(__file__).parent / "inside"
HOME = "/py"  # path of the interpreter in a jail
PACKAGES = f"{HOME}/packages"
SCRATCH = "/scratch"  # a program's scratch folder; without namespaces a program could not have its own /tmp
_FIRST_UID, _UIDS = 61000, 4096  # the users of programs, one per slot
# Files of the machine that the standard library reads: `zoneinfo`, `locale`, `mimetypes`, `socket.getservbyname`.
DATA = ("/usr/share/zoneinfo", "/usr/lib/locale/C.utf8", "/etc/mime.types", "/etc/services")
DEVICES = {"/dev/null": os.makedev(1, 3), "/dev/urandom": os.makedev(1, 9)}  # of this machine, in every jail
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"

#: The environment of every program: fixed, and empty of secrets.
ENVIRONMENT = {
    "PATH": "/nonexistent",
    "HOME": SCRATCH,
    "TMPDIR": SCRATCH,
    "TZ": "UTC",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "LD_BIND_NOW": "1",  # resolves symbols once, before the forks
    "MALLOC_ARENA_MAX": "1",  # an arena per thread would take 64 MB of the limited address space
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
FLAGS = ("-S", "-s", "-P", "-B")  # not -I, which would ignore PYTHONHASHSEED


@dataclass(frozen=True, slots=True)
class Runtime:
    """The interpreter of this process."""

    executable: Path  #: the interpreter itself, not the virtual environment's link to it
    stdlib: Path  #: folder of the standard library
    libraries: tuple[Path, ...]  #: folders with the shared libraries it needs
    shared: Path | None  #: libpython, if it is a separate library


@lru_cache(maxsize=1)
def find_runtime() -> Runtime:
    """Return the interpreter that runs this process, without its virtual environment."""
    executable = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    stdlib = Path(os.path.realpath(Path(os.__file__).parent))
    folders: dict[Path, None] = {}
    shared = None
    for line in Path("/proc/self/maps").read_text().splitlines():
        match = re.search(r"(/\S+\.so[.\d]*)$", line)
        if match is None:
            continue
        library = Path(match.group(1))
        if library.name.startswith("libpython"):
            shared = library
        elif stdlib not in library.parents and "site-packages" not in library.parts:
            folders[library.parent] = None
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    for name in (f"/usr/lib/{multiarch}", f"/lib/{multiarch}", "/usr/lib64", "/lib64"):
        folder = Path(name)
        if folder.is_dir():
            folders[Path(os.path.realpath(folder))] = None
    return Runtime(executable, stdlib, tuple(folders), shared)


def data_files() -> list[Path]:
    """Return the files and folders, beside its own, that the interpreter's standard library reads."""
    return [place for place in map(Path, DATA) if place.exists()]


@lru_cache(maxsize=1)
def contents_digest() -> str:
    """Return a digest of the files that run inside a container."""
    digest = hashlib.sha256()
    for path in sorted(INSIDE.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class User:
    """An unprivileged user for the programs of one slot, unique on this machine while ``claim`` is open."""

    number: int
    claim: socket.socket


def claim_user() -> User:
    """Return a user that no other slot has; under root or in a container, the slot's programs run as this user.

    The claim is an abstract socket name, which the kernel frees as soon as its owner ends.  An owner of one of the
    machine's devices is left out: gVisor gives ``/dev/null`` to a user of its own.

    Raises:
        OSError: all are taken, or no socket can be created.
    """
    for offset in range(_UIDS):
        number = _FIRST_UID + (os.getpid() + offset) % _UIDS
        if any(Path(device).stat().st_uid == number for device in DEVICES):
            continue
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0symposium-sandbox-user-{number}")
        except OSError as error:
            claim.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return User(number, claim)
    raise OSError(errno.EUSERS, f"all {_UIDS} users for programs are taken")


def readable_copy(place: Path, folder: Path) -> Path:
    """Return ``place``, or a copy of it below ``folder`` if it is not readable by all users; the copy is made once.

    For an interpreter in root's home: programs run as another user and could not import anything.

    Raises:
        JailError: there is no room for it.
    """
    if place.stat().st_mode & 0o004 and all(parent.stat().st_mode & 0o001 for parent in place.parents):
        return place
    target = folder / place.name
    folder.mkdir(exist_ok=True)
    if place.is_file():
        shutil.copy2(place, target)
        target.chmod(0o644)
        return target
    with (folder / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            unfinished = folder / f"{place.name}.unfinished"
            skipped = shutil.ignore_patterns("test", "tests", "site-packages", "idlelib", "config-*", "*.opt-?.pyc")
            shutil.rmtree(unfinished, ignore_errors=True)  # of a judge that was killed, or had no room
            try:
                shutil.copytree(place, unfinished, ignore=skipped, copy_function=_link_or_copy)
            except shutil.Error as error:
                raise JailError(f"cannot copy {place}: {error.args[0][0][2]}; let TMPDIR name another folder") from None
            unfinished.rename(target)
    return target


@cache
def own_place(run_folder: Path, name: str) -> Path:
    """Return the folder of this process for its jail ``name``, under a name that cannot be guessed.

    Without namespaces a program may ask for facts of every path that it knows.  The times of another jail's folder, and
    of the folder above it, would tell when another program ended.
    """
    place = Path(tempfile.mkdtemp(dir=run_folder))
    place.chmod(0o711)
    return place


def check_entry(folder: Path) -> None:
    """Raise JailError if only some users can enter a folder that programs or tests of another user need."""
    for place in folder.parents:
        if not place.stat().st_mode & 0o001:
            raise JailError(
                f"{place} may not be entered by all users, and root's sandbox runs programs and tests as other users; "
                f"let TMPDIR name another folder, or: chmod o+x {place}"
            )


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system
        shutil.copy2(source, target)


def start(module: str, place: str = HOME) -> list[str]:
    """Return the interpreter's arguments that run ``main`` of a module of `inside` in the folder ``place``."""
    code = f"import sys; sys.path.insert(0, {place!r}); from inside.{module} import main; del sys.path[0]; main()"
    return [*FLAGS, "-c", code]


PREFIX = "symposium-sandbox-"


def identity(pid: int) -> str | None:
    """Return process id and start time of a living process as ``pid-ticks``, None if there is none.

    A process id may be reused; together with the start time it is unique.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else f"{pid}-{fields[19]}"


def alive(owner: str) -> bool:
    """Return whether the process with the identity ``owner`` is still alive."""
    pid = owner.partition("-")[0]
    return pid.isdigit() and identity(int(pid)) == owner


def make_run_folder() -> Path:
    """Return a new folder for this process's jails, after removing those of dead processes."""
    base = Path(tempfile.gettempdir())
    for folder in base.glob(f"{PREFIX}*"):
        owner = folder.name.removeprefix(PREFIX).rpartition("-")[0]
        with suppress(FileNotFoundError):  # another process may remove it at the same time
            if not alive(owner) and folder.stat().st_uid == os.geteuid():
                shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{identity(os.getpid())}-", dir=base))
    folder.chmod(0o711)  # programs run as other users and must reach their own folder, but not list this one
    return folder
