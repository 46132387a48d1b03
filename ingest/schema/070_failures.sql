-- The failure log and what it was grouped into; tickets; alerts.
CREATE TABLE IF NOT EXISTS failures
(
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    ServiceName LowCardinality(String),
    Stage LowCardinality(String),
    Kind LowCardinality(String),
    Tier LowCardinality(String),
    Tool LowCardinality(String),
    Model LowCardinality(String),
    Region LowCardinality(String),
    Device LowCardinality(String),
    UserTier LowCardinality(String),
    UserId String CODEC(ZSTD(1)),
    SessionId String CODEC(ZSTD(1)),
    Version LowCardinality(String),
    Host LowCardinality(String),
    ErrorType LowCardinality(String),
    Message String CODEC(ZSTD(3)),
    Frames Array(String) CODEC(ZSTD(3)),
    Context Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ClusterId String DEFAULT '' CODEC(ZSTD(1)),
    Revision UInt64 DEFAULT toUnixTimestamp64Milli(now64(3)),
    PatternId String DEFAULT '' CODEC(ZSTD(1)),
    Echo UInt8 DEFAULT 0,
    Recovered UInt8 DEFAULT 0,
    Lost UInt64 DEFAULT 0 CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(Revision)
PARTITION BY toYYYYMM(Timestamp)
ORDER BY (toDate(Timestamp), TraceId, SpanId)
SETTINGS non_replicated_deduplication_window = 1000;

-- How far each outside failure index has come; Refused is the lowest Revision of documents that it would not take (0: none).
CREATE TABLE IF NOT EXISTS failure_index_marks
(
    Target String,
    Revision UInt64,
    Refused UInt64 DEFAULT 0,
    UpdatedAt DateTime64(6) DEFAULT now64(6)
)
ENGINE = ReplacingMergeTree(UpdatedAt)
ORDER BY Target;

-- What the texts looked like, oldest first; AliasOf names the older template that took this one in.
CREATE TABLE IF NOT EXISTS failure_templates
(
    TemplateId String,
    Atoms Array(String) CODEC(ZSTD(3)),
    AliasOf String DEFAULT '',
    Place UInt64,
    UpdatedAt DateTime64(3) DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(UpdatedAt)
ORDER BY TemplateId;

-- One row a pattern (template + error type + code + stage) and the cluster it belongs to, for good.
CREATE TABLE IF NOT EXISTS failure_patterns
(
    PatternId String,
    TemplateId String,
    ErrorType String,
    Code String,
    Stage String,
    Frames Array(String) CODEC(ZSTD(3)),
    Scene String,
    ClusterId String,
    Place UInt64,
    UpdatedAt DateTime64(3) DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(UpdatedAt)
ORDER BY PatternId;

-- A person's word on two clusters or patterns: the same problem (1) or not (0). Never undone by the machine.
CREATE TABLE IF NOT EXISTS failure_verdicts
(
    One String,
    Other String,
    Same UInt8,
    Note String DEFAULT '',
    At DateTime64(3) DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(At)
ORDER BY (One, Other);

CREATE TABLE IF NOT EXISTS failure_clusters
(
    ClusterId String,
    Label String,
    Scene LowCardinality(String),
    FirstSeen DateTime64(3),
    LastSeen DateTime64(3),
    Count UInt64,
    Users UInt64,
    Body String CODEC(ZSTD(3)),
    UpdatedAt DateTime64(3) DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(UpdatedAt)
ORDER BY ClusterId;

CREATE TABLE IF NOT EXISTS tickets
(
    Environment LowCardinality(String),
    Sink LowCardinality(String),
    Key String,
    ExternalId String,
    State LowCardinality(String),
    Title String,
    Body String CODEC(ZSTD(3)),
    OpenedAt DateTime64(3),
    UpdatedAt DateTime64(3),
    ClosedAt Nullable(DateTime64(3))
)
ENGINE = ReplacingMergeTree(UpdatedAt)
ORDER BY (Environment, Sink, Key);

CREATE TABLE IF NOT EXISTS alerts
(
    Key String,
    Rule LowCardinality(String),
    State LowCardinality(String),
    Since DateTime64(3),
    UpdatedAt DateTime64(3),
    Value Float64,
    Threshold Float64,
    Body String CODEC(ZSTD(3))
)
ENGINE = ReplacingMergeTree(UpdatedAt)
ORDER BY Key;

-- Who may act on a ticket now. Two rows with one deduplication token are one row: the first sender has won.
CREATE TABLE IF NOT EXISTS ticket_claims
(
    Environment LowCardinality(String),
    Sink LowCardinality(String),
    Key String,
    Epoch UInt64,
    Owner String,
    Released UInt8,
    At DateTime64(3)
)
ENGINE = MergeTree
ORDER BY (Environment, Sink, Key, Epoch)
SETTINGS non_replicated_deduplication_window = 10000;

-- Nobody is told of alerts that have all of these labels, between the two moments.
CREATE TABLE IF NOT EXISTS alert_silences
(
    Id String,
    Matches Map(String, String),
    Start DateTime64(3),
    End DateTime64(3),
    Note String DEFAULT '',
    UpdatedAt DateTime64(3) DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(UpdatedAt)
ORDER BY Id;
