"""The access layer: who are you, how often, which version, and is the text clean. Answers with structured errors, never with a crash."""

from __future__ import annotations

import asyncio

from instrumented_stack import orchestrator
from instrumented_stack.errors import AgentError, RateLimited
from instrumented_stack.telemetry import CLIENT, SERVER
from instrumented_stack.world import Request, World


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


async def handle(world: World, request: Request, bucket: TokenBucket) -> int:
    """One request from the edge of the system to its end; returns the HTTP status."""
    host = world.hosts["gateway"][request.number % len(world.hosts["gateway"])]
    place = world.place("gateway", host, request.dims["version"])
    span = world.tracing.start(place, "POST /v1/answers", SERVER, request.link)
    span.set("http.request.method", "POST")
    span.set("http.route", "/v1/answers")
    status = 200
    try:
        await asyncio.sleep(0.004 + request.rng.expovariate(1 / 0.003))
        if not bucket.take(world.now_s()):
            raise RateLimited(f"over {world.switches.rate_limit:g} requests per second")
        onward = world.tracing.start(place, "orchestrator", CLIENT, span.link)
        onward.set("peer.service", "orchestrator")
        try:
            target = world.pick_host("orchestrator", request.rng)
            await asyncio.sleep(orchestrator.LEG_S)
            await orchestrator.answer(world, request, target, onward.link)
            await asyncio.sleep(orchestrator.LEG_S)
        except (AgentError, TimeoutError, ValueError) as error:
            onward.fail(error, origin=False)
            raise
        finally:
            onward.end()
    except (AgentError, TimeoutError, ValueError) as error:
        status = error.http_status if isinstance(error, AgentError) else 504 if isinstance(error, TimeoutError) else 500
        span.fail(error, origin=False)
    finally:
        span.set("http.response.status_code", status)
        span.end()
    return status
