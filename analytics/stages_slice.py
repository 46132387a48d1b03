"""One slice of whole traces: bones of the spans out of the store, times computed, runs written back.

Must stay true: a slice touches only the rows of its own traces.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from analytics.stages_engine import Engine, fold
from analytics.stages_sql import scratch, statement
from analytics.stages_times import Times, times
from analytics.stages_tree import NONE, Flags, Spans
from ingest.mapping import StageMapping
from ingest.store import Store

ROW = "cityHash64(TraceId, SpanId, SpanKind, toUnixTimestamp64Nano(Timestamp), Duration)"
FEW_TRACES = 2_000
SHAPE_COLUMNS = (
    "Row UInt64, Length UInt64, SelfTime UInt64, CriticalTime UInt64, TraceDuration UInt64, Gap Int64, GapSelf UInt64, "
    "GapCritical UInt64, Request Int64, Callee LowCardinality(String), TreeMarks LowCardinality(String), Lender UInt64"
)
KEEP = (
    "Timestamp TraceId SpanId ParentSpanId ServiceName Length SelfTime CriticalTime TraceDuration Gap GapSelf GapCritical "
    "Request Callee TreeMarks Marks"
).split()
MARKS = ("orphan", "cycle", "skew")


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build saw and wrote. `runs` includes `gaps`; `skewed` spans lay outside their parent."""

    traces: int = 0
    spans: int = 0
    runs: int = 0
    gaps: int = 0
    duplicates: int = 0
    orphans: int = 0
    cycles: int = 0
    skewed: int = 0
    removed: int = 0
    seconds: float = 0.0

    def __add__(self, other: BuildReport) -> BuildReport:
        return BuildReport(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))

    def lasting(self, seconds: float) -> BuildReport:
        """The same with the time it took."""
        return replace(self, seconds=seconds)


@dataclass(frozen=True, slots=True)
class Slice:
    """Slice `number` of the traces listed in table `pick`; all its spans start in [low_ns, high_ns]."""

    pick: str
    long: int
    number: int
    low_ns: int
    high_ns: int
    traces: int
    revision: int

    def params(self) -> dict[str, Any]:
        return {"low": self.low_ns, "high": self.high_ns, "long": self.long, "slice": self.number}


def build_slice(store: Store, mapping: StageMapping, part: Slice) -> BuildReport:
    """Write the runs of the slice, then mark as deleted what its traces had before and have no more."""
    skip = int(part.traces <= FEW_TRACES or part.long)
    rows, spans = _read(store, mapping, part, skip)
    found = times(spans)
    engine = _engine(store, mapping, part, rows, found)
    kept = found.trees.kept
    with scratch(store, "stages_shape", SHAPE_COLUMNS) as shape:
        store.insert(shape, _shape_table(found, engine, rows))
        lent = "stages_source_lent.sql" if (engine.lender != NONE).any() else "stages_source.sql"
        source = statement(lent, pick=part.pick, shape=shape, row=ROW, marks=_marks(store))
        text = statement(
            "stages_insert.sql",
            keep=", ".join(KEEP),
            columns=", ".join(f"{sql} AS {name}" for name, sql in mapping.columns().items()),
            prepared=mapping.prepared(f"({source})"),
        )
        store.command(text, revision=part.revision, skip=skip, engine=mapping.engine, **part.params())
    removed = _bury(store, part)
    touch: dict[str, Any] = {"revision": part.revision, "long": part.long, "slice": part.number}
    store.command(statement("rollups_touch.sql", pick=part.pick), **touch)
    gaps = int((found.gap_ns >= 0).sum())
    return BuildReport(
        traces=part.traces,
        spans=len(kept),
        runs=len(kept) + gaps,
        gaps=gaps,
        duplicates=len(spans) - len(kept),
        orphans=int(found.trees.orphan.sum()),
        cycles=int(found.trees.cycle.sum()),
        skewed=int(found.outside.sum()),
        removed=removed,
    )


def _read(store: Store, mapping: StageMapping, part: Slice, skip: int) -> tuple[pa.Table, Spans]:
    text = statement("stages_spans.sql", pick=part.pick, row=ROW)
    table = store.read_arrow(text, skip=skip, engine=mapping.engine, **part.params())
    service = table["service"].combine_chunks()
    if not pa.types.is_dictionary(service.type):
        service = service.dictionary_encode()
    table = table.set_column(table.schema.get_field_index("service"), "service", service)

    def numbers(name: str, kind: type) -> np.ndarray:
        column: np.ndarray = table[name].to_numpy().astype(kind, copy=False)
        return column

    return table, Spans(
        numbers("trace", np.uint64),
        numbers("span", np.uint64),
        numbers("parent", np.uint64),
        numbers("start", np.int64),
        numbers("duration", np.int64),
        _codes(table["service"]).astype(np.int64),
        numbers("side", np.int64),
    )


def _engine(store: Store, mapping: StageMapping, part: Slice, table: pa.Table, found: Times) -> Engine:
    """Which spans are a model server's, and to which stages their time goes."""
    kept = found.trees.kept
    serves: Flags = table["engine"].to_numpy().astype(np.bool_)[kept]
    asks = np.zeros(len(kept), np.bool_)
    if serves.any():
        text = statement("stages_asking.sql", pick=part.pick, row=ROW)
        asking = store.read_arrow(
            text, skip=int(part.traces <= FEW_TRACES or part.long), asks=list(mapping.asks), **part.params()
        )
        asks = np.isin(table["row"].to_numpy().astype(np.uint64)[kept], asking["row"].to_numpy().astype(np.uint64))
    return fold(found, serves, asks)


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    unified = column.unify_dictionaries().combine_chunks()
    one = unified.chunk(0) if isinstance(unified, pa.ChunkedArray) else unified
    codes: np.ndarray = one.indices.to_numpy(zero_copy_only=False)
    return codes


def _shape_table(found: Times, engine: Engine, table: pa.Table) -> pa.Table:
    kept = found.trees.kept
    rows = table["row"].to_numpy().astype(np.uint64)[kept]
    gap_self = np.where(found.gap_ns >= 0, np.minimum(found.self_ns, found.gap_ns), 0)
    gap_critical = np.where(found.gap_ns >= 0, np.minimum(found.critical_ns, found.gap_ns), 0)
    service = table["service"].take(pa.array(kept[np.maximum(found.callee, 0)])) if len(kept) else table["service"]
    callee = pa.compute.if_else(pa.array(found.callee != NONE), service, "")
    columns = {
        "Row": rows,
        "Length": found.trees.spans.duration_ns.astype(np.uint64),
        "SelfTime": engine.self_ns.astype(np.uint64),
        "CriticalTime": engine.critical_ns.astype(np.uint64),
        "TraceDuration": np.maximum(found.trace_ns, 0).astype(np.uint64),
        "Gap": found.gap_ns,
        "GapSelf": gap_self.astype(np.uint64),
        "GapCritical": gap_critical.astype(np.uint64),
        "Request": found.request_ns,
        "Callee": callee,
        "TreeMarks": _marks_of(found),
        "Lender": np.where(engine.lender == NONE, 0, rows[np.maximum(engine.lender, 0)]) if len(kept) else rows,
    }
    return pa.table(columns)


def _marks_of(found: Times) -> pa.DictionaryArray:
    """The words of MARKS that hold for each span, joined by commas."""
    flags = (found.trees.orphan, found.trees.cycle, found.outside)
    code = sum(flag.astype(np.int32) << bit for bit, flag in enumerate(flags))
    words = [",".join(word for bit, word in enumerate(MARKS) if number >> bit & 1) for number in range(2 ** len(MARKS))]
    return pa.DictionaryArray.from_arrays(pa.array(code, pa.int32()), words)


def _marks(store: Store) -> str:
    """A table filled by a Collector has no column Marks."""
    has = store.value(statement("stages_has_marks.sql"))
    return "" if has else ", '' AS Marks"


def _bury(store: Store, part: Slice) -> int:
    """Rows marked as deleted. Most builds are the first of their hours: a look at two columns says so."""
    bounds = {"low": part.low_ns, "high": part.high_ns, "revision": part.revision}
    if not int(store.value(statement("stages_older.sql"), **bounds)):
        return 0
    before = int(store.value(statement("stages_stale.sql", pick=part.pick), revision=part.revision, **part.params()))
    if before:
        store.command(statement("stages_tombstones.sql", pick=part.pick), revision=part.revision, **part.params())
    return before
