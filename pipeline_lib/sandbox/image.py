"""Build the image for the ``docker`` backend: from this interpreter without a network, or on top of an image.

The image contains the interpreter with its standard library, the shared libraries that it needs, numpy if it is
installed, or the requested packages, and the fork server.  Labels contain the version of the fork server, so that an
old image is not used by mistake, and the packages.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from pipeline_lib.sandbox.docker_jail import DEFAULT_IMAGE, LABEL, PLACE, daemon
from pipeline_lib.sandbox.packages import DEFAULT_PACKAGES, Packages, find_packages
from pipeline_lib.sandbox.runtime import (
    HOME,
    INSIDE,
    PACKAGES,
    SCRATCH,
    VERSION,
    contents_digest,
    data_files,
    find_runtime,
)
from pipeline_lib.sandbox.worker import JailError

_SKIPPED = ("test", "tests", "site-packages", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "__pycache__")


def build_image(tag: str = DEFAULT_IMAGE, base: str | None = None, packages: Sequence[str] = DEFAULT_PACKAGES) -> str:
    """Build the image and return its id.

    Args:
        tag: name of the image.
        base: an image with ``python3`` (3.11 or newer) in its path, to which the fork server is added; by default the
            image is built from this machine's interpreter, its libraries and packages.
        packages: pip's names; ignored with ``base``.

    Raises:
        ValueError: a package is not installed here.
        JailError: there is no daemon, or ``base`` does not exist.
    """
    with daemon() as (client, errors):
        if base is not None:
            return _build_from(client, errors, tag, base)
        with tempfile.TemporaryFile() as file:
            found = find_packages(packages)
            write_tar(file, found)
            file.seek(0)
            settings = {f"ENV PATH={HOME}/bin", f"ENV LD_LIBRARY_PATH={HOME}/lib", *_labels(found)}
            repository, _, version = tag.partition(":")
            # An iterator: for a file the SDK sends a length and chunks it as well, which the daemon refuses.
            answer = client.api.import_image_from_stream(
                iter(lambda: file.read(1 << 20), b""),
                repository=repository,
                tag=version or "latest",
                changes=sorted(settings),
            )
        return str(json.loads(answer.splitlines()[-1])["status"])


def image_id(tag: str) -> str:
    """Return the content id of an image; empty if there is none of this name.

    Raises:
        JailError: there is no daemon.
    """
    with daemon() as (client, errors):
        try:
            return str(client.images.get(tag).id)
        except errors.ImageNotFound:
            return ""


def _labels(packages: Packages) -> Iterable[str]:
    yield f"LABEL {LABEL}={contents_digest()}"
    if packages:
        yield f'LABEL {LABEL}.packages="{" ".join(packages.names)}"'


def _build_from(client: Any, errors: Any, tag: str, base: str) -> str:
    context = io.BytesIO()
    lines = [f"FROM {base}", f"COPY inside {PLACE}/inside", "ADD folders.tar /", *_labels(Packages())]
    folders = io.BytesIO()
    with tarfile.open(fileobj=folders, mode="w") as tar:
        _add_scratch(tar)
    with tarfile.open(fileobj=context, mode="w") as tar:
        tar.add(INSIDE, "inside", filter=_filter)
        _add(tar, "folders.tar", folders.getvalue())
        _add(tar, "Dockerfile", ("\n".join(lines) + "\n").encode())
    context.seek(0)
    try:
        image, _ = client.images.build(fileobj=context, custom_context=True, tag=tag, rm=True)
    except errors.BuildError as error:
        raise JailError(f"cannot build on {base!r}: {error}") from None
    return str(image.id)


def write_tar(file: IO[bytes], packages: Packages) -> None:
    """Write the image's files: interpreter, libraries, ``packages`` and the fork server."""
    runtime = find_runtime()
    contents = [
        (runtime.executable, f"{HOME}/bin/python3"),
        (runtime.stdlib, f"{HOME}/lib/{VERSION}"),
        *((Path(package), f"{PACKAGES}/{Path(package).name}") for package in packages.places),
        (INSIDE, f"{PLACE}/inside"),
        *((place, str(place)) for place in data_files()),
    ]
    if runtime.shared:
        contents.append((runtime.shared, f"{HOME}/lib/{runtime.shared.name}"))
    extensions = [*(runtime.stdlib / "lib-dynload").glob("*.so"), *_extensions(packages.places)]
    contents += [(library.resolve(), str(library)) for library in _libraries([runtime.executable, *extensions])]
    # Every folder gets an entry: some storage drivers create missing ones with access for root only.
    folders = {"tmp", "dev", "proc", "sys", "etc", f"{PLACE}/run".lstrip("/")}
    for name in [*folders, *(name for _, name in contents)]:
        folders.update(str(parent) for parent in Path(name.lstrip("/")).parents)
    with tarfile.open(fileobj=file, mode="w") as tar:
        for folder in sorted(folders):
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            # A mount takes the mode of its folder, and a server in a pod writes to /tmp; for programs it is read-only.
            entry.mode = 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        _add_scratch(tar)
        for source, name in contents:
            tar.add(source, name, filter=_filter)


def _filter(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out files that no program needs; make all others owned by root and readable by all."""
    name = Path(entry.name)
    if name.name in _SKIPPED or name.name.startswith("config-") or name.suffix == ".pyc":
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = 0
    entry.mode = (entry.mode | 0o444 | (0o111 if entry.isdir() or entry.mode & 0o100 else 0)) & 0o755
    return entry


def _extensions(places: Iterable[str]) -> list[Path]:
    found = [path for place in places for path in (Path(place), *Path(place).rglob("*.so*"))]
    return [path for path in found if ".so" in path.suffixes and path.is_file()]


def _libraries(binaries: list[Path]) -> list[Path]:
    done = subprocess.run(["ldd", *map(str, binaries)], check=False, capture_output=True, text=True)
    found = set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", done.stdout, re.MULTILINE))
    own = {str(Path(name).parent) for name in map(str, binaries)}
    return sorted(Path(name) for name in found if "libpython" not in name and not any(name.startswith(o) for o in own))


def _add_scratch(tar: tarfile.TarFile) -> None:
    entry = tarfile.TarInfo(SCRATCH.lstrip("/"))
    entry.type = tarfile.DIRTYPE
    entry.mode = 0o1777  # a mount takes the mode of its folder
    tar.addfile(entry)
    _add(tar, "tmp/read-only", b"")  # gVisor mounts a writable folder on an empty /tmp


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))
