"""What should we mend this week, who does it, what does it bring, and what did last week's work really bring?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import streamlit as st

from analytics import roadmap
from ui import parts, reading

span = parts.heading(
    "What should we mend this week?",
    "Findings of all kinds, ranked by users hit and time that can be won back. The first three are this week's work.",
)
now = datetime.now(UTC)
weeks = [roadmap.week_of(now - timedelta(weeks=back)) for back in range(8)]
left, right = st.columns([3, 1], vertical_alignment="bottom")
week = left.selectbox("Week", weeks, width=220)
plan = reading.ask(roadmap.build, week)
with right.container(horizontal=True, horizontal_alignment="right"):
    st.download_button(
        "HTML",
        roadmap.render(plan, "html"),
        f"roadmap-{week}.html",
        "text/html",
        icon=":material/download:",
        on_click="ignore",
    )
    st.download_button(
        "Markdown",
        roadmap.render(plan, "md"),
        f"roadmap-{week}.md",
        "text/markdown",
        icon=":material/download:",
        on_click="ignore",
    )
if not plan.top:
    parts.nothing(
        "Nothing to mend in this week",
        "No finding was concluded in it. Run `stagescope analyze` (or keep `stagescope up` running), then come back.",
    )
else:
    st.markdown(roadmap.render(plan, "md").partition("\n")[2])
