"""p99 by dimension: by the columns of stage runs (from rollups where they are fresh) or by any attribute of the spans.

Must stay true: failed runs are counted and kept out of every percentile (docs/percentiles.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analytics import fresh_hours
from analytics.findings import Window
from analytics.rollups import ROOT
from analytics.stages import ns
from analytics.stages_sql import statement
from ingest.errors import BadSetting
from ingest.store import Store

COLUMNS = {
    "service": "ServiceName",
    "stage": "Stage",
    "kind": "Kind",
    "tier": "Tier",
    "model": "Model",
    "tool": "Tool",
    "region": "Region",
    "device": "Device",
    "user_tier": "UserTier",
    "version": "Version",
    "host": "Host",
    "error_type": "ErrorType",
}
ROLLED = frozenset({"Tier", "Model", "Tool", "Region", "Device", "UserTier", "Version", "Host"})
OF_STAGES = frozenset({"service", "stage", "kind", "tier", "model", "tool", "host", "error_type"})
NUMBERS = ("count", "errors", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "thin")
THIN = 200
EXACT_RUNS = 300_000
MAX_VALUES = 10_000
MAX_DIMENSIONS = 4
KEY_COLUMNS_SINCE = (26, 9)  # of ClickHouse, as tried


def p99(store: Store, by: Sequence[str], stage: str | None = None, window: Window | None = None) -> pd.DataFrame:
    """One row a value (or combination): `by…, count, errors, p50_ms, p95_ms, p99_ms, p999_ms, thin`, most runs first.

    With a stage, its runs. Without one, whole requests (the runs without a parent), unless a dimension of stages is asked
    for (service, stage, kind, tier, model, tool, host, error_type): then all runs. Other names are attribute keys: the
    spans that carry the first of them. `thin`: fewer than 200 successful runs. `attrs["engine"]` is `exact` (up to
    300,000 runs) or `sketch` (value at its rank within 0.4 %). At most 10,000 values. Raises BadSetting.
    """
    names = _checked(by)
    spans = window or Window(
        pd.Timestamp(0, tz="UTC").to_pydatetime(), pd.Timestamp("2200-01-01", tz="UTC").to_pydatetime()
    )
    bounds: dict[str, Any] = {"low": ns(spans.start), "high": ns(spans.end), "stage": stage or "", "limit": MAX_VALUES}
    columns = all(name in COLUMNS for name in names)
    exact = _count(store, "stage_runs" if columns else "otel_traces", bounds) <= EXACT_RUNS
    ask = _by_columns if columns else _by_attributes
    frame = ask(store, names, bounds, exact)
    return _finished(frame, names, "exact" if exact else "sketch")


def _count(store: Store, table: str, bounds: dict[str, Any]) -> int:
    text = statement("dimensions_count.sql", table=table)
    return int(store.rough(text, low=bounds["low"], high=bounds["high"], most=max(0, EXACT_RUNS + 1)))


def _checked(by: Sequence[str]) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in by if name.strip()))
    if not names or len(names) > MAX_DIMENSIONS:
        raise BadSetting("by", ",".join(by), f"one to {MAX_DIMENSIONS} of {', '.join(COLUMNS)}, or attribute keys")
    if clash := [name for name in names if name in NUMBERS]:
        raise BadSetting("by", clash[0], f"a dimension, not one of the columns {', '.join(NUMBERS)}")
    return names


def _by_columns(store: Store, names: Sequence[str], bounds: dict[str, Any], exact: bool) -> pd.DataFrame:
    every = int(bool(bounds["stage"]) or bool(OF_STAGES & set(names)))
    columns = [COLUMNS[name] for name in names]
    own = [column for column in columns if column not in ("ServiceName", "Stage")]
    run_values = ", ".join(f"toString({column}) AS d{i}" for i, column in enumerate(columns))
    places = {"names": ", ".join(f"d{i}" for i in range(len(columns))), "run_values": run_values, "root": ROOT}
    if exact or len(own) > 1 or not set(own) <= ROLLED:
        text = statement("dimensions_exact.sql", **places)
        text = text if exact else text.replace("quantilesExactInclusiveIf(", "quantilesDDIf(0.004, ")
        return store.read(text, every=every, **bounds)
    rollup = ", ".join(
        f"toString({column if column in ('ServiceName', 'Stage') else 'Value'}) AS d{i}"
        for i, column in enumerate(columns)
    )
    low, high = bounds["low"], bounds["high"]
    blocks = fresh_hours.fresh(store, low, high)
    while True:
        days = [block for block in blocks if block.revision]
        text = statement(
            "dimensions_quantiles.sql",
            rollup_values=rollup,
            days=fresh_hours.days(days),
            outside_days=fresh_hours.condition(fresh_hours.stretches(days, low, high), "Hour"),
            stretches=fresh_hours.condition(fresh_hours.stretches(blocks, low, high)),
            **places,
        )
        found = store.read(text, dim=own[0] if own else "", every=every, **bounds)
        before, blocks = blocks, fresh_hours.fresh(store, low, high)
        if blocks == before:  # else an hour that got newer runs meanwhile was in no part, or in two
            return found


def _by_attributes(store: Store, names: Sequence[str], bounds: dict[str, Any], exact: bool) -> pd.DataFrame:
    keys: dict[str, str] = {}
    for i, name in enumerate(names):
        keys |= {f"k{i}": name, f"s{i}": f"SpanAttributes.key_{name}", f"r{i}": f"ResourceAttributes.key_{name}"}
    values = ["toString(ServiceName)" if name == "service" else _attribute(store, i) for i, name in enumerate(names)]
    text = statement(
        "dimensions_attribute.sql",
        names=", ".join(f"d{i}" for i in range(len(names))),
        run_values=", ".join(f"{sql} AS d{i}" for i, sql in enumerate(values)),
        carries=f"d{next(i for i, name in enumerate(names) if name not in COLUMNS)} != ''",
        quantiles="quantilesExactInclusiveIf(0.5, 0.95, 0.99, 0.999)"
        if exact
        else "quantilesDDIf(0.004, 0.5, 0.95, 0.99, 0.999)",
    )
    return store.read(text, **keys, **bounds)


def _attribute(store: Store, i: int) -> str:
    """SQL of the value of attribute number `i`: by its own column inside the map where the engine has those (with FINAL it does not
    find that way by itself, and reads whole maps: ten times slower)."""
    if tuple(int(part) for part in (store.client.server_version or "0").split(".")[:2]) >= KEY_COLUMNS_SINCE:
        return f"if({{s{i}:Identifier}} != '', {{s{i}:Identifier}}, {{r{i}:Identifier}})"
    return f"if(SpanAttributes[{{k{i}:String}}] != '', SpanAttributes[{{k{i}:String}}], ResourceAttributes[{{k{i}:String}}])"


def _finished(frame: pd.DataFrame, names: Sequence[str], engine: str) -> pd.DataFrame:
    if not len(frame):
        frame = pd.DataFrame({**{f"d{i}": [] for i in range(len(names))}, "count": [], "errors": [], "q": []})
    out = pd.DataFrame({name: frame[f"d{i}"].astype(str) for i, name in enumerate(names)})
    out["count"] = frame["count"].astype("int64")
    out["errors"] = frame["errors"].astype("int64")
    levels = [[float(value) / 1e6 for value in row] for row in frame["q"]]
    for place, name in enumerate(("p50_ms", "p95_ms", "p99_ms", "p999_ms")):
        out[name] = [row[place] for row in levels]
        out[name] = out[name].astype(float)
    out["thin"] = (out["count"] - out["errors"]) < THIN
    out.attrs["engine"] = engine
    return out.sort_values(["count", *names], ascending=[False, *[True] * len(names)]).reset_index(drop=True)
