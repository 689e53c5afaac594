"""Create an environment from settings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.environment_api.registry import find
from pipeline_lib.sandbox import Executor
from pipeline_lib.sandbox.executor import make_executor

if TYPE_CHECKING:
    from pipeline_lib.settings.sandbox import Sandbox as SandboxSettings


def make_environment(settings: Any, sandbox: SandboxSettings | Callable[[], Executor]) -> Environment[Any, Any]:
    """Return the environment that the settings describe.

    Args:
        settings: the ``environment`` section.
        sandbox: the ``sandbox`` section, or a function that makes an executor.  No process starts before the first
            program has to run; an environment that runs no programs starts none.

    Raises:
        RewardError: the bounds of its reward cannot be trained with.
    """
    executor = sandbox if callable(sandbox) else functools.partial(make_executor, sandbox)
    made: Environment[Any, Any] = find(settings.kind).make(settings, executor)
    made.refuse_unusable_bounds()
    return made
