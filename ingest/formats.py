"""Other people's trace files as OTLP requests: what the formats share, and telling them apart by their shape.

Must stay true: nothing of a span is lost that OTLP can hold, times stay exact, and one bad span is rejected alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from ingest.errors import BadInput
from ingest.otlp_json import clean_text

KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
STATUS = {"ok": Status.STATUS_CODE_OK, "error": Status.STATUS_CODE_ERROR}
DEPTH = 32
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Gathered:
    """Spans converted so far, by resource and scope, and what was refused by reason with the first example."""

    request: ExportTraceServiceRequest = field(default_factory=ExportTraceServiceRequest)
    rejected: Counter[str] = field(default_factory=Counter)
    details: dict[str, str] = field(default_factory=dict)
    scopes: dict[str, Any] = field(default_factory=dict)

    def reject(self, reason: str, detail: str) -> None:
        self.rejected[reason] += 1
        self.details.setdefault(reason, detail[:200])

    def span(self, resource: Mapping[str, Any], scope: str = "", version: str = "") -> Span:
        """A new empty span under this resource and scope."""
        key = json.dumps([resource, scope, version], sort_keys=True, default=str)
        found = self.scopes.get(key)
        if found is None:
            group = self.request.resource_spans.add()
            put_all(group.resource.attributes, resource)
            found = self.scopes[key] = group.scope_spans.add()
            found.scope.name, found.scope.version = clean_text(scope), clean_text(version)
        return found.spans.add()

    def each(self, documents: Iterable[Any], convert: Callable[[Mapping[str, Any]], None]) -> None:
        """`convert` every document; one that raises BadInput is rejected alone."""
        for document in documents:
            try:
                if not isinstance(document, Mapping):
                    raise BadInput("bad-span", f"expected an object, found {type(document).__name__}")
                convert(document)
            except BadInput as err:
                self.reject(err.reason, str(err))
            except RecursionError:
                self.reject("too-deep", "nested deeper than can be read")


def put_all(target: Any, values: Mapping[str, Any]) -> None:
    """Append attributes; None is left out, lists and objects keep their structure."""
    for key, value in values.items():
        if value is not None:
            item = target.add()
            item.key = clean_text(str(key))
            put(item.value, value)


def put(target: AnyValue, value: Any, depth: int = DEPTH) -> None:
    """`value` as an OTLP value; integers past 64 bits and levels past 32 become text."""
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, str):
        target.string_value = clean_text(value)
    elif depth > 0 and isinstance(value, Mapping):
        target.kvlist_value.SetInParent()
        for key, inner in value.items():
            item = target.kvlist_value.values.add()
            item.key = clean_text(str(key))
            put(item.value, inner, depth - 1)
    elif depth > 0 and isinstance(value, list | tuple):
        target.array_value.SetInParent()
        for inner in value:
            put(target.array_value.values.add(), inner, depth - 1)
    elif value is not None:
        target.string_value = text_of(value)


def hex_id(value: Any, size: int, name: str) -> bytes:
    """An id given in hex, 0x in front or not, left zeros missing or not. Raises BadInput(bad-trace-id …)."""
    text = str(value).strip().removeprefix("0x").lower() if isinstance(value, str) else ""
    if re.fullmatch(r"[0-9a-f]+", text) and len(text) <= 2 * size:
        return bytes.fromhex(text.zfill(2 * size))
    if re.fullmatch(r"[0-9a-f]{32}", text) and size == 8 and set(text[:16]) == {"0"}:
        return bytes.fromhex(text[16:])
    raise BadInput(f"bad-{name.replace('_', '-')}", f"{name} {str(value)[:60]!r} is not hex of up to {size} bytes")


def any_id(value: Any, size: int, name: str) -> bytes:
    """Hex as it is; any other text (a UUID, a name) becomes the same id every time."""
    try:
        return hex_id(str(value).replace("-", "") if size == 16 else value, size, name)
    except BadInput:
        if not isinstance(value, str) or not value:
            raise
        return hashlib.sha256(value.encode("utf-8", "replace")).digest()[:size]


def whole_number(value: Any, name: str, times: int = 1) -> int:
    """`value` × `times` without loss; text and decimal fractions are read exactly. Raises BadInput(bad-value)."""
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise InvalidOperation
        found = int(Decimal(str(value)) * times)
    except (InvalidOperation, ValueError, OverflowError):
        raise BadInput("bad-value", f"{name} cannot be {str(value)[:60]!r}") from None
    if not -(2**63) <= found < 2**64:
        raise BadInput("time-out-of-range", f"{name} {str(value)[:60]} is out of range")
    return found


def set_times(span: Span, start_ns: int, end_ns: int) -> None:
    """Raises BadInput when OTLP cannot hold the times; an end of 0 means unknown."""
    for name, value in (("start", start_ns), ("end", end_ns)):
        if not 0 <= value < 2**64:
            raise BadInput("time-out-of-range", f"{name} {value} ns")
    span.start_time_unix_nano, span.end_time_unix_nano = start_ns, end_ns


def iso_ns(text: Any, name: str) -> int:
    """ISO 8601 (UTC is meant without zone) to nanoseconds, all nine decimals kept. Raises BadInput(bad-value)."""
    found = (
        re.fullmatch(r"(.*?\d)(?:[.,](\d{1,9})\d*)?(Z|[+-]\d\d:?\d\d)?", text.strip())
        if isinstance(text, str)
        else None
    )
    try:
        if found is None:
            raise ValueError
        moment = datetime.fromisoformat(found[1] + (found[3] or "").replace("Z", "+00:00"))
    except ValueError:
        raise BadInput("bad-value", f"{name} cannot be {str(text)[:60]!r}") from None
    past = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH
    return (past.days * 86400 + past.seconds) * 10**9 + int((found[2] or "0").ljust(9, "0"))


def text_of(value: Any) -> str:
    """Text as it is, None as nothing, anything else as JSON; always text that UTF-8 can hold."""
    return clean_text(
        value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
    )


def set_status(span: Span, code: Any, message: Any = None) -> None:
    """By name (`ok`, `error`, `STATUS_CODE_ERROR` …); anything else leaves it unset."""
    name = str(code).rsplit("_", maxsplit=1)[-1].rsplit(".", maxsplit=1)[-1].lower()
    if name in STATUS:
        span.status.code = STATUS[name]
    if message:
        span.status.message = text_of(message)


def items(document: Any, name: str) -> Sequence[Any]:
    """The list under `name`; none when it is missing. Raises BadInput when it is no list."""
    found = document.get(name) or []
    if not isinstance(found, list):
        raise BadInput("bad-value", f"{name} must be a list, found {type(found).__name__}")
    return found


def table(document: Any, name: str) -> Mapping[str, Any]:
    """The object under `name`; an empty one when it is missing. Raises BadInput when it is no object."""
    found = document.get(name) or {}
    if not isinstance(found, Mapping):
        raise BadInput("bad-value", f"{name} must be an object, found {type(found).__name__}")
    return found
