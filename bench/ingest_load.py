"""Trace requests for the ingest benchmark, made as fast as they can be sent: templates whose ids and times are patched.

Must stay true: no two spans ever made share a trace id and span id.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest.otlp_fast import spans_in

TRACE_SPANS = 10
NAMES = ("plan", "tool_select", "chat", "rerank", "embed", "fetch")
TIMES = struct.Struct("<BQBQ")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a request is like: spans in it, and one span in how many carries nested GenAI messages (0: none)."""

    spans: int = 1024
    nested_every: int = 0


@dataclass(frozen=True, slots=True)
class Template:
    """A request and the places in it of each span's trace id, span id, parent id (or -1) and times."""

    body: bytes
    places: tuple[tuple[int, int, int, int], ...]


class Filed:
    """Requests in a file, read when they are sent: so the memory that is measured is not the load's own."""

    def __init__(self, path: Path, requests: Iterable[bytes]) -> None:
        self._places: list[tuple[int, int]] = []
        at = 0
        with path.open("wb") as out:
            for request in requests:
                out.write(request)
                self._places.append((at, len(request)))
                at += len(request)
        self._file = path.open("rb", buffering=0)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, number: int) -> bytes:
        at, size = self._places[number]
        return os.pread(self._file.fileno(), size, at)


def bodies(shape: Shape, requests: int, start_ns: int, seed: int = 1) -> Iterator[bytes]:
    """`requests` requests; traces of ten spans, 12 attributes and about 500 bytes a span."""
    chance = random.Random(seed)
    templates = [_template(shape, chance) for _ in range(16)]
    for number in range(requests):
        yield _patched(templates[number % len(templates)], chance, start_ns + number * 1_000_000)


def _template(shape: Shape, chance: random.Random) -> Template:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    service = f"agent-{chance.randrange(6)}"
    for key, value in (
        ("service.name", service),
        ("service.version", "1.4.2"),
        ("host.name", f"host-{chance.randrange(20)}"),
    ):
        resource.resource.attributes.add(key=key).value.string_value = value
    scope = resource.scope_spans.add()
    scope.scope.name, scope.scope.version = "bench", "1"
    person: dict[str, str] = {}
    for number in range(shape.spans):
        if number % TRACE_SPANS == 0:
            person = {
                "user.id": f"user-{chance.randrange(20_000)}",
                "session.id": f"session-{chance.randrange(100_000):06d}",
                "cloud.region": chance.choice(("eu-west-1", "us-east-1", "ap-south-1")),
                "device.type": chance.choice(("ios", "android", "web")),
            }
        nested = bool(shape.nested_every) and number % shape.nested_every == 0
        _span(scope.spans.add(), number, person, nested, chance)
    body = request.SerializeToString()
    return Template(body, tuple(_places(body, start) for start, _ in spans_in(body)))


def _span(span: Any, number: int, person: dict[str, str], nested: bool, chance: random.Random) -> None:
    first = number % TRACE_SPANS == 0
    span.trace_id, span.span_id, span.parent_span_id = b"t" * 16, b"s" * 8, b"" if first else b"p" * 8
    span.name, span.kind = NAMES[number % len(NAMES)], 2 if first else 1
    span.start_time_unix_nano = chance.randrange(1, 900_000_000)
    span.end_time_unix_nano = span.start_time_unix_nano + int(chance.lognormvariate(17, 1.5))
    texts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": chance.choice(("m-large", "m-small")),
        "gen_ai.conversation.id": person["session.id"],
        "stagescope.stage": span.name,
        "server.address": "inference.internal.example.com",
        **person,
    }
    for key, value in texts.items():
        span.attributes.add(key=key).value.string_value = value
    span.attributes.add(key="gen_ai.usage.input_tokens").value.int_value = chance.randrange(4000)
    span.attributes.add(key="gen_ai.usage.output_tokens").value.int_value = chance.randrange(400)
    if nested:
        _messages(span.attributes.add(key="gen_ai.input.messages").value)
    else:
        span.attributes.add(key="stagescope.kv_usage").value.double_value = round(chance.random(), 3)


def _messages(value: Any) -> None:
    for role, text in (("system", "You are a careful assistant. " * 6), ("user", "Where does the time go? " * 8)):
        message = value.array_value.values.add().kvlist_value
        message.values.add(key="role").value.string_value = role
        part = message.values.add(key="parts").value.array_value.values.add().kvlist_value
        part.values.add(key="type").value.string_value = "text"
        part.values.add(key="content").value.string_value = text


def _places(body: bytes, start: int) -> tuple[int, int, int, int]:
    parent = start + 30 if body[start + 28] == 0x22 else -1
    at = (start + 38 if parent >= 0 else start + 28) + 1
    return start + 2, start + 20, parent, at + 1 + body[at] + 2


def _patched(template: Template, chance: random.Random, shift_ns: int) -> bytes:
    body = bytearray(template.body)
    trace_id = root = b""
    for trace, span, parent, times in template.places:
        span_id = chance.randbytes(8)
        if parent < 0:
            trace_id, root = chance.randbytes(16), span_id
        else:
            body[parent : parent + 8] = root
        body[trace : trace + 16] = trace_id
        body[span : span + 8] = span_id
        tag, start, end_tag, end = TIMES.unpack_from(body, times)
        TIMES.pack_into(body, times, tag, start + shift_ns, end_tag, end + shift_ns)
    return bytes(body)
