"""What the doors make of what is inside a request, before it reaches the log."""

from __future__ import annotations

import orjson
import pytest
from grpc import Compression
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter

from ingest.errors import BadSetting
from ingest.meter import Meter
from ingest.otlp import JSON
from ingest.receiver import Receiver
from ingest.settings import Settings
from tests.ingest.otlp_door import Door, ListSink
from tests.ingest.otlp_samples import first_span, span_request


def test_a_large_request_becomes_several_messages() -> None:
    sink = ListSink()
    settings = Settings(otlp_http_port=0, otlp_grpc_port=0, log="kafka://nowhere", max_message_bytes=2_000)
    with Receiver(settings, sink, Meter()) as receiver:
        door = Door(receiver, sink)
        assert door.post(span_request(200).SerializeToString()).status_code == 200
        door.close()
    assert len(sink.values) > 3
    assert max(len(value) for _, value in sink.values) <= 2_000
    assert sink.spans() == 200


def test_masking_before_the_log() -> None:
    sink = ListSink()
    settings = Settings(otlp_http_port=0, otlp_grpc_port=0, mask_users="hash", mask_prompts="drop", mask_salt="s")
    request = span_request(1)
    for key, value in (("user.id", "ann"), ("input.value", "my secret"), ("gen_ai.usage.input_tokens", "5")):
        first_span(request).attributes.add(key=key).value.string_value = value
    with Receiver(settings, sink, Meter()) as receiver:
        door = Door(receiver, sink)
        assert door.post(request.SerializeToString()).status_code == 200
        door.close()
    stored = {
        item.key: item.value.string_value
        for item in first_span(ExportTraceServiceRequest.FromString(sink.values[0][1])).attributes
    }
    assert stored["input.value"] == "[masked 9 bytes]"
    assert stored["user.id"].startswith("h:")
    assert stored["gen_ai.usage.input_tokens"] == "5"
    assert b"ann" not in sink.values[0][1]
    with pytest.raises(BadSetting, match="MASK_USERS"):
        Receiver(Settings(mask_users="maybe"), sink, Meter())


def test_json_numbers_ids_and_names_in_any_form() -> None:
    body = orjson.dumps(
        {
            "resource_spans": [
                {
                    "scope_spans": [
                        {
                            "spans": [
                                {
                                    "trace_id": "W47/95gDgQPSabYzgT/GDA==",
                                    "span_id": "7uGbfsPBsXQ=",
                                    "kind": "SPAN_KIND_SERVER",
                                    "start_time_unix_nano": 1544712660000000000,
                                    "endTimeUnixNano": "1544712661000000000",
                                    "status": {"code": "STATUS_CODE_ERROR"},
                                    "newField": {"x": 1},
                                }
                            ]
                        }
                    ]
                }
            ]
        }
    )
    sink = ListSink()
    with Receiver(Settings(otlp_http_port=0, otlp_grpc_port=0), sink, Meter()) as receiver:
        door = Door(receiver, sink)
        assert door.post(body, JSON).json() == {}
        door.close()
    span = first_span(ExportTraceServiceRequest.FromString(sink.values[0][1]))
    assert (span.trace_id.hex(), span.span_id.hex()) == ("5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174")
    assert (span.kind, span.status.code, span.end_time_unix_nano - span.start_time_unix_nano) == (2, 2, 10**9)


@pytest.mark.parametrize("way", ["grpc", "http"])
def test_the_opentelemetry_sdk_exports_to_both_doors(way: str) -> None:
    sink = ListSink()
    with Receiver(Settings(otlp_http_port=0, otlp_grpc_port=0), sink, Meter()) as receiver:
        exporter: SpanExporter
        if way == "grpc":
            exporter = GrpcExporter(
                endpoint=f"127.0.0.1:{receiver.grpc_port}", insecure=True, compression=Compression.Gzip
            )
        else:
            exporter = HttpExporter(endpoint=f"http://127.0.0.1:{receiver.http_port}/v1/traces")
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        with provider.get_tracer("t").start_as_current_span("step", attributes={"list": ["a", "b"], "n": 1}):
            pass
        provider.shutdown()
    span = first_span(ExportTraceServiceRequest.FromString(sink.values[0][1]))
    stored = {item.key: item.value.string_value for item in span.attributes}
    assert (span.name, stored["list"]) == ("step", '["a","b"]')
