"""Trace context over HTTP: W3C traceparent and baggage, and B3 beside them. Whoever calls us with either keeps its trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from urllib.parse import quote, unquote

from instrumented_stack.otlp import Value
from instrumented_stack.telemetry import Link

_W3C = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_B3 = re.compile(r"^([0-9a-f]{16}|[0-9a-f]{32})-([0-9a-f]{16})(?:-([01d]))?")
MAX_BAGGAGE = 4_096


def inject(link: Link) -> dict[str, str]:
    """Headers that carry `link` onward, W3C and B3 single."""
    trace, span, flag = link.trace_id.hex(), link.span_id.hex(), "1" if link.sampled else "0"
    baggage = _written(tuple([(key, str(value)) for key, value in link.common.items()]))
    return {"traceparent": f"00-{trace}-{span}-0{flag}", "b3": f"{trace}-{span}-{flag}", "baggage": baggage}


def extract(headers: Mapping[str, str]) -> Link | None:
    """The caller's link (lower-case header names): W3C first, then B3 in one header, then in several. None without a valid one."""
    common = _baggage(headers.get("baggage", ""))
    if match := _W3C.match(headers.get("traceparent", "")):
        return _link(match[1], match[2], bool(int(match[3], 16) & 1), common)
    if match := _B3.match(headers.get("b3", "")):
        return _link(match[1], match[2], match[3] != "0", common)
    several = f"{headers.get('x-b3-traceid', '')}-{headers.get('x-b3-spanid', '')}-{headers.get('x-b3-sampled', '1')}"
    if match := _B3.match(several):
        return _link(match[1], match[2], match[3] != "0", common)
    return None


def _link(trace: str, span: str, sampled: bool, common: Mapping[str, Value]) -> Link | None:
    if set(trace) == {"0"} or set(span) == {"0"}:
        return None
    return Link(bytes.fromhex(trace.rjust(32, "0")), bytes.fromhex(span), common, sampled)


@lru_cache(maxsize=4_096)
def _written(items: tuple[tuple[str, str], ...]) -> str:
    """Baggage as a header. All calls of a request carry the same, so it is written once."""
    return ",".join(f"{key}={quote(value, safe='')}" for key, value in items)


@lru_cache(maxsize=4_096)
def _baggage(text: str) -> Mapping[str, Value]:
    out: dict[str, Value] = {}
    for item in text[:MAX_BAGGAGE].split(","):
        key, equal, value = item.split(";")[0].partition("=")
        if equal and key.strip():
            out[key.strip()] = unquote(value.strip())
    return MappingProxyType(out)
