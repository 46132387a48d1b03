"""The pages: one question each. Read-only; every number comes from the store through the functions of `analytics`."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from ui import parts

PAGES = (
    ("overview", "Overview", ":material/monitoring:"),
    ("slow", "Slow without reason", ":material/hourglass_bottom:"),
    ("failures", "Failures", ":material/error:"),
    ("roadmap", "Roadmap", ":material/checklist:"),
)


def main() -> None:
    st.set_page_config(page_title="Stagescope", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")
    pages = [
        st.Page(f"pages/{name}.py", title=title, icon=icon, url_path=name, default=name == "overview")
        for name, title, icon in PAGES
    ]
    chosen = st.navigation(pages)
    parts.sidebar()
    chosen.run()


main()
