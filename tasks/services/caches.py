"""The project's caches of what identities and plans are made of; each entry is known by the content of its file."""

import functools

from pipeline_lib.identity.content import DigestCache
from pipeline_lib.identity.syntax import SyntaxCache
from tasks.services.process_environment import places


@functools.lru_cache(maxsize=1)
def contents() -> DigestCache:
    """Return the cache of the digests of this project's large files."""
    return DigestCache(places().home / "digests.json")


@functools.lru_cache(maxsize=1)
def syntaxes() -> SyntaxCache:
    """Return the cache of the syntax of the source files that this project runs."""
    return SyntaxCache(places().home / "syntax.json")
