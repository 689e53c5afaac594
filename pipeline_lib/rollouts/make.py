"""Which engine a settings section means."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline_lib.rollouts.engine import Engine
    from pipeline_lib.settings.rollouts import Rollouts


def make_engine(section: Rollouts) -> Engine:
    """Return an engine without policies for the settings section ``rollouts``; call `Engine.load` next."""
    if section.kind == "transformers":
        from pipeline_lib.rollouts.transformers_engine import TransformersEngine

        return TransformersEngine.from_settings(section)
    from pipeline_lib.rollouts.vllm_engine import VllmEngine

    return VllmEngine(section)
