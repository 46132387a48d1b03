"""One OTLP value as the text that the OpenTelemetry Collector's ClickHouse exporter would store.

Must stay true: numbers look as Go prints them, arrays and maps are JSON with sorted keys, bytes are base64.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import orjson
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

NESTED = ("array_value", "kvlist_value")


def value_text(value: AnyValue) -> str:
    """Text of an attribute value or log body; an empty value is ''."""
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind == "int_value":
        return str(value.int_value)
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    if kind == "double_value":
        return float_text(value.double_value)
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return nested_text(value) if kind in NESTED else ""


def nested_text(value: AnyValue) -> str:
    """Compact JSON of an array or map. NaN and infinities become null (the Collector would lose the whole value)."""
    text = orjson.dumps(_plain(value), option=orjson.OPT_SORT_KEYS).decode()
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def float_text(number: float) -> str:
    """As Go's encoding/json: shortest digits, exponent only below 1e-6 and from 1e21 on."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    text = repr(number)
    if "e" not in text and not text.endswith(".0"):
        return text
    size = abs(number)
    if size != 0 and (size < 1e-6 or size >= 1e21):
        mantissa, exponent = text.split("e")
        sign, digits = exponent[0], exponent.lstrip("+-0")
        # Go keeps two digits in a positive exponent; its smallest positive one here is 21, so none is ever padded.
        return f"{mantissa.removesuffix('.0')}e{'-' if sign == '-' else '+'}{digits}"
    if text.endswith(".0"):
        return text[:-2]
    return _without_exponent(text)


def _without_exponent(text: str) -> str:
    mantissa, exponent = text.split("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits, point = whole + fraction, len(whole) + int(exponent)
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return sign + digits + "0" * (point - len(digits))
    return f"{sign}{digits[:point]}.{digits[point:]}"


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {item.key: _plain(item.value) for item in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    if kind == "double_value":
        number = value.double_value
        return orjson.Fragment(float_text(number)) if math.isfinite(number) else None
    return getattr(value, kind) if kind else None
