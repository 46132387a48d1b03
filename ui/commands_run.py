"""Commands that run until they are stopped: ui, watch."""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentParser, Namespace

from ingest.settings import Settings
from ui.command import DONE, Command


def child_option(parser: ArgumentParser) -> None:
    parser.add_argument("--with-parent", action="store_true", help=SUPPRESS)


def port_option(parser: ArgumentParser, *names: str) -> None:
    """Options for settings that are ports: `--ui-port N`."""
    for name in names:
        field = Settings.__dataclass_fields__[name]
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=int, metavar="N", help=f"{field.metadata['help']} (default {field.default})")


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
    Command("ui", "the pages alone, reading an existing store", "stagescope ui --ui-port 8600", ui_options, ui),
)
