"""Pages of a store that is still empty, or has traces but no findings: they say what to do, and nothing breaks."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from ingest.store import Store

PAGES = Path(__file__).resolve().parents[2] / "ui" / "pages"
NAMES = sorted(path.stem for path in PAGES.glob("*.py") if path.stem != "__init__")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = str(tmp_path_factory.mktemp("store"))
    Store.open(found).close()
    return found


def opened(name: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    st.cache_data.clear()
    st.cache_resource.clear()
    monkeypatch.setattr(sys, "argv", ["app.py", "--store", folder])
    app = AppTest.from_file(str(PAGES / f"{name}.py"), default_timeout=120)
    app.run()
    assert not app.exception, app.exception
    return app


def said(app: AppTest) -> str:
    return " ".join(str(item.value) for item in [*app.markdown, *app.caption, *app.title])


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_store_says_what_to_do(name: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = said(opened(name, folder, monkeypatch))
    assert "stagescope up" in words
    assert "stagescope demo" in words


def test_traces_without_findings_are_no_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC) - timedelta(minutes=5)
    row = {
        "Timestamp": now,
        "TraceId": "a" * 32,
        "SpanId": "b" * 16,
        "ServiceName": "shop",
        "Stage": "answer",
        "Kind": "agent",
    }
    with Store.open(str(tmp_path)) as store:
        store.insert(
            "stage_runs",
            pd.DataFrame([row | {"Duration": 10**9, "SelfTime": 10**9, "CriticalTime": 10**9, "TraceDuration": 10**9}]),
        )
    words = said(opened("overview", str(tmp_path), monkeypatch))
    assert "No findings" in words
    assert "thin" in words
    assert "Nothing is slow without reason" in said(opened("slow", str(tmp_path), monkeypatch))
    assert "No failure clusters" in said(opened("failures", str(tmp_path), monkeypatch))
