"""How the pages read: one short-lived store a question, answers kept for a few seconds. Nothing here writes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import streamlit as st

from analytics import run
from analytics.findings import Window
from ingest import settings
from ingest.store import Store

T = TypeVar("T")
FRESH_S = 15
SPANS = {"15 min": "15m", "1 hour": "1h", "24 hours": "24h", "7 days": "7d", "14 days": "14d"}


@st.cache_resource
def store_url() -> str:
    """Where the store is: `--store` behind the script's name, else the settings this process was started with."""
    given = sys.argv[sys.argv.index("--store") + 1] if "--store" in sys.argv[:-1] else None
    return settings.load(store=given).store


def ask(question: Callable[..., T], *args: Any, **named: Any) -> T:
    """`question(store, *args, **named)` on the store, its answer kept for FRESH_S seconds."""
    answer: T = _ask(f"{question.__module__}.{question.__qualname__}", args, named, _question=partial(question))
    return answer


@st.cache_data(ttl=FRESH_S, show_spinner=False, max_entries=200)
def _ask(name: str, args: tuple[Any, ...], named: dict[str, Any], _question: Callable[..., Any]) -> Any:
    with Store.open(store_url(), migrate=False) as store:
        return _question(store, *args, **named)


def window() -> Window | None:
    """The span chosen in the sidebar. It ends now, or at the newest data when nothing is that young; None: no data."""
    known = ask(run.covering)
    if known is None:
        return None
    chosen = run.last(SPANS[st.session_state.get("span", "7 days")], _round(datetime.now(UTC)))
    if known.end > chosen.start:
        return chosen
    return Window(known.end - (chosen.end - chosen.start), known.end)


def _round(now: datetime) -> datetime:
    """The next full FRESH_S, so that answers can be kept that long."""
    step = FRESH_S
    return datetime.fromtimestamp((int(now.timestamp()) // step) * step, UTC) + timedelta(seconds=step)
