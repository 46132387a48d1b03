"""Fixtures that several rooms share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka_broker import Broker, need_local_kafka, outside_broker


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a broker that lives as long as the test run."""
    if outside := outside_broker():
        yield outside
        return
    need_local_kafka()
    broker = Broker(tmp_path_factory.mktemp("kafka")).start()
    yield broker.address
    broker.stop()
