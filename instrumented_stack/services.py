"""The tiers as HTTP services: gateway, orchestrator, one app per worker pool, and the exporters. Every refusal is JSON with a code."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from instrumented_stack import gateway, openai_api, orchestrator, workers
from instrumented_stack.asking import RequestMaker
from instrumented_stack.catalogue import STAGES, TASKS
from instrumented_stack.engine_sim import Engine
from instrumented_stack.errors import AgentError, BadRequest, Unauthorised
from instrumented_stack.exposition import to_text
from instrumented_stack.gateway import TokenBucket, status_of
from instrumented_stack.hardening import clean
from instrumented_stack.propagation import extract
from instrumented_stack.samples import Sample
from instrumented_stack.telemetry import SERVER, Link
from instrumented_stack.tools.texts import DATA
from instrumented_stack.traffic import Arrival
from instrumented_stack.world import Request, World

TOKEN = "demo-token"
BODY_LIMIT, TEXT_LIMIT = 256_000, 32_000


def failed(error: BaseException) -> Response:
    """An error as JSON: code, type, message."""
    code = error.code if isinstance(error, AgentError) else type(error).__name__
    what = {"code": code, "type": type(error).__name__, "message": str(error).encode("utf-8", "replace").decode()}
    return JSONResponse({"error": what}, status_of(error))


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


def unpack(body: Mapping[str, Any], seed: int, link: Link) -> Request:
    """The inverse of `pack`, with random numbers of its own for this service and step."""
    dims = {str(key): str(value) for key, value in body["dims"].items()}
    rng = random.Random(f"{seed}/{body['number']}/{body['host']}/{body['step']}")
    request = Request(int(body["number"]), rng, dims, TASKS[dims["task"]], str(body["text"]), link)
    request.input_scale, request.output_scale = float(body["input_scale"]), float(body["output_scale"])
    request.output_tokens, request.history_tokens = int(body["output_tokens"]), int(body["history_tokens"])
    request.state = dict(body["state"])
    return request


class Gateway:
    """POST /v1/answers, GET /v1/sessions/NAME. Knows who may ask, how much, and with what text."""

    def __init__(self, world: World, maker: RequestMaker) -> None:
        self._world, self._maker = world, maker
        self._bucket = TokenBucket(world.switches.rate_limit, 2 * world.switches.rate_limit)
        self._serial = 1 << 40

    def app(self) -> Starlette:
        routes = [
            Route("/v1/answers", self.answer, methods=["POST"]),
            Route("/v1/sessions/{name}", self.session),
            Route("/health", _health),
        ]
        return Starlette(routes=routes)

    async def answer(self, http: HttpRequest) -> Response:
        """One question. 400 bad input, 401 no token, 413 too large, 429 too fast, 409/5xx as the agent failed."""
        try:
            request = self._read(http.headers, await _body(http))
        except AgentError as error:
            self._refused(http, error)
            return failed(error)
        status, why = await gateway.handle(self._world, request, self._bucket)
        if why is not None:
            return failed(why)
        return JSONResponse(
            {"answer": f"done: {request.task.name}", "trace_id": request.link.trace_id.hex(), "simulated": True}, status
        )

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

    def _refused(self, http: HttpRequest, error: AgentError) -> None:
        self._serial += 1
        request = self._maker.make(self._serial, Arrival(self._world.now_s()))
        place = self._world.place("gateway", self._world.hosts["gateway"][0], request.dims["version"])
        span = self._world.tracing.start(place, "POST /v1/answers", SERVER, Link(request.link.trace_id, b"", {}))
        span.set("http.response.status_code", error.http_status)
        span.set("http.request.method", http.method)
        span.fail(error, origin=True)
        span.end()

    async def session(self, http: HttpRequest) -> Response:
        found = self._world.sessions.get(http.path_params["name"])
        return JSONResponse({"step": found.step, "version": found.version})


def _arrival(given: Mapping[str, Any], now_s: float) -> Arrival:
    """The caller may say how long prompt and answer are; anything but small whole numbers is not heard."""
    counts = [given.get(key) for key in ("input_tokens", "output_tokens")]
    good = [item if isinstance(item, int) and 0 < item <= 16_000 else 0 for item in counts]
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


def orchestrator_app(world: World) -> Starlette:
    """POST /run: one request, driven through its stages."""

    async def run(http: HttpRequest) -> Response:
        body = json.loads(await http.body())
        link = extract(http.headers) or Link(b"", b"", {})
        request = unpack(body, world.scenario.seed, link)
        try:
            await orchestrator.answer(world, request, body["host"], link)
        except (AgentError, TimeoutError, ValueError) as error:
            return failed(error)
        return JSONResponse({"ok": True})

    return Starlette(routes=[Route("/run", run, methods=["POST"]), Route("/health", _health)])


def worker_app(world: World, pool: str) -> Starlette:
    """POST /stage; and for pools with models the OpenAI chat API of their first engine, with its /metrics."""

    async def stage(http: HttpRequest) -> Response:
        body = json.loads(await http.body())
        link = extract(http.headers) or Link(b"", b"", {})
        request = unpack(body, world.scenario.seed, link)
        try:
            await workers.serve(world, request, (body["step"][0], body["step"][1]), body["host"], link)
        except (AgentError, TimeoutError, ValueError) as error:
            return failed(error)
        return JSONResponse({"ok": True})

    async def chat(http: HttpRequest) -> Response:
        first = next(item for item in STAGES.values() if item.pool == pool and item.uses_model)
        engine = world.engine(world.hosts[pool][0], first)
        if not isinstance(engine, Engine):
            return openai_api.error_reply(404, "not_here", "this pool asks a real server; ask that one")
        return await openai_api.chat(http, engine)

    async def models(_: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": world.switches.engines[pool].model, "object": "model"}]})

    routes = [Route("/stage", stage, methods=["POST"]), Route("/health", _health)]
    if pool != "tools":
        routes += [Route("/v1/chat/completions", chat, methods=["POST"]), Route("/v1/models", models)]
    return Starlette(routes=routes)


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
