"""How long the product's own questions take on many spans: a week of a simulated agent's traces, made inside the engine.

Must stay true: every time is the median of `RUNS` questions, each about another trace or value, on merged parts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from analytics import dimensions, rollups, run, stages, traces
from analytics.findings import Window
from ingest.store import Store

RUNS = 5
SPANS_PER_TRACE = 20
BLOCK = 1_000_000
DAYS = 7
BUILT = (
    "stage_runs",
    "stage_hours",
    "stage_rollups",
    "stage_days",
    "stage_rollups_days",
    "findings",
    "analyzer_runs",
    "stage_expectations",
)
FILL = Path(__file__).with_name("query_fill.sql")
SPANS_OF_TRACE = "SELECT * FROM otel_traces WHERE TraceId = {id:String} ORDER BY Timestamp"
SEARCH = """
SELECT Timestamp, TraceId, SpanId, ServiceName, SpanName, Duration FROM otel_traces
WHERE has(SpanAttributeItems, {item:String}) ORDER BY Timestamp DESC LIMIT 100
"""
ON_DISK = """
SELECT sum(bytes_on_disk) FROM system.parts WHERE database = currentDatabase() AND table = 'otel_traces' AND active
"""


def fill(store: Store, rows: int, end: datetime) -> None:
    """Insert `rows` spans that end at `end`, spread over DAYS days, then merge them. 11 attributes a span."""
    statement = FILL.read_text()
    traces_all = rows // SPANS_PER_TRACE
    per_block = BLOCK // SPANS_PER_TRACE
    start = int((end - timedelta(days=DAYS)).timestamp() * 1e9)
    for first in range(0, traces_all, per_block):
        count = min(per_block, traces_all - first)
        numbers = {"first": first * SPANS_PER_TRACE, "count": count * SPANS_PER_TRACE}
        every = DAYS * 86_400 * 10**9 // max(1, traces_all)
        store.command(
            statement, settings={"max_partitions_per_insert_block": 1000}, start=start, every=every, **numbers
        )
        note(f"{(first + count) * SPANS_PER_TRACE:,} spans")
    note("merging")
    store.command("OPTIMIZE TABLE otel_traces FINAL")


def measure(store: Store, rows: int, end: datetime) -> dict[str, Any]:
    """All figures, in ms unless named otherwise."""
    week = Window(end - timedelta(days=DAYS), end + timedelta(hours=1))
    ids = [trace_id(store, number * (rows // SPANS_PER_TRACE) // (RUNS + 1)) for number in range(1, RUNS + 1)]
    out: dict[str, Any] = {"rows": int(store.value("SELECT count() FROM otel_traces SETTINGS final = 0"))}
    out["bytes_per_span"] = round(int(store.value(ON_DISK)) / out["rows"], 1)
    out["trace_by_id_ms"] = median(lambda n: store.read(SPANS_OF_TRACE, id=ids[n]), SPANS_PER_TRACE)
    items = [f"user.id={user_id(store, number * 101)}" for number in range(RUNS)]
    out["attribute_search_ms"] = median(lambda n: store.read(SEARCH, item=items[n]), SPANS_PER_TRACE)
    by_attribute = ("user.id", "user.tier", "gen_ai.request.model", "shop.cart", "user.id")
    out["p99_by_any_attribute_ms"] = median(lambda n: dimensions.p99(store, [by_attribute[n]], window=week), 2)
    note("building stage runs")
    report = stages.build(store, week)
    out["stage_runs"] = int(store.value("SELECT count() FROM stage_runs SETTINGS final = 0"))
    out["stage_runs_per_s"] = round(report.spans / report.seconds) if report.seconds else 0
    began = time.monotonic()
    rollups.roll(store)
    out["rollup_s"] = round(time.monotonic() - began, 1)
    by_column = (["region"], ["model"], ["service"], ["stage"], ["device"])
    out["p99_by_dimension_ms"] = median(lambda n: dimensions.p99(store, by_column[n], window=week), 2)
    out["waterfall_ms"] = median(lambda n: traces.waterfall(store, ids[n]), SPANS_PER_TRACE)
    note("analyzing the week")
    began = time.monotonic()
    run.run(store, week)
    out["analyze_s"] = round(time.monotonic() - began, 1)
    out["peak_rss_mb"] = round(peak_rss_mb())
    return out


def median(ask: Callable[[int], Any], least_rows: int) -> float:
    """Median ms of RUNS questions after one to warm up; each must answer with at least `least_rows` rows."""
    ask(0)
    taken = []
    for number in range(RUNS):
        began = time.perf_counter()
        answer = ask(number)
        taken.append((time.perf_counter() - began) * 1000)
        if len(answer) < least_rows:
            raise SystemExit(
                f"a question was answered with {len(answer)} rows instead of {least_rows}: the figure would be void"
            )
    return round(statistics.median(taken), 1)


def trace_id(store: Store, number: int) -> str:
    """The id of the trace with this number, as query_fill.sql makes it."""
    return str(store.value("SELECT lower(hex(sipHash128({n:UInt64})))", n=number))


def user_id(store: Store, number: int) -> str:
    """The user of the trace with this number."""
    return str(store.value("SELECT concat('u', toString(cityHash64({n:UInt64}, 'u') % 50000))", n=number))


def peak_rss_mb() -> float:
    """The most memory this process ever held, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines() if Path("/proc/self/status").exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float(psutil.Process().memory_info().rss) / 1e6


def note(words: str) -> None:
    if sys.stderr.isatty():
        print(words, file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    with contextlib.ExitStack() as stack:
        folder = options.store or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="bench-query-", dir=options.folder)
        )
        store = stack.enter_context(Store.open(folder))
        end, filled_s = ready(store, Path(folder) / "bench-query.json", options.rows)
        machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        out = {**measure(store, options.rows, end), "fill_s": filled_s, "machine": machine}
    if options.json:
        print(json.dumps(out))
    else:
        print("\n".join(f"{name:26} {value}" for name, value in out.items()))
    return 0


def ready(store: Store, note_file: Path, rows: int) -> tuple[datetime, float]:
    """Fill the store, unless an earlier run left it filled (then only what was built from the spans is emptied).

    Returns the end of its week and how long filling took in s.
    """
    if note_file.exists():
        known = json.loads(note_file.read_text())
        if known["rows"] != rows:
            raise SystemExit(f"{note_file.parent} holds {known['rows']:,} spans: say --rows {known['rows']}")
        for table in BUILT:
            store.command(f"TRUNCATE TABLE {table}")
        return datetime.fromisoformat(known["end"]), float(known["fill_s"])
    began, end = time.monotonic(), datetime.now(UTC).replace(microsecond=0)
    fill(store, rows, end)
    took = round(time.monotonic() - began, 1)
    note_file.write_text(json.dumps({"rows": rows, "end": end.isoformat(), "fill_s": took}))
    return end, took


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.query", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="spans to make (default 10,000,000)")
    parser.add_argument("--folder", help="where the temporary store may lie (default: the system's temporary folder)")
    parser.add_argument(
        "--store", help="a store to fill, keep, and find filled the next time, instead of a temporary one"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args(arguments)
    if options.rows < 10_000:
        parser.error("--rows must be at least 10,000")
    return options


if __name__ == "__main__":
    sys.exit(main())
