-- Runs of one side (whole requests without a stage), one trace in `sample`, with what they are matched on.
SELECT
    toUnixTimestamp64Nano(Timestamp) AS at_ns, if({own:UInt8} AND Kind != 'gap', SelfTime, Duration) AS duration_ns, Failed AS failed, toFloat64(Retries) AS retries,
    if(mapContains(Evidence, 'degraded'), Evidence['degraded'], nan) AS degraded, if(mapContains(Evidence, 'fallback'), toFloat64(Evidence['fallback'] > 0), nan) AS fallback,
    toString(Stage) AS stage, toString(Region) AS region,
    toString(Device) AS device, toString(UserTier) AS user_tier, toString(Version) AS version,
    toFloat64(InputTokens) AS input_tokens, toFloat64(OutputTokens) AS output_tokens, toFloat64(PayloadBytes) AS payload_bytes, toFloat64(Items) AS items
FROM stage_runs FINAL
WHERE Timestamp >= fromUnixTimestamp64Nano({low:Int64}) AND Timestamp < fromUnixTimestamp64Nano({high:Int64})
    AND ({stage:String} = '' OR Stage = {stage:String}) AND ({stage:String} != '' OR $root)
    AND cityHash64(TraceId) % {sample:UInt64} = 0 AND $where
