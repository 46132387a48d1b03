"""Live mode: the same services over HTTP on loopback, in real time, traced by the OpenTelemetry SDK."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx
import uvicorn
from starlette.applications import Starlette

from instrumented_stack.asking import RequestMaker
from instrumented_stack.catalogue import POOLS
from instrumented_stack.collector import rare_collections
from instrumented_stack.engine_vllm import VllmEngine
from instrumented_stack.errors import BadRequest, ServiceDegradedError, far_error
from instrumented_stack.exposition import to_otlp
from instrumented_stack.http_client import Client
from instrumented_stack.http_server import Service
from instrumented_stack.inner_services import orchestrator_routes, pack, pool_routes
from instrumented_stack.outcome import Outcome, Progress, truth_of
from instrumented_stack.pace import Asked, pace_of
from instrumented_stack.propagation import inject
from instrumented_stack.samples import Sample, Sampler
from instrumented_stack.scenario import Scenario
from instrumented_stack.select import VectorSelector, selector_of
from instrumented_stack.services import TOKEN, Exporters, Gateway, model_app
from instrumented_stack.sinks import HttpSink
from instrumented_stack.telemetry import Link, Tracing
from instrumented_stack.telemetry_sdk import open_tracing
from instrumented_stack.tools.box import Result, Toolbox
from instrumented_stack.traffic import Arrival, arrivals, peak_rps
from instrumented_stack.world import Request, World

SAMPLE_EVERY_S = 5.0
DRAIN_S = 40.0
INNER_LIMIT_BYTES = 1 << 20
SAMPLES_AT_ONCE = 200


class HttpWire:
    """Calls over HTTP, with the trace context in the headers. `urls`: where everybody may ask; `inner`: where the tiers ask each other."""

    leg_s = 0.0

    def __init__(self, client: Client) -> None:
        self._client = client
        self.urls: dict[str, str] = {}
        self.inner: dict[str, str] = {}

    async def orchestrate(self, world: World, request: Request, host: str, link: Link) -> None:
        await self._post(f"{self.inner['orchestrator']}/run", pack(request, host), link)

    async def work(self, world: World, request: Request, step: tuple[str, str], host: str, link: Link) -> None:
        await self._post(f"{self.inner[host.rsplit('-', 1)[0]]}/stage", pack(request, host, step), link)

    async def _post(self, url: str, body: bytes, link: Link) -> None:
        try:
            status, reply = await self._client.post(url, body, inject(link))
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            service = next((name for name, start in self.inner.items() if url.startswith(f"{start}/")), url)
            raise ServiceDegradedError(f"{service} is away: {str(error) or type(error).__name__}") from error
        if status >= 400:
            said = json.loads(reply)["error"]
            raise far_error(said["type"], said["message"])


class LiveWorld(World):
    """A world where work is real: CPU is burnt, payloads are encoded, tools run."""

    toolbox: Toolbox
    selector: VectorSelector | None = None

    def choose_tool(self, text: str) -> str:
        return self.selector.choose(text) if self.selector is not None else ""

    async def burn_cpu(self, seconds: float) -> None:
        await asyncio.to_thread(_burn, seconds)

    async def serialise(self, size_bytes: int, seconds: float) -> None:
        began = time.perf_counter()
        if size_bytes > 200_000:
            await asyncio.to_thread(_encode_and_decode, size_bytes)
        await asyncio.sleep(max(0.0, seconds - (time.perf_counter() - began)))

    async def use_tool(self, tool: str, text: str, rows: int, size_bytes: int) -> tuple[float, int, int]:
        began = time.perf_counter()
        try:
            result = await self.toolbox.call(tool, text)
        except BadRequest as complaint:  # the agent reads what the tool complains about, as it reads its answers
            result = Result(str(complaint))
        return time.perf_counter() - began, result.rows or rows, max(size_bytes, len(result.text))


def _burn(seconds: float) -> None:
    until, block = time.perf_counter() + seconds, bytes(1 << 16)
    while time.perf_counter() < until:
        hashlib.sha256(block).digest()


def _encode_and_decode(size_bytes: int) -> None:
    document = [{"id": at, "text": "x" * 980} for at in range(size_bytes // 1_000)]
    json.loads(json.dumps(document))


class _Server(uvicorn.Server):
    """A server among others in one loop: signals belong to the program, not to it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(slots=True)
class Running:
    """The servers of a live stack and where they listen."""

    servers: list[_Server]
    tasks: list[asyncio.Task[None]]
    urls: dict[str, str]

    async def stop(self) -> None:
        for server in self.servers:
            server.should_exit = True
        await asyncio.gather(*self.tasks)


async def serve_all(apps: dict[str, Starlette], ports: dict[str, int]) -> Running:
    """Start each app on its port (0: any free one) of 127.0.0.1; returns when all accept connections."""
    running = Running([], [], {})
    for name, app in apps.items():
        listener = socket.create_server(("127.0.0.1", ports.get(name, 0)), backlog=512)
        running.urls[name] = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = _Server(
            uvicorn.Config(app, log_level="error", lifespan="off", access_log=False, timeout_keep_alive=60)
        )
        running.servers.append(server)
        running.tasks.append(asyncio.create_task(server.serve(sockets=[listener])))
    while not all(server.started for server in running.servers):
        await asyncio.sleep(0.01)
    return running


class LiveStack:
    """All services of one scenario. `async with` starts and stops them."""

    def __init__(
        self, scenario: Scenario, tracing: Tracing, start: datetime, ports: dict[str, int] | None = None
    ) -> None:
        self.scenario, self._ports = scenario, ports or {}
        self.client = Client()
        self._browser = httpx.AsyncClient(timeout=10.0, trust_env=False)
        self.wire = HttpWire(self.client)
        self.world = LiveWorld(scenario, tracing, peak_rps(scenario.traffic), self.wire)
        self.maker = RequestMaker(scenario, round(start.timestamp() * 1e9))
        self.gateway = Gateway(self.world, self.maker)
        self.exporters = Exporters()
        self._running: Running | None = None
        self._services: dict[str, Service] = {}

    async def __aenter__(self) -> LiveStack:
        world = self.world
        self._services = {pool: Service(pool_routes(world, pool), INNER_LIMIT_BYTES) for pool in POOLS}
        self._services["orchestrator"] = Service(orchestrator_routes(world), INNER_LIMIT_BYTES)
        self._services["gateway"] = Service(self.gateway.routes(), INNER_LIMIT_BYTES)
        for name, service in self._services.items():
            await service.start()
            self.wire.inner[name] = service.url
        apps = {
            "gateway": self.gateway.app(),
            **{pool: model_app(world, pool) for pool in ("edge", "middle", "core")},
            "exporters": self.exporters.app(),
        }
        self._running = await serve_all(apps, self._ports)
        self.wire.urls = self._running.urls
        world.toolbox = Toolbox(world.switches.tools, f"{self.wire.urls['exporters']}/status.html", self._browser)
        await world.toolbox.warm()
        switches = world.switches
        if switches.tool_select == "vector":
            world.selector = await asyncio.to_thread(selector_of, switches.tools, switches.embedding, switches.index)
        world.zero_s = asyncio.get_running_loop().time()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._running is not None:
            await self.client.close()
            await self._browser.aclose()
            await self._running.stop()
        for service in self._services.values():
            await service.stop()
        for engine in self.world.engines.values():
            if isinstance(engine, VllmEngine):
                await engine.close()

    async def ask(self, number: int, arrival: Arrival) -> Asked:
        """Send one request of the load; status 0 when nobody answered."""
        body = json.dumps(
            {"number": number, "input_tokens": arrival.input_tokens, "output_tokens": arrival.output_tokens}
        ).encode()
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        sent_s, status = self.world.now_s(), 0
        with contextlib.suppress(OSError):
            status, _ = await self.client.post(f"{self.wire.inner['gateway']}/v1/answers", body, headers)
        return Asked(arrival.at_s, sent_s - arrival.at_s, self.world.now_s() - sent_s, status)


async def run_live(scenario: Scenario, url: str, progress: Progress | None) -> Outcome:
    """Serve, ask at the arrivals' instants, wait for the answers, export the rest."""
    start = datetime.now(UTC)
    tracing, counter = open_tracing(url)
    sink = HttpSink(url, patience_s=5.0)
    try:
        async with LiveStack(scenario, tracing, start) as stack:
            sampling = asyncio.create_task(_sample(stack, sink, start))
            with rare_collections():
                asked = await _drive(stack, start, progress)
                await stack.gateway.drain(DRAIN_S)
            sampling.cancel()
        await asyncio.to_thread(tracing.close)
    finally:
        sink.close()
    if not counter.exported:
        raise ConnectionError(f"{url}/v1/traces took no spans ({counter.refused} refused)")
    if counter.refused:
        raise ConnectionError(
            f"{url}/v1/traces refused {counter.refused} of {counter.exported + counter.refused} spans"
        )
    bad = sum(not 200 <= item.status < 300 for item in asked)
    truth = truth_of(scenario, start, len(asked), counter.exported)
    end = start + timedelta(seconds=scenario.seconds)
    return Outcome(len(asked), bad, counter.exported, start, end, truth, pace_of(asked, scenario.seconds))


async def _drive(stack: LiveStack, start: datetime, progress: Progress | None) -> list[Asked]:
    loop, tasks, due = asyncio.get_running_loop(), [], []
    for number, arrival in enumerate(arrivals(stack.scenario, start.timestamp())):
        await asyncio.sleep(max(0.0, arrival.at_s - stack.world.now_s()))
        tasks.append(loop.create_task(stack.ask(number, arrival)))
        due.append(arrival.at_s)
        if progress is not None and number % 10 == 0:
            progress(arrival.at_s / stack.scenario.seconds, number)
    await asyncio.sleep(max(0.0, stack.scenario.seconds - stack.world.now_s()))
    if tasks:
        await asyncio.wait(tasks, timeout=DRAIN_S)
    lost = (Asked(at_s, 0.0, DRAIN_S, 0) for at_s in due)
    return [task.result() if task.done() else nobody for task, nobody in zip(tasks, lost, strict=True)]


async def _sample(stack: LiveStack, sink: HttpSink, start: datetime) -> None:
    """Refresh the exporters' pages, and push the same numbers as OTLP."""
    sampler = Sampler(stack.world, random.Random(f"{stack.scenario.seed}/samples"))
    start_ns = round(start.timestamp() * 1e9)
    every_s = stack.scenario.sample_every_s or min(SAMPLE_EVERY_S, stack.scenario.seconds / 4)
    while True:
        await asyncio.sleep(every_s)
        samples: list[Sample] = []
        for sample in sampler.read(stack.world.now_s()):
            samples.append(sample)
            if (
                len(samples) % SAMPLES_AT_ONCE == 0
            ):  # a large stack has thousands; requests must not wait for all of them
                await asyncio.sleep(0)
        stack.exporters.samples = samples
        body = await asyncio.to_thread(to_otlp, samples, time.time_ns(), start_ns)
        with contextlib.suppress(ConnectionError):
            await asyncio.to_thread(sink.write, "metrics", body)
