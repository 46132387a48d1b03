-- Rows of rebuilt traces that the new build did not write again: gone.
INSERT INTO stage_runs (Timestamp, TraceId, SpanId, ServiceName, Stage, Revision, IsDeleted)
SELECT Timestamp, TraceId, SpanId, ServiceName, Stage, {revision:UInt64}, 1
FROM stage_runs FINAL
WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp <= fromUnixTimestamp64Nano({high:Int64}) AND Revision < {revision:UInt64}
    AND TraceId IN (SELECT TraceId FROM $pick WHERE Long = {long:UInt8} AND Slice = {slice:UInt64})
SETTINGS use_skip_indexes_if_final = 1
