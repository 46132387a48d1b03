"""The parts that pages share: heading, empty state, how sure a number is, a finding."""

from __future__ import annotations

import streamlit as st

from analytics import evidence_words, overview
from analytics.findings import Finding, Window
from ui import reading, text

SEVERITY_COLOUR = {"critical": "red", "high": "orange", "medium": "yellow", "low": "gray"}
EFFORT = {"free": "free: a setting", "medium": "medium: days", "costly": "costly: weeks"}


def sidebar() -> None:
    """Under the page list: which span of time all pages look at, and how fresh the numbers are."""
    with st.sidebar:
        st.selectbox("Look at the last", list(reading.SPANS), index=3, key="span")
        looked = reading.ask(overview.last_look)
        st.caption(f"Analyzers last ran {text.moment(looked)}" if looked else "The analyzers have not run yet.")


def heading(question: str, answer: str) -> Window:
    """The page's question, what its numbers mean, and the span. Stops the page when the store is empty."""
    st.title(question, anchor=False)
    st.caption(answer)
    span = reading.window()
    if span is None:
        nothing(
            "No traces yet",
            "Send some: point an OpenTelemetry exporter at `http://127.0.0.1:4318` while `stagescope up` runs, "
            "read files with `stagescope ingest FILE`, or see everything at once with `stagescope demo`.",
        )
        st.stop()
    return span


def metrics(*cells: tuple[str, str, str]) -> None:
    """Numbers side by side, which wrap on a narrow screen: label, value, what it means."""
    with st.container(horizontal=True, gap="medium"):
        for label, value, meaning in cells:
            st.metric(label, value, help=meaning or None, width=140)


def nothing(title: str, what_to_do: str) -> None:
    """An empty state that says what to do next."""
    with st.container(border=True):
        st.markdown(f"**{title}**")
        st.markdown(what_to_do)


def truth(span: Window, counted: str, *, thin: bool = False) -> None:
    """The line under a table: n, window, and whether there is too little to trust."""
    missing = reading.ask(overview.not_stored, span)
    rejected, dead = sum(missing.rejected.values()), sum(missing.dead.values())
    words = [counted, f"{text.moment(span.start)} to {text.moment(span.end)}"]
    words.append(f"{rejected:,} rejected, {dead:,} dead letters, {missing.late:,} late")
    if thin:
        words.append("**thin: too few to trust the tail**")
    st.caption(" · ".join(words))


def finding(item: Finding, *, place: int) -> None:
    """One finding as a card: what, how much, why, what to do, how to check."""
    with st.container(border=True):
        top, side = st.columns([4, 1], vertical_alignment="center")
        top.markdown(f"#### {place}. {safe(item.title)}")
        with side.container(horizontal=True, horizontal_alignment="right"):
            st.badge(item.severity, color=SEVERITY_COLOUR.get(item.severity, "gray"))  # type: ignore[arg-type]
            st.badge(item.cause, color="blue")
        left, right = st.columns([3, 2], gap="large")
        with left:
            _why(item)
        with right:
            _do(item)


def _why(item: Finding) -> None:
    if item.lost_seconds:
        st.markdown(
            f"**{text.seconds(item.lost_seconds)}** lost ({text.seconds(item.lost_low)} to {text.seconds(item.lost_high)}) "
            f"over **{item.requests:,}** requests and **{item.users:,}** users; "
            f"**{text.percent(item.share_of_e2e_p95)}** of end-to-end p95."
        )
    else:
        st.markdown(f"**{item.requests:,}** requests and **{item.users:,}** users affected.")
    rows = [
        {
            "evidence": evidence_words.plain(proof.name),
            "measured": text.printable(evidence_words.measure(proof.value, proof.unit)),
            "in order would be": ""
            if proof.expected is None
            else text.printable(evidence_words.measure(proof.expected, proof.unit)),
        }
        for proof in item.evidence
    ]
    if rows:
        st.dataframe(rows, hide_index=True, height="content")


def _do(item: Finding) -> None:
    st.markdown(f"**Change** ({EFFORT.get(item.effort, item.effort)})  \n{safe(item.recommendation)}")
    if item.expected_saving_ms:
        st.markdown(f"**Expect** about {text.ms(item.expected_saving_ms)} less on each affected request")
    st.markdown(f"**Check**  \n{safe(item.verify)}")
    for trace_id in item.trace_ids[:1]:
        trace_link(trace_id)


def trace_link(trace_id: str) -> None:
    """The way to one trace's waterfall."""
    st.page_link(
        "pages/trace.py",
        label=f"Trace {trace_id[:8]}…",
        icon=":material/account_tree:",
        query_params={"trace": trace_id},
    )


def safe(words: str) -> str:
    """Stored text as Markdown that cannot format, link or run anything."""
    marks = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_{}[]<>#|~$:"})
    return text.printable(words).translate(marks)


def line(item: Finding) -> None:
    """A finding in one row: how bad, what, and how much."""
    badge, words, amount = st.columns([1.1, 6, 2.2], vertical_alignment="center")
    badge.badge(item.severity, color=SEVERITY_COLOUR.get(item.severity, "gray"))  # type: ignore[arg-type]
    words.markdown(safe(item.title))
    lost = f"{text.seconds(item.lost_seconds)} lost" if item.lost_seconds else ""
    amount.markdown(f":gray[{' · '.join(part for part in (lost, f'{item.requests:,} requests') if part)}]")
