"""The faces that others see: the gateway, the chat API of each pool, and the exporters' pages. Every refusal is JSON with a code."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from instrumented_stack import gateway, openai_api
from instrumented_stack.asking import RequestMaker
from instrumented_stack.catalogue import STAGES
from instrumented_stack.engine_sim import Engine
from instrumented_stack.errors import AgentError, BadRequest, NotFound, Unauthorised
from instrumented_stack.exposition import to_text
from instrumented_stack.gateway import TokenBucket, status_of
from instrumented_stack.hardening import clean
from instrumented_stack.http_messages import Message
from instrumented_stack.http_server import Answer
from instrumented_stack.inner_services import error_body
from instrumented_stack.propagation import extract
from instrumented_stack.samples import Sample
from instrumented_stack.telemetry import SERVER, Link
from instrumented_stack.tools.texts import DATA
from instrumented_stack.traffic import Arrival
from instrumented_stack.world import Request, World

TOKEN = "demo-token"
BODY_LIMIT, TEXT_LIMIT = 256_000, 32_000
DEFERRED_LIMIT = 1_000
Reply = tuple[int, bytes]


def failed(error: BaseException) -> Reply:
    """An error as status and JSON: code, type, message."""
    return status_of(error), error_body(error)


def as_response(reply: Reply) -> Response:
    return Response(reply[1], reply[0], media_type="application/json")


class Gateway:
    """POST /v1/answers, GET /v1/answers/ID, GET /v1/sessions/NAME. Knows who may ask, how much, and with what text.
    `app` is its face for everybody; `routes` the same answers behind the small server that our own load comes through."""

    def __init__(self, world: World, maker: RequestMaker) -> None:
        self._world, self._maker = world, maker
        self._bucket = TokenBucket(world.switches.rate_limit, 2 * world.switches.rate_limit)
        self._serial = 1 << 40
        self._deferred: dict[str, asyncio.Task[Reply]] = {}
        self._simulated = any(engine.kind == "simulated" for engine in world.switches.engines.values())

    def app(self) -> Starlette:
        routes = [
            Route("/v1/answers", self._public, methods=["POST"]),
            Route("/v1/answers/{name}", self.later),
            Route("/v1/sessions/{name}", self.session),
            Route("/health", _health),
        ]
        return Starlette(routes=routes)

    def routes(self) -> dict[str, Answer]:
        async def answer(message: Message) -> Reply:
            return await self.answer(message.fields, message.body)

        return {"POST /v1/answers": answer}

    async def _public(self, http: HttpRequest) -> Response:
        try:
            body = await _body(http)
        except AgentError as error:
            return as_response(self._refused(error))
        return as_response(await self.answer(http.headers, body))

    async def answer(self, headers: Mapping[str, str], body: bytes) -> Reply:
        """One question: status and JSON. 400 bad input, 401 no token, 429 too fast, 409/5xx as the agent failed."""
        try:
            request = self._read(headers, body)
        except AgentError as error:
            return self._refused(error)
        status, why = await gateway.handle(self._world, request, self._bucket, self._defer)
        if why is not None:
            return failed(why)
        if name := request.state.get("deferred"):
            trace = request.link.trace_id.hex()
            said = {"status": "processing", "answer": f"/v1/answers/{name}", "trace_id": trace}
            return status, json.dumps(said).encode()
        return _done(request, self._simulated)

    def _defer(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        """Go on with slow work after its caller was told to come back; the last thousand finished answers are kept."""

        async def finish() -> Reply:
            try:
                await work
            except (AgentError, TimeoutError, ValueError) as error:
                return failed(error)
            return _done(request, self._simulated)

        finished = [name for name, task in self._deferred.items() if task.done()]
        for name in finished[: max(0, len(finished) - DEFERRED_LIMIT)]:
            del self._deferred[name]
        request.state["deferred"] = uuid.uuid4().hex
        self._deferred[request.state["deferred"]] = asyncio.create_task(finish())

    async def later(self, http: HttpRequest) -> Response:
        """A deferred answer: 202 while it is being made, then as it would have been at once. `accept: text/event-stream` waits for
        it and gets it pushed as one event."""
        task = self._deferred.get(http.path_params["name"])
        if task is None:
            return as_response(failed(NotFound("no such answer, or one from too long ago")))
        if "text/event-stream" in http.headers.get("accept", ""):
            return StreamingResponse(_pushed(task), media_type="text/event-stream")
        return as_response(task.result()) if task.done() else JSONResponse({"status": "processing"}, 202)

    async def drain(self, limit_s: float) -> None:
        """Wait until deferred work is done."""
        if self._deferred:
            await asyncio.wait(self._deferred.values(), timeout=limit_s)

    def _read(self, headers: Mapping[str, str], body: bytes) -> Request:
        if headers.get("authorization") != f"Bearer {TOKEN}":
            raise Unauthorised("a bearer token is needed")
        try:
            given = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"the body is not JSON: {type(error).__name__}") from None
        if not isinstance(given, dict) or not isinstance(given.get("text", ""), str):
            raise BadRequest('the body must be an object such as {"text": "…"}')
        number = given.get("number")
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 40:
            self._serial += 1
            number = self._serial
        request = self._maker.make(number, _arrival(given, self._world.now_s()))
        request.text = given.get("text") or request.text
        if len(request.text) > TEXT_LIMIT:
            raise BadRequest(f"text has {len(request.text)} characters; the limit is {TEXT_LIMIT}")
        if self._world.switches.hardening.unicode_cleaning:
            request.text = clean(request.text)
        session = given.get("session")
        if isinstance(session, str) and session:
            request.dims["session"] = clean(session)[:200]
        return self._joined(request, headers)

    def _joined(self, request: Request, headers: Mapping[str, str]) -> Request:
        """Hang the request below its caller's span where there is one."""
        above = extract(headers)
        common = {**request.link.common, "session.id": request.dims["session"]}
        if above is None:
            request.link = replace(request.link, common=common)
        else:
            request.link = replace(above, common={**above.common, **common})
        return request

    def _refused(self, error: AgentError) -> Reply:
        """Say no, with a span of its own: there is no request to hang it below."""
        self._serial += 1
        request = self._maker.make(self._serial, Arrival(self._world.now_s()))
        place = self._world.place("gateway", self._world.hosts["gateway"][0], request.dims["version"])
        span = self._world.tracing.start(place, "POST /v1/answers", SERVER, Link(request.link.trace_id, b"", {}))
        span.set("http.response.status_code", error.http_status)
        span.set("http.request.method", "POST")
        span.fail(error, origin=True)
        span.end()
        return failed(error)

    async def session(self, http: HttpRequest) -> Response:
        found = self._world.sessions.get(http.path_params["name"])
        return JSONResponse({"step": found.step, "version": found.version})


def _done(request: Request, simulated: bool) -> Reply:
    said = {"answer": f"done: {request.task.name}", "trace_id": request.link.trace_id.hex(), "simulated": simulated}
    return 200, json.dumps(said).encode()


async def _pushed(task: asyncio.Task[Reply]) -> AsyncIterator[bytes]:
    status, body = await asyncio.shield(task)
    yield b"event: " + (b"answer" if status < 400 else b"error") + b"\ndata: " + body + b"\n\n"


def _arrival(given: Mapping[str, Any], now_s: float) -> Arrival:
    """The caller may say how long prompt and answer are; anything but small whole numbers is not heard."""
    counts = [given.get(key) for key in ("input_tokens", "output_tokens")]
    good = [item if type(item) is int and 0 < item <= 16_000 else 0 for item in counts]
    return Arrival(now_s, good[0], good[1])


async def _body(http: HttpRequest) -> bytes:
    """The body, as long as it is within the limit."""
    parts, size = [], 0
    async for part in http.stream():
        size += len(part)
        if size > BODY_LIMIT:
            raise BadRequest(f"the body is larger than {BODY_LIMIT} bytes")
        parts.append(part)
    return b"".join(parts)


async def _health(_: HttpRequest) -> Response:
    return JSONResponse({"status": "ok"})


def model_app(world: World, pool: str) -> Starlette:
    """The OpenAI chat API of a pool's first engine."""

    async def chat(http: HttpRequest) -> Response:
        first = next(item for item in STAGES.values() if item.pool == pool and item.uses_model)
        engine = world.engine(world.hosts[pool][0], first)
        if not isinstance(engine, Engine):
            return openai_api.error_reply(404, "not_here", "this pool asks a real server; ask that one")
        return await openai_api.chat(http, engine)

    async def models(_: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": world.switches.engines[pool].model, "object": "model"}]})

    routes = [Route("/health", _health), Route("/v1/models", models)]
    return Starlette(routes=[*routes, Route("/v1/chat/completions", chat, methods=["POST"])])


class Exporters:
    """The pages that a scraper reads: /metrics as dcgm-exporter, /vllm/metrics as vLLM, /node/metrics; and a web page for fetch_page."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def app(self) -> Starlette:
        async def page(_: HttpRequest) -> Response:
            return HTMLResponse((DATA / "status.html").read_text(encoding="utf-8"))

        routes = [Route("/metrics", self._of("dcgm-exporter")), Route("/vllm/metrics", self._of("vllm"))]
        return Starlette(routes=[*routes, Route("/node/metrics", self._of("node")), Route("/status.html", page)])

    def _of(self, job: str) -> Any:
        async def metrics(_: HttpRequest) -> Response:
            return PlainTextResponse(
                to_text(self.samples, (job,)), media_type="text/plain; version=0.0.4; charset=utf-8"
            )

        return metrics
