"""The simulated engine behind the OpenAI chat API, streaming included. Everything it says is marked as simulated."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse

from instrumented_stack.engine import Ask
from instrumented_stack.engine_sim import Engine, Sequence
from instrumented_stack.errors import AgentError

WORDS = "the stage waits for work that nobody asked for and that is all there is to say about it today".split()
MARK = "simulated"


def token_count(text: str) -> int:
    """About four characters a token."""
    return max(1, len(text) // 4)


def error_reply(status: int, code: str, message: str) -> Response:
    """An error as the OpenAI API shapes it."""
    return JSONResponse({"error": {"code": code, "type": code, "message": message}}, status)


async def chat(request: HttpRequest, engine: Engine) -> Response:
    """POST /v1/chat/completions: messages, max_tokens, stream, and `structured_outputs.choice`."""
    try:
        body = await request.json()
        messages = body["messages"]
        prompt = sum(token_count(str(item["content"])) for item in messages)
        limit = int(body.get("max_tokens") or body.get("max_completion_tokens") or 64)
        if not messages or limit < 1:
            raise ValueError("messages and max_tokens must not be empty")
    except (ValueError, KeyError, TypeError) as error:
        return error_reply(400, "bad_request", f"not a chat request: {type(error).__name__}: {error}")
    ask = Ask(prompt, limit)
    about = {"id": f"chatcmpl-{uuid.uuid4().hex}", "model": engine.options.model.name}
    choices = (body.get("structured_outputs") or {}).get("choice") or []
    try:
        if body.get("stream"):
            return StreamingResponse(
                _stream(engine, engine.submit(ask), about),
                media_type="text/event-stream",
                headers={"x-simulated": "true"},
            )
        answer = await engine.generate(ask)
    except AgentError as error:
        return error_reply(error.http_status, error.code, str(error))
    text = str(choices[0]) if choices else words(limit)
    usage = {"prompt_tokens": prompt, "completion_tokens": limit, "total_tokens": prompt + limit}
    usage["prompt_tokens_details"] = {"cached_tokens": answer.cached_tokens}  # type: ignore[assignment]
    message = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop" if choices else "length",
    }
    reply = {**about, "object": "chat.completion", "system_fingerprint": MARK, "choices": [message], "usage": usage}
    return JSONResponse(reply, headers={"x-simulated": "true"})


def words(count: int, first: int = 0) -> str:
    """`count` words, the same every time."""
    return " ".join(WORDS[at % len(WORDS)] for at in range(first, first + count))


async def _stream(engine: Engine, sequence: Sequence, about: dict[str, str]) -> AsyncIterator[bytes]:
    """A chunk whenever new tokens are there, as server-sent events."""
    sent = 0
    while True:
        ready = sequence.ask.output_tokens if sequence.done.done() else int(sequence.generated)
        if ready > sent:
            yield _chunk(about, words(ready - sent, sent) + " ", None)
            sent = ready
        if sequence.done.done():
            break
        await asyncio.wait((sequence.done,), timeout=0.02)
        engine.look()
    yield _chunk(about, "", "length")
    yield b"data: [DONE]\n\n"


def _chunk(about: dict[str, str], text: str, finish: str | None) -> bytes:
    delta: dict[str, Any] = {"content": text} if text else {}
    body = {**about, "object": "chat.completion.chunk", "system_fingerprint": MARK}
    body_choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({**body, "choices": body_choices}).encode() + b"\n\n"
