"""Charts. One colour means one thing on every page: `REASON` is time without reason, `WORK` is time that work justifies."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from analytics.findings import Finding

WORK, REASON, WAIT, GAP, FAILED = "#7fb5ad", "#d9573f", "#c9cfcc", "#a99fd0", "#b3261e"
PERCENTILES = {"p50_ms": "p50", "p95_ms": "p95", "p99_ms": "p99"}
SHADES = ["#9bbdb7", "#3f8f84", "#d08a2e"]
PATH = "#3f6fb5"


def percentiles(frame: pd.DataFrame) -> alt.Chart:
    """End-to-end p50, p95, p99 over time from rows `Start, p50_ms, p95_ms, p99_ms`; the axis starts at 0."""
    long = frame.melt(id_vars=["Start", "requests"], value_vars=list(PERCENTILES), var_name="which", value_name="ms")
    long["seconds"] = long["ms"] / 1000
    long["which"] = long["which"].map(PERCENTILES)
    chart: alt.Chart = (
        alt.Chart(long.dropna())
        .mark_line(strokeWidth=1.8, interpolate="monotone")
        .encode(
            x=alt.X("Start:T", title=None),
            y=alt.Y("seconds:Q", title="seconds", scale=alt.Scale(zero=True)),
            color=alt.Color(
                "which:N",
                title=None,
                sort=list(PERCENTILES.values()),
                scale=alt.Scale(domain=list(PERCENTILES.values()), range=SHADES),
                legend=alt.Legend(orient="top", direction="horizontal"),
            ),
            tooltip=["Start:T", "which:N", alt.Tooltip("seconds:Q", format=".2f"), "requests:Q"],
        )
        .properties(height=260)
    )
    return chart


def traffic(frame: pd.DataFrame) -> alt.Chart:
    """Requests over time, failed ones in red, from rows `Start, requests, failed`."""
    rows = frame.assign(good=frame["requests"] - frame["failed"])
    long = rows.melt(id_vars=["Start"], value_vars=["good", "failed"], var_name="which", value_name="n")
    chart: alt.Chart = (
        alt.Chart(long)
        .mark_bar()
        .encode(
            x=alt.X("Start:T", title=None),
            y=alt.Y("n:Q", title="requests"),
            color=alt.Color("which:N", scale=alt.Scale(domain=["good", "failed"], range=[WORK, FAILED]), legend=None),
            tooltip=["Start:T", "which:N", "n:Q"],
        )
        .properties(height=110)
    )
    return chart


def shares(frame: pd.DataFrame) -> alt.Chart:
    """Where requests spend their time, from rows `stage, share, critical_s, p95_ms`."""
    chart: alt.Chart = (
        alt.Chart(frame.head(12))
        .mark_bar(color=WORK, cornerRadiusEnd=2)
        .encode(
            x=alt.X("share:Q", title="share of critical-path time", axis=alt.Axis(format="%")),
            y=alt.Y("stage:N", title=None, sort="-x", axis=alt.Axis(labelLimit=260, labelOverlap=False)),
            tooltip=[
                "stage:N",
                "service:N",
                alt.Tooltip("share:Q", format=".1%"),
                alt.Tooltip("p95_ms:Q", format=",.0f", title="own time p95, ms"),
                "runs:Q",
                "failed:Q",
            ],
        )
        .properties(height=24 * min(len(frame), 12) + 60)
    )
    return chart


def losses(found: Sequence[Finding]) -> alt.LayerChart | alt.FacetChart:
    """Seconds lost per finding with its interval."""
    rows = pd.DataFrame(
        [
            {
                "stage": item.subject.get("stage", "") or item.title,
                "cause": item.cause,
                "lost": item.lost_seconds,
                "low": item.lost_low,
                "high": item.lost_high,
            }
            for item in found
        ]
    )
    order = rows.sort_values("lost", ascending=False)["stage"].tolist()
    base = alt.Chart(rows).encode(
        y=alt.Y("stage:N", title=None, sort=order, axis=alt.Axis(labelLimit=300, labelOverlap=False))
    )
    bars = base.mark_bar(color=REASON, cornerRadiusEnd=2, height=16).encode(
        x=alt.X("lost:Q", title="seconds lost"), tooltip=["stage:N", "cause:N", "lost:Q", "low:Q", "high:Q"]
    )
    ranges = base.mark_rule(strokeWidth=2, color="#8a3524").encode(x="low:Q", x2="high:Q")
    return alt.layer(bars, ranges).properties(height=30 * len(rows) + 70)


def clusters(frame: pd.DataFrame) -> alt.Chart:
    """Failed requests per cluster, coloured by trend, from rows `label, count, trend, users`."""
    chart: alt.Chart = (
        alt.Chart(frame.head(10)[["label", "count", "trend", "users", "scene"]])
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            x=alt.X("count:Q", title="failed requests"),
            y=alt.Y("label:N", title=None, sort="-x", axis=alt.Axis(labelLimit=420, labelOverlap=False)),
            color=alt.Color(
                "trend:N",
                title=None,
                scale=alt.Scale(
                    domain=["new", "rising", "steady", "falling", "unknown"],
                    range=[FAILED, "#e08a5b", "#9aa5a1", WORK, WAIT],
                ),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=["label:N", "count:Q", "users:Q", "trend:N", "scene:N"],
        )
        .properties(height=28 * min(len(frame), 10) + 110)
    )
    return chart


def spread(frame: pd.DataFrame, name: str) -> alt.LayerChart | alt.FacetChart:
    """p50 to p99 per value of a dimension as a bar with a tick at p95; thin values are pale."""
    rows = frame.head(20).assign(
        value=frame.head(20)[name].astype(str).replace("", "(none)"),
        shade=[0.35 if thin else 1.0 for thin in frame.head(20)["thin"]],
    )
    for column in ("p50", "p95", "p99"):
        rows[column] = rows[f"{column}_ms"] / 1000
    base = alt.Chart(rows).encode(
        y=alt.Y(
            "value:N",
            title=None,
            sort=rows.sort_values("p99", ascending=False)["value"].tolist(),
            axis=alt.Axis(labelLimit=260, labelOverlap=False),
        ),
        opacity=alt.Opacity("shade:Q", scale=None, legend=None),
        tooltip=[
            "value:N",
            "count:Q",
            "errors:Q",
            alt.Tooltip("p50:Q", format=".3f"),
            alt.Tooltip("p95:Q", format=".3f"),
            alt.Tooltip("p99:Q", format=".3f"),
            "thin:N",
        ],
    )
    bars = base.mark_bar(color=WORK, height=12, cornerRadius=2).encode(
        x=alt.X("p50:Q", title="seconds: p50 to p99, tick at p95", scale=alt.Scale(zero=True)), x2="p99:Q"
    )
    ticks = base.mark_tick(color="#d08a2e", thickness=3, size=16).encode(x="p95:Q")
    return alt.layer(bars, ticks).properties(height=28 * len(rows) + 70)


PARTS = {
    "own work": WORK,
    "without reason": REASON,
    "declared wait": WAIT,
    "gap": GAP,
    "in children": "rgba(128, 140, 135, 0.25)",
    "failed": FAILED,
}


def _tree_axis(frame: pd.DataFrame) -> alt.Axis:
    """Labels flush left, so that their indent shows the tree; none is left out."""
    widest = min(290, 6 * int(frame["label"].str.rstrip("\u200b").str.len().max()) + 8)
    return alt.Axis(labelLimit=widest, labelAlign="left", labelPadding=widest, labelOverlap=False, ticks=False)


def waterfall(frame: pd.DataFrame) -> alt.LayerChart | alt.FacetChart:
    """One bar a run, split by what its time went into, from rows `place, label, part, start_s, end_s, …`."""
    order = frame.sort_values("place")["label"].drop_duplicates().tolist()
    base = alt.Chart(frame).encode(
        y=alt.Y("label:N", title=None, sort=order, axis=_tree_axis(frame)),
    )
    bars = base.mark_bar(height=13).encode(
        x=alt.X("start_s:Q", title="seconds since the first start", axis=alt.Axis(orient="top")),
        x2="end_s:Q",
        color=alt.Color(
            "part:N",
            title=None,
            scale=alt.Scale(domain=list(PARTS), range=list(PARTS.values())),
            legend=alt.Legend(orient="bottom", direction="horizontal"),
        ),
        tooltip=[
            "stage:N",
            "service:N",
            "part:N",
            alt.Tooltip("part_ms:Q", format=",.1f", title="this part, ms"),
            alt.Tooltip("duration_ms:Q", format=",.1f", title="whole run, ms"),
            alt.Tooltip("self_ms:Q", format=",.1f", title="own time, ms"),
            "note:N",
        ],
    )
    path = base.transform_filter("datum.critical && datum.first").mark_bar(height=2, color=PATH, yOffset=9)
    path = path.encode(x="run_start_s:Q", x2="run_end_s:Q")
    return alt.layer(bars, path).properties(height=22 * len(order) + 70)
