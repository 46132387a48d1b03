SELECT count()
FROM stage_runs FINAL
WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp <= fromUnixTimestamp64Nano({high:Int64}) AND Revision < {revision:UInt64}
    AND TraceId IN (SELECT TraceId FROM $pick WHERE Long = {long:UInt8} AND Slice = {slice:UInt64})
