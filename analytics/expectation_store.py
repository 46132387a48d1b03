"""Keeps what was learnt about each stage, and judges the runs of one trace by it: the part of each that its work does not justify.

Must stay true: a stage that was never judged gives no number, not 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

import numpy as np
import pandas as pd

from analytics.expectation import Expectation
from analytics.expectation_fit import Array
from analytics.expectation_needs import Needs
from analytics.slow_stage import Stage
from ingest.store import Store

HIGH_Z, LOW_QUARTILE_Z = 1.2816, 0.6745
WAIT_FLOOR_MS = 15.0
WAITS = ("queue_ms", "batch_wait_ms", "lock_wait_ms", "context_init_ms", "serialise_ms")
_WAITS_SQL = ", ".join(f"greatest(0, Evidence['{name}'] - {{floor:Float64}})" for name in WAITS)
_RUNS = f"""
SELECT r.SpanId AS span, r.SelfTime / 1e6 AS own_ms, r.WaitTime / 1e6 AS wait_ms, toFloat64(r.Retries) AS retries,
       [1., greatest(0., ifNull(toFloat64(InputTokens), 0.) - ifNull(toFloat64(CachedTokens), 0.)), ifNull(toFloat64(OutputTokens), 0.),
        ifNull(toFloat64(PayloadBytes), 0.) / 1e3, ifNull(toFloat64(Rows), 0.), ifNull(toFloat64(Items), 0.)] AS work,
       InputTokens IS NULL AND r.Model != '' AS unknown, Evidence['repeated_tokens'] - ifNull(toFloat64(CachedTokens), 0.) AS repeated,
       arraySum([{_WAITS_SQL}]) AS measured_ms, arraySum(arrayMap(x -> Evidence[x], {{waits:Array(String)}})) AS spent_ms,
       e.Rates AS rates, e.UsualFactor AS factor, e.Spread AS spread,
       e.NeedTokens + e.NeedTokensPerItem * ifNull(toFloat64(Items), 0.) AS need
FROM stage_runs AS r INNER JOIN stage_expectations AS e
  ON r.ServiceName = e.ServiceName AND r.Stage = e.Stage AND r.Tool = e.Tool
WHERE r.TraceId = {{trace:String}} AND r.Failed = 0
"""


def remember(store: Store, now: datetime, learnt: Sequence[tuple[Stage, Expectation]], need: Needs) -> int:
    """Store one row a stage and tool; a later run replaces it. Returns how many."""
    rows = [row for stage, expected in learnt for row in _rows(now, stage, expected, need)]
    return store.insert("stage_expectations", pd.DataFrame(rows)) if rows else 0


def _rows(now: datetime, stage: Stage, expected: Expectation, need: Needs) -> list[dict[str, object]]:
    factor = math.exp(expected.centre if expected.bad else expected.level)
    rates = {
        tool: expected.by_tool.get(tool, expected.rates) for tool in sorted({*stage.tools.tolist(), *expected.by_tool})
    }
    return [
        {
            "RunAt": pd.Timestamp(now).floor("ms"),
            "ServiceName": stage.service,
            "Stage": stage.name,
            "Tool": tool,
            "Source": expected.source,
            "Rates": [float(rate) for rate in found],
            "UsualFactor": factor,
            "Spread": expected.spread,
            "NeedTokens": need.prompt_tokens,
            "NeedTokensPerItem": need.prompt_tokens_per_item,
        }
        for tool, found in rates.items()
    ]


def unjustified(store: Store, trace_id: str) -> dict[str, float]:
    """ms of each span of a trace that neither work nor declared waiting nor purpose justifies; spans never judged are absent.

    Measured waits above 15 ms, repeated attempts, time above the 90th percentile to expect for the work (down to its mean), and
    prompt text that the purpose does not need.
    """
    frame = store.read(_RUNS, trace=trace_id, floor=WAIT_FLOOR_MS, waits=list(WAITS))
    if not len(frame):
        return {}
    work, rates = np.stack(frame["work"].tolist()), np.stack(frame["rates"].tolist())
    busy = np.maximum(_floats(frame, "own_ms") - _floats(frame, "wait_ms") - _floats(frame, "spent_ms"), 0.0)
    once = busy / (1.0 + _floats(frame, "retries"))
    spread = _floats(frame, "spread")
    usual = np.maximum((work * rates).sum(axis=1), 0.05) * _floats(frame, "factor")
    mean = usual * np.exp(LOW_QUARTILE_Z * spread + spread**2 / 2)
    high = usual * np.exp((LOW_QUARTILE_Z + HIGH_Z) * spread)
    excess = np.where((once > high) & ~frame["unknown"].to_numpy(bool), once - mean, 0.0)
    bloat = (
        np.clip(np.minimum(_floats(frame, "repeated"), work[:, 1]) - _floats(frame, "need"), 0.0, None) * rates[:, 1]
    )
    found = np.maximum(excess, 0.0) + (busy - once) + _floats(frame, "measured_ms") + np.minimum(bloat, once)
    capped = np.minimum(found, np.maximum(_floats(frame, "own_ms") - _floats(frame, "wait_ms"), 0.0))
    return dict(zip(frame["span"].astype(str).tolist(), np.round(capped, 3).tolist(), strict=True))


def _floats(frame: pd.DataFrame, name: str) -> Array:
    found: Array = frame[name].to_numpy(dtype=float, na_value=0.0)
    return found
