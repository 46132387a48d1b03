"""Finds the parts of a trace request that need care without reading each attribute, and mends only those, in the bytes.

Must stay true: what `sift` does not call odd is what cleaning neither changes nor rejects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import le
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ingest.limits import LAST_NS, Limits
from ingest.otlp_clean import NO_SPAN, NO_TRACE, Tally, clean_attributes, clean_span
from ingest.otlp_merged import columns, heads, merged_span, parts
from ingest.otlp_wire import LENGTH_DELIMITED, Careful, field, fields, long_size

RESOURCE_SPANS, RESOURCE, SCOPE_SPANS = 1, 1, 2  # field numbers on the way down to a span
SCOPE_TAG, SPANS_TAG = 1 << 3 | LENGTH_DELIMITED, 2 << 3 | LENGTH_DELIMITED

# An attribute's value (field 2) that begins with an array (field 5) or a map (field 6); other bytes may look like it.
NESTED_VALUE = re.compile(rb"\x12[\x80-\xff]{0,4}[\x00-\x7f][*2]")


class Part(NamedTuple):
    """Where the bytes of a resource, scope or span stand in a request."""

    kind: type[Resource] | type[InstrumentationScope] | type[Span]
    start: int
    end: int


class Nested(NamedTuple):
    """Whether some resource or scope (`outside`), and whether some span (`inside`), has a nested attribute."""

    outside: bool
    inside: bool


@dataclass(frozen=True, slots=True)
class Sifted:
    """A request of `spans` spans; only the parts in `odd` need care."""

    spans: int
    odd: Sequence[Part]


def sift(body: bytes, limits: Limits) -> Sifted | None:
    """Part the plain from the odd; None when the request as a whole must be read with care.

    Parses read all ids, all names and all times as lists, and merge all attributes into one, so that no span is looked at by
    itself: that checks every text for UTF-8 and shows whether any value is nested. A list as long as there are spans, of a field
    that every span has, holds one item a span, in their order.
    """
    try:
        sizes, around_sizes = _sizes(parts().FromString(body))
        seen = heads().FromString(body)
        whole = columns().FromString(body).resource_spans
    except DecodeError:
        return None
    span = whole.scope_spans.spans
    outside = _nested(whole.resource.attributes) or _nested(whole.scope_spans.scope.attributes)
    inside = _nested(span.attributes) or _nested(span.links.attributes) or _nested(span.events.attributes)
    plain = seen.IsInitialized() and _plain_columns(span, len(sizes))
    small = max(max(sizes, default=0), max(around_sizes, default=0)) <= limits.careless_bytes
    if plain and small and not outside and not inside:
        return Sifted(len(sizes), ())
    late = max(span.events.time_unix_nano, default=0) > LAST_NS
    heads_seen = (head for resource in seen.resource_spans for scope in resource.scope_spans for head in scope.spans)
    suspects = repeat(False) if plain else (late or not _plain(head) for head in heads_seen)
    return _odd_parts(body, suspects, Nested(outside, inside), limits.careless_bytes)


def _odd_parts(body: bytes, suspects: Iterable[bool], nested: Nested, careless_bytes: int) -> Sifted | None:
    """Where what needs care stands: suspects, large things, and what has a nested value."""
    around: list[Part] = []
    starts: list[int] = []
    ends: list[int] = []
    try:
        _lay_out(body, around, starts, ends)
    except (Careful, IndexError):
        return None
    odd = [part for part in around if nested.outside or part.end - part.start > careless_bytes]
    for suspect, start, end in zip(suspects, starts, ends, strict=False):
        if suspect or end - start > careless_bytes or (nested.inside and _may_be_nested(body, start, end)):
            odd.append(Part(Span, start, end))
    return Sifted(len(starts), odd)


def _sizes(request: Any) -> tuple[list[int], list[int]]:
    """Bytes of each span, and of each resource and scope."""
    spans: list[int] = []
    around: list[int] = []
    for resource in request.resource_spans:
        around += map(len, resource.resource)
        for scope in resource.scope_spans:
            around += map(len, scope.scope)
            spans += map(len, scope.spans)
    return spans, around


def _plain_columns(span: Any, spans: int) -> bool:
    """As `_plain`, of all spans at once."""
    if not spans:
        return True
    trace_ids, span_ids, parents = list(span.trace_id), list(span.span_id), list(span.parent_span_id)
    names, starts, ends = list(span.name), list(span.start_time_unix_nano), list(span.end_time_unix_nano)
    return (
        all(len(column) == spans for column in (trace_ids, span_ids, names, starts, ends))
        and set(map(len, trace_ids)) == {16}
        and set(map(len, span_ids)) == {8}
        and set(map(len, parents)) <= {0, 8}
        and NO_TRACE not in trace_ids
        and NO_SPAN not in span_ids
        and NO_SPAN not in parents
        and all(names)
        and min(starts) > 0
        and max(ends) <= LAST_NS
        and all(map(le, starts, ends))
        and max(span.events.time_unix_nano, default=0) <= LAST_NS
    )


def mend(body: bytes, sifted: Sifted, tally: Tally) -> bytes:
    """The request with its odd parts cleaned (and bad spans taken out)."""
    changed: dict[int, bytes | None] = {}
    rejected = 0
    for kind, start, end in sifted.odd:
        message: Any = kind.FromString(body[start:end])
        if kind is not Span:
            clean_attributes(message.attributes, tally)
        elif not clean_span(message, tally):
            changed[start] = None
            rejected += 1
            continue
        changed[start] = message.SerializeToString()
    tally.accepted += sifted.spans - rejected
    return _rebuild(body, changed) if tally.changed else body


def spans_in(body: bytes) -> list[tuple[int, int]]:
    """(first byte, end) of each span of a request in the usual layout. Raises Careful."""
    starts: list[int] = []
    ends: list[int] = []
    _lay_out(body, [], starts, ends)
    return list(zip(starts, ends, strict=True))


def _plain(span: Any) -> bool:
    parent, trace_id, span_id = span.parent_span_id, span.trace_id, span.span_id
    return (
        0 < span.start_time_unix_nano <= span.end_time_unix_nano <= LAST_NS
        and len(trace_id) == 16
        and len(span_id) == 8
        and trace_id != NO_TRACE
        and span_id != NO_SPAN
        and (not parent or (len(parent) == 8 and parent != NO_SPAN))
        and bool(span.name)
    )


def _nested_inside(span: Any) -> bool:
    return (
        _nested(span.attributes)
        or _nested(span.links.attributes)
        or any(_nested(event.attributes) for event in span.events)
    )


def _may_be_nested(body: bytes, start: int, end: int) -> bool:
    if NESTED_VALUE.search(body, start, end) is None:
        return False
    return _nested_inside(merged_span().FromString(body[start:end]))


def _nested(attribute: Any) -> bool:
    value = attribute.value
    return bool(value.HasField("array_value") or value.HasField("kvlist_value"))


def _lay_out(body: bytes, around: list[Part], starts: list[int], ends: list[int]) -> None:
    """Find the resources and scopes (`around`) and the spans, in the order of their bytes."""
    for number, _, start, end in fields(body, 0, len(body)):
        if number != RESOURCE_SPANS:
            raise Careful
        for inner, _, inner_start, inner_end in fields(body, start, end):
            if inner == SCOPE_SPANS:
                _lay_out_scope(body, inner_start, inner_end, around, starts, ends)
            elif inner == RESOURCE:
                around.append(Part(Resource, inner_start, inner_end))


def _lay_out_scope(body: bytes, at: int, end: int, around: list[Part], starts: list[int], ends: list[int]) -> None:
    """As `fields`, written out because it runs once a span."""
    while at < end:
        tag, size = body[at], body[at + 1]
        at += 2
        if size > 127:
            more = body[at]
            at += 1
            size = size & 127 | more << 7
            if more > 127:
                size, at = long_size(body, at, size & 0x3FFF)
        if tag == SPANS_TAG:
            starts.append(at)
            ends.append(at + size)
        elif tag == SCOPE_TAG:
            around.append(Part(InstrumentationScope, at, at + size))
        elif tag & 7 != LENGTH_DELIMITED or tag > 127:
            raise Careful
        at += size
    if at != end:
        raise Careful


def _rebuild(body: bytes, changed: Mapping[int, bytes | None]) -> bytes:
    """The request with some parts changed, by the place where their bytes begin; None leaves a span out."""
    requests = []
    for _, _, start, end in fields(body, 0, len(body)):
        inside = []
        for number, tag, inner_start, inner_end in fields(body, start, end):
            if number == SCOPE_SPANS:
                inside.append(field(SCOPE_SPANS, _rebuild_fields(body, inner_start, inner_end, changed)))
            elif inner_start in changed:
                inside.append(field(number, changed[inner_start] or b""))
            else:
                inside.append(body[tag:inner_end])
        requests.append(field(RESOURCE_SPANS, b"".join(inside)))
    return b"".join(requests)


def _rebuild_fields(body: bytes, start: int, end: int, changed: Mapping[int, bytes | None]) -> bytes:
    pieces, copied = [], start
    for number, tag, item_start, item_end in fields(body, start, end):
        if item_start in changed:
            pieces.append(body[copied:tag])
            copied = item_end
            new = changed[item_start]
            if new is not None:
                pieces.append(field(number, new))
    pieces.append(body[copied:end])
    return b"".join(pieces)
