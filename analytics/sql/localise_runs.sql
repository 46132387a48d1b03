-- Runs of traces that began in [low, high): one trace in `sample`, whole.
SELECT
    cityHash64(TraceId) AS trace, cityHash64(TraceId, SpanId) AS span, cityHash64(TraceId, ParentSpanId) AS parent,
    toUnixTimestamp64Nano(Timestamp) AS start_ns, toString(ServiceName) AS service, toString(Stage) AS stage, Kind = 'gap' AS is_gap,
    least(SelfTime, CriticalTime) AS own_ns, Duration AS duration_ns, Evidence['request_leg_ms'] * 1e6 AS request_ns
FROM stage_runs FINAL
WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64})
    AND cityHash64(TraceId) % {sample:UInt64} = 0
SETTINGS output_format_arrow_low_cardinality_as_dictionary = 1
