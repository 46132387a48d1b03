SELECT intDiv(toUnixTimestamp64Nano(Timestamp), {bin:Int64}) * {bin:Int64} AS bin, count() AS spans
FROM otel_traces
WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64})
GROUP BY bin
ORDER BY bin
SETTINGS final = 0
