-- One execution of one stage in one trace; `gap: a → b` is the time between a client span and its server child.
-- A trace rebuilt because a span came late writes its rows again with a higher Revision; rows that vanish get IsDeleted.
CREATE TABLE IF NOT EXISTS stage_runs
(
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    ParentSpanId String CODEC(ZSTD(1)),
    ServiceName LowCardinality(String),
    Stage LowCardinality(String),
    Kind LowCardinality(String),
    Tier LowCardinality(String),
    Model LowCardinality(String),
    Tool LowCardinality(String),
    Region LowCardinality(String),
    Device LowCardinality(String),
    UserTier LowCardinality(String),
    UserId String CODEC(ZSTD(1)),
    SessionId String CODEC(ZSTD(1)),
    Version LowCardinality(String),
    Host LowCardinality(String),
    Duration UInt64 CODEC(ZSTD(1)),
    SelfTime UInt64 CODEC(ZSTD(1)),
    CriticalTime UInt64 CODEC(ZSTD(1)),
    WaitTime UInt64 CODEC(ZSTD(1)),
    InputTokens Nullable(UInt64) CODEC(ZSTD(1)),
    CachedTokens Nullable(UInt64) CODEC(ZSTD(1)),
    OutputTokens Nullable(UInt64) CODEC(ZSTD(1)),
    PayloadBytes Nullable(UInt64) CODEC(ZSTD(1)),
    Items Nullable(UInt64) CODEC(ZSTD(1)),
    Rows Nullable(UInt64) CODEC(ZSTD(1)),
    Retries UInt16 CODEC(ZSTD(1)),
    Failed UInt8 CODEC(ZSTD(1)),
    ErrorType LowCardinality(String),
    ErrorMessage String CODEC(ZSTD(1)),
    TraceDuration UInt64 DEFAULT 0 CODEC(ZSTD(1)),
    Evidence Map(LowCardinality(String), Float64) CODEC(ZSTD(1)),
    Marks LowCardinality(String) DEFAULT '',
    Revision UInt64 DEFAULT toUnixTimestamp64Milli(now64(3)) CODEC(ZSTD(1)),
    IsDeleted UInt8 DEFAULT 0 CODEC(ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(Revision, IsDeleted)
PARTITION BY toDate(Timestamp)
ORDER BY (Stage, ServiceName, toStartOfHour(Timestamp), TraceId, SpanId)
SETTINGS index_granularity = 8192, non_replicated_deduplication_window = 1000;
