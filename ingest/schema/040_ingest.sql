-- What was not stored and why, and which offsets make up which block.
CREATE TABLE IF NOT EXISTS dead_letters
(
    ReceivedAt DateTime64(3) DEFAULT now64(3),
    Topic LowCardinality(String),
    Partition Int32,
    Offset Int64,
    Reason LowCardinality(String),
    Detail String,
    Value String CODEC(ZSTD(3)),
    ReplayedAt Nullable(DateTime64(3))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(ReceivedAt)
ORDER BY (Topic, Partition, Offset, Reason)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS ingest_ledger
(
    WrittenAt DateTime64(3) DEFAULT now64(3),
    Topic LowCardinality(String),
    Partition Int32,
    FirstOffset Int64,
    Offset Int64,
    Token String,
    Reason LowCardinality(String) DEFAULT ''
)
ENGINE = ReplacingMergeTree(WrittenAt)
ORDER BY (Topic, Partition, FirstOffset)
TTL toDateTime(WrittenAt) + INTERVAL 30 DAY;

CREATE TABLE IF NOT EXISTS ingest_rejects
(
    Timestamp DateTime64(3) DEFAULT now64(3),
    Topic LowCardinality(String),
    Partition Int32 DEFAULT -1,
    Offset Int64 DEFAULT -1,
    Source LowCardinality(String) DEFAULT '',
    Reason LowCardinality(String),
    Detail String DEFAULT '',
    Count UInt64
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(Timestamp)
ORDER BY (Timestamp, Reason)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS ingest_meter
(
    Timestamp DateTime64(3),
    Instance LowCardinality(String),
    Name LowCardinality(String),
    Labels Map(LowCardinality(String), String),
    Value Float64
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(Timestamp)
ORDER BY (Name, Timestamp)
TTL toDateTime(Timestamp) + INTERVAL 60 DAY;
