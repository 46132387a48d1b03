"""What the tiers ask of each other over HTTP: POST /run of the orchestrator, POST /stage of each pool. A body without meaning is
refused like any other error: JSON with code, type and message."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

from instrumented_stack import orchestrator, workers
from instrumented_stack.catalogue import STAGES, TASKS, TOOLS_BY_NAME
from instrumented_stack.errors import AgentError, BadRequest
from instrumented_stack.gateway import status_of
from instrumented_stack.http_messages import Message
from instrumented_stack.http_server import Answer, refusal
from instrumented_stack.propagation import extract
from instrumented_stack.telemetry import Link
from instrumented_stack.world import Request, World

DIMS = frozenset({"task", "region", "device", "user_tier", "version", "user", "session"})
COUNTS = ("number", "output_tokens", "history_tokens")
SCALES = ("input_scale", "output_scale")
LARGEST, TEXT_LIMIT = 1 << 62, 32_000
Work = Callable[[Request, dict[str, Any], Link], Awaitable[None]]


def error_body(error: BaseException) -> bytes:
    """An error as JSON: code, type, message; whatever its message holds, the bytes are valid."""
    code = error.code if isinstance(error, AgentError) else type(error).__name__
    return refusal(code, type(error).__name__, str(error).encode("utf-8", "replace").decode())


def pack(request: Request, host: str, step: tuple[str, str] = ("", "")) -> bytes:
    """A request on its way to the next service; text may hold anything, so it travels as ASCII escapes."""
    body = {
        "number": request.number,
        "dims": request.dims,
        "text": request.text,
        "input_scale": request.input_scale,
        "output_scale": request.output_scale,
        "output_tokens": request.output_tokens,
        "history_tokens": request.history_tokens,
        "state": request.state,
        "host": host,
        "step": step,
    }
    return json.dumps(body).encode()


def unpack(raw: bytes) -> dict[str, Any]:
    """The fields of a packed request. Raises BadRequest for whatever `pack` would not write."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {type(error).__name__}") from None
    if not isinstance(body, dict):
        raise BadRequest("the body must be an object")
    dims, state, step = body.get("dims"), body.get("state"), body.get("step")
    if not (isinstance(dims, dict) and _texts(dims) and dims.keys() >= DIMS and dims["task"] in TASKS):
        raise BadRequest(f"dims must be texts for {', '.join(sorted(DIMS))}, with a known task")
    if not _texts(state) or not isinstance(step, list) or len(step) != 2 or not all(isinstance(s, str) for s in step):
        raise BadRequest("state must be texts by name, step must be [stage, tool]")
    if not isinstance(body.get("text"), str) or len(body["text"]) > TEXT_LIMIT:
        raise BadRequest(f"text must be text of at most {TEXT_LIMIT} characters")
    if not isinstance(body.get("host"), str):
        raise BadRequest("host must be text")
    for name in (*COUNTS, *SCALES):
        value = body.get(name)
        plain = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LARGEST
        if not plain or (name in COUNTS and not isinstance(value, int)):
            raise BadRequest(f"{name} must be a {'whole' if name in COUNTS else 'finite'} number of 0 or more")
    return body


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def request_of(body: dict[str, Any], seed: int, link: Link) -> Request:
    """A checked body as a request, with random numbers of its own for this service and step."""
    rng = random.Random(f"{seed}/{body['number']}/{body['host']}/{body['step']}")
    request = Request(body["number"], rng, body["dims"], TASKS[body["dims"]["task"]], body["text"], link)
    request.input_scale, request.output_scale = float(body["input_scale"]), float(body["output_scale"])
    request.output_tokens, request.history_tokens = body["output_tokens"], body["history_tokens"]
    request.state = body["state"]
    return request


def _answering(world: World, hosts: tuple[str, ...], work: Work) -> Answer:
    """Read the request, do the work, answer `{"ok": true}` or the error."""

    async def answer(message: Message) -> tuple[int, bytes]:
        link = extract(message.fields) or Link(b"", b"", {})
        try:
            body = unpack(message.body)
            if body["host"] not in hosts:
                raise BadRequest(f"host {body['host']!r} is not one of this service's")
            await work(request_of(body, world.scenario.seed, link), body, link)
        except (AgentError, TimeoutError, ValueError) as error:
            return status_of(error), error_body(error)
        return 200, b'{"ok": true}'

    return answer


async def _health(_: Message) -> tuple[int, bytes]:
    return 200, b'{"status": "ok"}'


def orchestrator_routes(world: World) -> dict[str, Answer]:
    """POST /run: one request, driven through its stages."""

    async def run(request: Request, body: dict[str, Any], link: Link) -> None:
        await orchestrator.answer(world, request, body["host"], link)

    return {"POST /run": _answering(world, world.hosts["orchestrator"], run), "GET /health": _health}


def pool_routes(world: World, pool: str) -> dict[str, Answer]:
    """POST /stage: one stage of one request on one of the pool's hosts."""

    async def stage(request: Request, body: dict[str, Any], link: Link) -> None:
        name, tool = body["step"]
        here = name in STAGES and (STAGES[name].pool == pool or (pool == "core" and STAGES[name].uses_model))
        if not here or (name == "data_fetch") != (tool in TOOLS_BY_NAME) or (tool and name != "data_fetch"):
            raise BadRequest(f"no such step on pool {pool!r}: stage {name!r}, tool {tool!r}")
        await workers.serve(world, request, (name, tool), body["host"], link)

    return {"POST /stage": _answering(world, world.hosts[pool], stage), "GET /health": _health}
