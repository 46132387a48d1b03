-- By any attributes, from the spans that carry the first of them. With a stage, only the spans that are runs of it.
SELECT $run_values, count() AS count, countIf(StatusCode = 'Error') AS errors,
    if(count = errors, [nan, nan, nan, nan], $quantiles(Duration, StatusCode != 'Error')) AS q
FROM otel_traces
WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64})
    AND Duration < 9000000000000000000 AND $carries
    AND ({stage:String} = '' OR (TraceId, SpanId) IN
    (
        SELECT TraceId, SpanId FROM stage_runs FINAL
        WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64}) AND Stage = {stage:String}
    ))
GROUP BY $names
ORDER BY count DESC
LIMIT {limit:UInt32}
