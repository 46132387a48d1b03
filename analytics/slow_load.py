"""The only SQL of the slow analyzer: totals by stage, a sample of whole traces, load by minute, and the hardware beside them.

Must stay true: a trace is in the sample of every stage it touches or of none that is sampled as thinly (one hash, nested limits).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from analytics.expectation_needs import Needs, needs
from analytics.findings import Window
from ingest import settings
from ingest.store import Store

MAX_RUNS_PER_STAGE = 20_000
MAX_STAGES = 150
MIN_RUNS = 30
MANY_NAMES = 1_000
EVIDENCE = (
    "queue_ms batch_wait_ms lock_wait_ms lock_holders context_init_ms serialise_ms cpu_ms fallback degraded cold_start "
    "uptime_s kv_usage preemptions batch_size outcome_changed repeated_tokens gpu prefill_ms decode_ms concurrency"
).split()

_WINDOW = "Timestamp >= {start:DateTime64(3)} AND Timestamp < {end:DateTime64(3)}"
# Ids inside span names make thousands of stages of one run each; with {merge} their digits and hex runs become '*'.
_NAME = "if({merge:UInt8}, replaceRegexpAll(toString(Stage), '[0-9a-fA-F]{8,}|[0-9]+', '*'), toString(Stage))"
_TOTALS = f"""
SELECT toString(ServiceName) AS service, {_NAME} AS stage, count() AS runs, countIf(Failed) AS failed,
       sum(CriticalTime) / 1e6 AS critical_ms, uniq(UserId) AS users, min(Timestamp) AS first, max(Timestamp) AS final
FROM stage_runs WHERE {_WINDOW} GROUP BY service, stage ORDER BY critical_ms DESC
"""
_TRACES = f"SELECT uniqCombined(TraceId) AS traces FROM stage_runs WHERE {_WINDOW}"
_RUNS = f"""
SELECT toFloat64(toUnixTimestamp64Nano(Timestamp)) / 1e9 AS ts, TraceId AS trace, toString(ServiceName) AS service,
       {_NAME} AS stage, toString(Kind) AS kind, toString(Tier) AS tier, toString(Model) AS model, toString(Tool) AS tool,
       toString(Region) AS region, toString(Device) AS device, toString(UserTier) AS user_tier, UserId AS user,
       toString(Version) AS version, toString(Host) AS host, Duration / 1e6 AS duration_ms, SelfTime / 1e6 AS self_ms,
       CriticalTime / 1e6 AS critical_ms, WaitTime / 1e6 AS wait_ms, toFloat64(InputTokens) AS input_tokens,
       toFloat64(CachedTokens) AS cached_tokens, toFloat64(OutputTokens) AS output_tokens,
       toFloat64(PayloadBytes) AS payload_bytes, toFloat64(Items) AS items, toFloat64(Rows) AS row_count,
       toFloat64(Retries) AS retries, Failed AS failed, TraceDuration / 1e6 AS trace_ms,
       mapKeys(Evidence) AS ev_keys, mapValues(Evidence) AS ev_values, cityHash64(TraceId) / 18446744073709551616. AS hash
FROM stage_runs
WHERE {_WINDOW} AND cityHash64(TraceId) / 18446744073709551616. <= transform(
    concat(toString(ServiceName), '\\0', {_NAME}), {{names:Array(String)}}, {{limits:Array(Float64)}}, 0.)
"""
_LOAD = f"""
SELECT toString(ServiceName) AS service, {_NAME} AS stage, toUnixTimestamp(toStartOfMinute(Timestamp)) AS minute,
       count() AS starts, sum(Duration) / 6e10 AS in_flight
FROM stage_runs WHERE {_WINDOW} AND has({{names:Array(String)}}, concat(toString(ServiceName), '\\0', {_NAME}))
GROUP BY service, stage, minute
"""
_STEP = "toUnixTimestamp(toStartOfInterval(Timestamp, toIntervalSecond({step:UInt32})))"
_GPU = f"""
SELECT {_STEP} AS ts, toString(Host) AS host, toString(Gpu) AS gpu, any(toString(Model)) AS gpu_model,
       max(SmActive) AS sm, max(DramActive) AS dram, max(MemUsedBytes / nullIf(MemTotalBytes, 0)) AS gpu_mem,
       max((ifNull(PcieRxBytesPerSec, 0) + ifNull(PcieTxBytesPerSec, 0)) / ifNull(nullIf(PcieMaxBytesPerSec, 0), {{pcie:Float64}})) AS pcie
FROM gpu_samples WHERE {_WINDOW} GROUP BY ts, host, gpu ORDER BY ts, host, gpu
"""
_HOST = f"""
SELECT {_STEP} AS ts, toString(Host) AS host, max(CpuRatio) AS cpu, max(LoadPerCpu) AS cpu_load, max(DiskQueue) AS disk_queue,
       max(NetRttMs) AS net_rtt FROM host_samples WHERE {_WINDOW} GROUP BY ts, host ORDER BY ts, host
"""
_ENGINE = f"""
SELECT {_STEP} AS ts, toString(Host) AS host, max(Running) AS running, max(Waiting) AS waiting, max(KvUsage) AS engine_kv
FROM engine_samples WHERE {_WINDOW} GROUP BY ts, host ORDER BY ts, host
"""
PCIE_BYTES_PER_S = 31.5e9


@dataclass(frozen=True, slots=True)
class Data:
    """What the slow analyzer looks at. `runs` is one row a sampled stage run (times in ms, `ts` in s); NaN means unknown.

    `totals` has one row a stage over the whole window, `traces` counts all traces; `load` is starts and mean number in flight by
    stage and minute; `gpu`, `host`, `engine` are samples by second and host. `learnt` is filled by whoever first works the
    expectations out, so that one window is learnt once; a changed copy (`replace`) begins with none.
    """

    window: Window
    runs: pd.DataFrame
    totals: pd.DataFrame
    traces: int
    load: pd.DataFrame
    gpu: pd.DataFrame
    host: pd.DataFrame
    engine: pd.DataFrame
    need: Needs
    rows_read: int = 0
    note: str = ""
    learnt: dict[str, Any] = field(init=False, default_factory=dict, repr=False, compare=False)


def load(store: Store, window: Window) -> Data:
    """Read a window. Bounds: MAX_STAGES stages by time on the critical path, MAX_RUNS_PER_STAGE sampled runs each."""
    bounds: dict[str, Any] = {"start": window.start, "end": window.end, "merge": 0}
    totals = store.read(_TOTALS, **bounds)
    names_seen = len(totals)
    if names_seen > MANY_NAMES:
        bounds["merge"] = 1
        totals = store.read(_TOTALS, **bounds)
    rows = int(totals["runs"].sum()) if len(totals) else 0
    judged = totals[totals["runs"] >= MIN_RUNS].head(MAX_STAGES) if len(totals) else totals
    if not len(judged):
        return empty(window, rows, note(names_seen, len(totals), 0))
    names = (judged["service"] + "\0" + judged["stage"]).tolist()
    limits = np.minimum(1.0, MAX_RUNS_PER_STAGE / judged["runs"].to_numpy(float)).tolist()
    runs = spread_evidence(store.read(_RUNS, **bounds, names=names, limits=limits))
    gpu, host, engine = hardware(store, window)
    return Data(
        window,
        runs,
        judged.reset_index(drop=True),
        int(store.value(_TRACES, start=window.start, end=window.end)),
        store.read(_LOAD, **bounds, names=names),
        gpu,
        host,
        engine,
        needs(settings.load().stages),
        rows,
        note(names_seen, len(totals), len(judged)),
    )


def hardware(store: Store, window: Window) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """(GPU, host, engine) samples of a window by second, or by up to a minute where it is long; the highest value in each step."""
    step = {"step": int(np.clip(window.seconds / 20_000, 1, 60)), "start": window.start, "end": window.end}
    return store.read(_GPU, **step, pcie=PCIE_BYTES_PER_S), store.read(_HOST, **step), store.read(_ENGINE, **step)


def spread_evidence(runs: pd.DataFrame) -> pd.DataFrame:
    """One float column `ev_<name>` for each known fact of the Evidence maps; NaN where a run does not say."""
    if not len(runs):
        return runs
    lengths = runs["ev_keys"].map(len).to_numpy()
    at = np.repeat(np.arange(len(runs)), lengths)
    keys = np.concatenate([*runs["ev_keys"].tolist(), []]) if lengths.sum() else np.array([], dtype=object)
    values = np.concatenate([*runs["ev_values"].tolist(), []]).astype(float) if lengths.sum() else np.array([])
    added: dict[str, Any] = {}
    for name in EVIDENCE:
        column = np.full(len(runs), np.nan)
        if len(keys):
            hit = keys == name
            column[at[hit]] = values[hit]
        added[f"ev_{name}"] = column
    return pd.concat([runs.drop(columns=["ev_keys", "ev_values"]), pd.DataFrame(added, index=runs.index)], axis=1)


def empty(window: Window, rows: int = 0, text: str = "") -> Data:
    """A window in which nothing can be judged."""
    none = pd.DataFrame()
    return Data(window, none, none, 0, none, none, none, none, Needs(), rows, text)


def note(names_seen: int, names_left: int, judged: int) -> str:
    """What was not looked at, in words."""
    parts = []
    if names_left < names_seen:
        parts.append(f"{names_seen} stage names: digits and ids in names were merged into {names_left}")
    if judged < names_left:
        parts.append(
            f"{names_left - judged} of {names_left} stages not judged (under {MIN_RUNS} runs or past the first {MAX_STAGES})"
        )
    return "; ".join(parts)
