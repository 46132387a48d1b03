-- The OpenTelemetry Collector's tables: its names, columns and order, so that either can read what the other wrote.
-- Ours come after the Collector's columns, each with a default. Rows of one span seen twice (client retry, re-read)
-- share the whole sorting key and are one row for every reader with final = 1, and after a merge for everyone.
-- Spans of one trace lie together: ids and attributes compress to half, and a trace is read from one place (docs/otlp.md).
-- The text index is left out of inserts (ingest/writer.py) and built when parts merge; younger parts are scanned.
CREATE TABLE IF NOT EXISTS otel_traces
(
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    ParentSpanId String CODEC(ZSTD(1)),
    TraceState String CODEC(ZSTD(1)),
    SpanName LowCardinality(String) CODEC(ZSTD(1)),
    SpanKind LowCardinality(String) CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(3)),
    Duration UInt64 CODEC(ZSTD(1)),
    StatusCode LowCardinality(String) CODEC(ZSTD(1)),
    StatusMessage String CODEC(ZSTD(1)),
    Events Nested (Timestamp DateTime64(9), Name LowCardinality(String), Attributes Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    Links Nested (TraceId String, SpanId String, TraceState String, Attributes Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    IngestedAt DateTime64(3) DEFAULT now64(3) CODEC(Delta, ZSTD(1)),
    Marks LowCardinality(String) DEFAULT '' CODEC(ZSTD(1)),
    ResourceAttributeItems Array(String) ALIAS arrayMap((k, v) -> concat(k, '=', v), mapKeys(ResourceAttributes), mapValues(ResourceAttributes)),
    SpanAttributeItems Array(String) ALIAS arrayMap((k, v) -> concat(k, '=', v), mapKeys(SpanAttributes), mapValues(SpanAttributes)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_duration Duration TYPE minmax GRANULARITY 1,
    INDEX idx_span_items SpanAttributeItems TYPE text(tokenizer = 'array', posting_list_codec = 'bitpacking')
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(Timestamp)
PRIMARY KEY (toStartOfFiveMinutes(Timestamp), TraceId)
ORDER BY (toStartOfFiveMinutes(Timestamp), TraceId, Timestamp, SpanId, ServiceName, SpanName)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000,
    map_serialization_version = 'with_buckets', map_serialization_version_for_zero_level_parts = 'basic',
    map_buckets_strategy = 'linear', map_buckets_min_avg_size = 4;

-- A table that a Collector made lacks our columns: they are added, and its spans count as ingested when they began.
ALTER TABLE otel_traces ADD COLUMN IF NOT EXISTS IngestedAt DateTime64(3) DEFAULT toDateTime64(Timestamp, 3) CODEC(Delta, ZSTD(1));
ALTER TABLE otel_traces ADD COLUMN IF NOT EXISTS Marks LowCardinality(String) DEFAULT '';
ALTER TABLE otel_traces ADD COLUMN IF NOT EXISTS ResourceAttributeItems Array(String)
    ALIAS arrayMap((k, v) -> concat(k, '=', v), mapKeys(ResourceAttributes), mapValues(ResourceAttributes));
ALTER TABLE otel_traces ADD COLUMN IF NOT EXISTS SpanAttributeItems Array(String)
    ALIAS arrayMap((k, v) -> concat(k, '=', v), mapKeys(SpanAttributes), mapValues(SpanAttributes));

CREATE TABLE IF NOT EXISTS otel_traces_trace_id_ts
(
    TraceId String CODEC(ZSTD(1)),
    Start DateTime CODEC(Delta, ZSTD(1)),
    End DateTime CODEC(Delta, ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(Start)
ORDER BY (TraceId, Start)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS otel_traces_trace_id_ts_mv TO otel_traces_trace_id_ts AS
SELECT TraceId, min(Timestamp) AS Start, max(Timestamp) AS End FROM otel_traces WHERE TraceId != '' GROUP BY TraceId;

CREATE TABLE IF NOT EXISTS otel_logs
(
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)),
    TimestampTime DateTime DEFAULT toDateTime(Timestamp),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    TraceFlags UInt8,
    SeverityText LowCardinality(String) CODEC(ZSTD(1)),
    SeverityNumber UInt8,
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    Body String CODEC(ZSTD(1)),
    ResourceSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion LowCardinality(String) CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    LogAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    EventName String DEFAULT '' CODEC(ZSTD(1)),
    LogAttributeItems Array(String) ALIAS arrayMap((k, v) -> concat(k, '=', v), mapKeys(LogAttributes), mapValues(LogAttributes)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(TimestampTime)
ORDER BY (ServiceName, TimestampTime, Timestamp)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;
