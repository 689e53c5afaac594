"""Create an engine from its settings section."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_lib.rollouts.mixed_engine import MixedEngine
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.rollouts.vllm_engine import VllmEngine

if TYPE_CHECKING:
    from pipeline_lib.rollouts.engine import Engine
    from pipeline_lib.settings.policy import Policy as PolicySettings
    from pipeline_lib.settings.rollouts import Rollouts


def make_engine(section: Rollouts, policy: PolicySettings | None = None) -> Engine:
    """Return an engine without policies; call `Engine.load` next.

    Args:
        section: the ``rollouts`` section.
        policy: the ``policy`` section, where agents may be played by servers.
    """
    if policy is not None and any(agent.server is not None for agent in policy.agents.values()):
        return MixedEngine(make_engine(section))
    if section.kind == "transformers":
        return TransformersEngine.from_settings(section)
    return VllmEngine(section)
