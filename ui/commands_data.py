"""Commands that bring data in: ingest, receive, consume, scrape."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ingest.errors import BadSetting
from ingest.settings import Settings
from ui import text
from ui.command import DONE, FAILED, REJECTED, Command, emit, json_option, no_options, say, writing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from ingest.files import FileReport
    from ingest.log import Sink
    from ingest.scrape import Outcome


def ingest_options(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files or folders, also .gz; - is standard input")
    json_option(parser)


def ingest(args: Namespace, settings: Settings) -> int:
    """Store files; twice the same file changes nothing."""
    from analytics import stages
    from ingest import mapping
    from ingest.files import ingest_paths

    reports = []
    with writing(settings) as store:
        for report in ingest_paths(args.paths, store, settings):
            reports.append(report)
            if not args.json:
                print(_line(report), flush=True)
        if any(report.stored for report in reports):
            say("building stage runs …")
            stages.build_touched(store, mapping.load(settings.stages or None))
    if args.json:
        emit([_plain(report) for report in reports])
    for report in reports:
        if report.error:
            print(f"stagescope ingest: {report.path}: {text.printable(report.error)}", file=sys.stderr)
    if reports and all(report.error or report.skipped for report in reports):
        return FAILED
    return REJECTED if any(report.error or report.rejected for report in reports) else DONE


def _line(report: FileReport) -> str:
    if report.skipped:
        return f"{text.printable(report.path)}: skipped, no trace file: {text.printable(report.skipped)}"
    told = [report.format or "unreadable", f"{report.spans:,} read", f"{report.stored:,} stored"]
    told += [f"{count:,} rejected: {reason}" for reason, count in report.rejected.items()]
    return f"{text.printable(report.path)}: {', '.join(told)}"


def _plain(report: FileReport) -> dict[str, Any]:
    return {
        "path": report.path,
        "format": report.format,
        "spans": report.spans,
        "stored": report.stored,
        "rejected": dict(report.rejected),
        "error": report.error,
        "skipped": report.skipped,
    }


def receive_options(parser: ArgumentParser) -> None:
    from ui.commands_run import port_option

    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    port_option(parser, "otlp_grpc_port", "otlp_http_port")


def receive(args: Namespace, settings: Settings) -> int:
    """OTLP to Kafka, until told to stop."""
    from ingest.meter import Meter
    from ingest.receiver import Receiver
    from ui.up import until_told_to_stop

    _speak_up()
    with (
        until_told_to_stop() as stop,
        kafka_sink(settings, "receive") as sink,
        Receiver(settings, sink, Meter()) as doors,
    ):
        where = f"OTLP/HTTP on {settings.host}:{doors.http_port}, OTLP/gRPC on {settings.host}:{doors.grpc_port}"
        print(f"{where}, into Kafka; Ctrl-C stops", file=sys.stderr, flush=True)
        stop.wait()
    return DONE


def consume(args: Namespace, settings: Settings) -> int:
    """Kafka to the store, until told to stop."""
    from contextlib import closing

    from ingest.kafka_log import KafkaSource
    from ingest.kafka_place import kafka_place
    from ingest.ledger import Ledger
    from ingest.meter import Meter
    from ingest.meter_page import meter_page
    from ingest.pipeline import Pipeline
    from ingest.receiver import options
    from ui.up import until_told_to_stop

    _speak_up()
    place = kafka_place(_kafka(settings, "consume"))
    with until_told_to_stop() as stop, writing(settings) as store, closing(KafkaSource(place)) as source:
        print(
            f"Kafka {', '.join(place.brokers)}, group {place.group}, into the store; Ctrl-C stops",
            file=sys.stderr,
            flush=True,
        )
        meter = Meter()
        with meter_page(settings, meter):
            Pipeline(source, store, meter, Ledger(store), options=options(settings)).run(stop)
    return DONE


def kafka_sink(settings: Settings, who: str) -> AbstractContextManager[Sink]:
    """The log as a Sink, closed with the block. Raises BadSetting when it is not Kafka."""
    from contextlib import contextmanager

    from ingest.kafka_log import KafkaSink
    from ingest.kafka_place import kafka_place

    place = kafka_place(_kafka(settings, who))

    @contextmanager
    def opened() -> Iterator[Sink]:
        sink = KafkaSink(place)
        try:
            yield sink
        finally:
            sink.close()

    return opened()


def scrape_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="URL",
        help="exporter pages such as http://host:9400/metrics (or STAGESCOPE_SCRAPE)",
    )
    parser.add_argument("--once", action="store_true", help="read everything once, say what was found, and end")


def scrape(args: Namespace, settings: Settings) -> int:
    """Exporter pages, GPUs and this host into the log, until told to stop."""
    from ingest import scrape as room
    from ui.up import until_told_to_stop

    _speak_up()
    if args.targets:
        settings = replace(settings, scrape=",".join(args.targets))
    with until_told_to_stop() as stop, kafka_sink(settings, "scrape") as sink:
        scraper = room.build(settings, sink)
        if args.once:
            outcomes = scraper.step()
            for item in outcomes:
                print(scraped(item))
            return FAILED if any(item.error for item in outcomes) else DONE
        told: dict[str, str] = {}
        scraper.run(stop, lambda item: _say_once(told, item))
    return DONE


def scraped(item: Outcome) -> str:
    """What one target gave, in a line."""
    dropped = "".join(f", {count:,} left out: {reason}" for reason, count in item.dropped.items())
    return f"{item.target}: {item.error or f'{item.samples:,} series'}{dropped}"


def _say_once(told: dict[str, str], item: Outcome) -> None:
    """Say a target's trouble when it begins and when it ends, not at every reading."""
    if item.error != told.get(item.target, ""):
        print(f"stagescope scrape: {scraped(item)}", file=sys.stderr, flush=True)
    told[item.target] = item.error


def _kafka(settings: Settings, who: str) -> str:
    if settings.log == "memory:":
        raise BadSetting(
            "STAGESCOPE_LOG",
            settings.log,
            f"kafka://host:9092 for `{who}` (without Kafka, `stagescope up` does all of it)",
        )
    return settings.log


def _speak_up() -> None:
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr, level=logging.WARNING)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # the pipeline says in one line that the broker is away


COMMANDS = (
    Command(
        "ingest",
        "store trace files: OTLP JSON and protobuf, Jaeger, Zipkin, Langfuse; twice the same file changes nothing",
        "stagescope ingest traces/ export.json.gz\nstagescope ingest - < spans.jsonl",
        ingest_options,
        ingest,
    ),
    Command(
        "receive",
        "OTLP over gRPC and HTTP into Kafka",
        "stagescope receive --log kafka://kafka:9092",
        receive_options,
        receive,
    ),
    Command(
        "consume",
        "Kafka into the store; run as many copies as the topics have partitions",
        "stagescope consume --log kafka://kafka:9092 --store http://stagescope:secret@clickhouse:8123/stagescope",
        no_options,
        consume,
    ),
    Command(
        "scrape",
        "dcgm-exporter and vLLM pages, GPUs and this host into Kafka as OTLP metrics",
        "stagescope scrape http://gpu-1:9400/metrics http://vllm-1:8000/metrics --log kafka://kafka:9092",
        scrape_options,
        scrape,
    ),
)
