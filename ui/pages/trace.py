"""Where did the time of this one request go, and what of it has no reason?"""

from __future__ import annotations

import streamlit as st

from analytics import overview, run, traces
from ingest.errors import BadInput
from ui import charts, parts, reading, text
from ui.waterfall import pieces

span = parts.heading(
    "Where did this request's time go?",
    "Each bar is one stage run. Orange is time that neither its work, nor its waiting, nor its purpose justifies; the thin blue line "
    "marks the critical path: what the request really waited for.",
)
recent = reading.ask(overview.recent_traces, span)
named = [trace_id for item in reading.ask(run.latest) for trace_id in item.trace_ids[:2]]
labels = {
    row["trace_id"]: f"{text.ms(row['ms'])}{', failed' if row['failed'] else ''}" for row in recent.to_dict("records")
}
options = list(dict.fromkeys([*named, *labels]))
asked = st.query_params.get("trace", "").strip().lower()
left, right = st.columns([3, 2], vertical_alignment="bottom")
typed = right.text_input("Or any trace id", placeholder="32 hexadecimal digits").strip().lower()
if asked and asked not in options:
    options.insert(0, asked)
chosen = left.selectbox(
    "Trace",
    options,
    index=options.index(asked) if asked in options else 0,
    format_func=lambda trace_id: (
        f"{trace_id}  ({'named in a finding' if trace_id in named else labels.get(trace_id, 'linked')})"
    ),
    help="Traces that findings name come first, then the slowest of the span",
)
trace_id = typed or chosen or ""
try:
    frame = reading.ask(traces.waterfall, trace_id)
except BadInput as err:
    parts.nothing(
        "No such trace", f"{parts.safe(str(err))} Traces are shown a few seconds after their last span came in."
    )
    st.stop()

unjustified = float(frame["unjustified_ms"].fillna(0).sum())
gaps = float(frame.loc[frame["gap"], "duration_ms"].sum())
parts.metrics(
    ("Whole request", text.ms(float(frame["end_ms"].max())), "From its first start to its last end"),
    ("Without reason", text.ms(unjustified), "Sum over its runs of what nothing declared explains"),
    ("In gaps", text.ms(gaps), "Between a client span and its server child"),
    ("Runs", text.count(len(frame)), ""),
    ("Failed runs", text.count(int(frame["failed"].sum())), ""),
)
st.altair_chart(charts.waterfall(pieces(frame)))
failed = frame[frame["failed"]]
if len(failed):
    st.subheader("What failed", anchor=False)
    for row in failed.drop_duplicates(["stage", "error_message"]).to_dict("records"):
        st.error(
            f"{parts.safe(str(row['stage']))}: {parts.safe(str(row['error_type']))} {parts.safe(str(row['error_message']))}"
        )
with st.expander("All runs as a table"):
    st.dataframe(frame.drop(columns=["evidence"]), hide_index=True)
st.caption(f"`stagescope trace {trace_id}` prints the same in a terminal.")
