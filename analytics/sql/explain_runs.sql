-- Runs to explain: one in `sample` traces; `hit` marks the slow (or failed) ones. Slow means successful and slow.
SELECT $columns, $hit AS hit, count() AS runs
FROM stage_runs FINAL
WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64})
    AND ({stage:String} = '' OR Stage = {stage:String}) AND ({stage:String} != '' OR $root) AND ({failed:UInt8} OR NOT Failed)
GROUP BY ALL
