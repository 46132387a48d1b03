-- Stage runs of one slice: each span that stays, and beside a client span with a gap the gap itself. Planned without rewrites, which for
-- so many nested expressions cost more than half of the time before the first row; PREWHERE stands in the text instead.
INSERT INTO stage_runs
(
    Timestamp, TraceId, SpanId, ParentSpanId, ServiceName, Stage, Kind, Tier, Model, Tool, Region, Device, UserTier, UserId, SessionId, Version, Host,
    Duration, SelfTime, CriticalTime, WaitTime, InputTokens, CachedTokens, OutputTokens, PayloadBytes, Items, Rows, Retries,
    Failed, ErrorType, ErrorMessage, TraceDuration, Evidence, Marks, Revision
)
SELECT
    Timestamp, TraceId,
    if(IsGap, concat(SpanId, '-gap'), SpanId),
    if(IsGap, SpanId, ParentSpanId),
    ServiceName,
    if(IsGap, concat('gap: ', ServiceName, ' → ', Callee), Stage),
    if(IsGap, 'gap', Kind),
    Tier,
    if(IsGap, '', Model),
    if(IsGap, '', Tool),
    Region, Device, UserTier, UserId, SessionId, Version, Host,
    if(IsGap, toUInt64(Gap), Length),
    if(IsGap, GapSelf, SelfTime - GapSelf),
    if(IsGap, GapCritical, CriticalTime - GapCritical),
    if(IsGap, 0, WaitTime),
    if(IsGap, NULL, InputTokens),
    if(IsGap, NULL, CachedTokens),
    if(IsGap, NULL, OutputTokens),
    PayloadBytes,
    if(IsGap, NULL, Items),
    if(IsGap, NULL, Rows),
    if(IsGap, 0, Retries),
    if(IsGap, 0, Failed),
    if(IsGap, '', ErrorType),
    if(IsGap, '', ErrorMessage),
    TraceDuration,
    if(IsGap, map('request_leg_ms', Request / 1e6, 'response_leg_ms', (Gap - Request) / 1e6), Evidence),
    multiIf(TreeMarks = '', Marks, Marks = '', TreeMarks, concat(Marks, ',', TreeMarks)),
    {revision:UInt64}
FROM
(
    SELECT $keep, $columns
    FROM $prepared
)
ARRAY JOIN if(Gap < 0, [0], [0, 1]) AS IsGap
SETTINGS final = 0, use_skip_indexes = {skip:UInt8}, optimize_on_insert = 0, max_partitions_per_insert_block = 1000, short_circuit_function_evaluation = 'disable',
    query_plan_enable_optimizations = 0
