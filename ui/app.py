"""The pages: one question each. Read-only; every number comes from the store through the functions of `analytics`."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from ui import parts

PAGES = (
    ("overview", "Overview", ":material/monitoring:"),
    ("slow", "Slow without reason", ":material/hourglass_bottom:"),
    ("dimensions", "p99 by dimension", ":material/stacked_bar_chart:"),
    ("failures", "Failures", ":material/error:"),
    ("trace", "Trace", ":material/account_tree:"),
    ("roadmap", "Roadmap", ":material/checklist:"),
)
STYLE = """
[data-testid="stMainBlockContainer"] { padding-top: 3.2rem; padding-bottom: 4rem; max-width: 1320px; }
[data-testid="stSidebarHeader"] { padding-bottom: 0; }
[data-testid="stMetricLabel"] { opacity: 0.75; }
"""


def main() -> None:
    st.set_page_config(page_title="Stagescope", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")
    pages = [
        st.Page(f"pages/{name}.py", title=title, icon=icon, url_path=name, default=name == "overview")
        for name, title, icon in PAGES
    ]
    chosen = st.navigation(pages)
    st.html(f"<style>{STYLE}</style>")
    parts.sidebar()
    chosen.run()


main()
