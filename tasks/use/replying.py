"""Replies in OpenAI's form, whole or as server-sent events."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

from tasks.use.api_requests import ChatRequest, CompletionRequest
from tasks.use.local_server import event, kind_of, status_and_message
from tasks.use.queueing import Answer, Question


class Reply:
    """The forms of replies that clients expect; see the API reference of OpenAI."""

    def __init__(self, request: CompletionRequest, notices: tuple[str, ...] = ()) -> None:
        self._request = request
        self._chat = isinstance(request, ChatRequest)
        self._head = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": request.model,
            **({"notices": notices} if notices else {}),
        }

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return the whole reply."""
        choices = []
        for number, (text, finish) in enumerate(zip(answer.texts, answer.finishes, strict=True)):
            said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
            choices.append({"index": number, **said, "logprobs": None, "finish_reason": finish})
        kind = "chat.completion" if self._chat else "text_completion"
        return {**self._head, "object": kind, "choices": choices, "usage": _usage(answer)}

    def begin(self) -> list[str]:
        """Return the events that a stream begins with."""
        if not self._chat:
            return []
        return [self._chunk(number, {"role": "assistant", "content": ""}) for number in range(self._request.n)]

    def piece(self, number: int, text: str) -> str:
        """Return the event of a further piece of an answer."""
        return self._chunk(number, {"content": text} if self._chat else text)

    def end(self, answer: Answer) -> list[str]:
        """Return the events that a stream ends with."""
        nothing: Any = {} if self._chat else ""
        chunks = [self._chunk(number, nothing, finish) for number, finish in enumerate(answer.finishes)]
        if self._request.stream_options is not None and self._request.stream_options.include_usage:
            chunks.append(event({**self._head, "object": self._object, "choices": [], "usage": _usage(answer)}))
        return chunks

    @property
    def _object(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _chunk(self, number: int, said: Any, finish: str | None = None) -> str:
        choice = {"index": number, ("delta" if self._chat else "text"): said, "logprobs": None, "finish_reason": finish}
        return event({**self._head, "object": self._object, "choices": [choice]})


async def stream(question: Question, events: asyncio.Queue[Any], reply: Reply) -> AsyncIterator[str]:
    """Yield a reply as server-sent events: agents token by token, the team's joint result once it is there."""
    try:
        for chunk in reply.begin():
            yield chunk
        while True:
            found = await events.get()
            if isinstance(found, Answer):
                if question.problem is not None:
                    yield reply.piece(0, found.texts[0])
                for chunk in reply.end(found):
                    yield chunk
                break
            if isinstance(found, BaseException):
                status, message = status_and_message(found)
                yield event({"error": {"message": message, "type": kind_of(status), "param": None, "code": status}})
                break
            yield reply.piece(*found)
        yield "data: [DONE]\n\n"
    finally:
        question.gone = True


def _usage(answer: Answer) -> dict[str, int]:
    read, written = answer.prompt_tokens, answer.completion_tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
