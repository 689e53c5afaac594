"""Cached tasks: a small value, computed once for each identity, and never a stale one.

A `CachedTask` returns the value of one identity: the code that computes it, the policy, the problems, the seed and the
settings.  Same identity, same value, in any process and any run of this project; anything else computes.  Values are
files in ``.symposium/cache``; Prefect shows each call, but its own cache is not used (it hashes a path as its text,
drops a part of a key that is None, and does not see a changed helper).

Promises:

- the key is one explicit digest;
- values are JSON, checked when they are written and by digest when they are read; a damaged file is named, deleted
  and computed again; a value is the same whether it was computed or read (a tuple is a list both times);
- no locks: after ``kill -9`` nothing waits.  Two processes that ask for the same value at once may both compute it.

Does not promise: anything about files.  A cached task must not write one that others need, and a `Path` in a value or
in an identity is refused.  To compute everything again: ``PREFECT_TASKS_REFRESH_CACHE=true``.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from prefect import State, Task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_logger
from prefect.settings import get_current_settings
from prefect.states import Completed

from pipeline_lib.identity.code import code_of
from pipeline_lib.storage import canonical_json, digest, write_json
from tasks.identity.stages import RUNTIME
from tasks.runtime.flow_runs import untagged
from tasks.services.caches import syntaxes
from tasks.services.process_environment import places

_DIGEST = re.compile(r"[0-9a-f]{32,64}")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a value depends on, besides the code."""

    policy: str  #: digest of the weights involved (32 to 64 hexadecimal digits), never a path
    problems: str  #: digest of the problems involved, likewise
    seed: int  #: sampling or resampling seed
    settings: Mapping[str, Any]  #: every setting that matters, as JSON (``section.model_dump(mode="json")``)

    def __post_init__(self) -> None:
        for name in ("policy", "problems"):
            value = getattr(self, name)
            if not isinstance(value, str) or not _DIGEST.fullmatch(value):
                raise ValueError(
                    f"identity: {name}: got {value!r}; accepted: a content digest of 32 to 64 hexadecimal digits "
                    "(a path would stay the same when the file behind it changes)"
                )


class CachedTask:
    """A Prefect task whose value is kept in ``.symposium/cache`` under an explicit key.

    Args:
        name: what the task is called, in the UI and in the key.
        modules: those that compute the value, and the caller of the task, because its arguments matter too.  What they
            import is covered (see `code_of`).
    """

    def __init__(self, name: str, *modules: ModuleType) -> None:
        self.name = name
        # Taken when the code is loaded: a file edited during a long run must not label what the old code computed.
        self._code = code_of(*(module.__name__ for module in modules), without=RUNTIME, memory=syntaxes()).digest

    def key(self, identity: Identity) -> str:
        """Return the key of a value: 64 hexadecimal digits; TypeError if the settings are not JSON."""
        return digest(
            {
                "task": self.name,
                "code": self._code,
                "policy": identity.policy,
                "problems": identity.problems,
                "seed": identity.seed,
                "settings": dict(identity.settings),
            }
        )

    def __call__(self, identity: Identity, compute: Callable[[], Any], title: str = "") -> Any:
        """Return the value of ``identity``, from the cache or from ``compute()``; ``title`` is for the UI.

        Raises:
            TypeError, ValueError: ``compute`` returned something JSON has no form for, such as a path, NaN or a set.
        """
        file = places().cache / self.key(identity)
        with untagged():
            value = self._task.with_options(task_run_name=title or self.name)(file, compute)
        return value.result() if isinstance(value, State) else value

    def has(self, identity: Identity) -> bool:
        """Return whether a call for ``identity`` would take the value from the cache."""
        return not get_current_settings().tasks.refresh_cache and bool(read_value(places().cache / self.key(identity)))

    @cached_property
    def _task(self) -> Task[[Path, Callable[[], Any]], Any]:
        return Task(self._value, name=self.name, cache_policy=NO_CACHE)

    def _value(self, file: Path, compute: Callable[[], Any]) -> Any:
        if not get_current_settings().tasks.refresh_cache and (text := read_value(file)):
            return Completed(name="Cached", data=json.loads(text))
        value = compute()
        try:
            text = canonical_json(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"task {self.name}: the value cannot be cached, it is not plain JSON: {error}") from error
        write_json(file, {"key": file.name, "value": text, "sha256": digest(text)})
        return json.loads(text)


def read_value(file: Path) -> str:
    """Return a cached value as JSON, empty if there is none; a damaged file is named and deleted."""
    try:
        record = json.loads(file.read_bytes())
        if (record["key"], record["sha256"]) == (file.name, digest(record["value"])):
            return str(record["value"])
    except FileNotFoundError:
        return ""
    except (ValueError, KeyError, TypeError):
        pass
    get_logger("symposium.cache").warning("%s: damaged cached value (digest differs); computing it again", file)
    file.unlink(missing_ok=True)
    return ""
