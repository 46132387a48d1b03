"""Where export requests go: an OTLP/HTTP address, a folder of protobuf files, or a file of OTLP JSON lines. Nothing is dropped silently."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import IO, Any, Protocol

import httpx
import orjson
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SIGNALS = ("traces", "metrics")
_IDS = frozenset({"traceId", "spanId", "parentSpanId"})


class Sink(Protocol):
    def write(self, signal: str, body: bytes) -> None:
        """Take one export request (OTLP protobuf) of `traces` or `metrics`; raises ConnectionError when it cannot be handed on."""

    def close(self) -> None: ...


class HttpSink:
    """POSTs to `<url>/v1/traces` and `<url>/v1/metrics`; waits and retries while told to (429, 502, 503, 504) or while nobody answers."""

    def __init__(self, url: str, patience_s: float = 60.0) -> None:
        self._url = url.rstrip("/").removesuffix("/v1/traces")
        self._patience_s = patience_s
        self._client = httpx.Client(timeout=30.0, trust_env=False)

    def write(self, signal: str, body: bytes) -> None:
        deadline = time.monotonic() + self._patience_s
        while True:
            reason, wait_s = self._once(signal, body)
            if not reason:
                return
            if time.monotonic() + wait_s > deadline:
                raise ConnectionError(f"{self._url}/v1/{signal}: {reason}; gave up after {self._patience_s:.0f} s")
            time.sleep(wait_s)

    def _once(self, signal: str, body: bytes) -> tuple[str, float]:
        headers = {"content-type": "application/x-protobuf"}
        try:
            reply = self._client.post(f"{self._url}/v1/{signal}", content=body, headers=headers)
        except httpx.TransportError as error:
            return f"{type(error).__name__}: {error}", 0.5
        if reply.is_success:
            return "", 0.0
        if reply.status_code not in (429, 502, 503, 504):
            raise ConnectionError(f"{self._url}/v1/{signal} answered {reply.status_code}: {reply.text[:200]}")
        after = reply.headers.get("retry-after", "")
        return f"HTTP {reply.status_code}", float(after) if after.isdigit() else 0.5

    def close(self) -> None:
        self._client.close()


class FolderSink:
    """Numbered protobuf files `traces-00001.pb`, `metrics-00001.pb` in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._numbers = dict.fromkeys(SIGNALS, 0)

    def write(self, signal: str, body: bytes) -> None:
        self._numbers[signal] += 1
        (self._folder / f"{signal}-{self._numbers[signal]:05d}.pb").write_bytes(body)

    def close(self) -> None:
        return


class LinesSink:
    """One export request a line, OTLP JSON with hexadecimal ids. Slower than protobuf; for reading and for small runs."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("wb")

    def write(self, signal: str, body: bytes) -> None:
        kind: Any = ExportTraceServiceRequest if signal == "traces" else ExportMetricsServiceRequest
        tree = MessageToDict(kind.FromString(body), use_integers_for_enums=True)
        self._file.write(orjson.dumps(_hexadecimal(tree), option=orjson.OPT_APPEND_NEWLINE))

    def close(self) -> None:
        self._file.close()


def _hexadecimal(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_hexadecimal(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        key: base64.b64decode(value).hex() if key in _IDS and isinstance(value, str) else _hexadecimal(value)
        for key, value in tree.items()
    }


def open_sink(target: str) -> Sink:
    """A URL, a path ending in .jsonl or .json, or a folder."""
    if target.startswith(("http://", "https://")):
        return HttpSink(target)
    path = Path(target)
    return LinesSink(path) if path.suffix in (".jsonl", ".json") else FolderSink(path)
