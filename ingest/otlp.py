"""OTLP bytes of any encoding to checked protobuf or to rows: the slow, exact path that the fast one is proved against.

Must stay true: `decode` never raises but BadInput, and what it returns equals what the Collector's exporter would have stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest import log
from ingest.errors import BadInput
from ingest.limits import Limits
from ingest.otlp_clean import Mask, Reject, Request, Tally, clean
from ingest.otlp_fast import mend, sift
from ingest.otlp_json import fill, read_json
from ingest.otlp_metric_rows import METRICS, metric_rows
from ingest.otlp_rows import LOGS, TRACES, log_rows, table, trace_rows
from ingest.otlp_utf8 import repair

PROTOBUF, JSON = "application/x-protobuf", "application/json"
REQUESTS: Mapping[str, type[Request]] = {
    log.TRACES: ExportTraceServiceRequest,
    log.LOGS: ExportLogsServiceRequest,
    log.METRICS: ExportMetricsServiceRequest,
}
LISTS = {log.TRACES: "resource_spans", log.LOGS: "resource_logs", log.METRICS: "resource_metrics"}


@dataclass(frozen=True, slots=True)
class Options:
    """How `check` and `decode` treat a request; `mask` may change an attribute before anything is stored."""

    limits: Limits = field(default_factory=Limits)
    mask: Mask | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """`clean` is protobuf that stores without error; `accepted` elements are in it."""

    clean: bytes
    accepted: int
    rejects: Sequence[Reject]

    @property
    def rejected(self) -> int:
        return sum(reject.count for reject in self.rejects)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows by table name; every table has at least one row."""

    tables: Mapping[str, pa.Table]
    accepted: int
    rejects: Sequence[Reject]

    @property
    def rejected(self) -> int:
        return sum(reject.count for reject in self.rejects)


def check(topic: str, body: bytes, encoding: str = PROTOBUF, options: Options | None = None) -> Checked:
    """Protobuf that is safe to keep, of a request on `topic` (ingest.log.TRACES …) in `encoding` (PROTOBUF or JSON).

    Raises BadInput when the request as a whole cannot be read.
    """
    tally = _tally(options)
    sifted = sift(body, tally.limits) if topic == log.TRACES and encoding == PROTOBUF and tally.mask is None else None
    if sifted is not None:
        return Checked(mend(body, sifted, tally), tally.accepted, tally.rejects())
    request = read(topic, body, encoding, tally)
    clean(request, tally)
    same = encoding == PROTOBUF and not tally.changed
    return Checked(body if same else request.SerializeToString(), tally.accepted, tally.rejects())


def decode(topic: str, body: bytes, encoding: str = PROTOBUF, options: Options | None = None) -> Decoded:
    """Rows of a request, by table. Raises BadInput when the request as a whole cannot be read."""
    tally = _tally(options)
    request = read(topic, body, encoding, tally)
    clean(request, tally)
    return Decoded(tables(request), tally.accepted, tally.rejects())


def decode_document(topic: str, document: Any, options: Options | None = None) -> Decoded:
    """As `decode`, of a JSON document that is already parsed: an object, or a list of objects or of ResourceSpans (…)."""
    tally = _tally(options)
    request = _from_document(topic, document, tally)
    clean(request, tally)
    return Decoded(tables(request), tally.accepted, tally.rejects())


def decode_request(request: Request, options: Options | None = None) -> Decoded:
    """As `decode`, of a message that is already parsed; the message is changed."""
    tally = _tally(options)
    clean(request, tally)
    return Decoded(tables(request), tally.accepted, tally.rejects())


def tables(request: Request) -> dict[str, pa.Table]:
    """Rows of a cleaned request by table name, without empty tables."""
    if isinstance(request, ExportTraceServiceRequest):
        rows = {"otel_traces": trace_rows(request)}
    elif isinstance(request, ExportLogsServiceRequest):
        rows = {"otel_logs": log_rows(request)}
    else:
        rows = metric_rows(request)
    schemas = {"otel_traces": TRACES, "otel_logs": LOGS, **METRICS}
    return {name: table(found, schemas[name]) for name, found in rows.items() if found}


def read(topic: str, body: bytes, encoding: str, tally: Tally) -> Request:
    """The request message. Elements that cannot be read are in `tally`. Raises BadInput."""
    if encoding == JSON:
        return _from_document(topic, read_json(body), tally)
    if encoding != PROTOBUF:
        raise BadInput("bad-encoding", f"{encoding!r} is not {PROTOBUF} or {JSON}")
    kind = REQUESTS[topic]
    try:
        return kind.FromString(body)
    except DecodeError:
        tally.changed = True
        return kind.FromString(repair(kind, body))


def _from_document(topic: str, document: Any, tally: Tally) -> Request:
    request = REQUESTS[topic]()
    name = LISTS[topic]
    camel = request.DESCRIPTOR.fields_by_name[name].camelcase_name
    for part in document if isinstance(document, list) else [document]:
        if not isinstance(part, Mapping):
            raise BadInput("bad-json", f"expected an object with {camel}")
        whole = part if camel in part or name in part else {name: [part]} if "resource" in part else None
        if whole is None and part:
            raise BadInput("bad-json", f"expected an object with {camel}, found {', '.join(map(str, part))[:80]}")
        fill(request, whole or {}, tally.reject)
    return request


def _tally(options: Options | None) -> Tally:
    chosen = options or Options()
    return Tally(chosen.limits, chosen.mask)
