"""The function that the warm start calls for demonstrations of later turns."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.registry import find
from pipeline_lib.sandbox.executor import make_executor

if TYPE_CHECKING:
    from pipeline_lib.policies.warm_start import LaterTurns
    from pipeline_lib.settings import Params


def later_turns(params: Params) -> LaterTurns | None:
    """Return the function that demonstrates later turns, or None if there are none to demonstrate."""
    settings, sandbox = params.environment, params.sandbox
    task: Any = find(settings.kind)
    if not task.has_later_turns(params):
        return None
    return partial(task.demonstrate_later, settings=settings, executor=lambda: make_executor(sandbox))
