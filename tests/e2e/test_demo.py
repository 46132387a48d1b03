"""`stagescope demo` as a newcomer runs it: what it finds, that it ends by itself, that twice makes no second ticket, and every page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ui.running import as_json, free_ports, stagescope, wait_for

pytestmark = pytest.mark.slow
CHROMIUM = Path("/usr/bin/chromium")
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run"
).split()
PAGES = {
    "Overview": "How are requests doing?",
    "Slow without reason": "Which stages are slow without reason?",
    "p99 by dimension": "Who waits longest?",
    "Failures": "What fails in the same way?",
    "Trace": "Where did this request's time go?",
    "Roadmap": "What should we mend this week?",
}


@dataclass(frozen=True)
class Demo:
    """A demo that ran to its end."""

    folder: Path
    said: str

    def read(self, *words: str) -> Any:
        return as_json(stagescope(*words, "--json", "--store", str(self.folder)))

    def tickets(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in (self.folder / "tickets").glob("*.md")}


def run_demo(folder: Path) -> str:
    grpc, http, clickhouse, pages = free_ports(4)
    words = ["demo", "--store", str(folder), "--no-ui", "--seconds", "20", "--otlp-grpc-port", str(grpc)]
    words += ["--otlp-http-port", str(http), "--clickhouse-port", str(clickhouse), "--ui-port", str(pages)]
    done = stagescope(*words, timeout_s=280)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo") / "data"
    return Demo(folder, run_demo(folder))


def test_it_names_the_stage_that_is_slow_without_reason_and_not_the_slowest(demo: Demo) -> None:
    slow = demo.read("findings", "--kind", "slow")
    named = {item["subject"]["stage"]: item for item in slow}
    assert named["tool_select"]["cause"] == "prompt_bloat"
    assert named["tool_select"]["lost_low"] > 0
    assert slow[0]["subject"]["stage"] == "tool_select"
    hops = {stage for stage in named if stage.startswith("gap:")}  # a loaded machine really delays live traffic
    assert named.keys() - hops == {"tool_select"}
    assert "first finding:" in demo.said


def test_it_shows_clusters_a_roadmap_of_this_week_and_tickets(demo: Demo) -> None:
    clusters = demo.read("failures", "--last", "14d")
    assert {"kv_overflow", "tool_timeout", "serialisation_crash"} <= {item["scene"] for item in clusters}
    assert all(item["count"] >= item["users"] > 0 and item["examples"] for item in clusters)
    year, week, _ = datetime.now(UTC).isocalendar()
    assert f"{year}-W{week:02d}" in demo.said
    roadmap = json.loads(stagescope("roadmap", "--format", "json", "--store", str(demo.folder)).stdout)
    assert len(roadmap["top"]) == 3
    assert len(demo.tickets()) >= 4
    assert str(demo.folder / "tickets") in demo.said


def test_again_into_the_same_folder_makes_no_second_ticket(demo: Demo) -> None:
    before = demo.tickets()
    again = stagescope("tickets", "sync", "--json", "--store", str(demo.folder))
    assert json.loads(again.stdout) == []
    assert demo.tickets() == before


def test_it_refuses_a_folder_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    refused = stagescope("demo", "--store", str(tmp_path), "--no-ui", "--seconds", "5")
    assert refused.returncode == 2
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.fixture(scope="module")
def pages(demo: Demo) -> Iterator[str]:
    """The pages of the demo's data."""
    port = free_ports(1)[0]
    process = subprocess.Popen(
        [sys.executable, "-m", "ui.cli", "ui", "--store", str(demo.folder), "--ui-port", str(port)],
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: alive(address), 60, "the pages answer")
        yield address
    finally:
        process.terminate()
        process.wait(20)


def alive(address: str) -> bool:
    try:
        return httpx.get(f"{address}/_stcore/health", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.browser
def test_every_page_opens_without_an_error_and_shows_the_stage(pages: str) -> None:
    if not CHROMIUM.exists():
        pytest.skip("no /usr/bin/chromium: `apt-get install chromium` (make test does it as root)")
    from playwright.sync_api import sync_playwright

    trouble: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=QUIET)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: trouble.append(request.url) if not local(request.url, pages) else None)
        page.goto(pages)
        for name, question in PAGES.items():
            page.get_by_test_id("stSidebarNav").get_by_role("link", name=name, exact=True).click()
            page.get_by_role("heading", name=question).wait_for(timeout=60_000)
            page.wait_for_function("!document.querySelector('[data-testid=stStatusWidget]')", timeout=60_000)
            assert page.get_by_test_id("stException").count() == 0, page.get_by_test_id("stException").all_inner_texts()
            if name in ("Overview", "Slow without reason", "Roadmap"):
                page.get_by_text(re.compile("tool_select")).first.wait_for(timeout=20_000)
        browser.close()
    assert trouble == []


def local(url: str, pages: str) -> bool:
    """Whether a request stays on this machine."""
    return url.startswith((pages, pages.replace("http", "ws", 1), "data:", "blob:"))
