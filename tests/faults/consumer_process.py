"""What `consume` runs: Kafka → the store that another process serves."""

from __future__ import annotations

import logging
import threading
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
    meter = Meter()
    with Store.open(folder) as store:
        threading.Thread(target=_say_when_at_work, args=(told, meter, stop), daemon=True).start()
        Pipeline(source, store, meter, Ledger(store), Batch(max_bytes=max_bytes, linger_s=0.02)).run(stop)
    source.close()


def _say_when_at_work(told: Connection, meter: Meter, stop: threading.Event) -> None:
    """Once a block is written: from then on a kill hits the work, not the start."""
    while not meter.total("blocks"):
        stop.wait(0.005)
    told.send("at work")
