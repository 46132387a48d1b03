SELECT quantileDDIf(0.004, 0.95)(Duration, NOT Failed) AS p95
FROM stage_runs FINAL
WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64})
    AND ({stage:String} = '' OR Stage = {stage:String}) AND ({stage:String} != '' OR $root)
