"""From stage runs and span events to the failure log: one document a failed stage, each with its pattern and cluster.

Must stay true: collecting a window again changes nothing, and late spans only correct what they touch.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from analytics import failures_echo
from analytics.failures_patterns import Patterns
from analytics.failures_text import error_type, frames, result_error
from analytics.findings import Window
from ingest.store import Store

CHUNK_ROWS = 100_000
LONGEST_MESSAGE = 20_000
COLUMNS = (
    "Timestamp TraceId SpanId ServiceName Stage Kind Tier Tool Model Region Device UserTier UserId SessionId Version Host"
).split()
_IN_WINDOW = "Timestamp >= {start:DateTime64(9)} AND Timestamp < {end:DateTime64(9)}"
_NEAR = "Timestamp >= {start:DateTime64(9)} - INTERVAL 1 HOUR AND Timestamp < {end:DateTime64(9)} + INTERVAL 1 HOUR"
_TOOL_RESULT = (
    "coalesce(nullIf(SpanAttributes['gen_ai.tool.call.result'], ''), nullIf(SpanAttributes['output.value'], ''), "
    "nullIf(SpanAttributes['ai.toolCall.result'], ''), SpanAttributes['traceloop.entity.output'])"
)
_LOOKS_FAILED = r"^\s*(\{\s*\"(error|errors|exception)\"\s*:\s*[^nf\s\[]|\{\"(isError|is_error)\"\s*:\s*true|(error|exception|traceback)\b)"


def collect(store: Store, window: Window) -> int:
    """Fill `failures` for `window`; returns how many documents are new or changed."""
    patterns = Patterns.load(store)
    written = 0
    for part in _chunks(store, window):
        fresh = _unseen(store, part, documents(store, part))
        if len(fresh):
            placed = patterns.place(fresh)
            patterns.save(store)
            written += store.insert("failures", arrow(placed))
    return written


def documents(store: Store, window: Window) -> pd.DataFrame:
    """Every failed stage of `window` as a row of the failure log, echoes marked, before grouping."""
    runs = _runs(store, window)
    if not len(runs):
        return runs
    runs = runs.merge(_events(store, window), on=["TraceId", "SpanId"], how="left")
    for column in ("EventType", "EventText", "Stack", "StatusMessage"):
        runs[column] = runs[column].fillna("").astype(str)
    marks = failures_echo.mark(_tree(store, window))
    runs = runs.merge(
        marks[["TraceId", "SpanId", "Echo", "Recovered", "RequestDuration"]], on=["TraceId", "SpanId"], how="left"
    )
    return _document(runs)


def _document(runs: pd.DataFrame) -> pd.DataFrame:
    out = runs[COLUMNS].copy()
    said = [_message(row) for row in runs[["EventText", "ErrorMessage", "StatusMessage", "Result", "Degraded"]].values]
    out["Message"] = [text[:LONGEST_MESSAGE] for text in said]
    declared = np.where(runs["ErrorType"].to_numpy() == "", runs["EventType"].to_numpy(), runs["ErrorType"].to_numpy())
    degraded = runs["Degraded"].to_numpy() > 0
    out["ErrorType"] = [
        error_type(str(kind), text) or ("ServiceDegradedError" if low else "")
        for kind, text, low in zip(declared, said, degraded, strict=True)
    ]
    out["Frames"] = [frames(stack) if stack else [] for stack in runs["Stack"]]
    facts: list[Any] = [_context(row, str(kind)) for row, kind in zip(runs["Evidence"], declared, strict=True)]
    out["Context"] = facts
    out["Echo"] = runs["Echo"].fillna(0).astype("uint8")
    out["Recovered"] = runs["Recovered"].fillna(0).astype("uint8")
    whole = runs["RequestDuration"].fillna(runs["Duration"]).astype("uint64")
    out["Lost"] = np.where(out["Recovered"] == 1, runs["Duration"], whole).astype("uint64")
    return out


def _message(row: Any) -> str:
    event, message, status, result, degraded = row
    for text in (event, message, status):
        if str(text).strip():
            return str(text)
    if str(result).strip():
        return result_error(str(result))
    return f"fallback in force, level {int(degraded)}" if degraded > 0 else ""


def _context(evidence: Any, declared: str) -> list[tuple[str, str]]:
    facts = [(str(name), f"{float(value):.6g}") for name, value in dict(evidence).items()]
    return facts + ([("declared_type", declared)] if declared else [])


def arrow(documents: pd.DataFrame) -> pa.Table:
    """Documents with the types that the table needs, whatever is empty in them."""
    nested = {"Frames": pa.list_(pa.string()), "Context": pa.map_(pa.string(), pa.string())}
    out = pa.Table.from_pandas(documents.drop(columns=list(nested)), preserve_index=False)
    for name, kind in nested.items():
        out = out.append_column(name, pa.array(documents[name].tolist(), kind))
    return out


def _chunks(store: Store, window: Window) -> Iterator[Window]:
    """Parts of the window, whole hours, with about CHUNK_ROWS failures at most."""
    hours = store.read(
        "SELECT toStartOfHour(Timestamp) AS hour, countIf(Failed = 1 OR Evidence['degraded'] > 0) AS n FROM stage_runs "
        f"WHERE {_IN_WINDOW} GROUP BY hour HAVING count() > 0 ORDER BY hour",
        start=window.start,
        end=window.end,
    )
    start, waiting = window.start, 0
    for hour, count in zip(hours.get("hour", []), hours.get("n", []), strict=True):
        opened = _utc(hour)
        if waiting and waiting + int(count) > CHUNK_ROWS and opened > start:
            yield Window(start, opened)
            start, waiting = opened, 0
        waiting += int(count)
    if len(hours):
        yield Window(start, window.end)


def _runs(store: Store, window: Window) -> pd.DataFrame:
    told = (
        f"SELECT TraceId, SpanId, {_TOOL_RESULT} AS Told FROM otel_traces WHERE {_IN_WINDOW} AND StatusCode != 'Error' "
        "AND match(Told, {pattern:String})"
    )
    names = ", ".join(f"r.{name} AS {name}" for name in COLUMNS)
    return store.read(
        f"SELECT {names}, r.Duration AS Duration, r.ErrorType AS ErrorType, r.ErrorMessage AS ErrorMessage, "
        "r.Evidence AS Evidence, t.Told AS Result, "
        "if(r.Failed = 1, 0, greatest(r.Evidence['degraded'], r.Evidence['fallback'])) AS Degraded "
        f"FROM stage_runs AS r LEFT JOIN ({told}) AS t ON r.TraceId = t.TraceId AND r.SpanId = t.SpanId "
        f"WHERE {_IN_WINDOW.replace('Timestamp', 'r.Timestamp')} AND r.Kind != 'gap' "
        "AND (r.Failed = 1 OR r.Evidence['degraded'] > 0 OR (r.Tool != '' AND t.Told != '')) "
        "ORDER BY r.Timestamp, r.TraceId, r.SpanId",
        start=window.start,
        end=window.end,
        pattern="(?i)" + _LOOKS_FAILED,
    )


def _events(store: Store, window: Window) -> pd.DataFrame:
    frame = store.read(
        "SELECT TraceId, SpanId, any(StatusMessage) AS StatusMessage, "
        "any(arrayFilter(a -> a['exception.type'] != '' OR a['exception.message'] != '', `Events.Attributes`)) AS Thrown, "
        "Thrown[-1]['exception.type'] AS EventType, Thrown[-1]['exception.message'] AS EventText, "
        "Thrown[-1]['exception.stacktrace'] AS Stack "
        f"FROM otel_traces WHERE {_IN_WINDOW} AND (StatusCode = 'Error' OR has(`Events.Name`, 'exception')) "
        "GROUP BY TraceId, SpanId",
        start=window.start,
        end=window.end,
    )
    wanted = ["TraceId", "SpanId", "StatusMessage", "EventType", "EventText", "Stack"]
    return frame[wanted] if len(frame) else pd.DataFrame({name: pd.Series(dtype=str) for name in wanted})


def _tree(store: Store, window: Window) -> pd.DataFrame:
    failing = f"SELECT TraceId FROM stage_runs WHERE {_IN_WINDOW} AND (Failed = 1 OR Evidence['degraded'] > 0)"
    return store.read(
        "SELECT TraceId, SpanId, any(ParentSpanId) AS ParentSpanId, min(Start) AS Start, max(Duration) AS Duration, "
        "max(Failed) AS Failed, max(ErrorType) AS ErrorType, max(ErrorMessage) AS ErrorMessage FROM ("
        "SELECT TraceId, SpanId, ParentSpanId, toUnixTimestamp64Nano(Timestamp) AS Start, Duration, Failed, "
        "toString(ErrorType) AS ErrorType, substring(ErrorMessage, 1, 2000) AS ErrorMessage FROM stage_runs "
        f"WHERE {_NEAR} AND Kind != 'gap' AND TraceId IN ({failing}) UNION ALL "
        "SELECT TraceId, SpanId, ParentSpanId, toUnixTimestamp64Nano(Timestamp), Duration, toUInt8(StatusCode = 'Error'), "
        "SpanAttributes['error.type'], substring(StatusMessage, 1, 2000) FROM otel_traces "
        f"WHERE {_NEAR} AND TraceId IN ({failing})) GROUP BY TraceId, SpanId ORDER BY TraceId, Start, SpanId",
        start=window.start,
        end=window.end,
    )


def _unseen(store: Store, window: Window, found: pd.DataFrame) -> pd.DataFrame:
    """Without the documents that stand in the log already, with the same marks."""
    if not len(found):
        return found
    known = store.read(
        f"SELECT TraceId, SpanId, Echo AS KnownEcho, Recovered AS KnownRecovered FROM failures WHERE {_IN_WINDOW}",
        start=window.start,
        end=window.end,
    )
    if not len(known):
        return found
    both = found.merge(known, on=["TraceId", "SpanId"], how="left")
    same = (both["KnownEcho"] == both["Echo"]) & (both["KnownRecovered"] == both["Recovered"])
    return found[~same.to_numpy()]


def _utc(value: Any) -> datetime:
    stamp = pd.Timestamp(value)
    moment: datetime = (stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")).to_pydatetime(
        warn=False
    )
    return moment


def widen(window: Window, back: timedelta) -> Window:
    """The window with earlier history in front."""
    return Window(window.start - back, window.end)
