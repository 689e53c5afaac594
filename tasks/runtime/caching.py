"""Cached tasks: a small value, computed once for each identity, and never a stale one.

A `CachedTask` asks Prefect for the value of one identity: the code that computes it, the policy, the problems, the
seed and the settings.  Same identity, same value, in any process and any run of this project; anything else computes.

Promises:

- the key is one explicit digest; nothing is hashed behind the caller's back (Prefect's own policies hash a path as
  its text, drop a part that is None, and do not see a changed helper);
- values are JSON, checked when they are written and by digest when they are read; a damaged file is named, deleted
  and computed again; a value is the same whether it was computed or read (a tuple is a list both times);
- no locks: after ``kill -9`` nothing waits.  Two processes that ask for the same value at once may both compute it.

Does not promise: anything about files.  A cached task must not write one that others need, and a `Path` in a value or
in an identity is refused.  To compute everything again: ``PREFECT_TASKS_REFRESH_CACHE=true``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from prefect import Task
from prefect.context import TaskRunContext
from prefect.logging import get_logger
from prefect.serializers import JSONSerializer

from pipeline_lib.identity.code import code_of
from pipeline_lib.storage import canonical_json, digest
from tasks.identity.stages import RUNTIME, syntaxes
from tasks.runtime.subflow import untagged
from tasks.services.process_environment import places

_DIGEST = re.compile(r"[0-9a-f]{32,64}")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a value depends on, besides the code.

    Attributes:
        policy: digest of the weights involved (32 to 64 hexadecimal digits), never a path.
        problems: digest of the problems involved, likewise.
        seed: sampling or resampling seed.
        settings: every setting that matters, as JSON (``section.model_dump(mode="json")``).
    """

    policy: str
    problems: str
    seed: int
    settings: Mapping[str, Any]

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
        """Return the value of ``identity``, from the cache or from ``compute()``.

        Args:
            identity: what the value depends on.
            compute: called without arguments when the value is not known; returns a JSON-like value.
            title: what this one call is about, for the UI.

        Raises:
            TypeError, ValueError: ``compute`` returned something JSON has no form for, such as a path, NaN or a set.
        """
        key = self.key(identity)
        with untagged():
            envelope = self._task.with_options(task_run_name=title or self.name)(key, compute)
        return json.loads(envelope["value"])

    @cached_property
    def _task(self) -> Task[[str, Callable[[], Any]], dict[str, str]]:
        return Task(
            self._envelope,
            name=self.name,
            cache_key_fn=_usable_key,
            persist_result=True,
            result_storage=places().cache,
            # No object hooks: records hold plain JSON, and reading one never looks up a class by name.
            result_serializer=JSONSerializer(object_encoder=None, object_decoder=None),
            cache_result_in_memory=False,
        )

    def _envelope(self, key: str, compute: Callable[[], Any]) -> dict[str, str]:
        value = compute()
        try:
            text = canonical_json(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"task {self.name}: the value cannot be cached, it is not plain JSON: {error}") from error
        return {"key": key, "value": text, "sha256": digest(text)}


def _usable_key(_context: TaskRunContext, parameters: dict[str, Any]) -> str:
    """Return the key, never None; a damaged file under it is removed first, so that Prefect computes again."""
    key = str(parameters["key"])
    discard_damaged(places().cache / key, key)
    return key


def discard_damaged(path: Path, key: str) -> bool:
    """Delete a cached file whose content is not what was written, with a message; return whether one was deleted.

    Prefect reads a record with the serializer that the record itself names; one that names another than ours (such
    as pickle) was not written here and is never read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    try:
        record = json.loads(content)
        serializer = record["metadata"]["serializer"]
        envelope = json.loads(record["result"])
        sound = (
            serializer["type"] == "json"
            and not serializer["object_decoder"]
            and envelope["key"] == key
            and envelope["sha256"] == digest(envelope["value"])
        )
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        get_logger("symposium.cache").warning("%s: damaged cached value (digest differs); computing it again", path)
        path.unlink(missing_ok=True)
    return not sound
