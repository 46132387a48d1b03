"""OTLP over gRPC: the three Export services, answering with the codes and the RetryInfo that the specification asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from ingest import log
from ingest.errors import BadInput, Unavailable
from ingest.otlp import PROTOBUF
from ingest.receiver_body import TooLarge
from ingest.receiver_http import response
from ingest.receiver_intake import Busy, Intake

PACKAGE = "opentelemetry.proto.collector"
SERVICES = {
    f"{PACKAGE}.trace.v1.TraceService": log.TRACES,
    f"{PACKAGE}.metrics.v1.MetricsService": log.METRICS,
    f"{PACKAGE}.logs.v1.LogsService": log.LOGS,
}
WAITING_PER_THREAD = 4


@dataclass(frozen=True, slots=True)
class _Refusal(grpc.Status):  # type: ignore[misc]
    code: grpc.StatusCode
    details: str
    trailing_metadata: tuple[tuple[str, bytes], ...]


def server(intake: Intake, most_bytes: int, threads: int) -> grpc.Server:
    """A server that is not yet bound to a port. Requests over `most_bytes` are refused by gRPC itself."""
    made = grpc.server(
        ThreadPoolExecutor(threads, thread_name_prefix="otlp-grpc"),
        options=[("grpc.max_receive_message_length", most_bytes), ("grpc.so_reuseport", 0)],
        maximum_concurrent_rpcs=threads * WAITING_PER_THREAD,
    )
    made.add_generic_rpc_handlers(
        tuple(
            grpc.method_handlers_generic_handler(
                name, {"Export": grpc.unary_unary_rpc_method_handler(_export(intake, topic))}
            )
            for name, topic in SERVICES.items()
        )
    )
    return made


def _export(intake: Intake, topic: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    def export(body: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            with intake.room.hold(len(body)):
                taken = intake.take(topic, body, PROTOBUF, "grpc")
        except TooLarge as err:
            context.abort_with_status(_refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, str(err)))
        except BadInput as err:
            context.abort_with_status(_refusal(grpc.StatusCode.INVALID_ARGUMENT, str(err)))
        except Busy as err:
            context.abort_with_status(_refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, str(err), err.retry_after_s))
        except Unavailable as err:
            context.abort_with_status(_refusal(grpc.StatusCode.UNAVAILABLE, str(err), err.retry_after_s))
        return bytes(response(topic, taken).SerializeToString())

    return export


def _refusal(code: grpc.StatusCode, message: str, retry_after_s: float | None = None) -> _Refusal:
    number = code.value[0]
    status: Any = Status(code=number, message=message)
    if retry_after_s is not None:
        whole = math.floor(retry_after_s)
        delay = Duration(seconds=whole, nanos=int((retry_after_s - whole) * 1e9))
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    return _Refusal(code, message, (("grpc-status-details-bin", status.SerializeToString()),))
