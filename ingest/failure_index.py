"""The failure log behind one protocol: the store's `failures` table, or an Elasticsearch data stream that people search in Kibana.

Must stay true: a failure is one document however often it is sent (its id is trace + span), and the store keeps what
Elasticsearch could not take, so an index that was away catches up.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd
import pyarrow as pa

from ingest.errors import BadSetting
from ingest.failure_document import Put
from ingest.failure_elastic import ElasticFailures
from ingest.settings import Settings
from ingest.store import Store

Document = Mapping[str, Any]
CHUNK = 5000
SETTLED_MS = 60_000
TEXTS = (
    "TraceId SpanId ServiceName Stage Kind Tier Tool Model Region Device UserTier UserId SessionId Version Host "
    "ErrorType Message ClusterId"
).split()
COLUMNS = ("Timestamp", *TEXTS, "Frames", "Context", "Revision")


class FailureIndex(Protocol):
    """Documents are mappings with the columns of `failures` (COLUMNS); Timestamp is nanoseconds since 1970, Revision milliseconds.

    Everything raises Unavailable when the index is away, and BadSetting when it refuses our credentials.
    """

    @property
    def name(self) -> str:
        """Which index this is, without a secret."""

    def put(self, documents: Sequence[Document]) -> Put:
        """Store; of two documents with one TraceId and SpanId the higher Revision stays."""

    def read(self, from_ns: int, to_ns: int) -> Iterator[Document]:
        """Documents of [from_ns, to_ns) in time order, as they stood when reading began."""

    def set_clusters(self, clusters: Mapping[tuple[str, str], str]) -> int:
        """Write cluster ids by (TraceId, SpanId); returns how many documents were found."""

    def newest_revision(self) -> int:
        """The highest Revision in the index; 0 when it is empty."""

    def close(self) -> None: ...


class StoreFailures:
    """The default: the `failures` table."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.name = "store"

    def put(self, documents: Sequence[Document]) -> Put:
        if not documents:
            return Put(0)
        columns: dict[str, pa.Array] = {
            "Timestamp": pa.array([int(one["Timestamp"]) for one in documents], pa.int64()).cast(pa.timestamp("ns")),
            **{name: pa.array([str(one.get(name, "")) for one in documents], pa.string()) for name in TEXTS},
            "Frames": pa.array([list(one.get("Frames", ())) for one in documents], pa.list_(pa.string())),
            "Context": pa.array(
                [list(dict(one.get("Context", {})).items()) for one in documents], pa.map_(pa.string(), pa.string())
            ),
            "Revision": pa.array([int(one.get("Revision", 1)) for one in documents], pa.uint64()),
        }
        return Put(self.store.insert("failures", pa.table(columns)))

    def read(self, from_ns: int, to_ns: int) -> Iterator[Document]:
        yield from self._documents("toUnixTimestamp64Nano(Timestamp)", from_ns, to_ns)

    def changed(self, from_revision: int, to_revision: int) -> Iterator[Document]:
        """Documents with from_revision <= Revision < to_revision, lowest first."""
        yield from self._documents("toInt64(Revision)", from_revision, to_revision)

    def set_clusters(self, clusters: Mapping[tuple[str, str], str]) -> int:
        """Rows are written anew with a Revision one higher."""
        traces = sorted({trace for trace, _ in clusters})
        found = 0
        for at in range(0, len(traces), 100):
            rows = self._frame("has({traces:Array(String)}, TraceId)", "TraceId, SpanId", traces=traces[at : at + 100])
            keys = [(row["TraceId"], row["SpanId"]) for row in rows]
            found += self.put(
                [
                    {**row, "ClusterId": clusters[key], "Revision": int(row["Revision"]) + 1}
                    for row, key in zip(rows, keys, strict=True)
                    if key in clusters
                ]
            ).stored
        return found

    def newest_revision(self) -> int:
        return int(self.store.value("SELECT max(Revision) FROM failures") or 0)

    def close(self) -> None:
        """The store is closed by whoever opened it."""

    def _documents(self, order: str, low: int, high: int) -> Iterator[Document]:
        """Page by page in this order, each behind the last document of the one before it."""
        key = f"({order}, TraceId, SpanId)"
        where = f"{order} >= {{low:Int64}} AND {order} < {{high:Int64}} AND {key} > ({{at:Int64}}, {{trace:String}}, {{span:String}})"
        last: tuple[int, str, str] = (low - 1, "", "")
        column = "Revision" if "Revision" in order else "Timestamp"
        while rows := self._frame(where, key, low=low, high=high, at=last[0], trace=last[1], span=last[2]):
            yield from rows
            last = (int(rows[-1][column]), rows[-1]["TraceId"], rows[-1]["SpanId"])

    def _frame(self, where: str, order: str, **params: Any) -> list[dict[str, Any]]:
        texts = ", ".join(f"toString({name}) AS {name}" for name in TEXTS)
        frame: pd.DataFrame = self.store.read(
            f"SELECT toUnixTimestamp64Nano(Timestamp) AS Timestamp, {texts}, Frames, Context, Revision FROM "
            f"(SELECT * FROM failures WHERE {where} ORDER BY {order} LIMIT {CHUNK})",
            **params,
        )
        return [
            {
                **{str(key): value for key, value in row.items()},
                "Frames": list(row["Frames"]),
                "Context": dict(row["Context"]),
            }
            for row in frame.to_dict("records")
        ]


def open_index(settings: Settings, store: Store) -> StoreFailures | ElasticFailures:
    """As STAGESCOPE_FAILURES says. Raises BadSetting."""
    where = settings.failures
    if where in ("", "store:"):
        return StoreFailures(store)
    if where.startswith(("http://", "https://")):
        return ElasticFailures(where)
    raise BadSetting("STAGESCOPE_FAILURES", where, "store: or http(s)://host:9200")


@dataclass(frozen=True, slots=True)
class Mark:
    """Everything below `revision` has been sent; `refused` is the lowest Revision that was refused, 0 when none was."""

    revision: int = 0
    refused: int = 0


def catch_up(source: StoreFailures, target: FailureIndex, *, again: bool = False) -> Put:
    """Bring `target` to where the store is: everything that was not sent yet. Repeating it changes nothing.

    The mark moves only behind a batch that went through whole: of a batch that was half turned away nothing is lost.
    `again` also sends what was refused before. Raises Unavailable when the target goes away; the next call goes on from there.
    """
    mark = _mark(source.store, target.name)
    start = min(mark.revision, target.newest_revision() + 1)  # an index that was emptied is filled anew
    refused = mark.refused
    if again and refused:
        start, refused = min(start, refused), 0
    stored, rejected = 0, Counter[str]()
    batch: list[Document] = []
    for document in source.changed(start, source.newest_revision() + 1):
        batch.append(document)
        if len(batch) >= CHUNK:
            done, refused = _send(source.store, target, batch, refused)
            stored, batch = stored + done.stored, []
            rejected.update(done.rejected)
    if batch:
        done, refused = _send(source.store, target, batch, refused)
        stored += done.stored
        rejected.update(done.rejected)
    return Put(stored, dict(rejected))


def _send(store: Store, target: FailureIndex, batch: Sequence[Document], refused: int) -> tuple[Put, int]:
    """Put one batch, move the mark, and say from which Revision on documents were refused."""
    done = target.put(batch)
    newest = int(batch[-1]["Revision"])
    if done.rejected:
        refused = min(refused or newest, int(batch[0]["Revision"]))
    # Rows of that very millisecond may still come, but not after a minute.
    passed = newest < time.time_ns() // 10**6 - SETTLED_MS and len(batch) < CHUNK
    row = {"Target": target.name, "Revision": newest + 1 if passed else newest, "Refused": refused}
    store.insert("failure_index_marks", pd.DataFrame([row]).astype({"Revision": "uint64", "Refused": "uint64"}))
    return done, refused


def _mark(store: Store, name: str) -> Mark:
    rows = store.read(
        "SELECT Revision, Refused FROM failure_index_marks WHERE Target = {name:String} ORDER BY UpdatedAt DESC LIMIT 1",
        name=name,
    )
    return Mark(int(rows["Revision"].iloc[0]), int(rows["Refused"].iloc[0])) if len(rows) else Mark()
