"""The ``vllm`` engine: rollouts by vLLM, in this process, in one of its own, or by a server.

Promise: token ids from end to end; log-probabilities of the distribution sampled from (vLLM's default are those at
temperature 1, off by nats at others); an error instead of stale weights; caches forgotten with the weights they came
from.  Policies with LoRA adapters on one base share an engine and their adapters are swapped after every update; other
policies have an engine each, and their weights are replaced in place.  No engine is ever restarted.

Not promised: the same actions as the transformers engine for the same seeds (vLLM has generators of its own).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from pipeline_lib.rollouts.plain_weights import plain_state
from pipeline_lib.rollouts.random_draws import spread_seed
from pipeline_lib.rollouts.vllm_hosts import Host, call_all, each
from pipeline_lib.rollouts.vllm_setup import (
    arguments,
    check_divides,
    exchange_folder,
    make_host,
    save_model,
    save_weights,
    sharing,
    weights_type,
)

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy
    from pipeline_lib.settings.rollouts import VllmRollouts


@dataclass(slots=True)
class _Group:
    """Policies served by the same engine.

    Attributes:
        names: the policies; several if they are adapters on one base.
        adapters: whether they are.
        folder: files on their way to the engine.
        hosts: one per replica.
        context: most tokens of prompt and action together.
        asleep: the engine has given its memory back.
        staged: weights or adapters written and not yet taken, by policy.
        taken: what the engine took last, by policy.
    """

    names: list[str]
    adapters: bool
    folder: Path
    hosts: list[Host] = field(default_factory=list)
    context: int = 0
    asleep: bool = False
    staged: dict[str, Path] = field(default_factory=dict)
    taken: dict[str, Path] = field(default_factory=dict)


class VllmEngine(Engine):
    """Samples from vLLM engines that hold the policies' weights."""

    def __init__(self, section: VllmRollouts) -> None:
        """Make an engine without policies; nothing is started before `load`."""
        self.counters = Counters()
        self._section = section
        self._policies: dict[str, Policy] = {}
        self._versions: dict[str, int] = {}
        self._groups: list[_Group] = []

    def load(self, policies: Mapping[str, Policy]) -> None:
        """Start an engine per group of policies and give it their weights."""
        self.close()
        self._policies = dict(policies)
        try:
            self._start(policies)
        except BaseException:
            self.close()
            raise

    def _start(self, policies: Mapping[str, Policy]) -> None:
        """Start all engines."""
        section, groups = self._section, sharing(policies)
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
            facts = each(group.hosts, [partial(start, replica=replica) for replica in range(replicas)])
            group.context = min(int(fact["context"]) for fact in facts)
            shutil.rmtree(model, ignore_errors=True)
            for policy in own:
                if adapters or section.process == "server":
                    self._stage(group, policy)
                self._versions[policy.name] = policy.version
            self._rest(group)

    def update(self, policy: Policy) -> None:
        """Write the policy's weights as they are now; its engine takes them before it draws again."""
        if policy.name not in self._policies:
            raise unknown_policy(policy.name, self._policies)
        self._policies[policy.name] = policy
        self._stage(next(group for group in self._groups if policy.name in group.names), policy)
        self._versions[policy.name] = policy.version

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Action]]:
        """Draw all actions; groups take turns, replicas of a group share its requests."""
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
                    # greedy actions of a request are all the same, and vLLM draws but one
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
        """End the engines and remove their files."""
        for group in self._groups:
            for host in group.hosts:
                host.close()
            shutil.rmtree(group.folder, ignore_errors=True)
        self._groups, self._policies, self._versions = [], {}, {}

    def _draw(self, group: _Group, rows: list[dict[str, Any]], sampling: Sampling) -> list[list[Action]]:
        """Have the group's replicas draw, each a share of the rows."""
        self._wake(group)
        settings = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
        count = len(group.hosts)
        calls = [partial(_generate, rows=rows[replica::count], sampling=settings) for replica in range(count)]
        parts = each(group.hosts, calls)
        self._rest(group)
        found: list[list[Action]] = []
        for number, row in enumerate(rows):
            policy = self._policies[row["policy"]]
            drawn = parts[number % count][number // count]
            found.append([action_of(policy, tuple(ids), tuple(logprobs)) for ids, logprobs in drawn])
        return found

    def _row(self, group: _Group, request: Request, sampling: Sampling) -> dict[str, Any]:
        """Return a request as the engine takes it (see `vllm_worker.VllmHost.generate`)."""
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
        """Write what the engine is to take next; what it has not taken before is replaced."""
        folder = group.folder / f"{policy.name}-{policy.version}-{time.monotonic_ns()}"
        if group.adapters:
            model: Any = policy.model
            model.save_pretrained(folder)
        else:
            save_weights(folder, plain_state(policy), weights_type(self._section, policy))
        if (old := group.staged.get(policy.name)) is not None:
            shutil.rmtree(old)
        group.staged[policy.name] = folder

    def _wake(self, group: _Group) -> None:
        """Bring the engine's memory back and have it take what is staged."""
        if group.asleep:
            call_all(group.hosts, "wake")
            group.asleep = False
        for name, folder in list(group.staged.items()):
            if group.adapters:
                call_all(group.hosts, "adapter", policy=name, folder=str(folder))
            else:
                call_all(group.hosts, "weights", folder=str(folder))
            if (old := group.taken.get(name)) is not None:
                shutil.rmtree(old)
            group.taken[name] = group.staged.pop(name)

    def _rest(self, group: _Group) -> None:
        """Give the engine's memory back, if it is to be shared."""
        if self._section.sleep and not group.asleep:
            call_all(group.hosts, "sleep")
            group.asleep = True


def _start(host: Host, **arguments: Any) -> Any:
    return host.call("start", **arguments)


def _generate(host: Host, rows: list[dict[str, Any]], sampling: dict[str, Any]) -> Any:
    return host.call("generate", rows=rows, sampling=sampling) if rows else []
