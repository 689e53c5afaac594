"""What the settings of a section name by a string: code, and files; a result depends on their content."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from pipeline_lib.identity.code import named_code
from pipeline_lib.identity.content import Contents
from pipeline_lib.settings.base import named_in


@dataclass(frozen=True, slots=True)
class Named:
    """What a section names.

    Attributes:
        code: digests by module, by the name of the code.
        versions: versions of the libraries that this code uses, by distribution.
        content: digest (of a folder: of each file, by name), by the path that is named.
    """

    code: dict[str, dict[str, str]]
    versions: dict[str, str]
    content: dict[str, str | dict[str, str]]


def named_by(section: BaseModel, contents: Contents) -> Named:
    """Return what a section names; what is no path here is a name on the hub, and counts by its name.

    Raises:
        ValueError: code is named that is not there.
    """
    found = Named({}, {}, {})
    code_names, file_names = named_in(section)
    for name in sorted(code_names):
        own = named_code(name)
        found.code[name] = own.files
        found.versions.update(own.versions)
    for name in sorted(file_names):
        path = Path(name).expanduser()
        if path.exists():
            found.content[name] = contents.files(path) if path.is_dir() else contents.of(path)
    return found
