"""A model on a server with an OpenAI-compatible API that an environment asks: a critic of code, a judge of texts.

The same question is asked of a server once: answers are kept by server and content.  An answer counts only if it has
the form that was asked for, and a missing one is None: nothing is made up.  What the server is paid for is counted,
also for answers of no use.  Nothing is sent to any other server than that of the settings.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import Field

from pipeline_lib.http_client import HttpClient, ServerError, count_usage, read_key
from pipeline_lib.settings.base import Machine, Section
from pipeline_lib.storage import canonical_json, digest

T = TypeVar("T")  # what is read from an answer, a JSON value

#: What is counted: requests that the server answered and the tokens that it counted for them, questions without a
#: usable answer, and questions whose answer was known.
AMOUNTS = ("requests", "prompt_tokens", "completion_tokens", "failed", "remembered")


class ServedModelSection(Section):
    """A model on a server with an OpenAI-compatible API."""

    url: Machine[str] = Field(min_length=1, description="base address of the API, for example http://127.0.0.1:8000/v1")
    model: str = Field(min_length=1, description="name of the model on the server")
    key_variable: Machine[str] = Field("", description="environment variable with the API key; empty for none")
    concurrency: Machine[int] = Field(16, ge=1, description="requests at the same time")
    retries: Machine[int] = Field(
        3, ge=0, description="retries after a failure or an unusable answer; the pause doubles each time"
    )
    timeout: Machine[float] = Field(60.0, gt=0, description="time limit of a request in seconds")
    cache: Machine[str] = Field("", description="folder in which answers are kept; empty: they are kept in memory only")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The answer to a question."""

    value: T | None  #: what was read; None if the server gave no usable answer
    error: str = ""  #: why not, without the key; empty if there is a value
    #: Amounts by name (`ServedModel.costs`); those that are 0 are left out.
    costs: Mapping[str, float] = field(default_factory=dict)


class ServedModel(Generic[T]):
    """Asks a server, several questions at a time.

    Args:
        settings: the server and the model.
        name: what the model is for, in names of costs and in messages: ``judge``.
        setting: where it is set, for messages: ``environment.reward.judge``.
        max_tokens: longest answer.
        restore: returns the value that a kept answer holds, given as JSON; raises ValueError, KeyError or TypeError for
            what it did not make.

    Raises:
        ValueError: the environment variable that should hold the key is not set.
    """

    def __init__(
        self, settings: ServedModelSection, name: str, setting: str, max_tokens: int, restore: Callable[[Any], T]
    ) -> None:
        key = read_key(settings.key_variable, f"{setting}.key_variable")
        self._settings, self._name, self._max_tokens = settings, name, max_tokens
        self._client = HttpClient(settings.url.rstrip("/"), key, settings.retries, settings.timeout)
        self._answers: dict[str, T] = {}
        self._lock = threading.Lock()
        self._file = Path(settings.cache) / "answers.jsonl" if settings.cache else None
        if self._file is not None and self._file.exists():
            for line in self._file.read_text("utf-8", "replace").splitlines():
                try:
                    row = json.loads(line)
                    self._answers[str(row["key"])] = restore(row["answer"])
                except (ValueError, KeyError, TypeError):
                    continue  # empty, or cut off by a kill

    def ask(self, questions: Sequence[tuple[str, Callable[[str], T]]]) -> list[Answer[T]]:
        """Return the answers; a question that occurs twice is asked, and costs something, once.

        Args:
            questions: the text of each, and what reads the text of its answer, which raises LookupError, TypeError or
                ValueError if that is not of the form that was asked for.
        """
        bodies = [
            {
                "model": self._settings.model,
                "messages": [{"role": "user", "content": text}],
                "temperature": 0,
                "max_tokens": self._max_tokens,
            }
            for text, _ in questions
        ]
        keys = [digest([self._client.url, body]) for body in bodies]  # another server is another model
        missing: dict[str, int] = {}
        for place, key in enumerate(keys):
            if key not in self._answers:
                missing.setdefault(key, place)
        asked: dict[str, Answer[T]] = {}
        if missing:
            with ThreadPoolExecutor(self._settings.concurrency, thread_name_prefix=self._name) as pool:
                answered = pool.map(
                    lambda key: self._request(key, bodies[missing[key]], questions[missing[key]][1]), missing
                )
                asked = dict(zip(missing, answered, strict=True))
        remembered = {f"{self._name}_remembered": 1.0}
        answers = []
        for key in keys:
            answer = asked[key] if key in asked else Answer(self._answers[key], costs=remembered)
            answers.append(answer)
            asked[key] = replace(answer, costs={} if answer.value is None else remembered)
        return answers

    def costs(self, answers: Iterable[Answer[T]]) -> dict[str, float]:
        """Return the sums of what answers cost, by name (`AMOUNTS` after the model's own name), zeros included.

        Every outcome of an environment has all of them, so that means over episodes are over all episodes.
        """
        given = [answer.costs for answer in answers]
        return {
            name: sum(costs.get(name, 0.0) for costs in given)
            for name in (f"{self._name}_{amount}" for amount in AMOUNTS)
        }

    def close(self) -> None:
        """Stop waiting for the server."""
        self._client.closing.set()

    def _request(self, key: str, body: dict[str, Any], read: Callable[[str], T]) -> Answer[T]:
        costs: dict[str, float] = {}

        def counted(answer: Any) -> T:
            count_usage(answer, costs, self._name)
            return read(answer["choices"][0]["message"]["content"])

        try:
            value = self._client.post("/chat/completions", body, counted)
        except ServerError as error:
            said = f"the {self._name} gave no usable answer: {error}"
            return Answer(None, said, {**costs, f"{self._name}_failed": 1.0})
        with self._lock:
            self._answers[key] = value
            if self._file is not None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                # half a letter, which JSON can hold and UTF-8 cannot, is written as JSON escapes it
                with self._file.open("a", encoding="utf-8", errors="backslashreplace") as file:
                    # the line before may have been cut off, so each begins on its own
                    file.write("\n" + canonical_json({"key": key, "answer": value}) + "\n")
        return Answer(value, costs=costs)
