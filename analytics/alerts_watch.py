"""One turn of the alerts: read, step, remember, tell. And the loop that takes turns.

Must stay true: what was told is remembered beside the state, so that a restart neither repeats nor forgets.
"""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import pyarrow as pa

from analytics.alerts import BUILT_IN, PENDING, RESOLVED, SIGNALS, Alert, Rule, Silence, step
from analytics.alerts_load import readings
from analytics.alerts_send import Notifier
from analytics.failures_load import records
from analytics.findings import iso, parse_time
from ingest.errors import BadSetting, StagescopeError, Unavailable
from ingest.store import Store

REMIND = timedelta(hours=4)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn did: every alert that is not settled, those told of by receiver, and what could not be told."""

    alerts: tuple[Alert, ...]
    told: Mapping[str, tuple[str, ...]]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """An alert as stored: with the state each receiver was last told, and when."""

    alert: Alert
    told: Mapping[str, tuple[str, datetime]]


def turn(store: Store, rules: Sequence[Rule], notifiers: Sequence[Notifier], now: datetime) -> Turn:
    """Read, step, tell, remember. A receiver that is away is told at a later turn."""
    before = {kept.alert.key: kept for kept in read(store)}
    alive = [kept.alert for kept in before.values() if kept.alert.state != RESOLVED]
    after = {alert.key: alert for alert in step(rules, readings(store, rules, now), alive, now)}
    quiet = silences(store, now)
    untold = {key: kept.alert for key, kept in before.items() if kept.alert.state == RESOLVED and key not in after}
    told: dict[str, dict[str, tuple[str, datetime]]] = {
        key: dict(before[key].told) if key in before else {} for key in {**untold, **after}
    }
    sent: dict[str, tuple[str, ...]] = {}
    problems: list[str] = []
    for notifier in notifiers:
        wanted = [
            item
            for item in {**untold, **after}.values()
            if _due(item, told[item.key].get(notifier.name), notifier, now)
        ]
        heard = [item for item in wanted if not any(silence.covers(item, now) for silence in quiet)]
        if not heard:
            continue
        try:
            notifier.send(heard, now)
        except StagescopeError as err:
            problems.append(f"{notifier.name}: {err}")
            continue
        sent[notifier.name] = tuple(item.key for item in heard)
        for item in heard:
            told[item.key][notifier.name] = (item.state, now)
    dropped = [kept for key, kept in before.items() if kept.alert.state == PENDING and key not in after]
    _write(store, [Kept(item, told[item.key]) for item in {**untold, **after}.values()], dropped, now)
    return Turn(tuple(after.values()), sent, tuple(problems))


def _due(alert: Alert, last: tuple[str, datetime] | None, notifier: Notifier, now: datetime) -> bool:
    """Changes are told once; what goes on is told again after REMIND, or every turn where the receiver wants that."""
    if alert.state == PENDING:
        return False
    if alert.state == RESOLVED:
        return last is not None and last[0] != RESOLVED
    return last is None or last[0] != alert.state or notifier.every_turn or now - last[1] >= REMIND


def watch(
    store: Store,
    rules: Sequence[Rule],
    notifiers: Sequence[Notifier],
    stop: threading.Event,
    *,
    every_s: float = 15.0,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    say: Callable[[str], None] = print,
) -> None:
    """Take turns until `stop`; says each change of state, and what is away, in one line."""
    states: dict[str, str] = {}
    while not stop.is_set():
        try:
            done = turn(store, rules, notifiers, clock())
        except Unavailable as err:
            say(f"alerts: {err}")
            stop.wait(max(every_s, err.retry_after_s))
            continue
        for alert in done.alerts:
            if states.get(alert.key) != alert.state:
                say(f"alert {alert.key}: {alert.state}: {alert.summary}")
        states = {alert.key: alert.state for alert in done.alerts}
        for problem in done.problems:
            say(f"alerts: {problem}")
        stop.wait(every_s)


def read(store: Store) -> list[Kept]:
    """Every alert the store knows, settled ones too."""
    return [_kept(row) for row in records(store.read("SELECT * FROM alerts ORDER BY Key"))]


def silence(store: Store, item: Silence) -> None:
    """Add or replace a silence (by id)."""
    row = {"Id": item.silence_id, "Start": pd.Timestamp(item.start), "End": pd.Timestamp(item.end), "Note": item.note}
    table = pa.Table.from_pandas(pd.DataFrame([row]), preserve_index=False)
    matches = pa.array([list(item.matches.items())], pa.map_(pa.string(), pa.string()))
    store.insert("alert_silences", table.append_column("Matches", matches))


def silences(store: Store, now: datetime) -> list[Silence]:
    """Those in force at `now`."""
    rows = store.read(
        "SELECT * FROM alert_silences WHERE Start <= {now:DateTime64(3)} AND End > {now:DateTime64(3)}", now=now
    )
    return [
        Silence(str(row["Id"]), dict(row["Matches"]), _utc(row["Start"]), _utc(row["End"]), str(row["Note"]))
        for row in records(rows)
    ]


def load_rules(path: Path | None) -> tuple[Rule, ...]:
    """`[[rule]]` tables of an alerts.toml (fields as in Rule; a name of a built-in rule replaces it). Raises BadSetting."""
    if path is None:
        return BUILT_IN
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise BadSetting("STAGESCOPE_ALERT_RULES", str(path), f"a readable TOML file ({err})") from err
    rules = {rule.name: rule for rule in BUILT_IN}
    known = {item.name for item in fields(Rule)} - {"by"}
    for table in document.get("rule", []):
        base = rules.get(str(table.get("name", "")))
        unknown = sorted(set(table) - known)
        try:
            rule = replace(base, **table) if base else Rule(**{"unit": "", **table})
        except TypeError:
            rule = None
        if unknown or rule is None or rule.signal not in SIGNALS or not isinstance(rule.threshold, int | float):
            wanted = f"name, signal ({', '.join(SIGNALS)}), threshold, summary and any of {', '.join(sorted(known))}"
            raise BadSetting("STAGESCOPE_ALERT_RULES", unknown[0] if unknown else table, wanted)
        rules[rule.name] = rule
    return tuple(rule for rule in rules.values() if rule.severity != "off")


def _write(store: Store, kept: Sequence[Kept], dropped: Sequence[Kept], now: datetime) -> None:
    gone = [replace(item, alert=replace(item.alert, state=RESOLVED, updated_at=now)) for item in dropped]
    rows = [_row(item, now) for item in [*kept, *gone]]
    if rows:
        store.insert("alerts", pd.DataFrame(rows))


def _row(kept: Kept, now: datetime) -> dict[str, Any]:
    alert = kept.alert
    body = {
        "severity": alert.severity,
        "summary": alert.summary,
        "labels": dict(alert.labels),
        "calm_since": iso(alert.calm_since) if alert.calm_since else None,
        "started_at": iso(alert.started_at) if alert.started_at else None,
        "told": {name: [state, iso(at)] for name, (state, at) in kept.told.items()},
    }
    return {
        "Key": alert.key,
        "Rule": alert.rule,
        "State": alert.state,
        "Since": pd.Timestamp(alert.since).floor("ms"),
        "UpdatedAt": pd.Timestamp(now).floor("ms"),
        "Value": alert.value,
        "Threshold": alert.threshold,
        "Body": orjson.dumps(body).decode(),
    }


def _kept(row: Mapping[str, Any]) -> Kept:
    body = orjson.loads(str(row["Body"]))
    alert = Alert(
        str(row["Key"]),
        str(row["Rule"]),
        str(row["State"]),
        _utc(row["Since"]),
        _utc(row["UpdatedAt"]),
        float(row["Value"]),
        float(row["Threshold"]),
        body["severity"],
        body["summary"],
        body["labels"],
        parse_time(body["calm_since"]) if body["calm_since"] else None,
        parse_time(body["started_at"]) if body["started_at"] else None,
    )
    return Kept(alert, {name: (state, parse_time(at)) for name, (state, at) in body["told"].items()})


def _utc(value: Any) -> datetime:
    stamp = pd.Timestamp(value)
    moment: datetime = (stamp.tz_localize(UTC) if stamp.tzinfo is None else stamp.tz_convert(UTC)).to_pydatetime(
        warn=False
    )
    return moment
