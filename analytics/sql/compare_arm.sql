-- Runs of traces in which a span, or the resource that sent it, carries the attribute.
TraceId IN
(
    SELECT TraceId FROM otel_traces
    WHERE (mapContains(SpanAttributes, $key) AND SpanAttributes[$key] = $value OR mapContains(ResourceAttributes, $key) AND ResourceAttributes[$key] = $value)
        AND Timestamp >= fromUnixTimestamp64Nano({low:Int64}) - INTERVAL 1 HOUR AND Timestamp < fromUnixTimestamp64Nano({high:Int64}) + INTERVAL 1 HOUR
)
