"""Which stages are slow without reason: time that neither their work, nor their waiting, nor their purpose justifies?"""

from __future__ import annotations

import streamlit as st

from analytics import overview, run
from ui import charts, parts, reading

span = parts.heading(
    "Which stages are slow without reason?",
    "A stage may be slow because its work is large: that is no fault. Shown here is time that neither the work a stage "
    "declares, nor its waiting, nor its purpose justifies.",
)
found = [item for item in reading.ask(run.latest) if item.kind == "slow"]
if not found:
    parts.nothing(
        "Nothing is slow without reason",
        "Either all is well, or the analyzers have not run on this span yet: `stagescope analyze --last 7d`. "
        "Stages that declare their work (tokens, items, rows, bytes) are judged best.",
    )
else:
    st.altair_chart(charts.losses(found))
    st.caption(
        "Seconds lost over the finding's window, with its interval. Only stages whose interval excludes zero are named."
    )
for place, item in enumerate(found, 1):
    parts.finding(item, place=place)

st.subheader("All stages, for comparison", anchor=False)
stages = reading.ask(overview.stage_shares, span)
st.dataframe(
    stages,
    hide_index=True,
    column_config={
        "critical_s": st.column_config.NumberColumn("critical path, s", format="localized"),
        "share": st.column_config.ProgressColumn("share of critical path", format="percent", min_value=0, max_value=1),
        "p95_ms": st.column_config.NumberColumn("own time p95, ms", format="%.0f"),
    },
)
parts.truth(span, f"{int(stages['runs'].sum()) if len(stages) else 0:,} stage runs")
