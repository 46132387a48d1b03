-- Runs that began in the spans of time, with the place of their span (from 1): one trace in `sample`, whole.
SELECT
    arrayFirstIndex((a, b) -> toUnixTimestamp64Nano(Timestamp) >= a AND toUnixTimestamp64Nano(Timestamp) < b, {lows:Array(Int64)}, {highs:Array(Int64)}) AS part,
    cityHash64(TraceId) AS trace, cityHash64(TraceId, SpanId) AS span, cityHash64(TraceId, ParentSpanId) AS parent,
    ServiceName AS service, Stage AS stage, Kind = 'gap' AS is_gap,
    least(SelfTime, CriticalTime) AS own_ns, Duration AS duration_ns, Evidence['request_leg_ms'] * 1e6 AS request_ns
FROM stage_runs FINAL
WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64})
    AND part > 0 AND cityHash64(TraceId) % {sample:UInt64} = 0
SETTINGS output_format_arrow_low_cardinality_as_dictionary = 1
