-- The fast way in: whole ExportTraceServiceRequests, decoded by ClickHouse itself and flattened on the way to otel_traces.
-- Nothing is kept here. Must equal ingest/otlp_rows.py for every request that ingest/otlp_fast.py lets through (a property test says so).
-- The number in the names goes up with every change, so that an old view never meets new code.
CREATE TABLE IF NOT EXISTS otlp_spans_in_2
(
    resource_spans Array(Tuple(
        resource Tuple(attributes Array(Tuple(key String, value Tuple(
            string_value Nullable(String), bool_value Nullable(UInt8), int_value Nullable(Int64), double_value Nullable(Float64), bytes_value Nullable(String))))),
        scope_spans Array(Tuple(
            scope Tuple(name String, version String),
            spans Array(Tuple(
                trace_id String,
                span_id String,
                trace_state String,
                parent_span_id String,
                name String,
                kind Int32,
                start_time_unix_nano UInt64,
                end_time_unix_nano UInt64,
                attributes Array(Tuple(key String, value Tuple(
                    string_value Nullable(String), bool_value Nullable(UInt8), int_value Nullable(Int64), double_value Nullable(Float64), bytes_value Nullable(String)))),
                events Array(Tuple(
                    time_unix_nano UInt64,
                    name String,
                    attributes Array(Tuple(key String, value Tuple(
                        string_value Nullable(String), bool_value Nullable(UInt8), int_value Nullable(Int64), double_value Nullable(Float64), bytes_value Nullable(String)))))),
                links Array(Tuple(
                    trace_id String,
                    span_id String,
                    trace_state String,
                    attributes Array(Tuple(key String, value Tuple(
                        string_value Nullable(String), bool_value Nullable(UInt8), int_value Nullable(Int64), double_value Nullable(Float64), bytes_value Nullable(String)))))),
                status Tuple(message String, code Int32)))))))
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS otlp_spans_in_2_mv TO otel_traces AS
WITH
    -- Go prints an exponent with its sign and calls what is not finite by these words.
    (d -> multiIf(isNaN(d), 'NaN', isInfinite(d), if(d > 0, 'Infinity', '-Infinity'),
        abs(d) >= 1e21, replaceOne(toString(d), 'e', 'e+'), toString(d))) AS double_text,
    (a -> CAST(mapFromArrays(a.key, arrayMap(
        (s, i, b, d, y) -> multiIf(
            isNotNull(s), assumeNotNull(s),
            isNotNull(i), toString(assumeNotNull(i)),
            isNotNull(b), if(assumeNotNull(b) != 0, 'true', 'false'),
            isNotNull(d), double_text(assumeNotNull(d)),
            isNotNull(y), base64Encode(assumeNotNull(y)), ''),
        a.value.string_value, a.value.int_value, a.value.bool_value, a.value.double_value, a.value.bytes_value)),
        'Map(LowCardinality(String), String)')) AS text_map
SELECT
    fromUnixTimestamp64Nano(toInt64(span.start_time_unix_nano)) AS Timestamp,
    lower(hex(span.trace_id)) AS TraceId,
    lower(hex(span.span_id)) AS SpanId,
    lower(hex(span.parent_span_id)) AS ParentSpanId,
    span.trace_state AS TraceState,
    span.name AS SpanName,
    transform(span.kind, [0, 1, 2, 3, 4, 5], ['Unspecified', 'Internal', 'Server', 'Client', 'Producer', 'Consumer'], '') AS SpanKind,
    ServiceName,
    ResourceAttributes,
    ScopeName,
    ScopeVersion,
    text_map(span.attributes) AS SpanAttributes,
    span.end_time_unix_nano - span.start_time_unix_nano AS Duration,
    transform(span.status.code, [0, 1, 2], ['Unset', 'Ok', 'Error'], '') AS StatusCode,
    span.status.message AS StatusMessage,
    arrayMap(t -> fromUnixTimestamp64Nano(toInt64(t)), span.events.time_unix_nano) AS `Events.Timestamp`,
    span.events.name AS `Events.Name`,
    arrayMap(a -> text_map(a), span.events.attributes) AS `Events.Attributes`,
    arrayMap(t -> lower(hex(t)), span.links.trace_id) AS `Links.TraceId`,
    arrayMap(t -> lower(hex(t)), span.links.span_id) AS `Links.SpanId`,
    span.links.trace_state AS `Links.TraceState`,
    arrayMap(a -> text_map(a), span.links.attributes) AS `Links.Attributes`,
    SpanAttributes['stagescope.marks'] AS Marks
FROM
(
    SELECT ServiceName, ResourceAttributes, scoped.scope.name AS ScopeName, scoped.scope.version AS ScopeVersion, arrayJoin(scoped.spans) AS span
    FROM
    (
        SELECT text_map(sent.resource.attributes) AS ResourceAttributes, ResourceAttributes['service.name'] AS ServiceName, arrayJoin(sent.scope_spans) AS scoped
        FROM (SELECT arrayJoin(resource_spans) AS sent FROM otlp_spans_in_2)
    )
);
