"""The page of a consumer's counters."""

from __future__ import annotations

from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ingest.errors import BadSetting
from ingest.meter import Meter
from ingest.meter_page import meter_page, page
from ingest.settings import Settings


def test_counts_are_read_as_they_stand_and_the_port_is_free_afterwards() -> None:
    meter = Meter()
    with page("127.0.0.1", 0, meter) as address:
        for stored in (3, 7):
            meter.count("stored", stored, topic="otlp_spans")
        read = text_string_to_metric_families(urlopen(address, timeout=5).read().decode())
        found = {sample.name: sample.value for family in read for sample in family.samples if sample.labels}
        assert found["stagescope_stored_total"] == 10
        assert urlopen(address.replace("/metrics", "/healthz"), timeout=5).read() == b"ok\n"
        with pytest.raises(HTTPError, match="404"):
            urlopen(address.replace("/metrics", "/etc"), timeout=5)
    with pytest.raises(URLError):
        urlopen(address, timeout=5)


def test_a_taken_port_names_its_setting_and_none_is_opened_unasked() -> None:
    with page("127.0.0.1", 0, Meter()) as address:
        taken = int(address.split(":")[2].split("/")[0])
        with (
            pytest.raises(BadSetting, match="STAGESCOPE_CONSUME_PORT"),
            meter_page(Settings(consume_port=taken), Meter()),
        ):
            pass
    with meter_page(Settings(), Meter()) as nowhere:
        assert nowhere == ""
