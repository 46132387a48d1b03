"""How ClickHouse itself reads trace requests: the table of ingest/schema/015_otlp_in.sql and the settings of an insert into it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

from google.protobuf.message import DecodeError

from ingest.otlp_merged import heads

TABLE = "otlp_spans_in_2"
FORMAT = "ProtobufSingle"


@cache
def decode_settings(*, local: bool) -> Mapping[str, str]:
    """Settings of an insert of requests that `ingest.otlp.check` has passed; several may stand one after the other.

    The embedded engine (`local`) reads our file where it lies: a schema sent as text it would first write into the current
    directory, which may not be ours. A server has a place of its own for that, and reads no file of ours.
    """
    schema = resources.files("ingest") / "schema" / "otlp_spans.proto"
    by_path = local and ":" not in str(schema)  # the engine takes what follows a colon for a message's name
    return {
        "format_schema_source": "file" if by_path else "string",
        "format_schema": str(schema) if by_path else schema.read_text(),
        "format_schema_message_name": "ExportTraceServiceRequest",
    }


def count_spans(body: bytes) -> int | None:
    """Spans in a request; None when its bytes are damaged down to the spans."""
    try:
        seen = heads().FromString(body)
    except DecodeError:
        return None
    return sum(len(scope.spans) for resource in seen.resource_spans for scope in resource.scope_spans)
