"""A log kept in a list, and a client for both doors of a running receiver."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import grpc
import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest import log
from ingest.errors import Unavailable
from ingest.otlp import PROTOBUF
from ingest.receiver import Receiver

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class ListSink:
    """A log that keeps values in a list, or is away while `away` is set."""

    def __init__(self) -> None:
        self.values: list[tuple[str, bytes]] = []
        self.away = threading.Event()
        self.hold = threading.Event()
        self.hold.set()
        self.entered = threading.Semaphore(0)

    def append(self, topic: str, values: Sequence[bytes], headers: Mapping[str, str] | None = None) -> None:
        assert headers == {log.CHECKED: log.CHECKED_VERSION}
        if self.away.is_set():
            raise Unavailable("the log is away", 3.5)
        self.entered.release()
        assert self.hold.wait(30)
        self.values += [(topic, value) for value in values]

    def close(self) -> None: ...

    def spans(self) -> int:
        requests = [ExportTraceServiceRequest.FromString(value) for topic, value in self.values if topic == log.TRACES]
        return sum(len(group.spans) for each in requests for part in each.resource_spans for group in part.scope_spans)


class Door:
    def __init__(self, receiver: Receiver, sink: ListSink) -> None:
        self.sink = sink
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{receiver.http_port}", timeout=30)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{receiver.grpc_port}")
        self.export = self.channel.unary_unary(EXPORT)

    def post(self, body: bytes, kind: str = PROTOBUF, path: str = "/v1/traces", **headers: str) -> httpx.Response:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post(path, content=body, headers={"content-type": kind, **names})

    def close(self) -> None:
        self.http.close()
        self.channel.close()
