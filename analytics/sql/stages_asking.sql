-- Which spans of the slice name a model: what a model server's span may belong to.
SELECT $row AS row FROM otel_traces
PREWHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp <= fromUnixTimestamp64Nano({high:Int64})
    AND TraceId IN (SELECT TraceId FROM $pick WHERE Long = {long:UInt8} AND Slice = {slice:UInt64})
WHERE hasAny(mapKeys(SpanAttributes), {asks:Array(String)})
SETTINGS final = 0, use_skip_indexes = {skip:UInt8}
