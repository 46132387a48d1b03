-- Runs, failures and quantiles (ns) of each stage's own time by bin of time; whole requests under the empty stage.
SELECT service, stage, bin, count() AS runs, countIf(failed) AS failures, countIf(NOT failed) AS good,
    quantilesDDIf(0.01, 0.5, 0.99)(took, NOT failed) AS q
FROM
(
    SELECT toString(ServiceName) AS service, toString(Stage) AS stage, intDiv(toUnixTimestamp64Nano(Timestamp), {bin:Int64}) AS bin,
        if(Kind = 'gap', Duration, SelfTime) AS took, Failed AS failed
    FROM stage_runs FINAL
    WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64})
        AND ({stage:String} = '' OR Stage = {stage:String})
    UNION ALL
    SELECT toString(ServiceName), '', intDiv(toUnixTimestamp64Nano(Timestamp), {bin:Int64}), Duration, Failed
    FROM stage_runs FINAL
    WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64})
        AND {stage:String} = '' AND $root
)
GROUP BY service, stage, bin
ORDER BY service, stage, bin
LIMIT 400000
