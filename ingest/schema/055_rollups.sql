-- Which traces got spans lately, in the order of arrival (_block_number), so that their stage runs are built again.
CREATE TABLE IF NOT EXISTS stage_touched
(
    TraceId String CODEC(ZSTD(1)),
    Start DateTime64(9) CODEC(Delta, ZSTD(1)),
    End DateTime64(9) CODEC(Delta, ZSTD(1)),
    Spans UInt32,
    TouchedAt DateTime DEFAULT now()
)
ENGINE = MergeTree
ORDER BY TraceId
TTL TouchedAt + INTERVAL 2 DAY
SETTINGS enable_block_number_column = 1, enable_block_offset_column = 1, ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS stage_touched_mv TO stage_touched AS
SELECT TraceId, min(Timestamp) AS Start, max(Timestamp) AS End, toUInt32(count()) AS Spans
FROM otel_traces WHERE TraceId != '' GROUP BY TraceId;

-- How far a piece of standing work has come.
CREATE TABLE IF NOT EXISTS stage_progress
(
    Name String,
    Value Int64,
    UpdatedAt DateTime64(3) DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(UpdatedAt)
ORDER BY Name;

-- Per hour: the newest revision of runs in it, and the revision its rollup was made from. Fresh when Rolled >= Dirty.
CREATE TABLE IF NOT EXISTS stage_hours
(
    Hour DateTime,
    Dirty SimpleAggregateFunction(max, UInt64) DEFAULT 0,
    Rolled SimpleAggregateFunction(max, UInt64) DEFAULT 0
)
ENGINE = AggregatingMergeTree
ORDER BY Hour;

-- Latency by hour, service, stage and the values of one dimension (Dim '' is all of them together). Failed runs are counted
-- and kept out of Latency. Only rows of the hour's Rolled revision count.
CREATE TABLE IF NOT EXISTS stage_rollups
(
    Dim LowCardinality(String),
    Hour DateTime,
    ServiceName LowCardinality(String),
    Stage LowCardinality(String),
    Root UInt8,
    Value LowCardinality(String),
    Runs UInt64,
    Errors UInt64,
    Latency AggregateFunction(quantilesDD(0.004, 0.5, 0.95, 0.99, 0.999), UInt64),
    Revision UInt64
)
ENGINE = ReplacingMergeTree(Revision)
PARTITION BY toYYYYMM(Hour)
ORDER BY (Dim, Hour, ServiceName, Stage, Root, Value)
SETTINGS index_granularity = 256, non_replicated_deduplication_window = 1000;

-- The same by day (UTC), for days that are over. Only rows of the day's Revision in stage_days count.
CREATE TABLE IF NOT EXISTS stage_rollups_days
(
    Dim LowCardinality(String),
    Day DateTime('UTC'),
    ServiceName LowCardinality(String),
    Stage LowCardinality(String),
    Root UInt8,
    Value LowCardinality(String),
    Runs UInt64,
    Errors UInt64,
    Latency AggregateFunction(quantilesDD(0.004, 0.5, 0.95, 0.99, 0.999), UInt64),
    Revision UInt64
)
ENGINE = ReplacingMergeTree(Revision)
PARTITION BY toYYYYMM(Day)
ORDER BY (Dim, Day, ServiceName, Stage, Root, Value)
SETTINGS index_granularity = 256, non_replicated_deduplication_window = 1000;

-- Which state of a day's hours its rollup was made from (a sum over hashes of hour and Rolled).
CREATE TABLE IF NOT EXISTS stage_days
(
    Day DateTime('UTC'),
    Hours UInt64,
    Revision UInt64
)
ENGINE = ReplacingMergeTree(Revision)
ORDER BY Day;
