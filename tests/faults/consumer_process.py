"""What `consume` runs: Kafka → the store that another process serves."""

from __future__ import annotations

import logging
from multiprocessing.connection import Connection

from ingest.kafka_log import KafkaSource
from ingest.kafka_place import kafka_place
from ingest.ledger import Ledger
from ingest.meter import Meter
from ingest.pipeline import Batch, Pipeline
from ingest.store import Store
from tests.faults.processes import stop_when_told


def consumer(told: Connection, kafka_url: str, folder: str, max_bytes: int) -> None:
    """Kafka → the store that another process serves."""
    logging.disable(logging.CRITICAL)
    stop = stop_when_told(told)
    source = KafkaSource(kafka_place(kafka_url))
    with Store.open(folder) as store:
        pipeline = Pipeline(source, store, Meter(), Ledger(store), Batch(max_bytes=max_bytes, linger_s=0.02))
        source.keep_alive()
        told.send("ready")
        pipeline.run(stop)
    source.close()
