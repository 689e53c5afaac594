"""The ``vllm`` engine: rollouts by vLLM, in this process, in a separate one, or by a server.

Token ids are never decoded and encoded again.  Log-probabilities are those of the sampling distribution (vLLM's default
is temperature 1, which differs by nats at others).  Stale weights raise an error, and an update clears vLLM's caches.
Policies with LoRA adapters on one base share an engine, and an update replaces their adapters; other policies have an
engine each, and an update replaces their weights in place.  No engine is restarted.

vLLM has its own random generators, so its actions differ from those of the transformers engine with the same seeds.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib.policies.lora import plain_state
from pipeline_lib.rollouts.actions import action_of
from pipeline_lib.rollouts.engine import (
    Action,
    Counters,
    Engine,
    Request,
    Sampling,
    check_prompt,
    require_current,
    unknown_policy,
)
from pipeline_lib.rollouts.sampling import spread_seed
from pipeline_lib.rollouts.vllm_hosts import Host, call_all, call_each
from pipeline_lib.rollouts.vllm_setup import (
    arguments,
    check_divides,
    engine_groups,
    exchange_folder,
    make_host,
    save_model,
    save_weights,
    weights_type,
)

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy
    from pipeline_lib.settings.rollouts import VllmRollouts


@dataclass(slots=True)
class _Group:
    """Policies served by the same engine."""

    names: list[str]  #: the policies; several if they are adapters on one base
    adapters: bool  #: whether they are adapters
    folder: Path  #: folder for the transfer of weights
    hosts: list[Host] = field(default_factory=list)  #: one per replica
    context: int = 0  #: maximum number of tokens of prompt and action together
    asleep: bool = False  #: the engine has freed its memory
    #: By policy, files of weights or adapters that are not loaded yet.
    staged: dict[str, Path] = field(default_factory=dict)
    loaded: dict[str, Path] = field(default_factory=dict)  #: by policy, the files that the engine loaded last


class VllmEngine(Engine):
    """Samples from vLLM engines that hold the policies' weights."""

    def __init__(self, section: VllmRollouts) -> None:
        """Create an engine without policies; `load` starts vLLM."""
        self.counters = Counters()
        self._section = section
        self._policies: dict[str, Policy] = {}
        self._versions: dict[str, int] = {}
        self._groups: list[_Group] = []

    def load(self, policies: Mapping[str, Policy]) -> None:
        """Start an engine per group of policies with their weights."""
        self.close()
        self._policies = dict(policies)
        try:
            self._start(policies)
        except BaseException:
            self.close()
            raise

    def _start(self, policies: Mapping[str, Policy]) -> None:
        """Start all engines."""
        section, groups = self._section, engine_groups(policies)
        for number, (names, adapters) in enumerate(groups):
            group = _Group(names, adapters, exchange_folder(section))
            self._groups.append(group)
            own = [policies[name] for name in names]
            check_divides(section, own[0])
            model = group.folder / "model"
            if section.process != "server":
                save_model(model, own[0], adapters, weights_type(section, own[0]))
            replicas = section.replicas if section.process == "own" else 1
            for replica in range(replicas):
                group.hosts.append(make_host(section, number, replica, group.folder))
            start = partial(_start, arguments=arguments(section, own, adapters, len(groups), model), replicas=replicas)
            facts = call_each(group.hosts, [partial(start, replica=replica) for replica in range(replicas)])
            group.context = min(int(fact["context"]) for fact in facts)
            shutil.rmtree(model, ignore_errors=True)
            for policy in own:
                if adapters or section.process == "server":
                    self._stage(group, policy)
                self._versions[policy.name] = policy.version
            self._sleep(group)

    def update(self, policy: Policy) -> None:
        """Write the policy's present weights; its engine loads them before it samples again."""
        if policy.name not in self._policies:
            raise unknown_policy(policy.name, self._policies)
        self._policies[policy.name] = policy
        self._stage(next(group for group in self._groups if policy.name in group.names), policy)
        self._versions[policy.name] = policy.version

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Action]]:
        """Sample all actions, group by group; replicas of a group share its requests."""
        started = time.perf_counter()
        for name in {request.policy for request in requests}:
            if name not in self._policies:
                raise unknown_policy(name, self._policies)
            require_current(self._policies[name], self._versions[name])
        results: list[list[Action]] = [[] for _ in requests]
        for group in self._groups:
            mine = [i for i, request in enumerate(requests) if request.policy in group.names]
            for own in dict.fromkeys(sampling.of(requests[i].policy) for i in mine):
                indices = [i for i in mine if sampling.of(requests[i].policy) == own]
                rows = [self._row(group, requests[i], own) for i in indices]
                for index, actions in zip(indices, self._draw(group, rows, own), strict=True):
                    # vLLM samples a single greedy action per request, since all are equal
                    results[index] = actions if len(actions) == requests[index].n else actions * requests[index].n
        lengths = [len(action.ids) for actions in results for action in actions]
        self.counters.requests += len(requests)
        self.counters.actions += len(lengths)
        self.counters.prompt_tokens += sum(len(prompt) for _, prompt in {(r.policy, r.prompt) for r in requests})
        self.counters.generated_tokens += sum(lengths)
        self.counters.computed_tokens += sum(lengths)
        self.counters.seconds += time.perf_counter() - started
        return results

    def close(self) -> None:
        """Stop the engines and remove their files."""
        for group in self._groups:
            for host in group.hosts:
                host.close()
            shutil.rmtree(group.folder, ignore_errors=True)
        self._groups, self._policies, self._versions = [], {}, {}

    def _draw(self, group: _Group, rows: list[dict[str, Any]], sampling: Sampling) -> list[list[Action]]:
        """Sample with the group's replicas, each a share of the rows."""
        self._wake_and_load(group)
        settings = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
        count = len(group.hosts)
        calls = [partial(_generate, rows=rows[replica::count], sampling=settings) for replica in range(count)]
        parts = call_each(group.hosts, calls)
        self._sleep(group)
        found: list[list[Action]] = []
        for number, row in enumerate(rows):
            policy = self._policies[row["policy"]]
            drawn = parts[number % count][number // count]
            found.append([action_of(policy, tuple(ids), tuple(logprobs)) for ids, logprobs in drawn])
        return found

    def _row(self, group: _Group, request: Request, sampling: Sampling) -> dict[str, Any]:
        """Return a request as a row of `vllm_worker.VllmHost.generate`."""
        policy, length = self._policies[request.policy], len(request.prompt)
        check_prompt(request.policy, length, request.n, group.context)
        return {
            "policy": request.policy,
            "prompt": request.prompt,
            "n": request.n if sampling.temperature > 0 else 1,
            "seed": spread_seed(request.seed),
            "max_tokens": min(sampling.max_new_tokens, group.context - length),
            "adapter": request.policy if group.adapters else "",
            "ends": policy.end_ids,
            "stops": policy.stop_strings,
        }

    def _stage(self, group: _Group, policy: Policy) -> None:
        """Write weights for the engine; they replace earlier ones that it has not loaded."""
        folder = group.folder / f"{policy.name}-{policy.version}-{time.monotonic_ns()}"
        if group.adapters:
            model: Any = policy.model
            model.save_pretrained(folder)
        else:
            save_weights(folder, plain_state(policy), weights_type(self._section, policy))
        if (old := group.staged.get(policy.name)) is not None:
            shutil.rmtree(old)
        group.staged[policy.name] = folder

    def _wake_and_load(self, group: _Group) -> None:
        """Wake the engine up and load staged weights."""
        if group.asleep:
            call_all(group.hosts, "wake")
            group.asleep = False
        for name, folder in list(group.staged.items()):
            if group.adapters:
                call_all(group.hosts, "adapter", policy=name, folder=str(folder))
            else:
                call_all(group.hosts, "weights", folder=str(folder))
            if (old := group.loaded.get(name)) is not None:
                shutil.rmtree(old)
            group.loaded[name] = group.staged.pop(name)

    def _sleep(self, group: _Group) -> None:
        """Free the engine's memory, if ``rollouts.sleep`` is set."""
        if self._section.sleep and not group.asleep:
            call_all(group.hosts, "sleep")
            group.asleep = True


def _start(host: Host, **arguments: Any) -> Any:
    return host.call("start", **arguments)


def _generate(host: Host, rows: list[dict[str, Any]], sampling: dict[str, Any]) -> Any:
    return host.call("generate", rows=rows, sampling=sampling) if rows else []
