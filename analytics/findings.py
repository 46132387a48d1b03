"""The nouns of the second half: Window, Evidence, Finding, Analyzer. A finding's `key` is the same next week for the same problem."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ingest.store import Store

CAUSES = (
    "prompt_bloat oversized_model redundant_step retry queueing batch_stall cpu_blocking payload fallback_path cold_start "
    "kv_cache_pressure gpu_contention pcie_saturation storage_wait network_hop slow_dependency lock_wait context_init "
    "dimension_specific regression unknown"
).split()
KINDS = ("slow", "failure", "health", "capacity")
EFFORTS = ("free", "medium", "costly")
SEVERITIES = ("critical", "high", "medium", "low")


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open span of time [start, end), both aware and in UTC."""

    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measured fact with its unit, and the value that would be in order (None: no such value)."""

    name: str
    value: float | str
    unit: str = ""
    expected: float | str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing worth a person's time. `lost_*` in seconds over the window; `expected_saving_ms` per affected request."""

    key: str
    kind: str
    subject: dict[str, str]
    title: str
    cause: str
    severity: str
    lost_seconds: float
    lost_low: float
    lost_high: float
    share_of_e2e_p95: float
    requests: int
    users: int
    evidence: tuple[Evidence, ...]
    recommendation: str
    effort: str
    expected_saving_ms: float
    verify: str
    trace_ids: tuple[str, ...]
    window: Window
    first_seen: datetime
    last_seen: datetime
    state: str = "open"
    query: str = ""
    other_causes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """The shape of CONTRACT: times as ISO 8601 UTC, window as {from, to}."""
        out = asdict(self)
        out["window"] = {"from": iso(self.window.start), "to": iso(self.window.end)}
        out["first_seen"], out["last_seen"] = iso(self.first_seen), iso(self.last_seen)
        return out

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Finding:
        """The inverse of `to_json`."""
        window = Window(parse_time(body["window"]["from"]), parse_time(body["window"]["to"]))
        evidence = tuple(Evidence(**item) for item in body["evidence"])
        fixed = {
            "window": window,
            "evidence": evidence,
            "trace_ids": tuple(body["trace_ids"]),
            "other_causes": tuple(body.get("other_causes", ())),
            "first_seen": parse_time(body["first_seen"]),
            "last_seen": parse_time(body["last_seen"]),
        }
        return cls(**{**body, **fixed})


class Analyzer(NamedTuple):
    """`load` holds the only SQL; `find` is pure: the same data gives the same findings. `keep` stores what else was learnt, after `find`."""

    name: str
    load: Callable[[Store, Window], Any]
    find: Callable[[Any], Sequence[Finding]]
    keep: Callable[[Store, Any, datetime], None] | None = None


def finding_key(kind: str, *parts: str) -> str:
    """A short stable key from the words that identify a problem (never from numbers or times)."""
    digest = hashlib.sha256("\x1f".join((kind, *parts)).encode()).hexdigest()[:12]
    return f"{kind}-{digest}"


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> datetime:
    """ISO 8601 with or without zone (UTC is meant without)."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
