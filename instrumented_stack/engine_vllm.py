"""A real vLLM server behind the engine protocol: OpenAI-compatible API, streaming, structured choice, trace context in the headers.
What the server does not say (batch, cache) stays unknown; its own /metrics and spans say it. An answer that breaks off is an error."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import httpx

from instrumented_stack.engine import Answer, Ask, EngineOptions
from instrumented_stack.engine_sim import Counters
from instrumented_stack.errors import AgentError, AgentExecutionFailed, BadRequest, ResourceExhausted

# Words that are one token each for the tokenizers of small models; a prompt of n tokens is filled up with n of them.
FILLER = "context of earlier turns that the model reads again each time".split()
MESSAGE_CHARS = 300


@dataclass(slots=True)
class _Heard:
    """What came out of one stream."""

    first_s: float = 0.0
    queue_s: float | None = None
    text: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class VllmEngine:
    """One server at `url`. The same object may be used by many requests at once."""

    simulated = False

    def __init__(self, options: EngineOptions, url: str, served_model: str) -> None:
        self.options = options
        self.counters = Counters()
        self.held_share = 0.0
        self._url, self._model = url.rstrip("/"), served_model
        self._client = httpx.AsyncClient(timeout=600.0, trust_env=False)

    async def generate(self, ask: Ask) -> Answer:
        """Stream one chat completion to its end. Raises ResourceExhausted (503, too long), BadRequest (text that is none) and
        AgentExecutionFailed (away, broke off, failed)."""
        if self._client.is_closed:
            raise AgentExecutionFailed(f"nobody asks model server {self._url} any more: the stack has stopped")
        headers = {**ask.headers, "content-type": "application/json"}
        began = time.perf_counter()
        heard = _Heard()
        try:
            async with self._client.stream(
                "POST", f"{self._url}/v1/chat/completions", content=_encoded(self._body(ask)), headers=headers
            ) as reply:
                if not reply.is_success:
                    raise _refusal(reply.status_code, (await reply.aread()).decode("utf-8", "replace"))
                async for event in _events(reply):
                    _hear(heard, event, time.perf_counter() - began)
        except (httpx.TransportError, httpx.StreamError) as error:
            raise AgentExecutionFailed(f"model server {self._url} is away: {type(error).__name__}") from error
        return Answer(
            queue_s=heard.queue_s,
            first_token_s=heard.first_s,
            total_s=time.perf_counter() - began,
            cached_tokens=heard.cached_tokens,
            batch_size=None,
            preemptions=0,
            kv_usage=None,
            text=heard.text,
            input_tokens=heard.prompt_tokens,
            output_tokens=heard.output_tokens,
        )

    def _body(self, ask: Ask) -> dict[str, Any]:
        begin = f"{ask.prefix}. {ask.system}"
        rest = ask.input_tokens - ask.prefix_tokens - tokens_of(ask.text)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": begin + filler(ask.prefix_tokens - tokens_of(begin))},
                {"role": "user", "content": ask.text + filler(rest)},
            ],
            "max_tokens": ask.output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if ask.choices:
            body["structured_outputs"] = {"choice": list(ask.choices)}
        else:
            body["ignore_eos"] = True
        return body

    async def healthy(self, patience_s: float = 0.0) -> bool:
        """Whether /health answers 200, asked again until `patience_s` is over."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                if (await self._client.get(f"{self._url}/health")).is_success:
                    return True
            except httpx.TransportError:
                pass
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(0.5)

    async def close(self) -> None:
        await self._client.aclose()


def tokens_of(text: str) -> int:
    """About how many tokens a text is; JSON and words come out alike."""
    return len(text) // 4


def filler(tokens: int) -> str:
    """So many words more; none for 0 and less."""
    return "".join(f" {word}" for word in islice(cycle(FILLER), max(0, tokens)))


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"the prompt is no text: {error.reason} at character {error.start}") from error


async def _events(reply: httpx.Response) -> AsyncIterator[Mapping[str, Any]]:
    """The JSON of each server-sent event until [DONE]. Raises AgentError for one that says error, and when [DONE] does not come."""
    async for line in reply.aiter_lines():
        text = line.removeprefix("data:").strip()
        if not line.startswith("data:") or not text:
            continue
        if text == "[DONE]":
            return
        try:
            event = json.loads(text)
        except ValueError:
            raise AgentExecutionFailed(f"model server sent what is no JSON: {text[:MESSAGE_CHARS]!r}") from None
        if "error" in event:
            raise _refusal(int(event["error"].get("code") or 500), str(event["error"].get("message", "")))
        yield event
    raise AgentExecutionFailed("model server broke off in the middle of an answer")


def _hear(heard: _Heard, event: Mapping[str, Any], now_s: float) -> None:
    for choice in event.get("choices") or ():
        piece = (choice.get("delta") or {}).get("content") or ""
        if piece and not heard.first_s:
            heard.first_s = now_s
        heard.text += piece
    queued_ms = (event.get("metrics") or {}).get("queue_time_ms")
    if queued_ms is not None:
        heard.queue_s = float(queued_ms) / 1e3
    if usage := event.get("usage"):
        heard.prompt_tokens = int(usage.get("prompt_tokens") or 0)
        heard.output_tokens = int(usage.get("completion_tokens") or 0)
        heard.cached_tokens = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


def _refusal(status: int, text: str) -> AgentError:
    said = text[:MESSAGE_CHARS]
    if status == 503 or "maximum context length" in text or "max_model_len" in text:
        return ResourceExhausted(f"model server refused: {said}")
    if status == 400:
        return BadRequest(f"model server refused: {said}")
    return AgentExecutionFailed(f"model server answered {status}: {said}")
