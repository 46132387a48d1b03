"""The execution layer: one stage run on one host. The server span of a stage carries its work, so that whoever reads it can judge the time."""

from __future__ import annotations

import asyncio
from json.encoder import encode_basestring

from instrumented_stack.catalogue import POOLS, STAGES
from instrumented_stack.conditions import CONDITIONS, Run
from instrumented_stack.errors import AgentError, AgentExecutionFailed, ResourceExhausted, ServiceDegradedError
from instrumented_stack.hardening import PAYLOAD_LIMIT_BYTES, clean
from instrumented_stack.model_work import ask_model, ask_smaller, select_by_vector
from instrumented_stack.scenario import runs_model
from instrumented_stack.telemetry import SERVER, Link
from instrumented_stack.tool_work import call_tool
from instrumented_stack.world import Request, World

SERIALISE_S_PER_MB = 0.09


def pool_of(world: World, request: Request, stage: str) -> str:
    """Which pool serves this stage for this request: its own, or core for whatever asks a model when routing says so."""
    oversized = False
    if world.faults.concerns(stage):
        facts = {**request.dims, "tier": STAGES[stage].pool}
        oversized = any(item.kind == "oversized_model" for item in world.faults.active(stage, facts, world.now_s()))
    if oversized or (world.switches.routing == "all_core" and runs_model(stage, world.switches)):
        return "core"
    return STAGES[stage].pool


async def serve(world: World, request: Request, step: tuple[str, str], host: str, link: Link) -> None:
    """Run one step (stage, tool) on `host` under its own server span; errors are recorded there and raised."""
    stage, tool = step
    pool = host.rsplit("-", 1)[0]
    place = world.place(POOLS[pool], host, request.dims["version"])
    span = world.tracing.start(place, stage, SERVER, link)
    run = Run(world, STAGES[stage], request, host, span, tool=tool, pool=pool)
    world.in_flight[host] = world.in_flight.get(host, 0) + 1
    try:
        _describe(run)
        await _work(run)
    except (AgentError, TimeoutError, ValueError) as error:
        span.fail(error, origin=True)
        raise
    finally:
        world.in_flight[host] -= 1
        for fact, amount in run.facts.items():
            span.set(f"stagescope.{fact}", int(amount) if fact == "lock_holders" else round(amount, 3))
        span.end()


def _describe(run: Run) -> None:
    span, stage = run.span, run.stage
    span.set("stagescope.stage", stage.name)
    span.set("stagescope.kind", stage.kind)
    if run.pool != "tools":
        span.set("stagescope.tier", run.pool)
    run.facts["uptime_s"] = round(run.world.uptime_s(run.host), 1)
    reflecting = run.request.state.get("reflecting") == stage.name or stage.name == "self_reflection"
    if reflecting or stage.kind == "check":
        span.set("stagescope.outcome_changed", run.chance(0.037 if reflecting else 0.22))


async def _work(run: Run) -> None:
    world, request = run.world, run.request
    run.effort = world.host_speed(run.host)
    run.payload_bytes = int(22_000 * run.lognormal(0.4))
    asks_model = runs_model(run.stage.name, world.switches)
    concerned = world.faults.concerns(run.stage.name)
    for fault in world.faults.active(run.stage.name, _facts(run), world.now_s()) if concerned else ():
        asks_model = asks_model or fault.kind in ("prompt_bloat", "oversized_model")
        await CONDITIONS[fault.kind](run, fault)
    try:
        _refuse(run)
        if run.tool:
            await _with_retries(run, "tool")
        else:
            await _with_retries(run, "model" if run.stage.uses_model and asks_model else "vector")
    except (ResourceExhausted, ServiceDegradedError, AgentExecutionFailed) as error:
        if not world.switches.hardening.fallback_levels or not run.stage.uses_model:
            raise
        await ask_smaller(run, error)
    request.state.setdefault("answer", run.stage.name)
    await _hand_over(run)


def _facts(run: Run) -> dict[str, str]:
    model = "" if run.pool not in run.world.switches.engines else run.world.switches.engines[run.pool].model
    where = {"tier": run.pool, "host": run.host, "tool": run.tool, "service": POOLS[run.pool], "model": model}
    return {**run.request.dims, **where}


def _refuse(run: Run) -> None:
    """Quotas and degraded mode are checked before any work."""
    if run.over_quota:
        raise AgentExecutionFailed("resource_quota_exhausted")
    if run.degraded:
        run.span.set("stagescope.degraded", True)
        run.span.set("stagescope.fallback", 2)
        raise ServiceDegradedError("fallback_to_basic_mode")
    if run.fallback:
        run.span.set("stagescope.fallback", run.fallback)


async def _with_retries(run: Run, what: str) -> None:
    """Try again while attempts come back unusable; the last allowed one is taken as it is."""
    retries = 0
    while True:
        if what == "tool":
            await call_tool(run)
        elif what == "model":
            await ask_model(run)
        else:
            await select_by_vector(run)
        if retries >= run.world.switches.retries or not run.chance(run.fail_share):
            break
        retries += 1
        run.span.event("retry", {"stagescope.attempt": retries, "reason": "answer did not match its schema"})
    if retries:
        run.span.set("stagescope.retries", retries)


async def _hand_over(run: Run) -> None:
    """Encode the answer, and write the session's state; both can fail."""
    hardening = run.world.switches.hardening
    busy = SERIALISE_S_PER_MB * run.payload_bytes / 1e6 * run.lognormal(0.08)
    run.span.set("stagescope.work.bytes", run.payload_bytes)
    if hardening.payload_alert and run.payload_bytes > PAYLOAD_LIMIT_BYTES:
        run.span.event("payload.over_limit", {"stagescope.work.bytes": run.payload_bytes, "limit": PAYLOAD_LIMIT_BYTES})
    run.add("serialise_ms", busy * 1e3)
    await run.world.serialise(run.payload_bytes, busy + run.closing_s + (0.0 if run.tool else run.dependency_s))
    text = f"{run.stage.name}: {run.request.text}" + ("\ud83d" if run.broken_text else "")
    if hardening.unicode_cleaning and clean(text) != text:
        run.span.event("text.cleaned", {"removed": len(text) - len(clean(text))})
        text = clean(text)
    encode(text)
    if run.conflict:
        await _write_state(run)


def encode(text: str) -> bytes:
    """The answer as JSON in UTF-8. Raises UnicodeEncodeError for half a surrogate pair."""
    return f'{{"answer": {encode_basestring(text)}}}'.encode()


async def _write_state(run: Run) -> None:
    """Write the stage's result into the session while another writer sits on it."""
    name, limit = run.request.dims["session"], run.world.switches.lock_timeout_s
    holder = asyncio.create_task(run.world.sessions.write(f"{name}/{run.request.number}", "acting", hold_s=2 * limit))
    await asyncio.sleep(0)
    run.add("lock_holders", 1)
    began = run.world.now_s()
    try:
        await run.world.sessions.write(f"{name}/{run.request.number}", "answering")
    finally:
        run.add("lock_wait_ms", (run.world.now_s() - began) * 1e3)
        await run.world.keep(holder)
