"""OTLP over HTTP: /v1/traces, /v1/metrics, /v1/logs in protobuf and JSON, beside /healthz and /metrics.

Must stay true: every answer is what the OTLP specification asks for, and no body can exhaust memory.
"""

from __future__ import annotations

import math
from typing import Any

import anyio
import anyio.to_thread
import orjson
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ingest import log
from ingest.errors import BadInput, Unavailable
from ingest.otlp import JSON, PROTOBUF
from ingest.receiver_body import TooLarge, UnknownEncoding
from ingest.receiver_intake import Busy, Intake, Taken

PATHS = {"/v1/traces": log.TRACES, "/v1/metrics": log.METRICS, "/v1/logs": log.LOGS}
REJECTED = {log.TRACES: "rejected_spans", log.METRICS: "rejected_data_points", log.LOGS: "rejected_log_records"}
RESPONSES: dict[str, Any] = {
    log.TRACES: ExportTraceServiceResponse,
    log.METRICS: ExportMetricsServiceResponse,
    log.LOGS: ExportLogsServiceResponse,
}
BODY_TIMEOUT_S = 60.0
INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE = 3, 8, 14  # google.rpc codes


def app(intake: Intake, most_body_bytes: int, threads: int) -> Starlette:
    """The application. At most `threads` requests are worked on at one time; others wait with their body unread."""
    limiter, workers = anyio.CapacityLimiter(threads), anyio.CapacityLimiter(threads)

    async def export(request: Request) -> Response:
        content_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
        encoding = {PROTOBUF: PROTOBUF, "application/protobuf": PROTOBUF, JSON: JSON}.get(content_type)
        topic = PATHS[request.url.path]
        try:
            if encoding is None:
                raise UnknownEncoding(f"content-type {content_type!r} is neither {PROTOBUF} nor {JSON}")
            async with limiter:
                with intake.room.hold(_declared(request, most_body_bytes)):
                    body = await _body(request, most_body_bytes)
                    compression = request.headers.get("content-encoding", "")
                    taken = await anyio.to_thread.run_sync(
                        intake.take, topic, body, encoding, "http", compression, limiter=workers
                    )
        except BadInput as err:
            return _refusal(encoding, _status(err), INVALID_ARGUMENT, str(err))
        except Busy as err:
            return _refusal(encoding, 429, RESOURCE_EXHAUSTED, str(err), err.retry_after_s)
        except Unavailable as err:
            return _refusal(encoding, 503, UNAVAILABLE, str(err), err.retry_after_s)
        except TimeoutError:
            return _refusal(encoding, 408, UNAVAILABLE, f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s")
        except ClientDisconnect:
            return Response(status_code=400)
        return _success(encoding, topic, taken)

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(intake.meter.text(), media_type="text/plain; version=0.0.4")

    routes = [Route(path, export, methods=["POST"]) for path in PATHS]
    return Starlette(routes=[*routes, Route("/healthz", health), Route("/metrics", metrics)])


def _declared(request: Request, most_bytes: int) -> int:
    """How many bytes may come. Raises TooLarge."""
    text = request.headers.get("content-length", "")
    declared = int(text) if text.isdecimal() else most_bytes
    if declared > most_bytes:
        raise TooLarge(most_bytes, "as sent")
    return declared


async def _body(request: Request, most_bytes: int) -> bytes:
    parts, size = [], 0
    with anyio.fail_after(BODY_TIMEOUT_S):
        async for part in request.stream():
            size += len(part)
            if size > most_bytes:
                raise TooLarge(most_bytes, "as sent")
            parts.append(part)
    return b"".join(parts)


def _status(err: BadInput) -> int:
    if isinstance(err, TooLarge):
        return 413
    return 415 if isinstance(err, UnknownEncoding) else 400


def _success(encoding: str, topic: str, taken: Taken) -> Response:
    answer = response(topic, taken)
    if encoding == PROTOBUF:
        return Response(answer.SerializeToString(), media_type=PROTOBUF)
    name = REJECTED[topic].split("_")
    camel = name[0] + "".join(part.title() for part in name[1:])
    partial = {camel: str(taken.rejected), "errorMessage": taken.message} if taken.rejected else None
    return Response(orjson.dumps({"partialSuccess": partial} if partial else {}), media_type=JSON)


def response(topic: str, taken: Taken) -> Any:
    """The protobuf answer to a request that was taken, wholly or in part."""
    answer = RESPONSES[topic]()
    if taken.rejected:
        setattr(answer.partial_success, REJECTED[topic], taken.rejected)
        answer.partial_success.error_message = taken.message
    return answer


def _refusal(
    encoding: str | None, status: int, code: int, message: str, retry_after_s: float | None = None
) -> Response:
    headers = {} if retry_after_s is None else {"retry-after": str(max(1, math.ceil(retry_after_s)))}
    if encoding == PROTOBUF:
        body = Status(code=code, message=message).SerializeToString()
        return Response(body, status, headers, PROTOBUF)
    return Response(orjson.dumps({"code": code, "message": message}), status, headers, JSON)
