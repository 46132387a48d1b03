SELECT Long, Slice, count() AS traces, toUnixTimestamp64Nano(min(Start)) AS low, toUnixTimestamp64Nano(max(End)) AS high
FROM $pick
GROUP BY Long, Slice
ORDER BY Long, Slice
