"""The access layer: who are you, how often, which version, and is the text clean. Answers with structured errors, never with a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from instrumented_stack import orchestrator
from instrumented_stack.errors import AgentError, RateLimited
from instrumented_stack.telemetry import CLIENT, SERVER, Link, Place, Span
from instrumented_stack.world import Request, World

Defer = Callable[[Request, Coroutine[Any, Any, None]], None]
SLOW_TASKS = frozenset({"document", "web_brief", "analysis"})
DETERMINISTIC_TASKS = frozenset({"calculation", "conversion", "translation"})


class TokenBucket:
    """`rate` requests a second on average, `burst` at once; time comes from outside."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens = burst
        self._at_s = 0.0

    def take(self, now_s: float) -> bool:
        self._tokens = min(self._burst, self._tokens + (now_s - self._at_s) * self._rate)
        self._at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


async def handle(
    world: World, request: Request, bucket: TokenBucket, defer: Defer | None = None
) -> tuple[int, BaseException | None]:
    """One request from the edge of the system to its end: the HTTP status that the caller sees, and the error behind it.
    `defer` takes over slow work where its answer is asynchronous; without it this returns when the work is done."""
    host = world.hosts["gateway"][request.number % len(world.hosts["gateway"])]
    place = world.place("gateway", host, request.dims["version"])
    span = world.tracing.start(place, "POST /v1/answers", SERVER, request.link)
    span.set("http.request.method", "POST")
    span.set("http.route", "/v1/answers")
    status, ended = 200, False
    why: BaseException | None = None
    try:
        await asyncio.sleep(0.004 + request.rng.expovariate(1 / 0.003))
        if not bucket.take(world.now_s()):
            raise RateLimited(f"over {world.switches.rate_limit:g} requests per second")
        if _keeps(world, request) and world.answers.hit(request.task.name, request.text, world.now_s()):
            span.set("agent.answer_cache", "hit")
            return status, None
        if world.switches.hardening.async_answers and request.task.name in SLOW_TASKS:
            span.event("answer.deferred", {"agent.task": request.task.name})
            status, ended = 202, True
            _close(span, status)
            if defer is not None:
                defer(request, _onward(world, request, place, span.link))
                return status, None
        await _onward(world, request, place, span.link)
        if _keeps(world, request):
            world.answers.keep(request.task.name, request.text, world.now_s())
    except (AgentError, TimeoutError, ValueError) as error:
        status, why = status_of(error), error
        span.fail(error, origin=isinstance(error, RateLimited))
    finally:
        if not ended:
            _close(span, status)
    return status, why


async def _onward(world: World, request: Request, place: Place, link: Link) -> None:
    """Hand the request to an orchestrator, under a client span."""
    span = world.tracing.start(place, "orchestrator", CLIENT, link)
    span.set("peer.service", "orchestrator")
    try:
        target = world.pick_host("orchestrator", request.rng)
        await orchestrator.cross(world.wire.leg_s)
        await world.wire.orchestrate(world, request, target, span.link)
        await orchestrator.cross(world.wire.leg_s)
    except (AgentError, TimeoutError, ValueError) as error:
        span.fail(error, origin=False)
        raise
    finally:
        span.end()


def _keeps(world: World, request: Request) -> bool:
    """Deterministic answers are kept for 300 s."""
    return world.switches.hardening.answer_cache and request.task.name in DETERMINISTIC_TASKS


def _close(span: Span, status: int) -> None:
    span.set("http.response.status_code", status)
    span.end()


def status_of(error: BaseException) -> int:
    """The HTTP status for an error of the agent."""
    if isinstance(error, AgentError):
        return error.http_status
    return 504 if isinstance(error, TimeoutError) else 500
