"""One request as several, none larger than a log message may be. Nothing is lost, doubled or reordered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ingest.otlp import REQUESTS

GROUPS = {"resource_spans": "scope_spans", "resource_logs": "scope_logs", "resource_metrics": "scope_metrics"}
ITEMS = {"scope_spans": "spans", "scope_logs": "log_records", "scope_metrics": "metrics"}


def split(topic: str, clean: bytes, most_bytes: int) -> Sequence[bytes]:
    """`clean` in parts of at most `most_bytes`; a single element larger than that is a part of its own."""
    if len(clean) <= most_bytes:
        return [clean]
    return [part.SerializeToString() for part in _parts(REQUESTS[topic].FromString(clean), most_bytes)]


def _parts(request: Any, most_bytes: int) -> Iterator[Any]:
    list_name = request.DESCRIPTOR.fields[0].name
    group_name = GROUPS[list_name]
    items_name = ITEMS[group_name]
    part, size = type(request)(), 0
    for resource in getattr(request, list_name):
        for group in getattr(resource, group_name):
            frame = _frame(resource, group, items_name, list_name)
            target = None
            for item in getattr(group, items_name):
                weight = item.ByteSize() + 8
                if size and size + weight + (0 if target is not None else frame.ByteSize()) > most_bytes:
                    yield part
                    part, size, target = type(request)(), 0, None
                if target is None:
                    size += frame.ByteSize()
                    target = _add(part, frame, list_name, group_name)
                getattr(target, items_name).append(item)
                size += weight
    if size:
        yield part


def _frame(resource: Any, group: Any, items_name: str, list_name: str) -> Any:
    """The resource and scope around a list of elements, without the elements."""
    frame = type(resource)()
    frame.resource.CopyFrom(resource.resource)
    frame.schema_url = resource.schema_url
    inner = getattr(frame, GROUPS[list_name]).add()
    inner.scope.CopyFrom(group.scope)
    inner.schema_url = group.schema_url
    return frame


def _add(part: Any, frame: Any, list_name: str, group_name: str) -> Any:
    added = getattr(part, list_name).add()
    added.CopyFrom(frame)
    return getattr(added, group_name)[0]
