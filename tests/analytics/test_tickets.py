"""Tickets: the plan is pure, files are left alone when nothing changed, and the whole loop runs on virtual time."""

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from analytics import failures, run, tickets
from analytics.findings import Window
from analytics.tickets_adf import document
from analytics.tickets_files import FilesSink
from analytics.tickets_http import Api, Patience
from analytics.tickets_plan import CLOSED, OPEN, VERIFYING, Proof, Rules, Ticket, plan
from analytics.tickets_text import markdown
from analytics.tickets_verify import judge
from analytics.tickets_webhook import WebhookSink
from ingest.store import Store
from tests.analytics.failure_world import Fault, fill
from tests.analytics.test_tickets_sinks import NOW, finding, opened

DAY = timedelta(days=1)
BETTER = Proof("better", "40 expected, 0 seen", NOW)


def after(ticket: Ticket, **facts: Any) -> Ticket:
    return replace(ticket, external_id="1", **facts)


def test_nothing_to_do_plans_nothing() -> None:
    assert plan([], [], NOW) == []
    ticket = opened().ticket
    assert plan([finding()], [after(ticket)], NOW + timedelta(hours=1)) == []
    assert plan([], [after(ticket)], NOW) == []


def test_more_of_the_same_is_no_news_but_a_change_is() -> None:
    ticket = after(opened().ticket)
    longer = finding(requests=51, lost_seconds=102.0, last_seen=NOW + DAY)
    assert plan([longer], [ticket], NOW + 2 * DAY) == []
    assert plan([finding(requests=200)], [ticket], NOW + timedelta(hours=1)) == []
    assert (
        plan([finding(requests=200)], [ticket], NOW + 2 * DAY)[0].reason == "requests per hour went from 2.08 to 8.33"
    )
    worse = plan([finding(severity="critical")], [ticket], NOW + timedelta(hours=1))
    assert [item.reason for item in worse] == ["severity changed"]
    assert plan([finding(severity="medium")], [ticket], NOW + timedelta(hours=1)) == []


def test_silence_alone_closes_nothing() -> None:
    ticket = after(opened().ticket)
    for verdict in ("thin", "same", "worse"):
        assert plan([], [ticket], NOW + 30 * DAY, proofs={ticket.key: Proof(verdict, "")}) == []


def test_closed_only_after_better_for_the_stated_time() -> None:
    ticket = after(opened().ticket)
    rules = Rules(verified_for=DAY)
    first = plan([], [ticket], NOW + timedelta(hours=2), proofs={ticket.key: BETTER}, rules=rules)[0]
    assert (first.action, first.ticket.state) == ("update", VERIFYING)
    assert plan([], [first.ticket], NOW + timedelta(hours=3), proofs={ticket.key: BETTER}, rules=rules) == []
    last = plan([], [first.ticket], NOW + DAY, proofs={ticket.key: BETTER}, rules=rules)[0]
    assert (last.action, last.ticket.state) == ("close", CLOSED)
    assert "40 expected, 0 seen" in last.ticket.history[-1]


def test_seen_again_while_verifying_is_open_again() -> None:
    ticket = after(opened().ticket, state=VERIFYING)
    change = plan([finding(last_seen=NOW + DAY)], [ticket], NOW + DAY)[0]
    assert (change.action, change.ticket.state) == ("update", OPEN)


def test_old_evidence_does_not_reopen_a_closed_ticket() -> None:
    ticket = after(opened().ticket, state=CLOSED, closed_at=NOW + DAY)
    assert plan([finding(last_seen=NOW)], [ticket], NOW + DAY) == []
    back = plan([finding(last_seen=NOW + 2 * DAY)], [ticket], NOW + 2 * DAY)
    assert [item.action for item in back] == ["reopen"]


def test_low_findings_may_be_left_out() -> None:
    assert plan([finding(severity="low")], [], NOW, rules=Rules(at_least="medium")) == []


@pytest.mark.parametrize(
    ("expected", "seen", "verdict"),
    [(2, 0, "thin"), (40, 0, "better"), (40, 3, "better"), (40, 30, "same"), (10, 60, "worse")],
)
def test_better_is_measured_against_what_the_old_rate_would_bring(expected: float, seen: int, verdict: str) -> None:
    assert judge(expected, seen, NOW).verdict == verdict


def files(folder: Path) -> FilesSink:
    return FilesSink(folder, lambda _: "team-tools", lambda _: "")


def test_files_are_written_once_and_left_alone(tmp_path: Path) -> None:
    sink = files(tmp_path / "tickets")
    name = sink.apply(opened())
    path = tmp_path / "tickets" / name
    before = path.stat().st_mtime_ns, path.stat().st_ino
    assert sink.apply(opened()) == name
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert [item.name for item in path.parent.iterdir()] == [name]


def test_what_people_write_into_a_file_stays(tmp_path: Path) -> None:
    sink = files(tmp_path)
    path = tmp_path / sink.apply(opened())
    path.write_text(path.read_text() + "\nSeen with the team, fix is on its way.\n")
    change = opened()
    sink.apply(replace(change, ticket=replace(change.ticket, state=CLOSED, title="New title")))
    text = path.read_text()
    assert text.startswith("# New title\n\nState: **closed**\n")
    assert text.count("fix is on its way") == 1
    assert text.count("stagescope:begin") == 1


def test_evidence_cannot_break_the_table() -> None:
    text = markdown(opened(finding(title="a\n# b")), "", "")
    row = next(line for line in text.splitlines() if "share" in line and line.startswith("|"))
    assert row == "| share \\| of &lt;requests&gt; | 4.2 % | 0.1 % |"


def test_jira_text_holds_what_the_markdown_says() -> None:
    text = json.dumps(document(markdown(opened(), "team-tools", "### Smallest request\n```sh\ncurl x\n```")))
    for part in (
        "codeBlock",
        "curl x",
        "tableHeader",
        "bulletList",
        "share | of <requests>",
        "Give tools tiered timeouts.",
    ):
        assert part in text
    assert "stagescope:begin" not in text


class Hook(BaseHTTPRequestHandler):
    server: Any

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.heard.append((dict(self.headers.items()), body))
        answer = b'{"id": "T-9"}'
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def hook() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.heard = []
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_webhook_is_signed_and_a_repeat_carries_the_same_key(hook: Any) -> None:
    api = Api("hook", f"http://127.0.0.1:{hook.server_address[1]}/x", "S", {}, None, Patience(gap_s=0.0))
    sink = WebhookSink(api, "s3cret", lambda _: "team-tools", lambda _: "")
    assert sink.apply(opened()) == "T-9"
    sink.apply(opened())
    (first, body), (second, _) = hook.heard
    headers = {name.lower(): value for name, value in first.items()}
    assert headers["idempotency-key"] == {n.lower(): v for n, v in second.items()}["idempotency-key"]
    wanted = hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    assert headers["x-stagescope-signature"] == f"sha256={wanted}"
    assert json.loads(body)["action"] == "open"
    assert b"s3cret" not in body


FAULT = Fault("data_fetch", 0.2, "TimeoutError", "Tool execution exceeded {n}s", tool="web_search")
OTHER = Fault("intent_parse", 0.03, "ValueError", "empty intent for request {id}")


def test_the_whole_loop_on_virtual_time(tmp_path: Path) -> None:
    """Fault → ticket → fix → verified → closed → the fault returns → the same ticket, reopened."""
    monday = datetime(2026, 11, 2, tzinfo=UTC)
    weeks = ((FAULT, OTHER), (FAULT, OTHER), (OTHER,), (OTHER,), (FAULT, OTHER))
    states: list[dict[str, str]] = []
    sink = files(tmp_path / "tickets")
    with Store.open(str(tmp_path / "store")) as store:
        for number, faults in enumerate(weeks):
            start = monday + number * DAY
            fill(store, start, 400, faults, seed=number + 1)
            now = start + DAY
            found = run.run(store, Window(start, now), (failures.ANALYZER,), now=now)
            tickets.sync(store, sink, found, now=now, rules=Rules(verified_for=1.5 * DAY))
            assert tickets.sync(store, sink, found, now=now, rules=Rules(verified_for=1.5 * DAY)) == []
            states.append({item.key: item.state for item in tickets.read(store, "default", "files")})
        tool = next(item for item in tickets.read(store, "default", "files") if "web_search" in item.title)
    assert [item[tool.key] for item in states] == [OPEN, OPEN, VERIFYING, CLOSED, OPEN]
    assert len(states[-1]) == 2
    told = [line.split(": ")[0].split(" UTC ")[1] for line in tool.history]
    assert [word for word in told if word != "severity changed"] == ["opened", "better", "closed, verified", "reopened"]
    assert len(list((tmp_path / "tickets").iterdir())) == 2


def test_no_traffic_is_no_proof(tmp_path: Path) -> None:
    monday = datetime(2026, 11, 2, tzinfo=UTC)
    sink = files(tmp_path / "tickets")
    with Store.open(str(tmp_path / "store")) as store:
        fill(store, monday, 400, (FAULT,))
        for number in range(1, 6):
            now = monday + number * DAY
            found = run.run(store, Window(now - DAY, now), (failures.ANALYZER,), now=now)
            tickets.sync(store, sink, found, now=now, rules=Rules(verified_for=DAY))
        assert [item.state for item in tickets.read(store, "default", "files")] == [OPEN]


def test_traffic_that_moved_away_from_the_fault_is_no_proof(tmp_path: Path) -> None:
    """The tool is not called any more: nothing says that it works now."""
    monday = datetime(2026, 11, 2, tzinfo=UTC)
    sink = files(tmp_path / "tickets")
    with Store.open(str(tmp_path / "store")) as store:
        fill(store, monday, 400, (FAULT,))
        found = run.run(store, Window(monday, monday + DAY), (failures.ANALYZER,), now=monday + DAY)
        tickets.sync(store, sink, found, now=monday + DAY)
        for number in (1, 2, 3):
            fill(store, monday + number * DAY, 300, (), seed=number + 5, tools=("crm_lookup", "sql_query"))
            now = monday + (number + 1) * DAY
            run.run(store, Window(now - DAY, now), (failures.ANALYZER,), now=now)
            tickets.sync(store, sink, [], now=now, rules=Rules(verified_for=DAY))
        assert [item.state for item in tickets.read(store, "default", "files")] == [OPEN]
