"""The orchestration layer: routes a request through its stages, one client span per call.
The network's two legs lie between client and server span."""

from __future__ import annotations

import asyncio

from instrumented_stack import workers
from instrumented_stack.catalogue import POOLS, STAGES, TASKS
from instrumented_stack.errors import AgentError, StateConflictError
from instrumented_stack.hardening import SCHEMA_VERSION
from instrumented_stack.telemetry import CLIENT, INTERNAL, SERVER, Link, Place, Span
from instrumented_stack.world import Request, World

WEEK_S = 604_800.0


async def answer(world: World, request: Request, host: str, link: Link) -> None:
    """Serve one request under a server span; raises what the failing stage raised."""
    place = world.place("orchestrator", host, request.dims["version"])
    span = world.tracing.start(place, f"invoke_agent {request.task.name}", SERVER, link)
    span.set("gen_ai.operation.name", "invoke_agent")
    span.set("gen_ai.agent.name", request.task.name)
    span.set("stagescope.kind", "agent")
    if world.switches.hardening.schema_version:
        span.set("agent.schema_version", SCHEMA_VERSION)
    try:
        await asyncio.sleep(0.004 * _spread(request))
        await world.sessions.write(request.dims["session"], "planning")
        await _drill(world, request, span)
        for step in plan(request):
            await _take(world, request, step, place, span.link)
        await world.sessions.write(request.dims["session"], "done")
    except (AgentError, TimeoutError, ValueError) as error:
        span.fail(error, origin=isinstance(error, StateConflictError) and "/" not in str(error))
        raise
    finally:
        span.end()


async def _take(world: World, request: Request, step: tuple[str, str], place: Place, link: Link) -> None:
    """One step of the plan, and its reflection where that is switched on."""
    stage = step[0]
    if stage == "human_approval":
        await _approval(world, request, place, link)
        return
    await call(world, request, step, place, link)
    if _again(world, request, stage):
        await call(world, request, step, place, link)


async def _drill(world: World, request: Request, span: Span) -> None:
    """The weekly fault drill: in its first minute, one request in fifty is delayed on purpose, and says so."""
    if world.switches.hardening.fault_drill and world.now_s() % WEEK_S < 60.0 and request.number % 50 == 7:
        span.event("fault_drill.delayed", {"delay_ms": 200})
        await asyncio.sleep(0.2)


def plan(request: Request) -> list[tuple[str, str]]:
    """(stage, tool) in order."""
    task = TASKS[request.task.name]
    steps = [("intent_parse", ""), ("tool_select", "")]
    steps += [(stage, "") for stage in task.before]
    steps += [("data_fetch", tool) for tool in task.tools]
    return steps + [(stage, "") for stage in task.after]


def _again(world: World, request: Request, stage: str) -> bool:
    """Whether a second, reflecting pass over this stage is switched on."""
    if not world.faults.concerns(stage):
        return False
    active = world.faults.active(stage, {**request.dims, "tier": STAGES[stage].pool}, world.now_s())
    hits = [item for item in active if item.kind == "redundant_step"]
    if not hits or request.rng.random() > 0.9 * hits[0].strength:
        return False
    request.state["reflecting"] = stage
    return True


async def call(world: World, request: Request, step: tuple[str, str], place: Place, link: Link) -> None:
    """Call a worker: client span here, server span there, a network leg before and after it."""
    stage = step[0]
    pool = workers.pool_of(world, request, stage)
    host = world.pick_host(pool, request.rng)
    span = world.tracing.start(place, f"{POOLS[pool]}/{stage}", CLIENT, link)
    span.set("rpc.system", "http")
    span.set("server.address", host)
    span.set("peer.service", POOLS[pool])
    onward = span.link if world.switches.hardening.trace_context else world.detached(span.link)
    try:
        await cross(_leg(world, request, stage, host, pool))
        try:
            await world.wire.work(world, request, step, host, onward)
        finally:
            await cross(_leg(world, request, stage, host, pool))
    except (AgentError, TimeoutError, ValueError) as error:
        span.fail(error, origin=False)
        raise
    finally:
        request.state.pop("reflecting", None)
        span.end()


def _leg(world: World, request: Request, stage: str, host: str, pool: str) -> float:
    """Seconds on the wire in one direction, beyond what a real wire takes by itself."""
    base = world.wire.leg_s * _spread(request)
    if not world.faults.concerns(stage):
        return base
    facts = {**request.dims, "host": host, "tier": pool, "service": POOLS[pool]}
    for fault in world.faults.active(stage, facts, world.now_s()):
        if fault.kind == "network_hop":
            base += 0.045 * fault.strength * _spread(request)
    return base


async def cross(leg_s: float) -> None:
    """Be on the wire; where the wire is real, there may be nothing to add."""
    if leg_s > 0:
        await asyncio.sleep(leg_s)


def _spread(request: Request) -> float:
    return 0.6 + request.rng.expovariate(2.5)


async def _approval(world: World, request: Request, place: Place, link: Link) -> None:
    """A person looks at the draft before it goes on: a declared wait."""
    wait = request.rng.lognormvariate(2.3, 0.8)
    span = world.tracing.start(place, "human_approval", INTERNAL, link)
    span.set("stagescope.stage", "human_approval")
    span.set("stagescope.kind", "wait")
    span.set("stagescope.wait_ms", round(wait * 1e3, 3))
    await asyncio.sleep(wait)
    span.end()
