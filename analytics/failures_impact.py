"""What a failure costs and how to get at it: tools, fingerprint, the smallest request that repeats it, the fault-domain walk.

Must stay true: every tick of the walk shows what was measured, or says that it was not.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analytics.failures_load import CLUSTER, FROM, records, representatives
from analytics.findings import Finding, Window
from ingest.store import Store

_IN = "f.Timestamp >= {start:DateTime64(9)} AND f.Timestamp < {end:DateTime64(9)}"
BODIES = (
    "http.request.body",
    "input.value",
    "gen_ai.input.messages",
    "traceloop.entity.input",
    "ai.prompt",
    "gen_ai.prompt",
)
KEPT_OUT = frozenset(("user.id", "enduser.id", "authorization", "cookie"))


def tools(store: Store, window: Window, most: int = 10) -> list[dict[str, Any]]:
    """Tools by what they contribute to failed requests: `tool, failed, share, without`. `without`: by how much failures fall
    without this tool and those above it, counting a request only when nothing else in it failed."""
    rows = store.read(
        "SELECT tools, count() AS n FROM (SELECT TraceId, arraySort(groupUniqArray(toString(Tool))) AS tools FROM failures AS f "
        f"WHERE {_IN} AND Echo = 0 GROUP BY TraceId) GROUP BY tools",
        start=window.start,
        end=window.end,
    )
    sets = [(frozenset(map(str, row["tools"])), int(row["n"])) for row in records(rows)]
    return contribution(sets, most)


def contribution(sets: Sequence[tuple[frozenset[str], int]], most: int = 10) -> list[dict[str, Any]]:
    """From (tools that failed in a request, number of such requests); '' stands for a stage that is no tool. Greedy, largest first."""
    total = sum(count for _, count in sets)
    names = sorted({name for found, _ in sets for name in found if name})
    out: list[dict[str, Any]] = []
    gone: frozenset[str] = frozenset()
    while names and len(out) < most:
        spared = {name: sum(n for found, n in sets if found <= gone | {name}) for name in names}
        hit = {name: sum(n for found, n in sets if name in found) for name in names}
        best = max(names, key=lambda name: (spared[name], hit[name], name))
        gone |= {best}
        names.remove(best)
        out.append({"tool": best, "failed": hit[best], "share": hit[best] / total, "without": spared[best] / total})
    return out


def fingerprint(store: Store, finding: Finding) -> dict[str, str]:
    """What the failing requests have in common: model, GPU, version, host, prompt size; values that 80 % or more share."""
    rows = store.read(
        f"SELECT f.Model AS model, f.Version AS version, f.Host AS host, f.Stage AS stage, f.ErrorType AS error, s.InputTokens AS tokens, "
        f"g.Gpu AS gpu FROM {FROM} LEFT JOIN stage_runs AS s ON f.TraceId = s.TraceId AND f.SpanId = s.SpanId "
        "LEFT JOIN (SELECT Host, any(Model) AS Gpu FROM gpu_samples GROUP BY Host) AS g ON f.Host = g.Host "
        f"WHERE {_IN} AND f.Echo = 0 AND {CLUSTER} = {{cluster:String}} LIMIT 20000",
        **_params(store, finding),
    )
    out: dict[str, str] = {}
    for name in ("error", "stage", "model", "gpu", "version", "host") if len(rows) else ():
        counts = rows[name].astype(str).value_counts(normalize=True)
        if len(counts) and counts.index[0] and counts.iloc[0] >= 0.8:
            out[name] = str(counts.index[0])
    tokens = pd.to_numeric(rows["tokens"], errors="coerce").dropna() if len(rows) else pd.Series(dtype=float)
    if len(tokens):
        out["input tokens"] = f"{tokens.quantile(0.1):,.0f} to {tokens.quantile(0.9):,.0f}"
    return out


def smallest_request(store: Store, finding: Finding) -> str:
    """A `curl` of the failing request with the fewest spans and tokens, from what its first span says; '' when that is no HTTP."""
    rows = store.read(
        "SELECT TraceId, count() AS spans, sum(ifNull(InputTokens, 0)) AS tokens FROM stage_runs WHERE TraceId IN "
        f"(SELECT f.TraceId FROM {FROM} WHERE {_IN} AND f.Echo = 0 AND {CLUSTER} = {{cluster:String}}) "
        "GROUP BY TraceId ORDER BY tokens, spans, TraceId LIMIT 1",
        **_params(store, finding),
    )
    if not len(rows):
        return ""
    spans = store.read(
        "SELECT SpanName, SpanKind, ParentSpanId, SpanAttributes AS said FROM otel_traces WHERE TraceId = {trace:String} ORDER BY Timestamp",
        trace=str(rows.iloc[0]["TraceId"]),
    )
    return curl([{**row, "said": dict(row["said"])} for row in records(spans)])


def curl(spans: Sequence[Mapping[str, Any]]) -> str:
    """One `curl` command from the spans of a trace, outermost first. Ids of people and secrets are left out."""
    entry = next((span for span in spans if _route(span["said"])), None)
    if entry is None:
        return ""
    said = entry["said"]
    method = said.get("http.request.method") or said.get("http.method") or "POST"
    body = next((span["said"][name] for span in spans for name in BODIES if span["said"].get(name)), "")
    if not body and method in ("POST", "PUT", "PATCH"):
        facts = {name: value for name, value in said.items() if _repeatable(name)}
        body = json.dumps(facts, ensure_ascii=False, sort_keys=True)
    parts = ["curl", "-sS", "-X", method, _url(said)]
    if body:
        parts += ["-H", "content-type: application/json", "--data-raw", body[:20_000]]
    return " ".join(shlex.quote(part) for part in parts)


def _route(said: Mapping[str, str]) -> str:
    return next(
        (said[name] for name in ("url.full", "http.url", "url.path", "http.target", "http.route") if said.get(name)), ""
    )


def _url(said: Mapping[str, str]) -> str:
    path = _route(said)
    if "://" in path:
        return path
    host = said.get("server.address") or said.get("net.host.name") or said.get("http.host") or "127.0.0.1"
    port = said.get("server.port") or said.get("net.host.port") or ""
    return f"{said.get('url.scheme') or 'http'}://{host}{':' + port if port else ''}{path}"


def _repeatable(name: str) -> bool:
    """Attributes that describe the request, not its handling."""
    known = name.startswith(
        ("agent.", "user.", "session.", "device.", "cloud.region", "gen_ai.request.", "stagescope.request.")
    )
    return known and name not in KEPT_OUT


def walk(store: Store, finding: Finding) -> list[tuple[str, str, bool | None]]:
    """The trouble-shooting order as (question, measured, points here); None: not measured."""
    row = store.read(
        "SELECT quantileIf(0.5)(s.Evidence['kv_usage'], mapContains(s.Evidence, 'kv_usage')) AS kv, "
        "countIf(mapContains(s.Evidence, 'kv_usage')) AS kvs, quantile(0.95)(s.Duration) / 1e9 AS p95, "
        "quantileIf(0.5)(s.PayloadBytes, s.PayloadBytes IS NOT NULL) AS bytes, countIf(s.PayloadBytes IS NOT NULL) AS sized, "
        "quantileIf(0.5)(s.Evidence['lock_wait_ms'], mapContains(s.Evidence, 'lock_wait_ms')) AS lock, "
        "countIf(mapContains(s.Evidence, 'lock_wait_ms')) AS locks, countIf(f.Tool != '') / count() AS tooled, count() AS n "
        f"FROM {FROM} LEFT JOIN stage_runs AS s ON f.TraceId = s.TraceId AND f.SpanId = s.SpanId "
        f"WHERE {_IN} AND f.Echo = 0 AND {CLUSTER} = {{cluster:String}}",
        **_params(store, finding),
    ).iloc[0]
    if not int(row["n"]):
        return []
    apart = [
        f"{fact.name.removeprefix('set apart by ')} {fact.value} ({fact.unit}; usually {fact.expected})"
        for fact in _apart(finding)
    ]
    alike = "none: it hits every tool, region, device, tier and version alike"
    return [*_domains(row, finding.cause), ("Which variable sets it apart?", "; ".join(apart) or alike, None)]


def _domains(row: Any, cause: str) -> list[tuple[str, str, bool | None]]:
    """Cache, downstream, serialisation, shared state: the measured value of each, and whether it points there."""
    kv, locked, size = float(row["kv"] or 0), float(row["lock"] or 0), float(row["bytes"] or 0)
    cache = f"KV cache usage {kv:.2f} (median of {int(row['kvs'])}), limit 0.92"
    down = f"p95 of the failing stage {float(row['p95']):.2f} s, {float(row['tooled']):.0%} in tool calls"
    payload = f"payload {size / 1000:,.1f} kB (median of {int(row['sized'])}), limit 500 kB"
    lock = f"lock wait {locked:,.0f} ms (median of {int(row['locks'])}), limit 3,000 ms"
    unsized = ("payload size was not reported", cause == "payload" or None)
    unlocked = ("lock waits were not reported", cause == "lock_wait" or None)
    return [
        ("Is it the cache?", *((cache, kv > 0.92) if int(row["kvs"]) else ("KV cache usage was not reported", None))),
        ("Is it something downstream?", down, cause == "slow_dependency"),
        ("Is it serialisation?", *((payload, cause == "payload" or size > 500_000) if int(row["sized"]) else unsized)),
        ("Is it shared state?", *((lock, locked > 3000) if int(row["locks"]) else unlocked)),
    ]


def _apart(finding: Finding) -> list[Any]:
    return [fact for fact in finding.evidence if fact.name.startswith("set apart by ")]


def appendix(store: Store, finding: Finding | None) -> str:
    """What a ticket of a failure carries beside its finding, as Markdown; '' for other kinds."""
    if finding is None or finding.kind != "failure":
        return ""
    marks = {True: "x", False: " ", None: " "}
    steps = [f"- [{marks[points]}] {question} {text}" for question, text, points in walk(store, finding)]
    prints = [f"- {name}: `{value}`" for name, value in fingerprint(store, finding).items()]
    parts = []
    if steps:
        rest = [
            "- [ ] Repeat the smallest request",
            "- [ ] Isolate one variable",
            "- [ ] Canary the change, then verify as above",
        ]
        parts.append("### Fault-domain walk\n" + "\n".join([*steps, *rest]))
    if command := smallest_request(store, finding):
        parts.append("### Smallest request that fails\n```sh\n" + command + "\n```")
    if prints:
        parts.append("### Fingerprint\n" + "\n".join(prints))
    return "\n\n".join(parts)


def _params(store: Store, finding: Finding) -> dict[str, Any]:
    names = representatives(store)
    cluster = finding.subject.get("cluster", "")
    return {
        "olds": list(names) or [""],
        "news": list(names.values()) or [""],
        "cluster": names.get(cluster, cluster),
        "start": finding.window.start,
        "end": finding.window.end,
    }
