"""From spans in a store to the service that became slow: through stage runs, blocks and edges."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from analytics.findings import Window
from analytics.localise_load import suspects
from analytics.stages import build
from ingest.store import Store
from ui import cli

START = datetime(2026, 11, 2, 10, 0, tzinfo=UTC)
FILL = """
INSERT INTO otel_traces (Timestamp, TraceId, SpanId, ParentSpanId, SpanName, SpanKind, ServiceName, Duration, StatusCode)
WITH
    intDiv(number, 5) AS trace, number % 5 AS part, cityHash64(trace, part) % 1000 / 1000 AS noise,
    if(trace >= 800, {slow:Float64}, 1) AS late,
    [2e7 * late + 3e7, 2e7 * late + 1e7, 2e7 * late + 5e6, 1e7, 5e6][part + 1] * (1 + noise / 10) AS length,
    [0, 2e6, 4e6, 3e7, 3.2e7][part + 1] AS begin
SELECT fromUnixTimestamp64Nano(toInt64({start:Int64} + trace * 600000000 + begin)), toString(trace), concat(toString(trace), '-', toString(part)),
    ['', concat(toString(trace), '-0'), concat(toString(trace), '-1'), concat(toString(trace), '-0'), concat(toString(trace), '-3')][part + 1],
    ['GET', 'call pay', 'pay', 'call ship', 'ship'][part + 1], ['Server', 'Client', 'Server', 'Client', 'Server'][part + 1],
    ['front', 'front', 'pay', 'front', 'ship'][part + 1], toUInt64(length), 'Unset'
FROM numbers(5000)
"""


def test_the_service_that_became_slow_is_named(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store")) as store:
        store.command(FILL, start=int(START.timestamp()) * 1_000_000_000, slow=3.0)
        build(store, Window(START - timedelta(minutes=1), START + timedelta(minutes=20)))
        window = Window(START + timedelta(minutes=8), START + timedelta(minutes=10))
        found = suspects(store, window, Window(START, window.start))
        assert found[0].service == "pay"
        assert found[0].share > 0.5


def test_a_person_asks_the_same_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "store")
    with Store.open(place) as store:
        store.command(FILL, start=int(START.timestamp()) * 1_000_000_000, slow=3.0)
        build(store, Window(START - timedelta(minutes=1), START + timedelta(minutes=20)))
    slow = ["suspects", "--store", place, "--from", "2026-11-02T10:08", "--to", "2026-11-02T10:10"]
    assert cli.main([*slow, "--against", "2026-11-02T10:00/2026-11-02T10:08"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[3].split()[0] == "pay"
    calm = ["suspects", "--store", place, "--from", "2026-11-02T10:06", "--to", "2026-11-02T10:07"]
    assert cli.main([*calm, "--against", "2026-11-02T10:00/2026-11-02T10:05"]) == 0
    assert "no service is slower" in capsys.readouterr().out
    assert cli.main([*slow, "--against", "10:00/"]) == 2
    assert cli.main([*slow, "--against", "no-such-baseline"]) == 2
