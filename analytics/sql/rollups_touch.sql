-- Every hour in which rows of the slice lie has a newer revision now.
INSERT INTO stage_hours (Hour, Dirty)
SELECT toStartOfHour(Start) + 3600 * arrayJoin(range(toUInt32(dateDiff('hour', Start, End)) + 1)), {revision:UInt64}
FROM $pick WHERE Long = {long:UInt8} AND Slice = {slice:UInt64}
GROUP BY 1
