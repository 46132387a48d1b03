"""What must happen to the tickets, given what was found. Pure: the same findings and tickets give the same plan.

Must stay true: planning twice over the same facts plans nothing the second time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from analytics.findings import Finding, iso, parse_time

OPEN, VERIFYING, CLOSED = "open", "verifying", "closed"


@dataclass(frozen=True, slots=True)
class Ticket:
    """What we know of one ticket. `told` is what its text says now; `history` one line an event, oldest first."""

    environment: str
    sink: str
    key: str
    external_id: str
    state: str
    title: str
    opened_at: datetime
    updated_at: datetime
    closed_at: datetime | None = None
    told: Mapping[str, Any] = field(default_factory=dict)
    finding: Mapping[str, Any] = field(default_factory=dict)
    history: tuple[str, ...] = ()

    def body_json(self) -> dict[str, Any]:
        """What the `Body` column keeps."""
        return {"told": dict(self.told), "finding": dict(self.finding), "history": list(self.history)}


@dataclass(frozen=True, slots=True)
class Proof:
    """What the measurements say of a problem no longer found: `better`, `same`, `worse` or `thin` (too little traffic to tell)."""

    verdict: str
    text: str
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to do at a tracker: `open`, `update`, `close` or `reopen`. `ticket` is how it stands afterwards."""

    action: str
    key: str
    reason: str
    ticket: Ticket
    finding: Finding | None

    @property
    def marker(self) -> str:
        """The word by which this ticket is found again at any tracker."""
        return marker(self.ticket.environment, self.key)

    @property
    def idempotency_key(self) -> str:
        """The same for the same change, however often it is sent."""
        parts = (self.marker, self.action, *self.ticket.history[-1:])
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Rules:
    """When a ticket is worth touching: after `quiet` since the last update and a change of impact by `moved` (0.5 = half);
    closed once better for `verified_for`."""

    quiet: timedelta = timedelta(hours=24)
    moved: float = 0.5
    verified_for: timedelta = timedelta(hours=24)
    at_least: str = "low"


class TicketSink(Protocol):
    """A tracker. `apply` is safe to repeat: it looks for the marker before it creates."""

    name: str

    def apply(self, change: Change) -> str:
        """Do it; returns the tracker's id. Raises Unavailable (later) or BadSetting (never)."""


def marker(environment: str, key: str) -> str:
    """Letters, digits and hyphens only, so that it is a label everywhere."""
    safe = "".join(char if char.isalnum() else "-" for char in environment.lower()).strip("-") or "default"
    return f"stagescope-{safe}-{key}"


def plan(
    findings: Sequence[Finding],
    tickets: Sequence[Ticket],
    now: datetime,
    *,
    proofs: Mapping[str, Proof] | None = None,
    place: tuple[str, str] = ("default", "files"),
    rules: Rules | None = None,
) -> list[Change]:
    """Changes in the order of findings, then of tickets. `place` is (environment, sink) for new tickets."""
    chosen = rules or Rules()
    levels = ("critical", "high", "medium", "low")
    wanted = {item.key: item for item in findings if item.state != "resolved"}
    known = {ticket.key: ticket for ticket in tickets}
    out: list[Change] = []
    for key, finding in wanted.items():
        ticket = known.get(key)
        if ticket is None:
            if levels.index(finding.severity) <= levels.index(chosen.at_least):
                out.append(_open(finding, now, place))
        elif ticket.state == CLOSED:
            out += _maybe_reopen(finding, ticket, now)
        elif change := _update(finding, ticket, now, chosen):
            out.append(change)
    for key, ticket in known.items():
        if key not in wanted and ticket.state != CLOSED and (proof := (proofs or {}).get(key)):
            out += _verified(ticket, proof, now, chosen)
    return out


def _open(finding: Finding, now: datetime, place: tuple[str, str]) -> Change:
    ticket = Ticket(
        *place,
        finding.key,
        "",
        OPEN,
        finding.title,
        now,
        now,
        None,
        _told(finding),
        finding.to_json(),
        (f"{_day(now)} opened: {_impact(finding)}",),
    )
    return Change("open", finding.key, "found", ticket, finding)


def _maybe_reopen(finding: Finding, ticket: Ticket, now: datetime) -> list[Change]:
    if ticket.closed_at and finding.last_seen <= ticket.closed_at:
        return []
    line = f"{_day(now)} reopened: it is back since {_day(max(finding.last_seen, finding.window.start))}, {_impact(finding)}"
    after = replace(
        ticket,
        state=OPEN,
        title=finding.title,
        updated_at=now,
        closed_at=None,
        told=_told(finding),
        finding=finding.to_json(),
        history=(*ticket.history, line),
    )
    return [Change("reopen", ticket.key, "the problem came back", after, finding)]


def _update(finding: Finding, ticket: Ticket, now: datetime, rules: Rules) -> Change | None:
    told = _told(finding)
    changed = [name for name in ("severity", "cause", "recommendation") if told[name] != ticket.told.get(name)]
    reason = f"{', '.join(changed)} changed" if changed else ""
    if ticket.state == VERIFYING:
        reason = "seen again while it was being verified"
    elif not reason and now - ticket.updated_at >= rules.quiet:
        reason = _moved(told, ticket.told, rules.moved)
    elif changed == ["severity"] and now - ticket.updated_at < rules.quiet and not _worse(finding, ticket):
        return None
    if not reason:
        return None
    after = replace(
        ticket,
        state=OPEN,
        title=finding.title,
        updated_at=now,
        told=told,
        finding=finding.to_json(),
        history=(*ticket.history, f"{_day(now)} {reason}: {_impact(finding)}"),
    )
    return Change("update", ticket.key, reason, after, finding)


def _worse(finding: Finding, ticket: Ticket) -> bool:
    levels = ("critical", "high", "medium", "low")
    before = str(ticket.told.get("severity", "low"))
    return levels.index(finding.severity) < levels.index(before)


def _moved(told: Mapping[str, Any], before: Mapping[str, Any], limit: float) -> str:
    """Words for an impact that moved by more than the limit; per hour, so that a longer window is not news."""
    for name in ("requests_per_hour", "lost_seconds_per_hour"):
        old, new = float(before.get(name, 0.0)), float(told[name])
        if abs(new - old) > limit * max(old, 1e-9) and max(old, new) > 0:
            return f"{name.replace('_', ' ')} went from {old:.3g} to {new:.3g}"
    return ""


def _verified(ticket: Ticket, proof: Proof, now: datetime, rules: Rules) -> list[Change]:
    before = None if not ticket.finding else Finding.from_json(dict(ticket.finding))
    if proof.verdict != "better":
        return []
    since = parse_time(str(ticket.told["better_since"])) if ticket.told.get("better_since") else (proof.since or now)
    if now - since >= rules.verified_for:
        line = f"{_day(now)} closed, verified: {proof.text}"
        after = replace(ticket, state=CLOSED, updated_at=now, closed_at=now, history=(*ticket.history, line))
        return [Change("close", ticket.key, proof.text, after, before)]
    if ticket.state == VERIFYING:
        return []
    hours = rules.verified_for.total_seconds() / 3600
    line = f"{_day(now)} better: {proof.text}; closes when it stays so for {hours:g} h since {_day(since)}"
    told = {**ticket.told, "better_since": iso(since)}
    after = replace(ticket, state=VERIFYING, updated_at=now, told=told, history=(*ticket.history, line))
    return [Change("update", ticket.key, "better, being verified", after, before)]


def _told(finding: Finding) -> dict[str, Any]:
    hours = max(finding.window.seconds / 3600, 1e-9)
    return {
        "severity": finding.severity,
        "cause": finding.cause,
        "recommendation": finding.recommendation,
        "requests_per_hour": round(finding.requests / hours, 4),
        "lost_seconds_per_hour": round(finding.lost_seconds / hours, 4),
    }


def _impact(finding: Finding) -> str:
    users = f", {finding.users} users" if finding.users else ""
    return f"{finding.requests} requests{users}, {finding.lost_seconds:.0f} s lost, severity {finding.severity}"


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def as_row(ticket: Ticket) -> dict[str, Any]:
    """A ticket as plain values, for --json."""
    out = asdict(ticket)
    for name in ("opened_at", "updated_at", "closed_at"):
        out[name] = iso(out[name]) if out[name] else None
    return out
