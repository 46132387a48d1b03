"""A small world with failures in it: requests of gateway → orchestrator → tool or model, written as stage runs."""

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

import pandas as pd
import pyarrow as pa

from ingest.store import Store

STAGES = ("intent_parse", "tool_select", "data_fetch", "llm_generate")
TOOLS = ("web_search", "crm_lookup", "sql_query", "mail_send")


@dataclass(frozen=True, slots=True)
class Fault:
    """`share` of requests fail at `stage` with `message` (`{n}` becomes a number, `{id}` an id); `tool` narrows data_fetch."""

    stage: str
    share: float
    error_type: str
    message: str
    tool: str = ""
    evidence: tuple[tuple[str, float], ...] = ()
    region: str = ""


def fill(
    store: Store,
    start: datetime,
    requests: int,
    faults: tuple[Fault, ...],
    *,
    seed: int = 1,
    tools: tuple[str, ...] = TOOLS,
) -> int:
    """Write `requests` over 24 hours; returns how many of them failed."""
    rng = random.Random(seed)
    rows: list[dict[str, object]] = []
    failed = 0
    for number in range(requests):
        at = start + timedelta(seconds=rng.random() * 24 * 3600)
        made, bad = _request(rng, f"{seed:04x}{number:012x}", at, faults, tools)
        rows += made
        failed += bad
    evidence = pa.array([list(row.pop("Evidence").items()) for row in rows], pa.map_(pa.string(), pa.float64()))  # type: ignore[attr-defined]
    table = pa.Table.from_pandas(pd.DataFrame(rows), preserve_index=False)
    store.insert("stage_runs", table.append_column("Evidence", evidence))
    return failed


def _request(
    rng: random.Random, trace: str, at: datetime, faults: tuple[Fault, ...], tools: tuple[str, ...]
) -> tuple[list[dict[str, object]], int]:
    tool, region = rng.choice(tools), rng.choice(("eu-west", "us-east", "ap-south"))
    stages = [
        (stage, next((f for f in faults if _hits(f, stage, tool, region) and rng.random() < f.share), None))
        for stage in STAGES
    ]
    common = {
        "TraceId": trace,
        "Region": region,
        "Device": rng.choice(("ios", "android", "web")),
        "UserTier": rng.choice(("free", "pro")),
        "UserId": f"u{rng.randrange(400)}",
        "SessionId": f"s{rng.randrange(10**6)}",
        "Version": "1.4.0",
        "Host": rng.choice(("h1", "h2")),
        "Model": "",
        "Retries": 0,
        "WaitTime": 0,
        "CriticalTime": 0,
        "SelfTime": 0,
    }
    rows: list[dict[str, object]] = []
    clock, broken = at + timedelta(milliseconds=20), None
    for place, (stage, fault) in enumerate(stages):
        took = 100_000_000 + rng.randrange(50_000_000)
        text = fault.message.format(n=rng.randrange(2, 90_000), id=f"{rng.getrandbits(64):016x}") if fault else ""
        rows.append(_run(common, stage, tool, (trace, place, clock, took), (fault, text)))
        clock += timedelta(microseconds=took / 1000)
        if fault:
            broken = (fault, text)
            break
    rows += [_frame(common, trace, at, clock, level, broken) for level in (1, 2)]
    return rows, int(broken is not None)


def _run(
    common: dict[str, object],
    stage: str,
    tool: str,
    place: tuple[str, int, datetime, int],
    end: tuple[Fault | None, str],
) -> dict[str, object]:
    """One stage below the orchestrator; `place` is (trace, number, start, ns), `end` the fault that ended it and its text."""
    (trace, number, clock, took), (fault, text) = place, end
    return {
        **common,
        "Timestamp": pd.Timestamp(clock),
        "SpanId": f"{trace[-10:]}{number + 3:02x}",
        "ParentSpanId": f"{trace[-10:]}02",
        "ServiceName": "workers",
        "Stage": stage,
        "Kind": "fetch" if stage == "data_fetch" else "generate",
        "Tier": "core",
        "Tool": tool if stage == "data_fetch" else "",
        "Duration": took,
        "Failed": int(fault is not None),
        "ErrorType": fault.error_type if fault else "",
        "ErrorMessage": text,
        "Evidence": dict(fault.evidence) if fault else {},
    }


def _hits(fault: Fault, stage: str, tool: str, region: str) -> bool:
    return fault.stage == stage and fault.tool in ("", tool) and fault.region in ("", region)


def _frame(
    common: dict[str, object], trace: str, at: datetime, end: datetime, level: int, broken: tuple[Fault, str] | None
) -> dict[str, object]:
    """Gateway (1) and orchestrator (2): their spans carry the echo of what failed below."""
    echo = "" if broken is None else ("HTTP 502 from orchestrator" if level == 1 else f"step failed: {broken[1]}")
    return {
        **common,
        "Timestamp": pd.Timestamp(at + timedelta(milliseconds=level)),
        "SpanId": f"{trace[-10:]}{level:02x}",
        "ParentSpanId": f"{trace[-10:]}01" if level == 2 else "",
        "ServiceName": ("gateway", "orchestrator")[level - 1],
        "Stage": ("gateway", "orchestrate")[level - 1],
        "Kind": "agent",
        "Tier": "access",
        "Tool": "",
        "Duration": int((end - at).total_seconds() * 1e9) + 5_000_000 * (3 - level),
        "Failed": int(broken is not None),
        "ErrorType": "" if broken is None else "UpstreamError",
        "ErrorMessage": echo,
        "Evidence": {},
    }
