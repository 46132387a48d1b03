"""Hypothesis strategies: trace requests as the wild sends them, good and bad."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

texts = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["", "\x00", "a\x00b", '<"&\\>', "\u2028", "é😀", "true", "0", "x" * 130, "[1]", "*2", "\x12\x052"]
    ),
)
doubles = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1e21, 1e-7, 1e-6, 123456789.125, 1e100, -1e22]))
integers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -1, 2**53 + 1]))
scalars = st.one_of(
    texts.map(lambda value: AnyValue(string_value=value)),
    integers.map(lambda value: AnyValue(int_value=value)),
    doubles.map(lambda value: AnyValue(double_value=value)),
    st.booleans().map(lambda value: AnyValue(bool_value=value)),
    st.binary(max_size=9).map(lambda value: AnyValue(bytes_value=value)),
    st.just(AnyValue()),
)


def _array(items: list[AnyValue]) -> AnyValue:
    value = AnyValue()
    value.array_value.SetInParent()
    value.array_value.values.extend(items)
    return value


def _map(items: list[tuple[str, AnyValue]]) -> AnyValue:
    value = AnyValue()
    value.kvlist_value.SetInParent()
    for key, item in items:
        value.kvlist_value.values.add(key=key).value.CopyFrom(item)
    return value


values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(_array),
        st.lists(st.tuples(texts, inner), max_size=3).map(_map),
    ),
    max_leaves=6,
)
keys = st.one_of(st.sampled_from(["user.id", "gen_ai.input.messages", "service.name", "k", "stagescope.marks"]), texts)
attributes = st.lists(st.tuples(keys, st.one_of(scalars, scalars, values)), max_size=4)
instants = st.one_of(
    st.integers(1_700_000_000_000_000_000, 1_700_000_600_000_000_000), st.sampled_from([0, 1, 2**63 - 1, 2**64 - 1])
)
trace_ids = st.one_of(st.binary(min_size=16, max_size=16), st.sampled_from([b"", bytes(16), b"abc", b"x" * 17]))
parents = st.one_of(st.just(b""), st.binary(min_size=8, max_size=8), st.sampled_from([bytes(8), b"abc"]))


def _put(target: Any, items: list[tuple[str, AnyValue]]) -> None:
    for key, value in items:
        target.add(key=key).value.CopyFrom(value)


@st.composite
def _spans(draw: st.DrawFn, target: Any, number: int) -> None:
    span = target.add(name=draw(texts), trace_state=draw(st.sampled_from(["", "a=b"])))
    span.trace_id, span.parent_span_id = draw(trace_ids), draw(parents)
    span.span_id = draw(st.sampled_from([number.to_bytes(8, "big"), number.to_bytes(8, "big"), bytes(8), b"ab"]))
    span.start_time_unix_nano = draw(instants)
    span.end_time_unix_nano = draw(st.one_of(instants, st.just(span.start_time_unix_nano)))
    span.kind = draw(st.integers(0, 7))  # type: ignore[assignment]
    if draw(st.booleans()):
        span.status.code = draw(st.integers(0, 4))  # type: ignore[assignment]
        span.status.message = draw(texts)
    _put(span.attributes, draw(attributes))
    for _ in range(draw(st.integers(0, 2))):
        event = span.events.add(name=draw(texts), time_unix_nano=draw(instants))
        _put(event.attributes, draw(attributes))
    for _ in range(draw(st.integers(0, 1))):
        link = span.links.add(trace_id=draw(trace_ids), span_id=b"12345678", trace_state=draw(texts))
        _put(link.attributes, draw(attributes))


@st.composite
def requests(draw: st.DrawFn) -> ExportTraceServiceRequest:
    """Up to two resources of up to two scopes of up to three spans; span ids are unique where they are valid."""
    request = ExportTraceServiceRequest()
    number = 0
    for _ in range(draw(st.integers(0, 2))):
        resource = request.resource_spans.add()
        if draw(st.booleans()):
            _put(resource.resource.attributes, draw(attributes))
        for _ in range(draw(st.integers(0, 2))):
            scope = resource.scope_spans.add(schema_url=draw(st.sampled_from(["", "http://s"])))
            if draw(st.booleans()):
                scope.scope.name, scope.scope.version = draw(texts), draw(texts)
                _put(scope.scope.attributes, draw(attributes))
            for _ in range(draw(st.integers(0, 3))):
                number += 1
                draw(_spans(scope.spans, number))
    return request
