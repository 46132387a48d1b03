-- Quantiles by value: fresh days from the rollup by day, other fresh hours from the one by hour, all else from the runs. Failed runs
-- are counted, not measured.
SELECT $names, sum(Runs) AS count, sum(Errors) AS errors, quantilesDDMerge(0.004, 0.5, 0.95, 0.99, 0.999)(Latency) AS q
FROM
(
    SELECT $rollup_values, Runs, Errors, Latency
    FROM stage_rollups_days FINAL
    WHERE Dim = {dim:String} AND $days AND ({stage:String} = '' OR Stage = {stage:String}) AND ({every:UInt8} OR Root)
    UNION ALL
    SELECT $rollup_values, Runs, Errors, Latency
    FROM stage_rollups FINAL
    WHERE Dim = {dim:String} AND (Hour, Revision) IN (SELECT Hour, Rolled FROM stage_hours FINAL WHERE Rolled >= Dirty)
        AND $outside_days AND Hour >= fromUnixTimestamp64Nano({low:Int64}) AND Hour + INTERVAL 1 HOUR <= fromUnixTimestamp64Nano({high:Int64})
        AND ({stage:String} = '' OR Stage = {stage:String}) AND ({every:UInt8} OR Root)
    UNION ALL
    SELECT $run_values, count() AS Runs, countIf(Failed) AS Errors, quantilesDDStateIf(0.004, 0.5, 0.95, 0.99, 0.999)(Duration, NOT Failed) AS Latency
    FROM stage_runs FINAL
    WHERE $stretches
        AND toStartOfHour(Timestamp) NOT IN
        (
            SELECT Hour FROM stage_hours FINAL
            WHERE Rolled >= Dirty AND Hour >= fromUnixTimestamp64Nano({low:Int64}) AND Hour + INTERVAL 1 HOUR <= fromUnixTimestamp64Nano({high:Int64})
        )
        AND ({stage:String} = '' OR Stage = {stage:String}) AND ({every:UInt8} OR $root)
    GROUP BY $names
)
GROUP BY $names
ORDER BY count DESC
LIMIT {limit:UInt32}
