SELECT count() FROM stage_runs
WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp <= fromUnixTimestamp64Nano({high:Int64}) AND Revision < {revision:UInt64}
SETTINGS final = 0
