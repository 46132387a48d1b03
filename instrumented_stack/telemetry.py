"""Spans on any clock. Two writers share one interface: `BytesTracing` here (OTLP bytes, repeatable ids), `SdkTracing` over the
OpenTelemetry SDK. A span knows facts only."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from instrumented_stack import otlp
from instrumented_stack.otlp import Value

INTERNAL, SERVER, CLIENT = 1, 2, 3
SCOPE = ("instrumented_stack", "1.0.0")
_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Place:
    """The process that a span comes from: service, host, version. Becomes the OTLP resource."""

    service: str
    host: str
    version: str
    zone: str = ""

    def attributes(self) -> dict[str, Value]:
        return {
            "service.name": self.service,
            "service.version": self.version,
            "service.namespace": "agent",
            "service.instance.id": f"{self.service}@{self.host}",
            "host.name": self.host,
            "cloud.availability_zone": self.zone,
            "telemetry.sdk.language": "python",
        }


@dataclass(frozen=True, slots=True)
class Link:
    """Where a span hangs: trace id (16 bytes), parent span id (8 bytes, empty for a root), and what every span of the request says."""

    trace_id: bytes
    span_id: bytes
    common: Mapping[str, Value]
    sampled: bool = True


class Span(Protocol):
    """One timed piece of work. Ends once; attributes after the end are lost."""

    @property
    def link(self) -> Link: ...
    def set(self, key: str, value: Value) -> None: ...
    def event(self, name: str, attributes: Mapping[str, Value]) -> None: ...
    def fail(self, error: BaseException, *, origin: bool) -> None:
        """Mark as failed; `origin` says that the error arose here: then message, exception event and frames are kept."""

    def end(self) -> None: ...


class Tracing(Protocol):
    def start(self, place: Place, name: str, kind: int, link: Link) -> Span: ...
    def fresh(self, link: Link) -> Link:
        """A new trace with the same common attributes, not connected to `link`."""


def frames(error: BaseException, limit: int = 6) -> str:
    """The stack of an error as Python prints it, file names relative to the package's parent."""
    lines = ["Traceback (most recent call last):"]
    for item in traceback.extract_tb(error.__traceback__)[-limit:]:
        path = Path(item.filename)
        shown = path.relative_to(_PACKAGE.parent) if path.is_relative_to(_PACKAGE) else Path(path.name)
        lines.append(f'  File "{shown.as_posix()}", line {item.lineno}, in {item.name}')
    lines.append(f"{type(error).__name__}: {error}")
    return "\n".join(lines)


class BytesSpan:
    """A span that becomes OTLP bytes when it ends."""

    __slots__ = (
        "_attributes",
        "_end",
        "_events",
        "_kind",
        "_name",
        "_parent",
        "_place",
        "_start_ns",
        "_status",
        "_tracing",
        "link",
    )

    def __init__(self, tracing: BytesTracing, place: Place, name: str, kind: int, parent: Link) -> None:
        self._tracing, self._place, self._name, self._kind = tracing, place, name, kind
        self._parent = parent.span_id
        self._start_ns = tracing.now_ns()
        self._attributes: dict[str, Value] = {}
        self._events = b""
        self._status = b""
        self.link = Link(parent.trace_id, tracing.new_span_id(parent.trace_id), parent.common, parent.sampled)

    def set(self, key: str, value: Value) -> None:
        self._attributes[key] = value

    def event(self, name: str, attributes: Mapping[str, Value]) -> None:
        self._events += otlp.event(self._tracing.now_ns(), name, attributes)

    def fail(self, error: BaseException, *, origin: bool) -> None:
        self._attributes["error.type"] = type(error).__name__
        self._status = otlp.status(True, str(error) if origin else "")
        if origin:
            what: dict[str, Value] = {
                "exception.type": type(error).__name__,
                "exception.message": str(error),
                "exception.stacktrace": frames(error),
            }
            self.event("exception", what)

    def end(self) -> None:
        if not self.link.sampled:
            return
        ids = otlp.identity(self.link.trace_id, self.link.span_id, self._parent)
        rest = self._tracing.common_bytes(self.link) + otlp.pairs(otlp.SPAN_ATTRIBUTE, self._attributes)
        times = (self._start_ns, self._tracing.now_ns())
        body = otlp.span(ids, self._name, self._kind, times, rest + self._events + self._status)
        self._tracing.keep(self._place, body)


class _Trace:
    """An open trace: what all its spans say, encoded once, and how many spans it has."""

    __slots__ = ("common", "first", "spans")

    def __init__(self, link: Link) -> None:
        self.common = otlp.pairs(otlp.SPAN_ATTRIBUTE, link.common)
        self.first = int.from_bytes(link.trace_id[8:], "big")
        self.spans = 0


class BytesTracing:
    """Buffers encoded spans by place and hands full batches on as export requests. Span ids count up within their trace."""

    def __init__(
        self, now_ns: Callable[[], int], export: Callable[[bytes, int], None], batch_spans: int = 5_000
    ) -> None:
        self.now_ns = now_ns
        self.spans = 0
        self._export, self._batch = export, batch_spans
        self._held: dict[int, tuple[Place, list[bytes]]] = {}
        self._count = 0
        self._traces: dict[bytes, _Trace] = {}

    def open_trace(self, link: Link) -> None:
        """Say what every span of this trace carries; encoded once."""
        self._traces[link.trace_id] = _Trace(link)

    def close_trace(self, trace_id: bytes) -> None:
        self._traces.pop(trace_id, None)

    def common_bytes(self, link: Link) -> bytes:
        return self._traces[link.trace_id].common

    def new_span_id(self, trace_id: bytes) -> bytes:
        trace = self._traces[trace_id]
        trace.spans += 1
        mixed = (trace.first + trace.spans * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        return (mixed or 1).to_bytes(8, "big")

    def start(self, place: Place, name: str, kind: int, link: Link) -> Span:
        return BytesSpan(self, place, name, kind, link)

    def fresh(self, link: Link) -> Link:
        made = Link(
            hashlib.blake2b(link.trace_id + link.span_id, digest_size=16).digest(), b"", link.common, link.sampled
        )
        self.open_trace(made)
        return made

    def keep(self, place: Place, body: bytes) -> None:
        held = self._held.get(id(place))
        if held is None:
            held = self._held[id(place)] = (place, [])
        held[1].append(body)
        self._count += 1
        if self._count >= self._batch:
            self.flush()

    def flush(self) -> None:
        """Hand on what is held."""
        if not self._count:
            return
        parts = [otlp.resource_spans(place.attributes(), SCOPE, held) for place, held in self._held.values()]
        count, self._count, self._held = self._count, 0, {}
        self.spans += count
        self._export(b"".join(parts), count)
