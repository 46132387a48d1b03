"""Who waits longest: which region, device, user tier, version, host, model or tool has the long tail?"""

from __future__ import annotations

import streamlit as st

from analytics import dimensions, overview
from ui import charts, parts, reading

WHOLE = "whole requests"

span = parts.heading(
    "Who waits longest?",
    "Percentiles per value of a dimension. Failed runs are counted and kept out of every percentile; pale bars have too few runs to trust.",
)
stages = sorted(set(reading.ask(overview.stage_shares, span)["stage"].astype(str)))
left, middle, right = st.columns([2, 2, 3], vertical_alignment="bottom")
name = left.selectbox("By", list(dimensions.COLUMNS), index=list(dimensions.COLUMNS).index("region"))
stage = middle.selectbox("Of", [WHOLE, *stages], help="Whole requests, or the runs of one stage")
other = right.text_input(
    "Or by any attribute",
    placeholder="http.route, session.id, gen_ai.request.model …",
    help="A span or resource attribute key",
)
by = other.strip() or name
frame = reading.ask(dimensions.p99, (by,), None if stage == WHOLE else stage, span)
if not len(frame):
    parts.nothing(
        "No runs to show",
        f"Nothing in this span carries `{parts.safe(by)}`. Choose another dimension, another stage, or a longer span in the sidebar.",
    )
    st.stop()
st.altair_chart(charts.spread(frame, by))
columns = {
    f"{q}_ms": st.column_config.NumberColumn(f"{q.replace('p999', 'p99.9')}, ms", format="localized", step=1)
    for q in ("p50", "p95", "p99", "p999")
}
st.dataframe(
    frame,
    hide_index=True,
    column_config={
        **columns,
        "count": st.column_config.NumberColumn("runs", format="localized"),
        "errors": st.column_config.NumberColumn(format="localized"),
        "thin": st.column_config.CheckboxColumn(help=f"Fewer than {dimensions.THIN} good runs"),
    },
)
engine = "exact" if frame.attrs.get("engine", "exact") == "exact" else "sketch, rank within 0.4 %"
parts.truth(
    span,
    f"{int(frame['count'].sum()):,} runs, {int(frame['errors'].sum()):,} errors, {len(frame):,} values · percentiles {engine}",
    thin=bool(frame["thin"].all()),
)
