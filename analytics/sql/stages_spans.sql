-- The bones of the spans of one slice: who, below whom, when, how long. In the order that analytics/stages_times.py wants.
SELECT
    cityHash64(TraceId) AS trace,
    cityHash64(TraceId, SpanId) AS span,
    if(ParentSpanId IN ('', '0000000000000000'), 0, cityHash64(TraceId, ParentSpanId)) AS parent,
    toUnixTimestamp64Nano(Timestamp) AS start,
    if(Duration > 9000000000000000000, 0, toInt64(Duration)) AS duration,
    ServiceName AS service,
    multiIf(SpanKind IN ('Client', 'SPAN_KIND_CLIENT'), 1, SpanKind IN ('Server', 'SPAN_KIND_SERVER'), 2, SpanKind IN ('', 'Unspecified', 'SPAN_KIND_UNSPECIFIED'), 3, 0) AS side,
    $row AS row,
    {engine:String} != '' AND match(SpanName, {engine:String}) AS engine
FROM otel_traces
WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp <= fromUnixTimestamp64Nano({high:Int64})
    AND TraceId IN (SELECT TraceId FROM $pick WHERE Long = {long:UInt8} AND Slice = {slice:UInt64})
ORDER BY trace, start, span
SETTINGS final = 0, use_skip_indexes = {skip:UInt8}, output_format_arrow_low_cardinality_as_dictionary = 1
