"""An engine for models on a server with an OpenAI-compatible API, for evaluation only.

Actions are requested until they arrive or the server refuses; requests run concurrently up to a limit.  Finished
actions are cached on disk, so a killed evaluation continues.  Keys come from an environment variable and are never
written anywhere.

Seeds are sent, but not every server uses them.  Log-probabilities are NaN unless ``api`` is ``tokens`` (then the server
must run with ``--logprobs-mode processed_logprobs``).  Weights cannot be updated.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib.http_client import HttpClient, read_key
from pipeline_lib.identity.code import code_of
from pipeline_lib.rollouts.action_store import ActionStore
from pipeline_lib.rollouts.engine import Action, Counters, Engine, EngineError, Request, Sampling, unknown_policy
from pipeline_lib.rollouts.openai_api import PATHS, parse_response, request_body
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy

_SEED_MASK = 2**31 - 1


@dataclass(frozen=True, slots=True)
class OpenAIServer:
    """A server with an OpenAI-compatible API, commercial or not.

    Attributes:
        url: where the API begins, for example ``http://127.0.0.1:8000/v1``.
        models: names on the server; one for all agents, or one each.
        api: ``chat`` (messages), ``completions`` (plain text) or ``tokens`` (ids in both directions, vLLM's server).
        key_variable: environment variable that holds the key; empty for none.
        concurrency: maximum number of concurrent requests.
        retries: number of retries after a failure; the pause doubles each time.
        timeout: time limit of a request, seconds.
        cache: folder of the cache of actions, from which a killed run continues; empty for none.
    """

    url: str
    models: tuple[str, ...]
    api: str = "chat"
    key_variable: str = "OPENAI_API_KEY"
    concurrency: int = 16
    retries: int = 6
    timeout: float = 300.0
    cache: str = ""


class OpenAIEngine(Engine):
    """Samples from models on a server."""

    def __init__(self, server: OpenAIServer) -> None:
        """Create an engine; this sends no request.

        Raises:
            EngineError: the environment variable of the key is not set.
        """
        key = read_key(server.key_variable, "key_variable", EngineError)
        self.counters = Counters()
        self._server = server
        self._client = HttpClient(server.url.rstrip("/"), key, server.retries, server.timeout, failure=EngineError)
        # Cached actions depend on the code that builds requests and parses responses.
        self._code = code_of(__name__).digest
        self._store = ActionStore(Path(server.cache) if server.cache else None)
        self._policies: dict[str, Policy] = {}
        self._models: dict[str, str] = {}

    def load(self, policies: Mapping[str, Policy]) -> None:
        """Assign a model to each policy: the one that the policy names, else those of the server in order."""
        names = list(self._server.models)
        if len(names) == 1:
            names *= len(policies)
        for policy, name in zip(policies.values(), names + [""] * len(policies), strict=False):
            name = getattr(policy.model, "name", "") or name
            if not name:
                raise EngineError(
                    f"{len(self._server.models)} models for {len(policies)} policies "
                    f"({', '.join(policies)}); give one for all, or one per policy in this order"
                )
            if policy.chat and self._server.api != "tokens":
                raise EngineError(
                    f"policy {policy.name!r} applies a chat template, and so does the server; set policy.chat to never"
                )
            self._models[policy.name] = name
        self._policies = dict(policies)

    def update(self, policy: Policy) -> None:
        """Raise EngineError, because a server's weights cannot be changed."""
        raise EngineError("this engine cannot train: the server's weights stay as they are; use another engine")

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Action]]:
        """Return cached actions, and request all others."""
        started = time.perf_counter()
        for request in requests:
            if request.policy not in self._policies:
                raise unknown_policy(request.policy, self._policies)
        extra = self.counters.extra
        retried = self._client.retried
        pool = ThreadPoolExecutor(self._server.concurrency, thread_name_prefix="openai")
        try:
            results = list(pool.map(lambda request: self._serve(request, sampling.of(request.policy)), requests))
        except BaseException:
            self._client.closing.set()  # waiting retries give up
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            self._client.closing.clear()
        for actions, prompt_tokens, completion_tokens, asked in results:
            self.counters.actions += len(actions)
            self.counters.prompt_tokens += prompt_tokens
            self.counters.computed_tokens += completion_tokens
            self.counters.generated_tokens += completion_tokens
            extra["asked"] = extra.get("asked", 0) + asked
            extra["remembered"] = extra.get("remembered", 0) + len(actions) - asked
        extra["retries"] = extra.get("retries", 0) + self._client.retried - retried
        self.counters.requests += len(requests)
        self.counters.seconds += time.perf_counter() - started
        return [actions for actions, *_ in results]

    def _serve(self, request: Request, sampling: Sampling) -> tuple[list[Action], int, int, int]:
        """Return a request's actions, the prompt and completion tokens used, and the number of new actions."""
        policy, model = self._policies[request.policy], self._models[request.policy]
        facts: dict[str, Any] = {"url": self._client.url, "api": self._server.api, "model": model, "code": self._code}
        facts |= {"prompt": request.prompt, "seed": request.seed, "stop": policy.stop_strings, **asdict(sampling)}
        keys = [digest({**facts, "action": number}) for number in range(request.n)]
        found: list[Action | None] = [self._store.get(key) for key in keys]
        missing = [number for number, action in enumerate(found) if action is None]
        asked, prompt_tokens, completion_tokens = len(missing), 0, 0
        while missing:
            # Servers use seed + i for action i of a request, so seeds of further requests must be far apart.
            seed = (request.seed * 65_537 + missing[0]) & _SEED_MASK
            body = request_body(self._server.api, model, policy, request.prompt, len(missing), seed, sampling)
            read = partial(parse_response, self._server.api, policy, len(missing))
            response = self._client.post(PATHS[self._server.api], body, read)
            prompt_tokens += response.prompt_tokens
            completion_tokens += response.completion_tokens
            for number, action in zip(missing, response.actions, strict=False):
                self._store.put(keys[number], action)
                found[number] = action
            missing = missing[len(response.actions) :]
        return [action for action in found if action is not None], prompt_tokens, completion_tokens, asked

    def close(self) -> None:
        """Cancel waiting retries."""
        self._client.closing.set()
