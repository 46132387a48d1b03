"""The failure log in Elasticsearch: a data stream with an index template and a lifecycle.

Must stay true: an id is never indexed twice (`create`, and changes go to the very backing index that holds it), and what is
refused for good is counted, never retried for ever.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from elastic_transport import ConnectionError as AwayError
from elastic_transport import ConnectionTimeout
from elasticsearch import ApiError, AuthenticationException, AuthorizationException, Elasticsearch

from ingest import failure_document
from ingest.errors import BadSetting, Unavailable

STREAM = "stagescope-failures"
KEEP = "90d"
PAGE = 1000
MS = 10**6
CHUNK_DOCUMENTS = 500
ATTEMPTS = 5
PASSING = (429, 502, 503, 504)
NO_SUCH_API = (400, 404, 405, 410)


class ElasticFailures:
    """See FailureIndex. `wait` sleeps between attempts; it is an argument so that tests need no time."""

    def __init__(self, url: str, *, stream: str = STREAM, wait: Callable[[float], None] = time.sleep) -> None:
        self.url, self.stream, self.wait = url, stream, wait
        self.name = f"{_shown(url)}/{stream}"
        self.client = Elasticsearch(url, request_timeout=30, max_retries=0)
        self.ready = False

    def prepare(self) -> None:
        """Lifecycle policy and index template. A server without lifecycle policies (serverless) gets the retention of data streams."""
        if self.ready:
            return
        phases = {
            "hot": {"actions": {"rollover": {"max_age": "7d", "max_primary_shard_size": "20gb"}}},
            "delete": {"min_age": KEEP, "actions": {"delete": {}}},
        }
        template: dict[str, Any] = {"mappings": failure_document.mappings()}
        try:
            self.client.ilm.put_lifecycle(name=self.stream, policy={"phases": phases})
            template["settings"] = {"index.lifecycle.name": self.stream}
        except ApiError as err:
            if err.status_code not in NO_SUCH_API:
                raise self._trouble(err) from None
            template["lifecycle"] = {"data_retention": KEEP}
        except (AwayError, ConnectionTimeout) as err:
            raise self._trouble(err) from None
        self._call(
            lambda: self.client.indices.put_index_template(
                name=self.stream, index_patterns=[self.stream], data_stream={}, priority=500, template=template
            )
        )
        self.ready = True

    def put(self, documents: Sequence[Mapping[str, Any]]) -> failure_document.Put:
        self.prepare()
        stored, rejected = 0, Counter[str]()
        for at in range(0, len(documents), CHUNK_DOCUMENTS):
            known: dict[str, Mapping[str, Any]] = {}
            for one in documents[at : at + CHUNK_DOCUMENTS]:
                name = failure_document.name_of(one)
                if name not in known or int(known[name].get("Revision", 1)) <= int(one.get("Revision", 1)):
                    known[name] = one
            body = {name: failure_document.to_elastic(one) for name, one in known.items()}
            conflicts, done = self._bulk(
                {name: ({"create": {"_index": self.stream, "_id": name}}, one) for name, one in body.items()}, rejected
            )
            stored += done + self._replace({name: body[name] for name in conflicts}, rejected)
        return failure_document.Put(stored, dict(rejected))

    def read(self, from_ns: int, to_ns: int) -> Iterator[Mapping[str, Any]]:
        # A millisecond wider on either side and exact here: not every server compares nanoseconds.
        span = {
            "gte": failure_document.iso(from_ns - from_ns % MS),
            "lt": failure_document.iso(to_ns - to_ns % MS + MS),
        }
        if not self._exists():
            return
        point = self._call(lambda: self.client.open_point_in_time(index=self.stream, keep_alive="2m"))["id"]
        after: list[Any] | None = None
        try:
            while True:
                found = self._call(partial(self._page, point, after, span))
                hits = found["hits"]["hits"]
                rows = (failure_document.from_elastic(hit["_source"]) for hit in hits)
                yield from (row for row in rows if from_ns <= row["Timestamp"] < to_ns)
                if len(hits) < PAGE:
                    return
                point, after = found.get("pit_id", point), hits[-1]["sort"]
        finally:
            self._call(lambda: self.client.close_point_in_time(id=point))

    def _page(self, point: str, after: list[Any] | None, span: Mapping[str, str]) -> Any:
        return self.client.search(
            pit={"id": point, "keep_alive": "2m"},
            size=PAGE,
            query={"range": {"@timestamp": span}},
            sort=[{"@timestamp": "asc"}, {"_shard_doc": "asc"}],
            search_after=after,
        )

    def set_clusters(self, clusters: Mapping[tuple[str, str], str]) -> int:
        changes = {
            failure_document.name(trace, span): {"cluster_id": cluster} for (trace, span), cluster in clusters.items()
        }
        rejected = Counter[str]()
        names = list(changes)
        return sum(
            self._replace({name: changes[name] for name in names[at : at + CHUNK_DOCUMENTS]}, rejected)
            for at in range(0, len(names), CHUNK_DOCUMENTS)
        )

    def newest_revision(self) -> int:
        if not self._exists():
            return 0
        found = self._call(
            lambda: self.client.search(index=self.stream, size=0, aggs={"newest": {"max": {"field": "revision"}}})
        )
        return int(found["aggregations"]["newest"]["value"] or 0)

    def close(self) -> None:
        self.client.close()

    def refresh(self) -> None:
        """Make what was written visible to `read` at once (it is anyway within a second)."""
        if self._exists():
            self._call(lambda: self.client.indices.refresh(index=self.stream))

    def _exists(self) -> bool:
        return bool(self._call(lambda: self.client.indices.exists(index=self.stream)))

    def _replace(self, changes: Mapping[str, Mapping[str, Any]], rejected: Counter[str]) -> int:
        """Change documents where they lie, unless they already hold a higher revision. Returns how many were found."""
        if not changes or not self._exists():
            return 0
        self._call(lambda: self.client.indices.refresh(index=self.stream))
        hits = self._call(
            lambda: self.client.search(
                index=self.stream,
                size=len(changes),
                query={"ids": {"values": list(changes)}},
                source_includes=["revision"],
            )
        )["hits"]["hits"]
        newer = [
            hit for hit in hits if changes[hit["_id"]].get("revision", 1 << 62) >= hit["_source"].get("revision", 0)
        ]
        actions = {
            hit["_id"]: ({"update": {"_index": hit["_index"], "_id": hit["_id"]}}, {"doc": changes[hit["_id"]]})
            for hit in newer
        }
        self._bulk(actions, rejected)
        return len(hits)

    def _bulk(self, actions: Mapping[str, tuple[Any, Any]], rejected: Counter[str]) -> tuple[list[str], int]:
        """Send; what is turned away for now is sent again. Returns the ids that exist already, and how many were written."""
        waiting, conflicts, done = dict(actions), [], 0
        for attempt in range(ATTEMPTS):
            if not waiting:
                break
            if attempt:
                self.wait(min(30.0, 0.5 * 2**attempt))
            operations = [part for pair in waiting.values() for part in pair]
            answer = self._call(partial(self.client.bulk, operations=operations))
            for item in answer["items"]:
                result = next(iter(item.values()))
                name, status = result["_id"], int(result["status"])
                if status in PASSING:
                    continue
                waiting.pop(name, None)
                if status == 409:
                    conflicts.append(name)
                elif status >= 300:
                    rejected[str(result.get("error", {}).get("type", status))] += 1
                else:
                    done += 1
        if waiting:
            raise Unavailable(
                f"Elasticsearch at {_shown(self.url)} turned {len(waiting)} documents away {ATTEMPTS} times", 30.0
            )
        return conflicts, done

    def _call(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (ApiError, AwayError, ConnectionTimeout) as err:
            raise self._trouble(err) from None

    def _trouble(self, err: Exception) -> Exception:
        where = _shown(self.url)
        if isinstance(err, AuthenticationException | AuthorizationException):
            return BadSetting(
                "STAGESCOPE_FAILURES",
                where,
                f"user and password (or a token) that Elasticsearch accepts: it answers {err.status_code}",
            )
        if isinstance(err, AwayError | ConnectionTimeout):
            return Unavailable(f"Elasticsearch at {where} does not answer", 10.0)
        return Unavailable(f"Elasticsearch at {where}: {str(err)[:300]}", 10.0)


def _shown(url: str) -> str:
    head, _, tail = url.partition("://")
    return f"{head}://{tail.rpartition('@')[2]}"
