"""`stagescope doctor`: a sound set-up is called sound; each trouble is named with what to do."""

import dataclasses
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.doctor import OK, WRONG, Diagnosis, _clock, examine
from ingest.settings import Settings
from ingest.store import Store


@pytest.fixture
def sound(tmp_path: Path) -> Settings:
    return Settings(store=str(tmp_path / "store"), otlp_grpc_port=0, otlp_http_port=0, clickhouse_port=0, ui_port=0)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield int(held.getsockname()[1])


def _trouble(settings: Settings) -> list[Diagnosis]:
    return [found for found in examine(settings) if found.state == WRONG]


def test_a_fresh_set_up_is_sound_and_untouched(sound: Settings) -> None:
    found = examine(sound)
    assert {one.check for one in found} >= {"settings", "ports", "store", "log", "elasticsearch", "exporters"}
    assert not _trouble(sound)
    assert not Path(sound.store).exists(), "looking makes nothing"


def test_a_filled_store_is_counted_and_its_clock_compared(sound: Settings) -> None:
    Store.open(sound.store).close()
    found = {one.check: one for one in examine(sound)}
    assert found["store"].found == "0 spans"
    assert found["clock"].state == OK


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        ({"stages": "/no/such/file"}, "settings", "STAGESCOPE_STAGES"),
        ({"scrape": "ftp://x"}, "settings", "STAGESCOPE_SCRAPE"),
        ({"log": "rabbit://x"}, "log", "STAGESCOPE_LOG"),
        ({"log": "kafka://127.0.0.1:1"}, "log", "takes no connection"),
        ({"failures": "http://u:secret@127.0.0.1:1"}, "elasticsearch", "does not answer"),
        ({"failures": "elastic"}, "elasticsearch", "STAGESCOPE_FAILURES"),
        ({"store": "http://u:secret@127.0.0.1:1/x"}, "store", "does not answer"),
        ({"store": "ftp://x"}, "store", "STAGESCOPE_STORE"),
        ({"scrape": "http://127.0.0.1:1/metrics"}, "exporters", "does not answer"),
        ({"ui_port": 4000, "clickhouse_port": 4000}, "settings", "both 4000"),
    ],
)
def test_each_trouble_is_named_with_what_to_do(
    sound: Settings, change: dict[str, object], check: str, words: str
) -> None:
    found = [one for one in _trouble(dataclasses.replace(sound, **change)) if one.check == check]
    assert found
    assert words in found[0].found
    assert found[0].mend
    assert "secret" not in found[0].found + found[0].mend


def test_a_port_that_is_taken_is_named(sound: Settings, taken: int) -> None:
    (found,) = _trouble(dataclasses.replace(sound, ui_port=taken))
    assert str(taken) in found.found
    assert "STAGESCOPE_UI_PORT" in found.mend


def test_clocks_apart_are_wrong() -> None:
    assert [one.state for one in (*_clock("store", 1.0), *_clock("store", -90.0))] == [OK, WRONG]
