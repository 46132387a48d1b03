"""What fails in the same way, how often, for whom, and since when?"""

from __future__ import annotations

import streamlit as st

from analytics import failures, overview, run
from ui import charts, parts, reading, text

span = parts.heading(
    "What fails in the same way?",
    "Failures with the same pattern are one cluster. A request counts once in a cluster, at the deepest stage that failed, "
    "however many spans repeat the error.",
)
clusters = reading.ask(failures.clusters, span)
totals = reading.ask(overview.summary, span)
if not len(clusters):
    parts.nothing(
        "No failure clusters in this span",
        "Nothing failed, or the analyzers have not looked yet: `stagescope analyze --last 7d`. "
        "Spans with an error status, exception events and error texts in tool results are all read as failures.",
    )
    st.stop()

failed = int(clusters["count"].sum())
parts.metrics(
    ("Clusters", text.count(len(clusters)), ""),
    ("Failed requests", text.count(failed), "Summed over clusters; a request that fails in two ways counts in both"),
    (
        "Share of requests",
        text.percent(failed / totals.requests) if totals.requests else "–",
        "Normal in the trade: 3 %",
    ),
    (
        "New in this span",
        text.count(int((clusters["trend"] == "new").sum())),
        "Patterns that the span before did not have",
    ),
)
st.altair_chart(charts.clusters(clusters))
st.dataframe(
    clusters[["label", "scene", "count", "share", "users", "trend", "first_seen", "last_seen", "cluster_id"]],
    hide_index=True,
    column_config={
        "label": st.column_config.TextColumn("what", width="large"),
        "count": st.column_config.NumberColumn("requests", format="localized"),
        "share": st.column_config.NumberColumn("of all", format="percent"),
        "users": st.column_config.NumberColumn(format="localized"),
        "first_seen": st.column_config.DatetimeColumn("first seen", format="D MMM HH:mm"),
        "last_seen": st.column_config.DatetimeColumn("last seen", format="D MMM HH:mm"),
        "cluster_id": st.column_config.TextColumn("cluster"),
    },
)
parts.truth(span, f"{failed:,} failed of {totals.requests:,} requests", thin=totals.requests < overview.THIN_BELOW)

st.subheader("One cluster", anchor=False)
names = {str(row["cluster_id"]): f"{row['label']} ({row['count']:,})" for row in clusters.to_dict("records")}
chosen = st.selectbox("Cluster", list(names), format_func=names.__getitem__, label_visibility="collapsed")
row = clusters[clusters["cluster_id"] == chosen].iloc[0]
left, right = st.columns([3, 2], gap="large")
with left:
    st.code(row["example"] or "(no message)", language=None, wrap_lines=True)
    where = [
        f"{name} **{parts.safe(str(row[name]))}**"
        for name in ("service", "stage", "tool", "model", "version")
        if row[name]
    ]
    st.markdown(" · ".join(where))
with right:
    for trace_id in list(row["examples"])[:3]:
        parts.trace_link(str(trace_id))
found = [item for item in reading.ask(run.latest) if item.kind == "failure" and chosen in (item.query + item.key)]
for place, item in enumerate(found, 1):
    parts.finding(item, place=place)
