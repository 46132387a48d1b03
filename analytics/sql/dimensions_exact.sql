-- The same, exact, from the runs alone (linear interpolation between neighbours).
SELECT $run_values, count() AS count, countIf(Failed) AS errors,
    if(count = errors, [nan, nan, nan, nan], quantilesExactInclusiveIf(0.5, 0.95, 0.99, 0.999)(Duration, NOT Failed)) AS q
FROM stage_runs FINAL
WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64})
    AND ({stage:String} = '' OR Stage = {stage:String}) AND ({every:UInt8} OR $root)
GROUP BY $names
ORDER BY count DESC
LIMIT {limit:UInt32}
