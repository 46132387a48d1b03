-- Hardware beside the traces: one row a device (or host, or engine) and instant. Unknown is NULL, never 0.
-- Filled from the metric tables by the views below, whoever wrote those (our scraper, or a Collector's prometheus receiver).
-- One instant may come in several blocks, so rows of one key are coalesced: what one leaves NULL another fills in.
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
ENGINE = CoalescingMergeTree
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
ENGINE = CoalescingMergeTree
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
ENGINE = CoalescingMergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (Host, Instance, Model, Timestamp)
SETTINGS non_replicated_deduplication_window = 1000;

-- Values that DCGM uses for "no value" (int32, int64 and float blanks, a blank utilisation) are dropped, never averaged.
-- Ratios are 0..1, frame buffer sizes MiB, PCIe rates bytes a second.
CREATE MATERIALIZED VIEW IF NOT EXISTS gpu_samples_mv TO gpu_samples AS
WITH
    if(isNaN(Value) OR Value < 0 OR Value >= 9.2e18 OR Value BETWEEN 140737488355328 AND 140737488355343
        OR Value BETWEEN 2147483632 AND 2147483647 OR Value = 4294967295, NULL, Value) AS v,
    if(v <= 1, v, NULL) AS ratio,
    toString(MetricName) AS name
SELECT
    TimeUnix AS Timestamp,
    multiIf(
    Attributes['Hostname'] != '', Attributes['Hostname'], Attributes['hostname'] != '', Attributes['hostname'],
    Attributes['host.name'] != '', Attributes['host.name'], ResourceAttributes['host.name'] != '', ResourceAttributes['host.name'],
    ResourceAttributes['k8s.node.name'] != '', ResourceAttributes['k8s.node.name'],
    ResourceAttributes['server.address'] != '', ResourceAttributes['server.address'],
    ResourceAttributes['net.host.name'] != '', ResourceAttributes['net.host.name'],
    splitByChar(':', ResourceAttributes['service.instance.id'])[1]) AS Host,
    multiIf(Attributes['gpu'] != '', Attributes['gpu'], Attributes['minor_number']) AS Gpu,
    Attributes['GPU_I_ID'] AS MigInstance,
    max(Attributes['modelName']) AS Model,
    max(multiIf(Attributes['UUID'] != '', Attributes['UUID'], Attributes['uuid'])) AS Uuid,
    toFloat32(maxIf(ratio, name = 'DCGM_FI_PROF_SM_ACTIVE')) AS SmActive,
    toUInt64(maxIf(v, name = 'DCGM_FI_DEV_FB_USED') * 1048576) AS MemUsedBytes,
    toUInt64(coalesce(maxIf(v, name = 'DCGM_FI_DEV_FB_TOTAL'),
        maxIf(v, name = 'DCGM_FI_DEV_FB_USED') + maxIf(v, name = 'DCGM_FI_DEV_FB_FREE')
        + ifNull(maxIf(v, name = 'DCGM_FI_DEV_FB_RESERVED'), 0)) * 1048576) AS MemTotalBytes,
    maxIf(v, name = 'DCGM_FI_PROF_PCIE_RX_BYTES') AS PcieRxBytesPerSec,
    maxIf(v, name = 'DCGM_FI_PROF_PCIE_TX_BYTES') AS PcieTxBytesPerSec,
    toFloat32(maxIf(ratio, name = 'DCGM_FI_PROF_DRAM_ACTIVE')) AS DramActive,
    toFloat32(maxIf(v, name = 'DCGM_FI_DEV_POWER_USAGE')) AS PowerWatts,
    toFloat32(if(maxIf(v, name = 'DCGM_FI_DEV_GPU_UTIL') <= 100, maxIf(v, name = 'DCGM_FI_DEV_GPU_UTIL') / 100, NULL)) AS DeviceUtil,
    toFloat32(maxIf(ratio, name = 'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE')) AS TensorActive,
    transform(toUInt8(ifNull(maxIf(v, name IN ('DCGM_FI_DEV_PCIE_LINK_GEN', 'DCGM_FI_DEV_PCIE_MAX_LINK_GEN')), 0)),
        [1, 2, 3, 4, 5, 6], [250e6, 500e6, 984.6e6, 1969e6, 3938e6, 7563e6], NULL)
        * maxIf(v, name IN ('DCGM_FI_DEV_PCIE_LINK_WIDTH', 'DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH')) AS PcieMaxBytesPerSec,
    toFloat32(maxIf(v, name = 'DCGM_FI_DEV_GPU_TEMP')) AS TemperatureC,
    toUInt64(maxIf(v, name = 'DCGM_FI_DEV_XID_ERRORS')) AS XidErrors
FROM otel_metrics_gauge
WHERE startsWith(MetricName, 'DCGM_FI_')
GROUP BY Timestamp, Host, Gpu, MigInstance
HAVING count(v) > 0 AND Gpu != '';

CREATE MATERIALIZED VIEW IF NOT EXISTS host_samples_mv TO host_samples AS
WITH if(isFinite(Value), Value, NULL) AS v, toString(MetricName) AS name, Attributes['state'] AS state
SELECT
    TimeUnix AS Timestamp,
    multiIf(
    Attributes['Hostname'] != '', Attributes['Hostname'], Attributes['hostname'] != '', Attributes['hostname'],
    Attributes['host.name'] != '', Attributes['host.name'], ResourceAttributes['host.name'] != '', ResourceAttributes['host.name'],
    ResourceAttributes['k8s.node.name'] != '', ResourceAttributes['k8s.node.name'],
    ResourceAttributes['server.address'] != '', ResourceAttributes['server.address'],
    ResourceAttributes['net.host.name'] != '', ResourceAttributes['net.host.name'],
    splitByChar(':', ResourceAttributes['service.instance.id'])[1]) AS Host,
    Attributes['peer'] AS NetPeer,
    toFloat32(coalesce(maxIf(v, name = 'system.cpu.utilization' AND state = ''),
        1 - avgIf(v, name = 'system.cpu.utilization' AND state = 'idle'))) AS CpuRatio,
    toFloat32(maxIf(v, name = 'stagescope.host.load_per_cpu')) AS LoadPerCpu,
    toFloat32(maxIf(v, name = 'system.memory.utilization' AND state IN ('', 'used'))) AS MemUsedRatio,
    toFloat32(maxIf(v, name = 'stagescope.host.disk.queue')) AS DiskQueue,
    toFloat32(maxIf(v, name = 'stagescope.host.disk.iops')) AS DiskIops,
    toFloat32(maxIf(v, name = 'stagescope.host.disk.busy')) AS DiskBusyRatio,
    toFloat32(maxIf(v, name = 'stagescope.host.net.rtt_ms')) AS NetRttMs
FROM otel_metrics_gauge
WHERE MetricName IN ('system.cpu.utilization', 'system.memory.utilization') OR startsWith(MetricName, 'stagescope.host.')
GROUP BY Timestamp, Host, NetPeer
HAVING count(v) > 0;

-- vLLM: old servers say gpu_cache_usage_perc, new ones kv_cache_usage_perc; counters may have lost their _total on the way.
CREATE MATERIALIZED VIEW IF NOT EXISTS engine_samples_gauge_mv TO engine_samples AS
WITH if(isFinite(Value), Value, NULL) AS v, replaceRegexpOne(toString(MetricName), '^vllm[:_]', '') AS name
SELECT
    TimeUnix AS Timestamp,
    multiIf(
    Attributes['Hostname'] != '', Attributes['Hostname'], Attributes['hostname'] != '', Attributes['hostname'],
    Attributes['host.name'] != '', Attributes['host.name'], ResourceAttributes['host.name'] != '', ResourceAttributes['host.name'],
    ResourceAttributes['k8s.node.name'] != '', ResourceAttributes['k8s.node.name'],
    ResourceAttributes['server.address'] != '', ResourceAttributes['server.address'],
    ResourceAttributes['net.host.name'] != '', ResourceAttributes['net.host.name'],
    splitByChar(':', ResourceAttributes['service.instance.id'])[1]) AS Host,
    concat(ResourceAttributes['service.instance.id'], if(Attributes['engine'] IN ('', '0'), '', concat('/', Attributes['engine']))) AS Instance,
    Attributes['model_name'] AS Model,
    toFloat32(maxIf(v, name = 'num_requests_running')) AS Running,
    toFloat32(maxIf(v, name = 'num_requests_waiting')) AS Waiting,
    toFloat32(coalesce(maxIf(v, name = 'kv_cache_usage_perc'), maxIf(v, name = 'gpu_cache_usage_perc'))) AS KvUsage
FROM otel_metrics_gauge
WHERE name IN ('num_requests_running', 'num_requests_waiting', 'kv_cache_usage_perc', 'gpu_cache_usage_perc') AND match(MetricName, '^vllm[:_]')
GROUP BY Timestamp, Host, Instance, Model
HAVING count(v) > 0;

CREATE MATERIALIZED VIEW IF NOT EXISTS engine_samples_sum_mv TO engine_samples AS
WITH if(isFinite(Value), Value, NULL) AS v, replaceRegexpAll(toString(MetricName), '^vllm[:_]|_total$', '') AS name
SELECT
    TimeUnix AS Timestamp,
    multiIf(
    Attributes['Hostname'] != '', Attributes['Hostname'], Attributes['hostname'] != '', Attributes['hostname'],
    Attributes['host.name'] != '', Attributes['host.name'], ResourceAttributes['host.name'] != '', ResourceAttributes['host.name'],
    ResourceAttributes['k8s.node.name'] != '', ResourceAttributes['k8s.node.name'],
    ResourceAttributes['server.address'] != '', ResourceAttributes['server.address'],
    ResourceAttributes['net.host.name'] != '', ResourceAttributes['net.host.name'],
    splitByChar(':', ResourceAttributes['service.instance.id'])[1]) AS Host,
    concat(ResourceAttributes['service.instance.id'], if(Attributes['engine'] IN ('', '0'), '', concat('/', Attributes['engine']))) AS Instance,
    Attributes['model_name'] AS Model,
    sumIf(v, name = 'num_preemptions') AS Preemptions,
    sumIf(v, name IN ('prefix_cache_queries', 'gpu_prefix_cache_queries')) AS PrefixQueries,
    sumIf(v, name IN ('prefix_cache_hits', 'gpu_prefix_cache_hits')) AS PrefixHits,
    sumIf(v, name = 'prompt_tokens') AS PromptTokens,
    sumIf(v, name = 'generation_tokens') AS GenerationTokens,
    sumIf(v, name = 'estimated_flops_per_gpu') AS EstimatedFlops,
    sumIf(v, name = 'estimated_read_bytes_per_gpu') AS EstimatedReadBytes
FROM otel_metrics_sum
WHERE name IN ('num_preemptions', 'prefix_cache_queries', 'gpu_prefix_cache_queries', 'prefix_cache_hits', 'gpu_prefix_cache_hits',
    'prompt_tokens', 'generation_tokens', 'estimated_flops_per_gpu', 'estimated_read_bytes_per_gpu') AND match(MetricName, '^vllm[:_]')
GROUP BY Timestamp, Host, Instance, Model;
