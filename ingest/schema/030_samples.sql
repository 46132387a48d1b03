-- Hardware beside the traces: one row a device (or host, or engine) and instant. Unknown is NULL, never 0.
CREATE TABLE IF NOT EXISTS gpu_samples
(
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)),
    Host LowCardinality(String),
    Gpu LowCardinality(String),
    Model LowCardinality(String),
    SmActive Nullable(Float32),
    MemUsedBytes Nullable(UInt64),
    MemTotalBytes Nullable(UInt64),
    PcieRxBytesPerSec Nullable(Float64),
    PcieTxBytesPerSec Nullable(Float64),
    DramActive Nullable(Float32),
    PowerWatts Nullable(Float32),
    Uuid LowCardinality(String) DEFAULT '',
    MigInstance LowCardinality(String) DEFAULT '',
    DeviceUtil Nullable(Float32),
    TensorActive Nullable(Float32),
    PcieMaxBytesPerSec Nullable(Float64),
    TemperatureC Nullable(Float32),
    XidErrors Nullable(UInt64)
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (Host, Gpu, MigInstance, Timestamp)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS host_samples
(
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)),
    Host LowCardinality(String),
    CpuRatio Nullable(Float32),
    LoadPerCpu Nullable(Float32),
    MemUsedRatio Nullable(Float32),
    DiskQueue Nullable(Float32),
    DiskIops Nullable(Float32),
    DiskBusyRatio Nullable(Float32),
    NetPeer LowCardinality(String) DEFAULT '',
    NetRttMs Nullable(Float32)
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (Host, NetPeer, Timestamp)
SETTINGS non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS engine_samples
(
    Timestamp DateTime64(9) CODEC(Delta, ZSTD(1)),
    Host LowCardinality(String),
    Instance LowCardinality(String),
    Model LowCardinality(String),
    Running Nullable(Float32),
    Waiting Nullable(Float32),
    KvUsage Nullable(Float32),
    Preemptions Nullable(Float64),
    PrefixQueries Nullable(Float64),
    PrefixHits Nullable(Float64),
    PromptTokens Nullable(Float64),
    GenerationTokens Nullable(Float64),
    EstimatedFlops Nullable(Float64),
    EstimatedReadBytes Nullable(Float64)
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (Host, Instance, Model, Timestamp)
SETTINGS non_replicated_deduplication_window = 1000;
