"""An engine for models on a server with an OpenAI-compatible API, for evaluation only.

Actions are requested until they arrive or the server refuses; requests run concurrently up to a limit.  Keys come from
an environment variable and are never written anywhere.  Seeds are sent, but not every server uses them.  Weights cannot
be updated.

Requests have three forms: ``chat`` (the observation as a user's message, for commercial servers), ``completions`` (the
observation as plain text, for base models), and ``tokens`` (completions with token ids in both directions, for vLLM's
server, which must run with ``--logprobs-mode processed_logprobs``; the only form with exact log-probabilities, which
are NaN in the others).

Finished actions are kept on disk, so that a killed evaluation continues without requesting (and paying) them again: one
JSON line per action, flushed when it arrives, by everything that the action depends on.  Truncated lines are skipped.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib.http_client import HttpClient, read_key
from pipeline_lib.identity.code import code_of
from pipeline_lib.rollouts.actions import action_of
from pipeline_lib.rollouts.engine import Action, Counters, Engine, EngineError, Request, Sampling, unknown_policy
from pipeline_lib.storage import canonical_json, digest

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy
    from pipeline_lib.rollouts.engine import Sampling


class ActionStore:
    """Caches actions by key; without a folder, in memory only."""

    def __init__(self, folder: Path | None) -> None:
        """Read the cache in ``folder``, if any."""
        self._path = None if folder is None else folder / "actions.jsonl"
        self._lock = threading.Lock()
        self._known: dict[str, Action] = {}
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists():
                for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
                    self._load_line(line)
                if not self._path.read_bytes().endswith(b"\n"):
                    with self._path.open("a", encoding="utf-8") as file:
                        file.write("\n")  # the next line must not continue a truncated one

    def _load_line(self, line: str) -> None:
        try:
            row = json.loads(line)
            logprobs = tuple(float("nan") if v is None else float(v) for v in row["logprobs"])
            action = Action(tuple(int(i) for i in row["ids"]), logprobs, str(row["text"]), str(row["finish"]))
            key = str(row["key"])
        except (ValueError, KeyError, TypeError):
            return
        if digest(_content(key, action)) == row.get("digest"):
            self._known[key] = action

    def get(self, key: str) -> Action | None:
        """Return the action of ``key``, or None."""
        return self._known.get(key)

    def put(self, key: str, action: Action) -> None:
        """Store an action."""
        content = _content(key, action)
        with self._lock:
            self._known[key] = action
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(canonical_json({**content, "digest": digest(content)}) + "\n")


def _content(key: str, action: Action) -> dict[str, Any]:
    """Return an action as JSON; unknown log-probabilities (NaN) are null."""
    logprobs = [v if v == v else None for v in action.logprobs]
    return {"key": key, "ids": list(action.ids), "logprobs": logprobs, "text": action.text, "finish": action.finish}


PATHS = {"chat": "/chat/completions", "completions": "/completions", "tokens": "/completions"}


@dataclass(frozen=True, slots=True)
class Response:
    """A server's response."""

    actions: list[Action]  #: from one to the requested number
    prompt_tokens: int  #: counted by the server; 0 if it does not report it
    completion_tokens: int  #: counted by the server; 0 if it does not report it


def request_body(
    api: str, model: str, policy: Policy, prompt: tuple[int, ...], n: int, seed: int, sampling: Sampling
) -> dict[str, Any]:
    """Return the body of a request for ``n`` actions.

    Settings with their neutral value are left out, because some servers refuse unknown keys (``top_k`` is not part of
    the original API).
    """
    body: dict[str, Any] = {"model": model, "n": n, "seed": seed, "temperature": sampling.temperature}
    body["max_tokens"] = sampling.max_new_tokens
    if sampling.top_p < 1:
        body["top_p"] = sampling.top_p
    if sampling.top_k > 0:
        body["top_k"] = sampling.top_k
    if policy.stop_strings:
        body["stop"] = list(policy.stop_strings)
    if api == "tokens":
        extra = {"logprobs": 0, "return_token_ids": True, "ignore_eos": True, "add_special_tokens": False}
        return {**body, **extra, "prompt": list(prompt), "stop_token_ids": list(policy.end_ids)}
    text = policy.decode(prompt)
    if api == "chat":
        return {**body, "messages": [{"role": "user", "content": text}]}
    return {**body, "prompt": text}


def parse_response(api: str, policy: Policy, n: int, value: Any) -> Response:
    """Parse a response.

    Raises:
        AttributeError, LookupError, TypeError or ValueError: it is not a response of this API.
    """
    choices = sorted(value["choices"], key=lambda choice: int(choice.get("index", 0)))
    if not 1 <= len(choices) <= n:
        raise ValueError(f"{len(choices)} choices for {n} asked")
    actions = [_tokens_action(choice, policy) if api == "tokens" else _text_action(api, choice) for choice in choices]
    usage = value.get("usage") or {}
    return Response(actions, int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))


def _tokens_action(choice: Mapping[str, Any], policy: Policy) -> Action:
    ids = tuple(int(i) for i in choice["token_ids"])
    logprobs = tuple(float(v) for v in choice["logprobs"]["token_logprobs"])
    if len(ids) != len(logprobs):
        raise ValueError(f"{len(ids)} ids with {len(logprobs)} log-probabilities")
    return action_of(policy, ids, logprobs)


def _text_action(api: str, choice: Mapping[str, Any]) -> Action:
    """Return an action whose ids are the bytes of its text, because these servers return no token ids."""
    content = choice["message"]["content"] if api == "chat" else choice["text"]
    if content is None:  # refusals and tool calls have no text
        content = ""
    if not isinstance(content, str):
        raise TypeError("the content is not text")
    ids = tuple(content.encode())
    return Action(ids, (float("nan"),) * len(ids), content, "length" if choice["finish_reason"] == "length" else "stop")


_SEED_MASK = 2**31 - 1


@dataclass(frozen=True, slots=True)
class OpenAIServer:
    """A server with an OpenAI-compatible API, commercial or not."""

    url: str  #: where the API begins, for example ``http://127.0.0.1:8000/v1``
    models: tuple[str, ...]  #: names on the server; one for all agents, or one each
    #: ``chat`` (messages), ``completions`` (plain text) or ``tokens`` (ids in both directions, vLLM's server).
    api: str = "chat"
    key_variable: str = "OPENAI_API_KEY"  #: environment variable that holds the key; empty for none
    concurrency: int = 16  #: maximum number of concurrent requests
    retries: int = 6  #: number of retries after a failure; the pause doubles each time
    timeout: float = 300.0  #: time limit of a request, seconds
    cache: str = ""  #: folder of the cache of actions, from which a killed run continues; empty for none


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
