-- Spans of a simulated agent: 20 a trace, a tree of stages with client and server sides, 11 attributes a span
-- (3 of the resource, 8 of the span), log-normal durations with a slow region and model, one trace in 50 failing.
INSERT INTO otel_traces
(
    Timestamp, TraceId, SpanId, ParentSpanId, SpanName, SpanKind, ServiceName, ResourceAttributes, ScopeName, SpanAttributes,
    Duration, StatusCode, StatusMessage
)
WITH
    intDiv(number, 20) AS trace,
    toUInt8(number % 20) AS i,
    [0, 0, 1, 2, 2, 1, 5, 6, 6, 1, 9, 10, 9, 12, 1, 14, 15, 1, 17, 1] AS parents,
    ['POST /chat', 'invoke_agent planner', 'parse_request', 'decode', 'check', 'tool_select', 'POST', 'POST /select', 'chat small',
     'retrieve', 'POST', 'POST /search', 'SELECT', 'SELECT', 'llm_generate', 'POST', 'chat large', 'aggregate', 'render', 'finish'] AS names,
    ['Server', 'Internal', 'Internal', 'Internal', 'Internal', 'Internal', 'Client', 'Server', 'Client', 'Internal', 'Client', 'Server',
     'Client', 'Client', 'Internal', 'Client', 'Server', 'Internal', 'Internal', 'Internal'] AS kinds,
    ['gateway', 'orchestrator', 'orchestrator', 'orchestrator', 'orchestrator', 'orchestrator', 'orchestrator', 'edge', 'edge', 'orchestrator',
     'orchestrator', 'search', 'search', 'search', 'orchestrator', 'orchestrator', 'core', 'orchestrator', 'orchestrator', 'gateway'] AS services,
    [2000, 1900, 20, 5, 5, 300, 280, 260, 240, 200, 180, 160, 60, 60, 1200, 1180, 1160, 40, 20, 5] AS typical_ms,
    (cityHash64(trace, i) % 1000000 + 0.5) / 1000000 AS u,
    (cityHash64(i, trace, 7) % 1000000 + 0.5) / 1000000 AS v,
    sqrt(-2 * log(u)) * cos(6.283185307 * v) AS normal,
    ['eu-west', 'us-east', 'ap-south', 'us-west'][cityHash64(trace, 'r') % 4 + 1] AS region,
    ['phone', 'laptop', 'tablet'][cityHash64(trace, 'd') % 3 + 1] AS device,
    ['free', 'pro', 'team'][cityHash64(trace, 't') % 3 + 1] AS tier,
    ['1.4.0', '1.4.1', '1.5.0'][cityHash64(trace, 'v') % 3 + 1] AS version,
    if(i IN (8, 16), ['small-8b', 'large-70b'][1 + (i = 16)], '') AS model,
    cityHash64(trace, 'f') % 50 = 0 AND i IN (0, 14, 15) AS failed
SELECT
    fromUnixTimestamp64Nano(toInt64({start:Int64} + trace * {every:Int64} + i * 3000000)) AS Timestamp,
    lower(hex(sipHash128(toUInt64(trace)))) AS TraceId,
    lower(hex(cityHash64(trace, i, 's'))) AS SpanId,
    if(i = 0, '', lower(hex(cityHash64(trace, toUInt8(parents[i + 1]), 's')))) AS ParentSpanId,
    names[i + 1] AS SpanName,
    kinds[i + 1] AS SpanKind,
    services[i + 1] AS ServiceName,
    map('service.name', services[i + 1], 'service.version', version, 'host.name', concat('node-', toString(cityHash64(trace, i % 5) % 12))) AS ResourceAttributes,
    'bench' AS ScopeName,
    map('user.id', concat('u', toString(cityHash64(trace, 'u') % 50000)), 'session.id', concat('s', toString(cityHash64(trace, 'u') % 200000)),
        'user.tier', tier, 'cloud.region', region, 'device.type', device,
        'shop.cart', toString(cityHash64(trace, 'c') % 30),
        if(model = '', 'stagescope.work.items', 'gen_ai.request.model'), if(model = '', toString(cityHash64(trace, i, 'n') % 40), model),
        if(model = '', 'stagescope.work.rows', 'gen_ai.usage.input_tokens'), toString(cityHash64(trace, i, 'k') % 4000)) AS SpanAttributes,
    toUInt64(typical_ms[i + 1] * 1e6 * exp(0.35 * normal) * if(region = 'ap-south', 1.6, 1)) AS Duration,
    if(failed, 'Error', 'Unset') AS StatusCode,
    if(failed, 'upstream timed out', '') AS StatusMessage
FROM numbers({first:UInt64}, {count:UInt64})
