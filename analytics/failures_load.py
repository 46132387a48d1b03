"""Failure clusters out of the store: counts, users, trend, and what sets a cluster apart. The SQL of failures.py.

Must stay true: echoes and people's verdicts are respected in every number.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analytics.findings import Window
from analytics.templates_mask import HOLE, mask_token
from ingest.store import Store

DIMENSIONS = "ServiceName Stage Tier Tool Model Region Device UserTier Version Host ErrorType".split()
APART = {
    "Tool": "tool",
    "Region": "region",
    "Device": "device",
    "UserTier": "user tier",
    "Version": "version",
    "Host": "host",
}
_IN = "f.Timestamp >= {start:DateTime64(9)} AND f.Timestamp < {end:DateTime64(9)}"
CLUSTER = (
    "transform(if(p.ClusterId = '', f.ClusterId, p.ClusterId), {olds:Array(String)}, {news:Array(String)}, "
    "if(p.ClusterId = '', f.ClusterId, p.ClusterId))"
)
FROM = "failures AS f LEFT JOIN failure_patterns AS p ON f.PatternId = p.PatternId"


def representatives(store: Store) -> dict[str, str]:
    """Cluster id → the id that stands for it, from the verdicts that two are the same; the oldest stands for all."""
    rows = store.read("SELECT One, Other FROM failure_verdicts WHERE Same = 1 ORDER BY At, One, Other")
    if not len(rows):
        return {}
    ages = store.read("SELECT ClusterId, min(Place) AS place FROM failure_patterns GROUP BY ClusterId")
    age: dict[str, float] = {str(row["ClusterId"]): float(row["place"]) for row in records(ages)}
    home: dict[str, str] = {}

    def top(name: str) -> str:
        while home.get(name, name) != name:
            name = home[name]
        return name

    for one, other in zip(rows["One"], rows["Other"], strict=True):
        first, second = sorted((top(one), top(other)), key=lambda item: (age.get(item, math.inf), item))
        home[second] = first
    return {name: top(name) for name in home if top(name) != name}


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dictionaries by column name."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def traffic(store: Store, window: Window) -> tuple[int, int]:
    """(requests, stage runs) of a window."""
    row = store.read(
        "SELECT uniq(TraceId) AS requests, count() AS runs FROM stage_runs "
        "WHERE Timestamp >= {start:DateTime64(9)} AND Timestamp < {end:DateTime64(9)}",
        start=window.start,
        end=window.end,
    ).iloc[0]
    return int(row["requests"]), int(row["runs"])


def clusters(store: Store, window: Window | None) -> pd.DataFrame:
    """See failures.clusters."""
    span = window or _all(store)
    names = representatives(store)
    common: dict[str, Any] = {"olds": list(names) or [""], "news": list(names.values()) or [""]}
    counts = _counts(store, span, common)
    if not len(counts):
        return _empty()
    before = Window(span.start - (span.end - span.start), span.start)
    requests, earlier = traffic(store, span)[0], traffic(store, before)[0]
    ever = _first_seen(store, common)
    old = _counts(store, before, common)
    old_counts: dict[str, int] = {str(row["cluster_id"]): int(row["count"]) for row in records(old)}
    values, usual = _values(store, span, common), _usual(store, span)
    samples = _samples(store, span, common)
    rows: list[dict[str, Any]] = []
    for row in records(counts):
        key = str(row["cluster_id"])
        row["first_seen"] = min(ever.get(key, row["first_seen"]), row["first_seen"])
        row["before"] = int(old_counts.get(key, 0))
        row["trend"], row["change"] = trend(int(row["count"]), requests, row["before"], earlier)
        row["share"] = row["count"] / max(1, requests, row["count"])
        rows.append({**row, **_described(values[values["cluster_id"] == key], usual), **samples[key]})
    out = pd.DataFrame(rows)
    out["label"] = [_label(row) for row in rows]
    out = out.sort_values(["count", "cluster_id"], ascending=[False, True]).reset_index(drop=True)
    return out[[*_empty().columns]]


def trend(now: int, requests: int, before: int, earlier: int) -> tuple[str, float]:
    """('new' | 'rising' | 'falling' | 'steady' | 'unknown', change of the rate). Two Poisson rates, |z| > 2 and 20 % apart."""
    if earlier <= 0 or requests <= 0:
        return "unknown", math.nan
    if before == 0:
        return "new", math.inf
    rate, old = now / requests, before / earlier
    change = rate / old - 1
    pooled = (now + before) / (requests + earlier)
    z = (rate - old) / math.sqrt(pooled * (1 / requests + 1 / earlier))
    if abs(z) > 2 and abs(change) > 0.2:
        return ("rising" if change > 0 else "falling"), change
    return "steady", change


def remember(store: Store, frame: pd.DataFrame) -> None:
    """Keep the latest word on each cluster in `failure_clusters`."""
    if not len(frame):
        return
    extras = ["service", "stage", "tool", "trend", "share", "events", "error_type", "example", "examples"]
    rows = pd.DataFrame(
        {
            "ClusterId": frame["cluster_id"],
            "Label": frame["label"],
            "Scene": frame["scene"],
            "FirstSeen": pd.to_datetime(frame["first_seen"]),
            "LastSeen": pd.to_datetime(frame["last_seen"]),
            "Count": frame["count"].astype("uint64"),
            "Users": frame["users"].astype("uint64"),
            "Body": [json.dumps(row, default=str) for row in frame[extras].to_dict("records")],
        }
    )
    store.insert("failure_clusters", rows)


def _all(store: Store) -> Window:
    row = store.read("SELECT min(Timestamp) AS first, max(Timestamp) + INTERVAL 1 SECOND AS last FROM failures").iloc[0]
    first, last = (pd.Timestamp(row[name]).tz_localize("UTC") for name in ("first", "last"))
    return Window(first.to_pydatetime(warn=False), last.to_pydatetime(warn=False))


def _counts(store: Store, window: Window, common: dict[str, Any]) -> pd.DataFrame:
    return store.read(
        "SELECT cluster_id, count() AS count, sum(n) AS events, sum(healed) AS recovered, sum(lost) / 1e9 AS lost_seconds, "
        "uniqExactIf(user, user != '') AS users, min(first) AS first_seen, max(last) AS last_seen, topKWeighted(1)(scene, n)[1] AS scene "
        f"FROM (SELECT {CLUSTER} AS cluster_id, f.TraceId AS TraceId, count() AS n, max(f.Recovered) AS healed, "
        "max(f.Lost) AS lost, max(f.UserId) AS user, min(f.Timestamp) AS first, max(f.Timestamp) AS last, "
        f"any(if(p.Scene = '', 'new', p.Scene)) AS scene FROM {FROM} WHERE {_IN} AND f.Echo = 0 "
        "GROUP BY cluster_id, TraceId) GROUP BY cluster_id ORDER BY cluster_id",
        start=window.start,
        end=window.end,
        **common,
    )


def _first_seen(store: Store, common: dict[str, Any]) -> dict[str, Any]:
    rows = store.read(
        f"SELECT {CLUSTER} AS cluster_id, min(f.Timestamp) AS first FROM {FROM} WHERE f.Echo = 0 GROUP BY cluster_id",
        **common,
    )
    return dict(zip(rows["cluster_id"], rows["first"], strict=True)) if len(rows) else {}


def _values(store: Store, window: Window, common: dict[str, Any]) -> pd.DataFrame:
    """Requests a cluster and dimension value."""
    pairs = ", ".join(f"('{name}', toString(f.{name}))" for name in DIMENSIONS)
    return store.read(
        f"SELECT {CLUSTER} AS cluster_id, pair.1 AS name, pair.2 AS value, count() AS n FROM {FROM} "
        f"ARRAY JOIN [{pairs}] AS pair WHERE {_IN} AND f.Echo = 0 GROUP BY cluster_id, name, value "
        "ORDER BY cluster_id, name, n DESC, value LIMIT 5 BY cluster_id, name",
        start=window.start,
        end=window.end,
        **common,
    )


def _usual(store: Store, window: Window) -> dict[tuple[str, str, str], float]:
    """Share of each dimension value among all runs of a stage: (stage, dimension, value) → 0..1."""
    pairs = ", ".join(f"('{name}', toString({name}))" for name in APART)
    rows = store.read(
        f"SELECT Stage, pair.1 AS name, pair.2 AS value, count() AS n FROM stage_runs ARRAY JOIN [{pairs}] AS pair "
        "WHERE Timestamp >= {start:DateTime64(9)} AND Timestamp < {end:DateTime64(9)} AND Stage IN "
        "(SELECT DISTINCT Stage FROM failures WHERE Timestamp >= {start:DateTime64(9)} AND Timestamp < {end:DateTime64(9)}) "
        "GROUP BY Stage, name, value ORDER BY n DESC LIMIT 50 BY Stage, name",
        start=window.start,
        end=window.end,
    )
    if not len(rows):
        return {}
    total = rows.groupby(["Stage", "name"], observed=True)["n"].transform("sum")
    keys = zip(rows["Stage"].astype(str), rows["name"].astype(str), rows["value"].astype(str), strict=True)
    return dict(zip(keys, (rows["n"] / total).astype(float), strict=True))


def _described(values: pd.DataFrame, usual: dict[tuple[str, str, str], float]) -> dict[str, Any]:
    """The leading value of each dimension, and those that set the cluster apart (80 % here, half as many usually)."""
    top: dict[str, tuple[str, float]] = {}
    for name, part in values.groupby("name", observed=True):
        first = part.iloc[0]
        top[str(name)] = (str(first["value"]), float(first["n"]) / float(part["n"].sum()))
    stage = top["Stage"][0]
    apart = []
    for name, word in APART.items():
        value, share = top[name]
        normal = usual.get((stage, name, value), 0.0)
        if value and share >= 0.8 and 0 < normal <= share / 2:
            apart.append({"name": word, "value": value, "share": share, "usual": normal})
    out: dict[str, Any] = {"apart": apart, "dimension": "; ".join(f"{item['name']}={item['value']}" for item in apart)}
    for column, name in (("service", "ServiceName"), ("error_type", "ErrorType")):
        out[column] = top[name][0]
    for name in ("Stage", "Tier", "Tool", "Model", "Version"):
        out[name.lower()] = top[name][0] if top[name][1] >= 0.5 else ""
    out["stage"] = stage
    return out


def _samples(store: Store, window: Window, common: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Five traces and the commonest message of each cluster."""
    traces = store.read(
        f"SELECT {CLUSTER} AS cluster_id, f.TraceId AS TraceId, max(f.Timestamp) AS at FROM {FROM} WHERE {_IN} AND f.Echo = 0 "
        "GROUP BY cluster_id, TraceId ORDER BY cluster_id, at DESC, TraceId LIMIT 5 BY cluster_id",
        start=window.start,
        end=window.end,
        **common,
    )
    messages = store.read(
        f"SELECT {CLUSTER} AS cluster_id, substring(f.Message, 1, 2000) AS text, count() AS n, any(nt.Atoms) AS atoms "
        f"FROM {FROM} LEFT JOIN failure_templates AS nt ON p.TemplateId = nt.TemplateId WHERE {_IN} AND f.Echo = 0 "
        "GROUP BY cluster_id, text ORDER BY cluster_id, n DESC, text LIMIT 1 BY cluster_id",
        start=window.start,
        end=window.end,
        **common,
    )
    out: dict[str, dict[str, Any]] = {}
    for row in records(messages):
        out[str(row["cluster_id"])] = {"example": str(row["text"]), "atoms": list(row["atoms"]), "most": int(row["n"])}
    for key, part in traces.groupby("cluster_id", observed=True):
        out[str(key)]["examples"] = part["TraceId"].astype(str).tolist()
    return out


def _label(row: dict[str, Any]) -> str:
    """Error type and text: the commonest message itself, with an ellipsis wherever the cluster's messages differ."""
    text = row["example"] if row["most"] >= 0.8 * row["events"] else outline(row["example"], row["atoms"])
    text = " ".join(text.split()) or "(no message)"
    kind = "" if not row["error_type"] or row["error_type"] in text else f"{row['error_type']}: "
    where = f" [{row['dimension']}]" if row["dimension"] else ""
    return f"{kind}{text[:160]}{where}"


def outline(message: str, atoms: Sequence[str]) -> str:
    """`message` with `…` for each token that is not in its pattern."""
    kept = set(atoms) - {HOLE}
    out: list[str] = []
    for token in message[:400].split():
        masked = mask_token(token).split()
        if HOLE in masked or any(part not in kept and any(map(str.isalnum, part)) for part in masked):
            out.append("…")
        else:
            out.append(token)
    return re.sub(r"…(?: …)+", "…", " ".join(out))


def _empty() -> pd.DataFrame:
    names = (
        "cluster_id label count users first_seen last_seen trend scene examples service stage tier tool model version dimension "
        "events recovered lost_seconds share change before error_type example apart"
    ).split()
    return pd.DataFrame({name: pd.Series(dtype=object) for name in names})
