"""Loops that go on while the store or an index refuses: said once, and neither lost nor the end of watching."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ingest.errors import BadSetting
from ingest.failure_document import Put
from ingest.store import Store
from ui.loops import Loop
from ui.watching import Indexing


class _Refusing:
    """An index with an expired token, then one whose mapping conflicts with what is sent."""

    name = "http://es:9200/stagescope-failures"
    refused: dict[str, int] | None = None

    def put(self, documents: Any) -> Put:
        if self.refused is None:
            raise BadSetting("STAGESCOPE_FAILURES", self.name, "a token that Elasticsearch accepts: it answers 401")
        return Put(len(documents) - sum(self.refused.values()), self.refused)

    def newest_revision(self) -> int:
        return 0

    def read(self, from_ns: int, to_ns: int) -> Iterator[dict[str, Any]]:
        yield from ()

    def set_clusters(self, clusters: Any) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""


def test_an_index_that_refuses_is_said_and_does_not_end_the_watch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(str(tmp_path / "store")) as store:
        rows = pd.DataFrame({"TraceId": ["a", "b"], "SpanId": ["1", "2"], "Message": "m"})
        store.insert("failures", rows.assign(Timestamp=pd.Timestamp("2026-11-30T12:00:00Z")))
        index = _Refusing()
        indexing = Indexing(store, index)
        indexing.turn()
        indexing.turn()
        told = capsys.readouterr().err
        assert (told.count("401"), told.count("STAGESCOPE_FAILURES")) == (1, 1)
        index.refused = {"document_parsing_exception": 1}
        indexing.turn()
        told = capsys.readouterr().err
        assert "1 × document_parsing_exception" in told
        assert "mend the mapping" in told
        assert store.value("SELECT count() FROM failures") == 2


def test_a_query_that_the_engine_refuses_delays_its_loop_and_does_not_end_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(str(tmp_path / "store")) as store:
        stop, turns = threading.Event(), 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            if turns == 4:
                stop.set()
            elif turns != 3:
                store.value(
                    "SELECT sum(number) FROM numbers(10000000) GROUP BY number SETTINGS max_memory_usage = 1000000"
                )

        Loop("analyzers", turn, 0.01).run(stop)
    told = capsys.readouterr().err
    assert turns == 4
    assert told.count("stagescope analyzers: the store refused") == 2
    assert "MEMORY_LIMIT_EXCEEDED" in told or "memory limit" in told


def test_a_bug_ends_the_loop_and_says_so() -> None:
    stop = threading.Event()
    with pytest.raises(ZeroDivisionError):
        Loop("broken", lambda: print(1 // 0), 0.01).run(stop)
    assert stop.is_set()
