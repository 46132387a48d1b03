"""Alerts: states as pure steps, readings from a store, telling once, silences, receivers that are away."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analytics import alerts_load, alerts_send, alerts_watch
from analytics.alerts import BUILT_IN, FIRING, NO_DATA, PENDING, RESOLVED, Alert, Reading, Rule, Silence, step
from analytics.tickets_http import Api, Patience
from ingest.errors import BadSetting
from ingest.settings import Settings
from ingest.store import Store

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
SLOW = next(rule for rule in BUILT_IN if rule.name == "slow")
FAST = Patience(attempts=2, first_wait_s=0.0, longest_wait_s=0.0, gap_s=0.0, sleep=lambda _: None)


def run_through(values: list[float | None], every_s: float = 20.0, rule: Rule = SLOW) -> list[str]:
    """The state after each reading."""
    alerts: list[Alert] = []
    out = []
    for place, value in enumerate(values):
        alerts = step([rule], [Reading(rule.signal, value, 100)], alerts, NOW + timedelta(seconds=place * every_s))
        out.append(alerts[0].state if alerts else "-")
        alerts = [item for item in alerts if item.state != RESOLVED]
    return out


def test_p95_must_be_bad_for_more_than_60_seconds() -> None:
    assert run_through([1.0, 3.0, 3.0, 3.0, 3.0, 3.0]) == ["-", PENDING, PENDING, PENDING, PENDING, FIRING]


def test_a_short_spike_is_dropped() -> None:
    assert run_through([3.0, 3.0, 1.0, 3.0]) == [PENDING, PENDING, "-", PENDING]


def test_exactly_the_threshold_is_in_order() -> None:
    assert run_through([2.0] * 6) == ["-"] * 6


def test_it_resolves_only_after_a_calm_time() -> None:
    states = run_through([3.0] * 5 + [1.0] * 3 + [3.0] + [1.0] * 8)
    assert states[4] == FIRING
    assert states[5:9] == [FIRING] * 4
    assert states[9:15] == [FIRING] * 6
    assert states[15] == RESOLVED


def test_no_data_neither_resolves_nor_fires_again() -> None:
    states = run_through([3.0] * 5 + [None, None, 3.0, None] + [1.0] * 8)
    assert states[5:9] == [NO_DATA, NO_DATA, FIRING, NO_DATA]
    assert RESOLVED in states[9:]
    assert run_through([3.0, None, 3.0]) == [PENDING, "-", PENDING]


def test_a_dynamic_threshold_needs_history_and_never_goes_below_its_floor() -> None:
    rule = Rule("odd", "p95_s", 0.5, "s", "{value} {threshold}", hold_s=0.0, dynamic=True)
    assert step([rule], [Reading("p95_s", 9.0, 100, None)], [], NOW) == []
    assert step([rule], [Reading("p95_s", 0.4, 100, 0.1)], [], NOW) == []
    assert step([rule], [Reading("p95_s", 1.0, 100, 0.8)], [], NOW)[0].threshold == 0.8


def traffic(
    store: Store, start: datetime, seconds: int, took_s: float, *, wait_s: float = 0.0, failed: float = 0.0
) -> None:
    """One request a second."""
    rows = []
    for number in range(seconds):
        at = start + timedelta(seconds=number)
        rows.append(
            {
                "Timestamp": pd.Timestamp(at),
                "TraceId": f"{int(at.timestamp()):032x}",
                "SpanId": f"{int(at.timestamp()):016x}",
                "ParentSpanId": "",
                "ServiceName": "gateway",
                "Stage": "gateway",
                "Kind": "agent",
                "Duration": int(took_s * 1e9),
                "TraceDuration": int(took_s * 1e9),
                "WaitTime": int(wait_s * 1e9),
                "Failed": int(number < failed * seconds),
            }
        )
    store.insert("stage_runs", pd.DataFrame(rows))
    spans = pd.DataFrame(rows)[["Timestamp", "TraceId", "SpanId", "ServiceName", "Duration"]]
    spans["IngestedAt"] = spans["Timestamp"].dt.floor("ms")
    store.insert("otel_traces", spans)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store")) as opened:
        yield opened


def read(store: Store, now: datetime) -> dict[str, Reading]:
    return {item.signal: item for item in alerts_load.readings(store, BUILT_IN, now)}


def test_readings_leave_failures_and_declared_waits_out_of_p95(store: Store) -> None:
    traffic(store, NOW - timedelta(seconds=100), 100, took_s=30.0, wait_s=29.0)
    found = read(store, NOW)
    assert found["p95_s"].value == pytest.approx(1.0)
    assert found["error_share"].value == 0.0


def test_errors_are_counted_and_too_few_requests_are_no_reading(store: Store) -> None:
    assert read(store, NOW)["p95_s"].value is None
    traffic(store, NOW - timedelta(seconds=60), 60, took_s=1.0, failed=0.5)
    assert read(store, NOW)["error_share"].value == pytest.approx(0.5)
    assert read(store, NOW + timedelta(hours=3))["error_share"].value is None


def test_silence_is_measured_where_traffic_is_due_and_not_at_night(store: Store) -> None:
    assert read(store, NOW)["silence_s"].value is None
    traffic(store, NOW - timedelta(days=8), 600, took_s=1.0)
    traffic(store, NOW - timedelta(days=7), 600, took_s=1.0)
    traffic(store, NOW - timedelta(seconds=120), 60, took_s=1.0)
    assert read(store, NOW + timedelta(minutes=9))["silence_s"].value == pytest.approx(601.0)
    assert read(store, NOW + timedelta(hours=11))["silence_s"].value == 0.0


def test_late_data_is_not_silence_and_windows_wait_for_it(store: Store) -> None:
    traffic(store, NOW - timedelta(seconds=900), 500, took_s=1.0)
    late = store.read("SELECT Timestamp, TraceId, SpanId, ServiceName, Duration FROM otel_traces")
    late["SpanId"] = [f"{item[:-1]}f" for item in late["SpanId"]]
    late["Timestamp"] = pd.to_datetime(late["Timestamp"], utc=True)
    late["IngestedAt"] = late["Timestamp"] + pd.Timedelta(seconds=390)
    store.insert("otel_traces", late)
    assert (read(store, NOW)["silence_s"].value or 0) < 30
    assert alerts_load.lateness_s(store, NOW) > 200


def test_usual_p95_comes_from_the_same_hour_of_earlier_weeks(store: Store) -> None:
    for week, took in ((1, 1.0), (2, 1.1), (3, 0.9)):
        traffic(store, NOW - timedelta(days=7 * week, seconds=60), 120, took_s=took)
    usual = alerts_load.usual_p95(store, NOW)
    assert usual == pytest.approx(1.0 + 4 * 0.15)
    assert alerts_load.usual_p95(store, NOW + timedelta(hours=5)) is None


def test_traffic_that_is_not_stored_is_seen(store: Store) -> None:
    def meter(name: str, at: datetime, value: float) -> None:
        row = {"Timestamp": pd.Timestamp(at), "Instance": "a", "Name": name, "Value": value}
        store.insert("ingest_meter", pd.DataFrame([row]))

    assert read(store, NOW)["unstored"].value is None
    for seconds, accepted, kept in ((90, 1000.0, 500.0), (5, 4000.0, 500.0)):
        meter("accepted", NOW - timedelta(seconds=seconds), accepted)
        meter("stored", NOW - timedelta(seconds=seconds), kept)
    assert read(store, NOW)["unstored"].value == 3000.0
    meter("stored", NOW - timedelta(seconds=1), 600.0)
    assert read(store, NOW)["unstored"].value == 0.0


class Ear(BaseHTTPRequestHandler):
    """A receiver of webhooks; the server holds `heard` and the `status` it answers."""

    server: Any

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.heard.append((self.path, json.loads(body)))
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def ear() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Ear)
    server.heard, server.status = [], 200
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def url(server: Any) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def rules(*names: str) -> tuple[Rule, ...]:
    return tuple(rule for rule in BUILT_IN if rule.name in names)


def test_a_change_is_told_once_and_again_when_it_is_over(store: Store, ear: Any) -> None:
    slack = alerts_send.Slack(Api("slack", url(ear), "S", {}, None, FAST), "prod")
    traffic(store, NOW - timedelta(seconds=60), 400, took_s=5.0)
    traffic(store, NOW + timedelta(seconds=400), 600, took_s=0.5)
    for seconds in range(0, 900, 20):
        alerts_watch.turn(store, rules("slow"), [slack], NOW + timedelta(seconds=seconds))
    texts = [body["text"] for _, body in ear.heard]
    assert len(texts) == 2
    assert texts[0].startswith("[FIRING] high slow in prod:")
    assert texts[1].startswith("[RESOLVED]")


def test_a_receiver_that_is_away_is_told_later_and_a_restart_repeats_nothing(store: Store, ear: Any) -> None:
    traffic(store, NOW - timedelta(seconds=60), 900, took_s=5.0)
    ear.status = 503
    api = Api("slack", url(ear), "S", {}, None, FAST)
    for seconds in range(0, 200, 20):
        done = alerts_watch.turn(
            store, rules("slow"), [alerts_send.Slack(api, "prod")], NOW + timedelta(seconds=seconds)
        )
    assert "503" in done.problems[0]
    ear.status = 200
    ear.heard.clear()
    for seconds in range(200, 300, 20):
        alerts_watch.turn(store, rules("slow"), [alerts_send.Slack(api, "prod")], NOW + timedelta(seconds=seconds))
    assert len(ear.heard) == 1


def test_silences_keep_quiet_for_their_time_only(store: Store, ear: Any) -> None:
    traffic(store, NOW - timedelta(seconds=60), 900, took_s=5.0)
    alerts_watch.silence(store, Silence("s1", {"alertname": "slow"}, NOW, NOW + timedelta(seconds=200), "load test"))
    slack = alerts_send.Slack(Api("slack", url(ear), "S", {}, None, FAST), "prod")
    for seconds in range(0, 180, 20):
        alerts_watch.turn(store, rules("slow"), [slack], NOW + timedelta(seconds=seconds))
    assert ear.heard == []
    alerts_watch.turn(store, rules("slow"), [slack], NOW + timedelta(seconds=220))
    assert len(ear.heard) == 1


def test_alertmanager_gets_its_own_shape_every_turn(store: Store, ear: Any) -> None:
    traffic(store, NOW - timedelta(seconds=60), 400, took_s=5.0)
    sink = alerts_send.Alertmanager(Api("am", url(ear), "S", {}, None, FAST), "prod")
    for seconds in range(0, 200, 20):
        alerts_watch.turn(store, rules("slow"), [sink], NOW + timedelta(seconds=seconds))
    assert len(ear.heard) >= 4
    path, body = ear.heard[0]
    assert path == "/api/v2/alerts"
    assert body[0]["labels"] == {"alertname": "stagescope_slow", "severity": "high", "environment": "prod"}
    assert body[0]["startsAt"] == "2026-11-23T12:00:00.000Z"
    assert {item[1][0]["labels"]["alertname"] for item in ear.heard} == {"stagescope_slow"}


def test_watch_takes_turns_until_told_to_stop(store: Store) -> None:
    stop = threading.Event()
    said: list[str] = []
    traffic(store, NOW - timedelta(seconds=60), 900, took_s=5.0)
    ticks = iter(range(1000))

    def clock() -> datetime:
        tick = next(ticks)
        if tick == 8:
            stop.set()
        return NOW + timedelta(seconds=20 * tick)

    alerts_watch.watch(store, rules("slow"), [], stop, every_s=0.0, clock=clock, say=said.append)
    assert [text.split(":")[1].strip() for text in said] == [PENDING, FIRING]


def test_rules_of_your_own(tmp_path: Path) -> None:
    path = tmp_path / "alerts.toml"
    path.write_text('[[rule]]\nname = "slow"\nthreshold = 1.2\n[[rule]]\nname = "errors"\nseverity = "off"\n')
    own = {rule.name: rule for rule in alerts_watch.load_rules(path)}
    assert own["slow"].threshold == 1.2
    assert own["slow"].hold_s == 60.0
    assert "errors" not in own
    for wrong in (
        '[[rule]]\nname = "slow"\nlimit = 3\n',
        '[[rule]]\nname = "x"\n',
        "[[rule",
        '[[rule]]\nname="slow"\nthreshold="a"\n',
    ):
        path.write_text(wrong)
        with pytest.raises(BadSetting):
            alerts_watch.load_rules(path)


def test_a_mail_needs_a_server() -> None:
    with pytest.raises(BadSetting, match="STAGESCOPE_SMTP_URL"):
        alerts_send.notifiers(Settings(alert_mail="ops@example.com"))
