"""Spans → `stage_runs`: self time, gaps, critical path and the mapped columns, for a window or for traces touched lately.

Must stay true: building twice changes nothing, and a trace whose spans came late ends as if they had come in order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from analytics.findings import Window
from analytics.stages_slice import BuildReport, Slice, build_slice
from analytics.stages_sql import scratch, statement, sweep
from ingest import mapping as mappings
from ingest.mapping import StageMapping
from ingest.store import Store

CHUNK_SPANS = 400_000
BLOCK_SPANS = 4_000_000
BIN_S = 300
LONG_NS = 1_800_000_000_000
REACH_NS = 6 * 3_600_000_000_000
WORKERS = 2
PROGRESS = "stages.touched"

PICK_COLUMNS = "TraceId String, Start DateTime64(9), End DateTime64(9), Spans UInt64, Long UInt8, Slice UInt64"


def build(store: Store, window: Window, mapping: StageMapping | None = None) -> BuildReport:
    """Build the runs of every trace that touches `window`, whole as far as its spans lie within 6 h of it.

    Memory is bounded by slices of about 400,000 spans, two at a time; a single trace is never split.
    """
    began = time.monotonic()
    use = mapping or mappings.load()
    sweep(store)
    total = BuildReport()
    for number, (low, high) in enumerate(_blocks(store, window)):
        numbers = {"low": low, "high": high, "reach": REACH_NS, "open": int(number == 0)}
        total += _build_picked(store, use, "stages_pick_window.sql", numbers)
    return total.lasting(time.monotonic() - began)


def build_touched(store: Store, mapping: StageMapping | None = None) -> BuildReport:
    """Build the runs of the traces that got spans since the last call, with all the spans those traces ever got."""
    began = time.monotonic()
    after = _progress(store)
    upto = int(store.value("SELECT max(_block_number) FROM stage_touched SETTINGS final = 0") or 0)
    if upto < after:
        after = 0
    if upto == after:
        return BuildReport()
    use = mapping or mappings.load()
    report = _build_picked(store, use, "stages_pick_touched.sql", {"after": after, "upto": upto})
    store.command(
        "INSERT INTO stage_progress (Name, Value) VALUES ({name:String}, {value:Int64})", name=PROGRESS, value=upto
    )
    return report.lasting(time.monotonic() - began)


def _progress(store: Store) -> int:
    """How far the touched traces were built. The first time, what lay in otel_traces before our tables were made counts as touched."""
    built = store.value("SELECT Value FROM stage_progress WHERE Name = {name:String}", name=PROGRESS)
    if built is None and store.value(
        "SELECT (SELECT count() FROM otel_traces) > (SELECT sum(Spans) FROM stage_touched) SETTINGS final = 0"
    ):
        store.command(statement("stages_adopt.sql"), settings={"final": 0})
    return int(built or 0)


def _blocks(store: Store, window: Window) -> Iterator[tuple[int, int]]:
    """Bounds in ns of pieces of the window with at most BLOCK_SPANS spans (or one bin of 5 minutes)."""
    low, high = ns(window.start), ns(window.end)
    bins = store.read(statement("stages_bins.sql"), low=low, high=high, bin=BIN_S * 1_000_000_000)
    begin, held, end = low, 0, low
    for start, spans in zip(bins["bin"].tolist(), bins["spans"].tolist(), strict=True) if len(bins) else ():
        if held and held + spans > BLOCK_SPANS:
            yield begin, max(start, low)
            begin, held = max(start, low), 0
        held += spans
        end = min(start + BIN_S * 1_000_000_000, high)
    if held:
        yield begin, end


def _build_picked(store: Store, use: StageMapping, query: str, numbers: dict[str, int]) -> BuildReport:
    with scratch(store, "stages_pick", PICK_COLUMNS) as pick:
        store.command(statement(query, pick=pick), settings={"final": 0}, chunk=CHUNK_SPANS, long_ns=LONG_NS, **numbers)
        revision = _revision(store)
        slices = _slices(store, pick, revision)
        with ThreadPoolExecutor(WORKERS) as pool:
            return sum(pool.map(lambda part: build_slice(store, use, part), slices), BuildReport())


def _slices(store: Store, pick: str, revision: int) -> Sequence[Slice]:
    found = store.read(statement("stages_slices.sql", pick=pick))
    columns = [found[name].tolist() if len(found) else [] for name in ("Long", "Slice", "low", "high", "traces")]
    rows = zip(*columns, strict=True)  # never through floats: low and high are ns
    return [Slice(pick, long, part, low, high, traces, revision) for long, part, low, high, traces in rows]


def _revision(store: Store) -> int:
    """Later than every revision so far, also when the clock went back."""
    newest = int(store.value("SELECT max(Revision) FROM stage_runs SETTINGS final = 0") or 0)
    return max(newest + 1, time.time_ns() // 1_000_000)


def ns(moment: datetime) -> int:
    """Nanoseconds since 1970, exact to the microsecond."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
