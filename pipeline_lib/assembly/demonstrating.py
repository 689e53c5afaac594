"""Whether the warm start demonstrates later turns, and the function that it calls for these demonstrations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.registry import find
from pipeline_lib.environment_api.task import Task
from pipeline_lib.sandbox.make import make_executor

if TYPE_CHECKING:
    from pipeline_lib.policies.warm_start import LaterTurns
    from pipeline_lib.settings import Params


def has_later_turns(params: Params) -> bool:
    """Return whether the base depends on what the environment tells agents after their first turn."""
    if params.policy.kind != "embedded" or getattr(params.environment, "turns", 1) < 2:
        return False
    return type(find(params.environment.kind)).demonstrate_later is not Task.demonstrate_later


def later_turns(params: Params) -> LaterTurns | None:
    """Return the function that demonstrates later turns, or None if there are none to demonstrate."""
    if not has_later_turns(params):
        return None
    settings, sandbox = params.environment, params.sandbox
    task: Any = find(settings.kind)
    return partial(task.demonstrate_later, settings=settings, executor=lambda: make_executor(sandbox))
