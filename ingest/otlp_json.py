"""OTLP JSON to protobuf messages, as leniently as the wild needs it.

Must stay true: one bad span, record or point is rejected with its reason and its neighbours are kept.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

from ingest.errors import BadInput

POINTS = ("NumberDataPoint", "HistogramDataPoint", "ExponentialHistogramDataPoint", "SummaryDataPoint")
ELEMENTS = frozenset({"Span", "LogRecord", "Metric", *POINTS})
IDS = {"trace_id": 16, "span_id": 8, "parent_span_id": 8}
BOUNDS = {
    Field.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    Field.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    Field.CPPTYPE_UINT32: (0, 2**32 - 1),
    Field.CPPTYPE_UINT64: (0, 2**64 - 1),
}
DEPTH = 100  # messages inside messages; protobuf itself stops there
OnReject = Callable[[str, str], None]


def read_json(body: bytes) -> Any:
    """Any JSON document. Invalid UTF-8 and lone surrogates become U+FFFD. Raises BadInput('bad-json')."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as first:
        try:
            return json.loads(body.decode("utf-8-sig", "replace"))
        except (ValueError, RecursionError) as err:
            raise BadInput("bad-json", f"not JSON: {err or first}") from None


def fill(message: Message, document: Any, on_reject: OnReject) -> None:
    """Copy `document` (a JSON object) into `message`; unknown fields are ignored.

    Names may be camelCase or snake_case, ids hex or base64, 64-bit numbers text or numbers, enums names or numbers.
    """
    _fill(message, document, on_reject, DEPTH)


def _fill(message: Message, document: Any, on_reject: OnReject, depth: int) -> None:
    if not isinstance(document, Mapping):
        raise BadInput("bad-json", f"expected an object for {message.DESCRIPTOR.name}, found {_show(document)}")
    if depth <= 0:
        raise BadInput("too-deep", f"more than {DEPTH} levels")
    fields = message.DESCRIPTOR.fields_by_name
    names = message.DESCRIPTOR.fields_by_camelcase_name
    for key, value in document.items():
        field = names.get(key) or fields.get(key)
        if field is None or value is None:
            continue
        if field.is_repeated:
            _fill_list(getattr(message, field.name), field, value, on_reject, depth)
        elif field.message_type is not None:
            child = getattr(message, field.name)
            child.SetInParent()
            _fill(child, value, on_reject, depth - 1)
        else:
            setattr(message, field.name, _scalar(field, value))


def _fill_list(target: Any, field: Any, value: Any, on_reject: OnReject, depth: int) -> None:
    items = value if isinstance(value, list) else [value]
    if field.message_type is None:
        target.extend(_scalar(field, item) for item in items)
        return
    for item in items:
        try:
            _fill(target.add(), item, on_reject, depth - 1)
        except BadInput as err:
            if field.message_type.name not in ELEMENTS:
                raise
            del target[-1]
            on_reject(err.reason, str(err))


def _scalar(field: Any, value: Any) -> Any:
    kind = field.cpp_type
    if field.type == Field.TYPE_BYTES:
        return _bytes(field, value)
    if kind == Field.CPPTYPE_STRING:
        return _text(field, value)
    if kind == Field.CPPTYPE_BOOL:
        return _bool(field, value)
    if kind == Field.CPPTYPE_ENUM:
        return _enum(field, value)
    if kind in BOUNDS:
        return _integer(field, value)
    return _double(field, value)


def _text(field: Field, value: Any) -> str:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise _wrong(field, value)


def clean_text(text: str) -> str:
    """Text that UTF-8 can hold: surrogate pairs are joined, lone surrogates become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _bool(field: Field, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise _wrong(field, value)


def _enum(field: Field, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _wrong(field, value)
    if isinstance(value, str) and not value.lstrip("-").isdecimal():
        assert field.enum_type is not None
        names = field.enum_type.values_by_name
        wanted = value.upper()
        for name, item in names.items():
            if name == wanted or name.endswith(f"_{wanted}"):
                return int(item.number)
        raise _wrong(field, value)
    number = int(value)
    if not -(2**31) <= number < 2**31:
        raise _wrong(field, value)
    return number


def _integer(field: Field, value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        text = value.strip()
        value = int(text) if text.lstrip("-").isdecimal() and len(text) < 40 else value
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(field, value)
    low, high = BOUNDS[field.cpp_type]
    if not low <= value <= high:
        reason = "time-out-of-range" if field.name.endswith("_nano") else "number-out-of-range"
        raise BadInput(reason, f"{field.name} {_show(value)} is not in {low}..{high}")
    return value


def _double(field: Field, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _wrong(field, value)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise _wrong(field, value) from None
    if field.cpp_type == Field.CPPTYPE_FLOAT and math.isfinite(number) and abs(number) > 3.4e38:
        raise _wrong(field, value)
    return number


def _bytes(field: Field, value: Any) -> bytes:
    if not isinstance(value, str):
        raise _wrong(field, value)
    size = IDS.get(field.name)
    if size is not None:
        return _id(field, value, size)
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_" if {"-", "_"} & set(value) else None)
    except (binascii.Error, ValueError):
        raise _wrong(field, value) from None


def _id(field: Field, value: str, size: int) -> bytes:
    """An id in hex (the specification) or in base64 (what plain protobuf JSON writers emit)."""
    try:
        if len(value) == 2 * size:
            return bytes.fromhex(value)
        found = base64.b64decode(value + "=" * (-len(value) % 4), validate=True) if value else b""
        if len(found) in (0, size):
            return found
        return bytes.fromhex(value)
    except (binascii.Error, ValueError):
        raise BadInput(f"bad-{field.name.replace('_', '-')}", f"{field.name} {_show(value)}") from None


def _wrong(field: Field, value: Any) -> BadInput:
    return BadInput("bad-value", f"{field.name} cannot be {_show(value)}")


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
