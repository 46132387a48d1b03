"""The trace request as other message types that read the same bytes faster: with lists merged into one element, or left unread."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

DOWN_TO_SPANS = frozenset({"ExportTraceServiceRequest.resource_spans", "ResourceSpans.scope_spans", "ScopeSpans.spans"})
INSIDE_SPANS = frozenset({"Span.attributes", "Span.events", "Span.links", "Span.status"})
EVERY_SPAN = frozenset(
    f"Span.{name}" for name in ("trace_id", "span_id", "name", "start_time_unix_nano", "end_time_unix_nano")
)
COLUMNS = EVERY_SPAN | {"Span.parent_span_id", "Event.time_unix_nano"}
WHOLE = frozenset({"ResourceSpans.resource", "ScopeSpans.scope", "ScopeSpans.spans"})
NONE: Set[str] = frozenset()
REPEATED, OPTIONAL = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.LABEL_OPTIONAL


@dataclass(frozen=True, slots=True)
class Shape:
    """Fields by "Message.field": `listed` stay (or become) lists, `left` are unread, `needed` must be there, `raw` are bytes."""

    listed: Set[str]
    left: Set[str] = NONE
    needed: Set[str] = NONE
    raw: Set[str] = NONE


@cache
def merged_span() -> Any:
    """One span whose attributes are merged into one."""
    return _pool_class(Span.DESCRIPTOR.full_name, Shape(frozenset({"Span.events"})))


@cache
def columns() -> Any:
    """One span for all of them, in which ids, names and times are lists with one item for each time they come."""
    return _pool_class(ExportTraceServiceRequest.DESCRIPTOR.full_name, Shape(COLUMNS))


@cache
def heads() -> Any:
    """Every span, without what is inside of it; IsInitialized() when each has EVERY_SPAN."""
    return _pool_class(ExportTraceServiceRequest.DESCRIPTOR.full_name, Shape(DOWN_TO_SPANS, INSIDE_SPANS, EVERY_SPAN))


@cache
def parts() -> Any:
    """Every resource, scope and span as its bytes."""
    return _pool_class(ExportTraceServiceRequest.DESCRIPTOR.full_name, Shape(DOWN_TO_SPANS | WHOLE, raw=WHOLE))


def _pool_class(name: str, shape: Shape) -> Any:
    pool = descriptor_pool.DescriptorPool()
    _add(ExportTraceServiceRequest.DESCRIPTOR.file, pool, shape)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _add(file: FileDescriptor, pool: Any, shape: Shape) -> None:
    for needed in file.dependencies:
        _add(needed, pool, shape)
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    if shape.needed:
        proto.ClearField("syntax")  # the one that can say "required"
    for message in proto.message_type:
        _reshape(message, shape)
    pool.Add(proto)


def _reshape(message: DescriptorProto, shape: Shape) -> None:
    kept = [FieldDescriptorProto.FromString(item.SerializeToString()) for item in message.field]
    del message.field[:]
    for item in kept:
        name = f"{message.name}.{item.name}"
        if name in shape.left:
            continue
        if name in shape.listed:
            item.label = REPEATED
        elif name in shape.needed:
            item.label = FieldDescriptorProto.LABEL_REQUIRED
        else:
            item.label = OPTIONAL
        if name in shape.raw:
            item.type = FieldDescriptorProto.TYPE_BYTES
            item.ClearField("type_name")
        if message.name == "AnyValue":
            item.ClearField("oneof_index")  # else the last value would hide a nested one before it
        message.field.append(item)
    if message.name == "AnyValue":
        del message.oneof_decl[:]
    for inner in message.nested_type:
        _reshape(inner, shape)
