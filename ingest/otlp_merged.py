"""The trace request as other message types that read the same bytes faster: with lists merged into one element, or left unread."""

from __future__ import annotations

from collections.abc import Set
from functools import cache
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

DOWN_TO_SPANS = frozenset({"ExportTraceServiceRequest.resource_spans", "ResourceSpans.scope_spans", "ScopeSpans.spans"})
INSIDE_SPANS = frozenset({"Span.attributes", "Span.events", "Span.links", "Span.status"})


@cache
def merged() -> Any:
    """One resource, scope, span and attribute for all of them: protobuf merges what comes again. Events stay a list."""
    return _pool_class(ExportTraceServiceRequest.DESCRIPTOR.full_name, listed=frozenset({"Span.events"}))


@cache
def merged_span() -> Any:
    """One span whose attributes are merged into one."""
    return _pool_class(Span.DESCRIPTOR.full_name, listed=frozenset({"Span.events"}))


@cache
def heads() -> Any:
    """Every span, without what is inside of it."""
    return _pool_class(ExportTraceServiceRequest.DESCRIPTOR.full_name, listed=DOWN_TO_SPANS, left=INSIDE_SPANS)


def _pool_class(name: str, listed: Set[str], left: Set[str] = frozenset()) -> Any:
    pool = descriptor_pool.DescriptorPool()
    _add(ExportTraceServiceRequest.DESCRIPTOR.file, pool, listed, left)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _add(file: FileDescriptor, pool: Any, listed: Set[str], left: Set[str]) -> None:
    for needed in file.dependencies:
        _add(needed, pool, listed, left)
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    for message in proto.message_type:
        _reshape(message, listed, left)
    pool.Add(proto)


def _reshape(message: DescriptorProto, listed: Set[str], left: Set[str]) -> None:
    kept = [FieldDescriptorProto.FromString(item.SerializeToString()) for item in message.field]
    del message.field[:]
    for item in kept:
        name = f"{message.name}.{item.name}"
        if name in left:
            continue
        if item.label == FieldDescriptorProto.LABEL_REPEATED and name not in listed:
            item.label = FieldDescriptorProto.LABEL_OPTIONAL
        if message.name == "AnyValue":
            item.ClearField("oneof_index")  # else the last value would hide a nested one before it
        message.field.append(item)
    if message.name == "AnyValue":
        del message.oneof_decl[:]
    for inner in message.nested_type:
        _reshape(inner, listed, left)
