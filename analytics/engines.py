"""What real model servers said about themselves: their spans, their pages, and what came of a choice they made.

Must stay true: everything is read from what arrived over OTLP and scraping; nothing is asked of a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from analytics.findings import Window
from analytics.stages_sql import statement
from ingest.store import Store


@dataclass(frozen=True, slots=True)
class Choices:
    """Runs of a choosing stage: how many, times in ms, median prompt tokens, share of right choices (0..1)."""

    runs: int
    p50_ms: float
    p95_ms: float
    input_tokens: int
    right_share: float


def served(store: Store, window: Window) -> pd.DataFrame:
    """One row a server: service, requests, joined (below a span that is here), stages, median ttft, queue, prefill, decode in ms."""
    return store.read(statement("engines_served.sql"), start=window.start, end=window.end)


def pages(store: Store, window: Window) -> pd.DataFrame:
    """One row an engine: readings, most running and waiting, highest KV usage (0..1), token counters, prefix hits (0..1), preemptions."""
    return store.read(statement("engines_pages.sql"), start=window.start, end=window.end)


def choices(store: Store, window: Window, stage: str, wanted: Mapping[str, str]) -> Choices:
    """How `stage` did; `wanted` says which choice is right for which task."""
    asked = {"stage": stage, "tasks": list(wanted), "wanted": list(wanted.values())}
    found = store.read(statement("engines_choices.sql"), start=window.start, end=window.end, **asked).iloc[0]
    return Choices(
        int(found["runs"]),
        float(found["p50_ms"]),
        float(found["p95_ms"]),
        int(found["input_tokens"]),
        float(found["right_share"]),
    )
