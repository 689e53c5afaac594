"""Which installed packages jails contain besides the standard library, and which programs get such a jail.

Packages have pip's names; their requirements are included.  A program that names none of their modules gets a jail
without them, because its fork server is smaller and faster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

DEFAULT_PACKAGES = ("numpy",)
_NUMPY = ("numpy", "numpy.random", "numpy.linalg", "numpy.fft")
_NUMPY_MB, _OTHERS_MB = 256, 512  # address space that loading numpy takes, or a dozen packages


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages for jails; false if there are none."""

    names: tuple[str, ...] = ()  #: the requested packages, by pip's names
    places: tuple[str, ...] = ()  #: the files and folders of these packages and their requirements on this machine
    modules: tuple[str, ...] = ()  #: the modules in them
    preload: tuple[str, ...] = ()  #: modules that a fork server imports before its first program
    extra_mb: int = 0  #: address space that the imports take, MiB

    def __bool__(self) -> bool:
        return bool(self.places)

    def wanted_by(self, code: str) -> bool:
        """Return whether a program names one of the modules anywhere: imports take many forms."""
        return bool(self) and _pattern(tuple(self.modules)).search(code) is not None


@lru_cache(maxsize=16)
def _pattern(modules: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, modules))})\b")


def find_packages(names: Sequence[str] = DEFAULT_PACKAGES) -> Packages:
    """Return installed packages with all their requirements.

    Raises:
        ValueError: one is not installed.  If the default, numpy, is not installed, there are no packages.
    """
    found: dict[str, Distribution] = {}
    asked: list[str] = []
    for name in names:
        try:
            asked += _modules(_places(distribution(name)))
        except PackageNotFoundError:
            if tuple(names) == DEFAULT_PACKAGES:
                return Packages()
            raise ValueError(f"the package {name!r} is not installed for {__package__}: pip install {name}") from None
        _collect(name, found)
    places = [place for known in found.values() for place in _places(known)]
    preload = [name for name in asked if name != "numpy" and not name.startswith("_")]
    return Packages(
        names=tuple(sorted(names)),
        places=tuple(map(str, dict.fromkeys(places))),
        modules=tuple(_modules(places)),
        preload=(*(_NUMPY if "numpy" in found else ()), *preload),
        extra_mb=_NUMPY_MB if set(found) == {"numpy"} else _OTHERS_MB,
    )


def _collect(name: str, found: dict[str, Distribution]) -> None:
    """Add a package and its requirements; those for other platforms are not installed here and are skipped."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found:
        return
    try:
        known = found[key] = distribution(name)
    except PackageNotFoundError:
        return
    for requirement in known.requires or ():
        wanted = re.match(r"[\w.-]+", requirement)
        if wanted and "extra ==" not in requirement:
            _collect(wanted[0], found)


def _places(known: Distribution) -> list[Path]:
    tops = {file.parts[0] for file in known.files or () if len(file.parts) > 1 or file.suffix in (".py", ".so")}
    places = [Path(str(known.locate_file(top))) for top in sorted(tops - {"..", "__pycache__"})]
    return [place for place in places if place.exists() and place.suffix not in (".dist-info", ".egg-info", ".data")]


def _modules(places: Sequence[Path]) -> list[str]:
    names = (place.name.partition(".")[0] for place in places if place.suffix != ".libs")
    return sorted({name for name in names if name.isidentifier()})
