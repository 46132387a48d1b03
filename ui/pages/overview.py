"""Is the service well right now, and what should I look at first?"""

from __future__ import annotations

import streamlit as st

from analytics import overview, run
from ui import charts, parts, reading, text

span = parts.heading(
    "How are requests doing?",
    "A request is one trace, timed from its first start to its last end. Failed requests are counted, and kept out of every percentile.",
)
totals = reading.ask(overview.summary, span)
share = text.percent(totals.failed / totals.requests) if totals.requests else "–"
parts.metrics(
    (
        "Requests",
        text.count(totals.requests),
        f"{totals.services} services, {totals.stages} stages, {totals.users:,} users",
    ),
    ("Failed", share, f"{totals.failed:,} requests whose first stage ended in an error"),
    ("p50", text.ms(totals.p50_ms), "Half of the good requests took no longer"),
    ("p95", text.ms(totals.p95_ms), "95 of 100 good requests took no longer"),
    ("p99", text.ms(totals.p99_ms), "99 of 100 good requests took no longer"),
)
parts.truth(span, f"{totals.requests:,} requests, {totals.stage_runs:,} stage runs", thin=totals.thin)

found = reading.ask(run.latest)
st.subheader("What to look at first", anchor=False)
if not found:
    parts.nothing(
        "No findings",
        "Nothing looks slow without reason and nothing fails in a pattern. "
        "The analyzers run by themselves under `stagescope up`, or on demand with `stagescope analyze`.",
    )
if found:
    with st.container(border=True, gap="small"):
        for item in found[:6]:
            parts.line(item)

series = reading.ask(overview.over_time, span)
left, right = st.columns([3, 2], gap="large")
with left:
    st.subheader("End-to-end time", anchor=False)
    if len(series):
        st.altair_chart(charts.percentiles(series))
        st.altair_chart(charts.traffic(series))
with right:
    st.subheader("Where the time goes", anchor=False)
    stages = reading.ask(overview.stage_shares, span)
    if len(stages):
        st.altair_chart(charts.shares(stages))
        st.caption(
            "Share of the critical path: the part of each request that nothing else ran beside. A large share is not a fault by itself."
        )
