-- CPU use of each service at each instant: the busiest of its instances. Gauges whose names are known to mean CPU use.
SELECT ServiceName AS service, toUnixTimestamp64Nano(TimeUnix) AS at_ns, max(Value) AS value
FROM otel_metrics_gauge
WHERE MetricName IN {names:Array(String)} AND ServiceName != ''
    AND TimeUnix >= fromUnixTimestamp64Nano({low:Int64}) AND TimeUnix < fromUnixTimestamp64Nano({high:Int64})
GROUP BY service, at_ns
