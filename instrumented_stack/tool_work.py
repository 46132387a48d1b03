"""A stage's work on a tool: its own pace, its back end, timeouts and breakers."""

from __future__ import annotations

import asyncio

from instrumented_stack.catalogue import TOOLS_BY_NAME, Tokens, Tool
from instrumented_stack.conditions import Run
from instrumented_stack.errors import CircuitOpenError
from instrumented_stack.hardening import BASIC_TIMEOUT_S, RISKY_TIMEOUT_S


async def call_tool(run: Run) -> None:
    """Call the run's tool. Raises TimeoutError, and CircuitOpenError while its breaker is open."""
    tool, span, world = TOOLS_BY_NAME[run.tool], run.span, run.world
    span.set("gen_ai.operation.name", "execute_tool")
    span.set("gen_ai.tool.name", tool.name)
    span.set("peer.service", f"{tool.name}-backend")
    guarded = world.switches.hardening.tool_breakers
    breaker = world.breaker(tool.name)
    if guarded and not breaker.allows(world.now_s()):
        span.event("breaker.open", {"gen_ai.tool.name": tool.name})
        raise CircuitOpenError(f"tool {tool.name} is resting after repeated failures")
    began, failed = world.now_s(), True
    try:
        await _execute(run, tool)
        failed = False
    finally:
        if guarded and breaker.note(world.now_s(), world.now_s() - began, failed):
            span.event("breaker.opened", {"gen_ai.tool.name": tool.name, "rest_s": breaker.rest_s})


async def _execute(run: Run, tool: Tool) -> None:
    world = run.world
    rows = run.count(Tokens(tool.rows, 0.4), 1.0) if tool.rows else 0
    size = run.count(Tokens(tool.bytes, 0.4), 1.0)
    real_s, rows, size = await world.use_tool(run.tool, run.request.text, rows, size)
    pace = world.scenario.traffic.slow_tools.get(tool.name, 1.0)
    own = (tool.base_s * pace + tool.row_s * rows + tool.kb_s * size / 1e3) * run.effort * run.tail(tool.sigma * 0.5)
    poll = run.request.rng.expovariate(1 / world.scenario.traffic.poll_s) if world.scenario.traffic.poll_s else 0.0
    if poll:
        run.add("wait_ms", poll * 1e3)
    limit = _limit(run, tool)
    total = own + run.dependency_s
    if run.hang or total > limit:
        await asyncio.sleep(limit)
        raise TimeoutError(f"Tool execution exceeded {limit:g}s")
    await asyncio.sleep(max(0.0, total + poll - real_s))
    if rows:
        run.span.set("stagescope.work.rows", rows)
    run.payload_bytes = size if run.payload_bytes < 1e6 else run.payload_bytes


def _limit(run: Run, tool: Tool) -> float:
    """One timeout for all, or tiered: basic tools 2 s, risky ones 5 s."""
    limit = run.world.switches.tool_timeout_s
    if run.world.switches.hardening.tiered_timeouts:
        limit = min(limit, RISKY_TIMEOUT_S if tool.risky else BASIC_TIMEOUT_S)
        run.span.set("stagescope.timeout_s", limit)
    return limit
