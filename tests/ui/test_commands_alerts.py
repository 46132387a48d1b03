"""Silencing from the command line: what `watch` reads, listed, and ended."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from analytics.alerts import FIRING, Alert
from analytics.alerts_watch import silences
from ingest.store import Store
from ui import cli


def test_a_silence_covers_is_listed_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--store", str(tmp_path / "store")]
    matches = ["--match", "alertname=slow", "--match", "severity=high"]
    assert cli.main(["alerts", "silence", *matches, "--for", "2h", "--note", "load test", "--json", *where]) == 0
    made = json.loads(capsys.readouterr().out)
    now = datetime.now(UTC)
    with Store.open(where[1]) as store:
        (kept,) = silences(store, now)
    slow = Alert("slow", "slow", FIRING, now, now, 3.0, 2.0, "high", "slow")
    assert kept.covers(slow, now)
    assert not kept.covers(slow, now + timedelta(hours=3))
    assert cli.main(["alerts", "list", *where]) == 0
    assert "alertname=slow, severity=high" in capsys.readouterr().out
    assert cli.main(["alerts", "unsilence", made["id"], *where]) == 0
    with Store.open(where[1]) as store:
        assert silences(store, datetime.now(UTC)) == []
    assert cli.main(["alerts", "unsilence", made["id"], *where]) == 2


@pytest.mark.parametrize("match", ["slow", "=x", "alertname=", "alertname=slwo"])
def test_a_silence_that_would_match_nothing_is_refused(
    match: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["alerts", "silence", "--match", match, "--for", "1h", "--store", str(tmp_path / "store")]) == 2
    assert "--match" in capsys.readouterr().err
