-- How many runs began in the spans of time: `lows` and `highs` are their bounds in ns.
SELECT count() FROM stage_runs
WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64})
    AND arrayExists((a, b) -> toUnixTimestamp64Nano(Timestamp) >= a AND toUnixTimestamp64Nano(Timestamp) < b, {lows:Array(Int64)}, {highs:Array(Int64)})
SETTINGS final = 0
