"""Bring a tracker in line with what was found: claim, look, plan, apply, record. One ticket a problem and environment.

Must stay true: several senders at once, or a crash between sending and recording, never make a second ticket.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pandas as pd

from analytics.failures_load import records
from analytics.findings import Finding
from analytics.tickets_plan import CLOSED, Change, Proof, Rules, Ticket, TicketSink, plan
from analytics.tickets_verify import proofs as measured
from ingest.errors import StagescopeError, Unavailable
from ingest.store import Store

LEASE_S = 120

__all__ = ["Change", "Done", "Proof", "Rules", "Ticket", "TicketSink", "plan", "read", "sync"]


@dataclass(frozen=True, slots=True)
class Done:
    """One change and what became of it: `external_id` when applied, else `problem` in one line."""

    change: Change
    external_id: str = ""
    problem: str = ""


def sync(
    store: Store,
    sink: TicketSink,
    findings: Sequence[Finding],
    *,
    environment: str = "default",
    now: datetime | None = None,
    rules: Rules | None = None,
    dry_run: bool = False,
) -> list[Done]:
    """Open, update, close and reopen at `sink`; returns what was done, in order. With `dry_run` nothing is sent or recorded."""
    moment = now or datetime.now(UTC)
    tickets = read(store, environment, sink.name)
    wanted = {item.key for item in findings if item.state != "resolved"}
    silent = [item for item in tickets if item.state != CLOSED and item.key not in wanted]
    proof = measured(store, silent, moment)
    place = (environment, sink.name)
    changes = plan(findings, tickets, moment, proofs=proof, place=place, rules=rules)
    if dry_run:
        return [Done(change) for change in changes]
    out: list[Done] = []
    for change in changes:
        out += _one(store, sink, change, (findings, proof, moment, rules))
    return out


def read(store: Store, environment: str, sink: str) -> list[Ticket]:
    """The tickets of one environment and tracker, as last recorded."""
    rows = store.read(
        "SELECT * FROM tickets WHERE Environment = {environment:String} AND Sink = {sink:String} ORDER BY OpenedAt, Key",
        environment=environment,
        sink=sink,
    )
    return [_ticket(row) for row in records(rows)]


def _one(
    store: Store,
    sink: TicketSink,
    change: Change,
    facts: tuple[Sequence[Finding], Mapping[str, Proof], datetime, Rules | None],
) -> list[Done]:
    """Claim the key, plan it again from what is recorded by now, send, record, let go."""
    environment = change.ticket.environment
    claim = _claim(store, environment, sink.name, change.key)
    if claim is None:
        return [Done(change, problem="another sender is at it")]
    try:
        findings, proof, moment, rules = facts
        mine = [item for item in findings if item.key == change.key]
        standing = [item for item in read(store, environment, sink.name) if item.key == change.key]
        again = plan(mine, standing, moment, proofs=proof, place=(environment, sink.name), rules=rules)
        return [_send(store, sink, item) for item in again]
    finally:
        _release(store, environment, sink.name, change.key, claim)


def _send(store: Store, sink: TicketSink, change: Change) -> Done:
    try:
        external = sink.apply(change)
    except Unavailable as err:
        return Done(change, problem=str(err))
    except StagescopeError as err:
        return Done(change, problem=str(err))
    _record(store, replace(change.ticket, external_id=external))
    return Done(change, external)


def _record(store: Store, ticket: Ticket) -> None:
    row = {
        "Environment": ticket.environment,
        "Sink": ticket.sink,
        "Key": ticket.key,
        "ExternalId": ticket.external_id,
        "State": ticket.state,
        "Title": ticket.title,
        "Body": orjson.dumps(ticket.body_json()).decode(),
        "OpenedAt": pd.Timestamp(ticket.opened_at).floor("ms"),
        "UpdatedAt": pd.Timestamp(ticket.updated_at).floor("ms"),
        "ClosedAt": pd.Timestamp(ticket.closed_at).floor("ms") if ticket.closed_at else None,
    }
    frame = pd.DataFrame([row])
    frame["ClosedAt"] = pd.to_datetime(frame["ClosedAt"], utc=True)
    store.insert("tickets", frame)


def _ticket(row: Mapping[str, Any]) -> Ticket:
    body = orjson.loads(str(row["Body"]))
    closed = row["ClosedAt"]
    return Ticket(
        str(row["Environment"]),
        str(row["Sink"]),
        str(row["Key"]),
        str(row["ExternalId"]),
        str(row["State"]),
        str(row["Title"]),
        _utc(row["OpenedAt"]),
        _utc(row["UpdatedAt"]),
        None if closed is None or pd.isna(closed) else _utc(closed),
        body["told"],
        body["finding"],
        tuple(body["history"]),
    )


def _claim(store: Store, environment: str, sink: str, key: str) -> tuple[int, str] | None:
    """(epoch, owner) when this sender may act on the key. The store keeps the first of two rows with one token: that one has won."""
    where = {"environment": environment, "sink": sink, "key": key}
    last = _last_claim(store, where)
    if last is not None and not int(last["Released"]) and not _stale(str(last["Owner"]), _utc(last["At"])):
        return None
    epoch = int(last["Epoch"]) + 1 if last is not None else 1
    owner = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:12]}"
    _put_claim(store, where, (epoch, owner), released=False)
    won = _last_claim(store, where)
    return (epoch, owner) if won is not None and (int(won["Epoch"]), won["Owner"]) == (epoch, owner) else None


def _release(store: Store, environment: str, sink: str, key: str, claim: tuple[int, str]) -> None:
    _put_claim(store, {"environment": environment, "sink": sink, "key": key}, claim, released=True)


def _put_claim(store: Store, where: Mapping[str, str], claim: tuple[int, str], *, released: bool) -> None:
    row = {
        "Environment": where["environment"],
        "Sink": where["sink"],
        "Key": where["key"],
        "Epoch": claim[0],
        "Owner": claim[1],
        "Released": int(released),
        "At": pd.Timestamp(datetime.now(UTC)).floor("ms"),
    }
    token = "claim/" + "/".join(where.values()) + f"/{claim[0]}/{int(released)}"
    store.insert("ticket_claims", pd.DataFrame([row]), token=token)


def _last_claim(store: Store, where: Mapping[str, str]) -> Mapping[str, Any] | None:
    rows = store.read(
        "SELECT Epoch, Owner, Released, At FROM ticket_claims WHERE Environment = {environment:String} "
        "AND Sink = {sink:String} AND Key = {key:String} ORDER BY Epoch DESC, Released DESC LIMIT 1",
        **where,
    )
    return records(rows)[0] if len(rows) else None


def _stale(owner: str, at: datetime) -> bool:
    """A claim of a process that died on this machine, or one past its lease."""
    host, pid, _ = owner.split("/", 2)
    if host == socket.gethostname() and int(pid) != os.getpid():
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
    return (datetime.now(UTC) - at).total_seconds() > LEASE_S


def _utc(value: Any) -> datetime:
    stamp = pd.Timestamp(value)
    moment: datetime = (stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")).to_pydatetime(
        warn=False
    )
    return moment
