"""Code and files that the settings of a section name by a string; results depend on their content."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from pipeline_lib.identity.code import named_code
from pipeline_lib.identity.content import DigestCache
from pipeline_lib.identity.syntax import SyntaxCache
from pipeline_lib.settings.base import referenced_names


@dataclass(frozen=True, slots=True)
class References:
    """Code and files named by a section."""

    code: dict[str, dict[str, str]]  #: by name of the code, digests by module
    versions: dict[str, str]  #: versions of the libraries that this code uses, by distribution
    #: By path, the digest of a file, or for a folder the digests of its files by name.
    content: dict[str, str | dict[str, str]]


def references_of(section: BaseModel, contents: DigestCache, memory: SyntaxCache) -> References:
    """Return the code and files that a section names; names on the hub (paths that do not exist) are left out.

    ``contents`` and ``memory`` keep digests of files, and parsed ones.

    Raises:
        ValueError: named code does not exist.
    """
    references = References({}, {}, {})
    code_names, file_names = referenced_names(section)
    for name in sorted(code_names):
        code = named_code(name, memory)
        references.code[name] = code.files
        references.versions.update(code.versions)
    for name in sorted(file_names):
        path = Path(name).expanduser()
        if path.exists():
            references.content[name] = contents.files(path) if path.is_dir() else contents.of(path)
    return references
