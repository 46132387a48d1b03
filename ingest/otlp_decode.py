"""How ClickHouse itself reads trace requests: the table of ingest/schema/015_otlp_in.sql and the settings of an insert into it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

from google.protobuf.message import DecodeError

from ingest.otlp_merged import heads

TABLE = "otlp_spans_in_1"
FORMAT = "ProtobufSingle"


@cache
def decode_settings() -> Mapping[str, str]:
    """Settings of an insert of requests that `ingest.otlp.check` has passed; several may stand one after the other."""
    return {
        "format_schema_source": "string",
        "format_schema": (resources.files("ingest") / "schema" / "otlp_spans.proto").read_text(),
        "format_schema_message_name": "ExportTraceServiceRequest",
    }


def count_spans(body: bytes) -> int | None:
    """Spans in a request; None when its bytes are damaged down to the spans."""
    try:
        seen = heads().FromString(body)
    except DecodeError:
        return None
    return sum(len(scope.spans) for resource in seen.resource_spans for scope in resource.scope_spans)
