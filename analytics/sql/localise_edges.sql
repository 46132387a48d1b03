-- Time of calls between services in ms, as the caller's and as the callee's side measured it: service meshes (reporter) and the
-- Collector's service graphs. Medians of summaries, means of histograms.
SELECT caller, callee, from_caller, at_ns, avg(ms) AS ms
FROM
(
    SELECT
        if(Attributes['client'] != '', Attributes['client'], Attributes['source_workload']) AS caller,
        if(Attributes['server'] != '', Attributes['server'], Attributes['destination_workload']) AS callee,
        Attributes['reporter'] = 'source' OR MetricName LIKE '%request_client%' AS from_caller,
        at_ns, value * if(MetricUnit = 's' OR endsWith(MetricName, '_seconds'), 1000, 1) AS ms
    FROM
    (
        SELECT MetricName, MetricUnit, Attributes, toUnixTimestamp64Nano(TimeUnix) AS at_ns, ValueAtQuantiles.Value[indexOf(ValueAtQuantiles.Quantile, 0.5)] AS value
        FROM otel_metrics_summary
        WHERE MetricName IN {names:Array(String)} AND has(ValueAtQuantiles.Quantile, 0.5)
            AND TimeUnix >= fromUnixTimestamp64Nano({low:Int64}) AND TimeUnix < fromUnixTimestamp64Nano({high:Int64})
        UNION ALL
        SELECT
            MetricName, MetricUnit, Attributes, toUnixTimestamp64Nano(TimeUnix) AS at_ns,
            if(AggregationTemporality = 1, Sum, Sum - lagInFrame(Sum) OVER series) / if(AggregationTemporality = 1, Count, Count - lagInFrame(Count) OVER series) AS value
        FROM otel_metrics_histogram
        WHERE MetricName IN {names:Array(String)} AND TimeUnix >= fromUnixTimestamp64Nano({low:Int64}) AND TimeUnix < fromUnixTimestamp64Nano({high:Int64})
        WINDOW series AS (PARTITION BY MetricName, ResourceAttributes, Attributes ORDER BY TimeUnix ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
    )
    WHERE isFinite(value) AND value >= 0
)
WHERE caller != '' AND callee != '' AND caller != callee
GROUP BY caller, callee, from_caller, at_ns
ORDER BY at_ns
