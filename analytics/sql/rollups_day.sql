-- Rollup of one whole day from the rollups of its hours.
INSERT INTO stage_rollups_days
SELECT Dim, toDateTime({day:UInt32}, 'UTC'), ServiceName, Stage, Root, Value, sum(Runs), sum(Errors),
    quantilesDDMergeState(0.004, 0.5, 0.95, 0.99, 0.999)(Latency), {revision:UInt64}
FROM stage_rollups FINAL
WHERE Hour >= toDateTime({day:UInt32}) AND Hour < toDateTime({day:UInt32}) + INTERVAL 1 DAY
    AND (Hour, Revision) IN (SELECT Hour, Rolled FROM stage_hours FINAL WHERE Rolled >= Dirty)
GROUP BY Dim, ServiceName, Stage, Root, Value
