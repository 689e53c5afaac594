"""Create an engine from its settings; for teams in which servers play some agents, one that asks several engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pipeline_lib.policies.policy import is_remote
from pipeline_lib.rollouts.engine import Action, Counters, Engine, Listener, Request, Sampling
from pipeline_lib.rollouts.openai_engine import OpenAIEngine, OpenAIServer
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.rollouts.vllm_engine import VllmEngine

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy
    from pipeline_lib.settings.policy import Policy as PolicySettings
    from pipeline_lib.settings.rollouts import Rollouts


class MixedEngine(Engine):
    """Samples from a local engine and from servers; ``counters`` are the sums of all."""

    def __init__(self, local: Engine) -> None:
        """Wrap the engine of the local policies."""
        self._local = local
        self._servers: dict[str, OpenAIEngine] = {}

    @property
    def counters(self) -> Counters:  # type: ignore[override]  # read-only, where the base class has an attribute
        """Return the sums over all engines."""
        found = Counters()
        for engine in (self._local, *self._servers.values()):
            for field in fields(Counters):
                if field.name != "extra":
                    own = getattr(engine.counters, field.name)
                    setattr(found, field.name, getattr(found, field.name) + own)
            for name, value in engine.counters.extra.items():
                found.extra[name] = found.extra.get(name, 0) + value
        return found

    @property
    def listener(self) -> Listener | None:
        """Return the listener of the local engine."""
        return self._local.listener

    @listener.setter
    def listener(self, listener: Listener | None) -> None:
        self._local.listener = listener

    def load(self, policies: Mapping[str, Policy]) -> None:
        """Take rollout copies of the local policies, and create an engine for each of the others."""
        self._local.load({name: policy for name, policy in policies.items() if not is_remote(policy)})
        for engine in self._servers.values():
            engine.close()
        self._servers = {}
        for name, policy in policies.items():
            if is_remote(policy):
                model: Any = policy.model
                server = model.server
                engine = OpenAIEngine(
                    OpenAIServer(server.url, (server.model,), server.api, key_variable=server.key_variable)
                )
                engine.load({name: policy})
                self._servers[name] = engine

    def update(self, policy: Policy) -> None:
        self._local.update(policy)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Action]]:
        found: list[list[Action]] = [[] for _ in requests]
        engines: dict[str, Engine] = {
            request.policy: self._servers.get(request.policy, self._local) for request in requests
        }
        for engine in dict.fromkeys(engines.values()):
            places = [place for place, request in enumerate(requests) if engines[request.policy] is engine]
            for place, actions in zip(places, engine.generate([requests[i] for i in places], sampling), strict=True):
                found[place] = actions
        return found

    def close(self) -> None:
        for engine in (self._local, *self._servers.values()):
            engine.close()


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
