"""Folders given to `stagescope ingest`: what is no trace is skipped and said; text in another encoding is named."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.files import ingest_paths
from ingest.store import Store

SPAN = {
    "traceId": f"{1:032x}", "spanId": f"{1:016x}", "name": "s",
    "startTimeUnixNano": "1700000000000000001", "endTimeUnixNano": "1700000000000000006",
}  # fmt: skip
TRACE = json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": [SPAN]}]}]})


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("store"))) as found:
        yield found


def test_what_only_lies_in_the_folder_is_skipped_and_said(store: Store, tmp_path: Path) -> None:
    (tmp_path / "spans.json").write_text(TRACE)
    (tmp_path / "truth.json").write_text('{"scenario": "x", "faults": []}')
    spans, other = ingest_paths([str(tmp_path)], store)
    assert (spans.stored, spans.skipped) == (1, "")
    assert (other.skipped, other.error, dict(other.rejected)) == ("an object with scenario, faults", "", {})
    assert store.value("SELECT count() FROM ingest_rejects") == 0
    (named,) = ingest_paths([str(tmp_path / "truth.json")], store)
    assert dict(named.rejected) == {"unknown-format": 1}


def test_a_folder_without_traces_is_an_error(store: Store, tmp_path: Path) -> None:
    (empty,) = ingest_paths([str(tmp_path)], store)
    assert "no trace file" in empty.error
    (tmp_path / "notes.json").write_text("[]")
    skipped, folder = ingest_paths([str(tmp_path)], store)
    assert (skipped.skipped, folder.path) == ("an empty list", str(tmp_path))
    assert "no trace file" in folder.error


def test_wide_text_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "wide.json").write_bytes(TRACE.encode("utf-16"))
    (report,) = ingest_paths([str(tmp_path / "wide.json")], store)
    assert dict(report.rejected) == {"bad-encoding": 1}
    assert "UTF-8" in report.error
