"""Alerts: from readings to pending, firing, resolved and no data. Pure; the same readings give the same states.

Must stay true: an alert fires once a problem, says so again only when told to, and a thin or missing reading never resolves it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

PENDING, FIRING, RESOLVED, NO_DATA = "pending", "firing", "resolved", "no_data"
SIGNALS = ("p95_s", "error_share", "silence_s", "unstored", "dead_letters_per_min")


@dataclass(frozen=True, slots=True)
class Rule:
    """`signal` above `threshold` for longer than `hold_s` fires; below for `calm_s` resolves. `dynamic` raises the threshold to
    what that hour of the week usually shows. `by`: one alert a value of this column of stage_runs ('' means one for all)."""

    name: str
    signal: str
    threshold: float
    unit: str
    summary: str
    hold_s: float = 60.0
    calm_s: float = 120.0
    severity: str = "high"
    dynamic: bool = False
    by: str = ""


BUILT_IN: tuple[Rule, ...] = (
    Rule(
        "slow",
        "p95_s",
        2.0,
        "s",
        "p95 of answered requests, declared waits left out, is above {threshold:.3g} s: {value:.3g} s",
    ),
    Rule(
        "errors",
        "error_share",
        0.05,
        "share",
        "{value:.1%} of requests fail (limit {threshold:.1%})",
        severity="critical",
    ),
    Rule(
        "no_data",
        "silence_s",
        300.0,
        "s",
        "no span has come for {value:.0f} s where this hour usually has traffic",
        hold_s=0.0,
    ),
    Rule(
        "nothing_stored",
        "unstored",
        0.0,
        "spans",
        "{value:,.0f} spans were accepted and nothing was stored",
        severity="critical",
    ),
    Rule(
        "dead_letters",
        "dead_letters_per_min",
        10.0,
        "per min",
        "{value:.0f} messages a minute are set aside as unreadable",
    ),
    Rule(
        "unusually_slow",
        "p95_s",
        0.5,
        "s",
        "p95 is {value:.3g} s; this hour of the week usually stays below {threshold:.3g} s",
        hold_s=300.0,
        severity="medium",
        dynamic=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement. `value` None: it could not be measured (too few requests). `usual`: the dynamic threshold, None without history."""

    signal: str
    value: float | None
    count: int = 0
    usual: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alert:
    """Where one alert stands. `since` is the start of the state; `calm_since` the first good reading while it still fires."""

    key: str
    rule: str
    state: str
    since: datetime
    updated_at: datetime
    value: float
    threshold: float
    severity: str
    summary: str
    labels: Mapping[str, str] = field(default_factory=dict)
    calm_since: datetime | None = None
    started_at: datetime | None = None

    @property
    def active(self) -> bool:
        """Whether people have been (or should be) told and it is not over."""
        return self.state in (FIRING, NO_DATA)


@dataclass(frozen=True, slots=True)
class Silence:
    """Nobody is told of alerts whose labels (with `alertname`) have all of `matches`, between the two moments."""

    silence_id: str
    matches: Mapping[str, str]
    start: datetime
    end: datetime
    note: str = ""

    def covers(self, alert: Alert, now: datetime) -> bool:
        labels = {"alertname": alert.rule, "severity": alert.severity, **alert.labels}
        return self.start <= now < self.end and all(labels.get(name) == value for name, value in self.matches.items())


def step(rules: Sequence[Rule], readings: Sequence[Reading], alerts: Sequence[Alert], now: datetime) -> list[Alert]:
    """The next state of every alert: those with a reading move on, those without keep still. Settled ones are left out."""
    known = {alert.key: alert for alert in alerts}
    out: dict[str, Alert] = {}
    for rule in rules:
        for reading in readings:
            if reading.signal == rule.signal and ("by" in reading.labels) == bool(rule.by):
                key = _key(rule, reading.labels)
                if after := _next(rule, reading, known.get(key), now):
                    out[key] = after
    for key, alert in known.items():
        if key not in out and alert.active:
            out[key] = replace(alert, updated_at=now)
    return list(out.values())


def _next(rule: Rule, reading: Reading, before: Alert | None, now: datetime) -> Alert | None:
    limit = _limit(rule, reading)
    if reading.value is None or limit is None:
        return _unmeasured(before, now)
    bad = reading.value > limit
    if before is None or before.state == RESOLVED:
        return _begin(rule, reading, limit, now) if bad else None
    fresh = replace(
        before, updated_at=now, value=reading.value, threshold=limit, summary=_summary(rule, reading.value, limit)
    )
    if before.state == PENDING:
        if not bad:
            return None
        return replace(fresh, state=FIRING, since=now) if _passed(now, before.since, rule.hold_s) else fresh
    if bad:
        return replace(fresh, state=FIRING, since=before.since if before.state == FIRING else now, calm_since=None)
    calm = before.calm_since or now
    if now - calm >= timedelta(seconds=rule.calm_s):
        return replace(fresh, state=RESOLVED, since=now, calm_since=None)
    return replace(fresh, state=FIRING, calm_since=calm)


def _passed(now: datetime, since: datetime, hold_s: float) -> bool:
    """Strictly longer than the hold, as in `for > 60 s`; a hold of 0 has always passed."""
    return hold_s <= 0 or now - since > timedelta(seconds=hold_s)


def _begin(rule: Rule, reading: Reading, limit: float, now: datetime) -> Alert:
    value = reading.value or 0.0
    state = FIRING if rule.hold_s <= 0 else PENDING
    return Alert(
        key=_key(rule, reading.labels),
        rule=rule.name,
        state=state,
        since=now,
        updated_at=now,
        value=value,
        threshold=limit,
        severity=rule.severity,
        summary=_summary(rule, value, limit),
        labels=dict(reading.labels),
        started_at=now,
    )


def _unmeasured(before: Alert | None, now: datetime) -> Alert | None:
    """A firing alert without readings is not over: it says that it cannot see. A pending one is dropped."""
    if before is None or before.state in (PENDING, RESOLVED):
        return None
    if before.state == NO_DATA:
        return replace(before, updated_at=now)
    return replace(before, state=NO_DATA, since=now, updated_at=now, calm_since=None)


def _limit(rule: Rule, reading: Reading) -> float | None:
    if not rule.dynamic:
        return rule.threshold
    return None if reading.usual is None else max(rule.threshold, reading.usual)


def _summary(rule: Rule, value: float, threshold: float) -> str:
    return rule.summary.format(value=value, threshold=threshold)


def _key(rule: Rule, labels: Mapping[str, str]) -> str:
    return "/".join((rule.name, *(f"{name}={labels[name]}" for name in sorted(labels))))
