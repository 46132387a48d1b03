"""The log on Apache Kafka, with the Collector's topics, so that either can produce into what the other reads.

Must stay true: `append` returns after all in-sync replicas have the bytes, and offsets move only by `commit`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import (
    AuthorizationError,
    CommitFailedError,
    IllegalGenerationError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import OffsetAndMetadata

from ingest.errors import BadInput, Unavailable
from ingest.kafka_place import KafkaPlace
from ingest.log import TOPICS, Message

JSON_TYPE = "application/json"
ANSWER_S = 5.0
USUAL_MESSAGE_BYTES, FRAME_BYTES = 1_000_000, 1024

HEALED_BY_POLL = (RebalanceInProgressError, CommitFailedError, IllegalGenerationError, UnknownMemberIdError)


def ensure_topics(place: KafkaPlace) -> int:
    """Make the topics that are missing, with the broker's own number of partitions and replicas. Raises Unavailable.

    Returns how many bytes one message may have on all of them.
    """
    try:
        admin = KafkaAdminClient(**place.client_options())
        try:
            missing = [topic for topic in TOPICS if topic not in admin.list_topics()]
            if missing:
                admin.create_topics(missing, raise_errors=False)
            return _message_bytes(admin)
        finally:
            admin.close()
    except KafkaError as err:
        raise _away(place, err) from err


def _message_bytes(admin: Any) -> int:
    asked = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in TOPICS]
    try:
        told = admin.describe_configs(asked, config_filter="all")
        limits = [int(config["max.message.bytes"]["value"]) for kind in told.values() for config in kind.values()]
    except (AuthorizationError, UnknownTopicOrPartitionError, KeyError):
        limits = []
    return min(limits, default=USUAL_MESSAGE_BYTES) - FRAME_BYTES


class KafkaSink:
    """Produces with acks=all and idempotence. Thread-safe."""

    def __init__(self, place: KafkaPlace) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._producer: Any = None
        self._most_bytes = 0

    def append(self, topic: str, values: Sequence[bytes], headers: Mapping[str, str] | None = None) -> None:
        carried = [(name, value.encode()) for name, value in (headers or {}).items()]
        try:
            producer = self._open()
            largest = max(map(len, values), default=0)
            if largest > self._most_bytes:
                told = f"an element of {largest} bytes; the log takes {self._most_bytes} in one message"
                raise BadInput("message-too-large", told)
            for future in [producer.send(topic, value, headers=carried) for value in values]:
                future.get(timeout=ANSWER_S * 2)
        except KafkaError as err:
            if not getattr(err, "retriable", False):
                self.close()  # an idempotent producer does not recover from an error of its own
            raise _away(self._place, err) from err

    def close(self) -> None:
        with self._lock:
            if self._producer is not None:
                self._producer.close(timeout=ANSWER_S)
                self._producer = None

    def _open(self) -> Any:
        with self._lock:
            if self._producer is None:
                self._most_bytes = ensure_topics(self._place)
                self._producer = KafkaProducer(
                    **self._place.client_options(),
                    acks="all",
                    enable_idempotence=True,
                    compression_type=self._place.compression,
                    linger_ms=5,
                    batch_size=512 << 10,
                    max_request_size=16 << 20,
                    max_block_ms=int(ANSWER_S * 1000),
                    request_timeout_ms=int(ANSWER_S * 1000),
                    delivery_timeout_ms=int(ANSWER_S * 1500),
                )
            return self._producer


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Says that the assignment moved; it runs on the client's own thread, so it only raises a flag."""

    def __init__(self) -> None:
        self.moved = threading.Event()

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.moved.set()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.moved.set()


class KafkaSource:
    """A member of the consumer group. One thread uses it. It connects when first used, and again when it must."""

    def __init__(self, place: KafkaPlace) -> None:
        self._place = place
        self._listener = _Listener()
        self._consumer: Any = None
        self._next: dict[TopicPartition, int] = {}
        self._epoch = 0
        self._resting = False

    @property
    def epoch(self) -> int:
        return self._epoch

    def poll(self, timeout_s: float) -> Sequence[Message]:
        try:
            consumer = self._open()
            if self._listener.moved.is_set():
                self._start_again(consumer)
            if self._resting:
                consumer.resume(*consumer.paused())
                self._resting = False
            records = consumer.poll(int(timeout_s * 1000))
            if self._listener.moved.is_set():
                self._start_again(consumer)
                return []
        except KafkaError as err:
            self._drop_if_broken(err)
            raise _away(self._place, err) from err
        for partition, found in records.items():
            self._next[partition] = found[-1].offset + 1
        return [_message(record) for found in records.values() for record in found]

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        try:
            self._open().commit(
                {TopicPartition(*key): OffsetAndMetadata(offset, "", -1) for key, offset in offsets.items()},
                timeout_ms=int(ANSWER_S * 1000),
            )
        except KafkaError as err:
            self._drop_if_broken(err)
            raise _away(self._place, err) from err

    def rewind(self) -> None:
        self._epoch += 1
        self._listener.moved.set()

    def keep_alive(self) -> None:
        try:
            consumer = self._open()
            consumer.pause(*consumer.assignment())
            self._resting = True
            if consumer.poll(0):
                self._listener.moved.set()
        except KafkaError as err:
            self._drop_if_broken(err)
            raise _away(self._place, err) from err

    def lag(self) -> int:
        if self._consumer is None:
            return 0
        ends = {partition: self._consumer.highwater(partition) for partition in self._consumer.assignment()}
        return sum(max(0, (end or 0) - self._next.get(partition, end or 0)) for partition, end in ends.items())

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(KafkaError):
                consumer.close(autocommit=False, timeout_ms=int(ANSWER_S * 1000))

    def _start_again(self, consumer: Any) -> None:
        """Every partition of ours from its committed offset, after which older messages are of a past epoch."""
        self._listener.moved.clear()
        try:
            for partition in consumer.assignment():
                offset = consumer.committed(partition, timeout_ms=int(ANSWER_S * 1000))
                consumer.seek(partition, self._pin(consumer, partition) if offset is None or offset < 0 else offset)
        except (KafkaError, ValueError):
            self._listener.moved.set()
            raise
        self._next.clear()
        self._epoch += 1

    def _pin(self, consumer: Any, partition: TopicPartition) -> int:
        """Where a partition that the group never committed begins; committed at once, so that it cannot begin elsewhere later."""
        ends = consumer.beginning_offsets if self._place.initial_offset == "earliest" else consumer.end_offsets
        offset: int = ends([partition], timeout_ms=int(ANSWER_S * 1000))[partition]
        consumer.commit({partition: OffsetAndMetadata(offset, "", -1)}, timeout_ms=int(ANSWER_S * 1000))
        return offset

    def _open(self) -> Any:
        if self._consumer is None:
            ensure_topics(self._place)
            consumer = KafkaConsumer(
                **self._place.client_options(),
                **self._place.group_options(),
                enable_auto_commit=False,
                isolation_level="read_committed",
                partition_assignment_strategy=[CooperativeStickyAssignor],
                metadata_max_age_ms=30_000,
                max_poll_records=2000,
                fetch_max_bytes=16 << 20,
                max_partition_fetch_bytes=4 << 20,
                request_timeout_ms=int(ANSWER_S * 6000),
            )
            # Known before the group is joined: a leader without metadata hands out nothing, and may not notice for minutes.
            if not all(consumer.partitions_for_topic(topic) for topic in TOPICS):
                consumer.close(autocommit=False, timeout_ms=int(ANSWER_S * 1000))
                raise KafkaTimeoutError("the topics are not there yet")
            consumer.subscribe(TOPICS, listener=self._listener)
            self._consumer = consumer
        return self._consumer

    def _drop_if_broken(self, err: KafkaError) -> None:
        """Trouble that does not pass by itself needs a new connection and a new membership; a rebalance is over with the next poll."""
        self.rewind()
        if not getattr(err, "retriable", False) and not isinstance(err, HEALED_BY_POLL):
            self.close()


def _message(record: Any) -> Message:
    headers = {name.lower(): (value or b"").decode("utf-8", "replace") for name, value in record.headers}
    value = record.value or b""
    if "content-type" not in headers and value[:1] == b"{":
        headers["content-type"] = JSON_TYPE  # no protobuf request begins so: the Collector's otlp_json names no type
    return Message(record.topic, record.partition, record.offset, value, headers, max(0, record.timestamp))


def _away(place: KafkaPlace, err: Exception) -> Unavailable:
    text = str(err).strip().splitlines()[0][:300] if str(err).strip() else type(err).__name__
    return Unavailable(f"Kafka at {','.join(place.brokers)} does not answer: {text}", 1.0)
