"""From settings to an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipeline_lib.sandbox import Executor
from pipeline_lib.sandbox.make import make_executor
from pipeline_lib.seam.environment import Environment

if TYPE_CHECKING:
    from pipeline_lib.settings.environment import Environment as EnvironmentSettings
    from pipeline_lib.settings.sandbox import Sandbox as SandboxSettings


def make_environment(
    settings: EnvironmentSettings, sandbox: SandboxSettings | Callable[[], Executor]
) -> Environment[Any, Any]:
    """Return the environment that the settings describe.

    Args:
        settings: the ``environment`` section.
        sandbox: the ``sandbox`` section, or a function that makes an executor.  No process starts before the first
            program has to run; an environment that runs no programs starts none.
    """
    if settings.kind == "philosophers":
        from pipeline_lib.environments.philosophers.runtime import Philosophers

        return Philosophers(settings)
    from pipeline_lib.environments.coding.runtime import CodingEnvironment

    if callable(sandbox):
        return CodingEnvironment(settings, sandbox)
    section = sandbox
    return CodingEnvironment(settings, lambda: make_executor(section))
