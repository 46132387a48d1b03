"""The meter: counts grow, text is Prometheus text, rows land in the table."""

from __future__ import annotations

import threading
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from ingest.meter import Clockwork, Meter
from ingest.store import Store


def test_counts_from_many_threads_are_all_there() -> None:
    meter = Meter()

    def work() -> None:
        for _ in range(2000):
            meter.count("stored", topic="otlp_spans")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meter.total("stored") == meter.total("stored", topic="otlp_spans") == 16000
    assert meter.total("stored", topic="otlp_logs") == 0


def test_the_text_is_read_by_a_prometheus_parser_whatever_the_labels_say() -> None:
    meter = Meter()
    meter.count("dead_letters", 2, topic="a", reason='quote " back \\ new\nline')
    meter.count("something_new", 1.5)
    meter.gauge("lag_messages", 7)
    families = {family.name: family for family in text_string_to_metric_families(meter.text())}
    [sample] = families["stagescope_dead_letters"].samples
    assert (sample.value, sample.labels["reason"]) == (2.0, 'quote " back \\ new\nline')
    assert families["stagescope_something_new"].samples[0].value == 1.5
    assert families["stagescope_lag_messages"].type == "gauge"
    assert families["stagescope_stored"].type == "counter"


def test_rows_are_kept_when_due_and_only_then(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "s")) as store:
        meter = Meter("here")
        Clockwork(meter, store, every_s=0).tick()
        meter.count("stored", 3, topic="otlp_spans")
        clockwork = Clockwork(meter, store, every_s=1000)
        clockwork.tick()
        clockwork.tick()
        rows = store.read("SELECT Instance, Name, Labels, Value FROM ingest_meter")
    assert [tuple(row) for row in rows.itertuples(index=False)] == [("here", "stored", {"topic": "otlp_spans"}, 3.0)]
