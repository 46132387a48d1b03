"""The `stagescope` command: one table of commands, read top to bottom. Errors are one line on stderr, never a traceback.

Must stay true: exit 0 done, 1 failed, 2 bad usage or setting, 3 done but some input was rejected.
"""

from __future__ import annotations

import logging
import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from typing import Any, NoReturn

from ingest import settings as settings_room
from ingest.errors import BadSetting, StagescopeError
from ingest.settings import Settings
from ui import (
    commands_act,
    commands_alerts,
    commands_baselines,
    commands_data,
    commands_explain,
    commands_find,
    commands_letters,
    commands_localise,
    commands_look,
    commands_run,
    commands_store,
)
from ui.command import DONE, FAILED, USAGE, Command


def stack_options(parser: ArgumentParser) -> None:
    from instrumented_stack.__main__ import add_run_options

    add_run_options(parser)
    commands_run.child_option(parser)


def stack_run(args: Namespace, _: Settings) -> int:
    """Run the instrumented stack; it speaks OTLP and knows nothing of us."""
    from instrumented_stack.__main__ import start
    from instrumented_stack.errors import ScenarioError
    from ui import children

    if args.with_parent:
        children.end_with_parent()
    try:
        outcome = start(args)
    except ScenarioError as err:
        raise BadSetting("--scenario", str(args.scenario), f"a scenario that can be run: {err}") from err
    except OSError as err:
        raise StagescopeError(f"cannot write telemetry: {err}") from err
    print(f"{outcome.requests:,} requests, {outcome.failed:,} failed, {outcome.spans:,} spans")
    if outcome.pace is not None:
        print(outcome.pace)
    return DONE


STACK = Command(
    "stack run",
    "run the instrumented three-tier agent stack on simulated engines and send its telemetry",
    "stagescope stack run --scenario prompt_bloat --otlp http://127.0.0.1:4318 --speed max",
    stack_options,
    stack_run,
)
COMMANDS: tuple[Command, ...] = (
    *commands_run.COMMANDS,
    *commands_data.COMMANDS,
    *commands_letters.COMMANDS,
    *commands_find.COMMANDS,
    *commands_look.COMMANDS,
    *commands_explain.COMMANDS,
    *commands_baselines.COMMANDS,
    *commands_localise.COMMANDS,
    *commands_act.COMMANDS,
    *commands_alerts.COMMANDS,
    *commands_store.COMMANDS,
    STACK,
)
GROUPS = {
    "baseline": "spans of time kept under a name, to compare with later",
    "alerts": "where alerts stand, and keeping them quiet for a while",
    "tickets": "open, update, close and reopen tickets",
    "dead-letters": "what could not be stored, and trying again",
    "stack": "the instrumented three-tier agent stack",
}
COMMON = ("store", "log", "failures")


class Parser(ArgumentParser):
    """An ArgumentParser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see: {self.prog} --help)", file=sys.stderr)
        raise SystemExit(USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if not hasattr(args, "command"):
        getattr(args, "parser", parser).print_help()
        return USAGE
    command: Command = args.command
    logging.getLogger("clickhouse_connect").setLevel(
        logging.CRITICAL
    )  # what goes wrong there reaches us as an exception
    try:
        code = command.run(args, _settings(args))
        sys.stdout.flush()
        return code
    except BadSetting as err:
        return _fail(command, str(err), USAGE)
    except StagescopeError as err:
        return _fail(command, str(err), FAILED)
    except KeyboardInterrupt:
        return _fail(command, "stopped", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _fail(command: Command, message: str, code: int) -> int:
    print(f"stagescope {command.words}: {' '.join(message.split())}", file=sys.stderr)
    return code


def _settings(args: Namespace) -> Settings:
    given = vars(args)
    names = {item for item in Settings.__dataclass_fields__ if item in given}
    return settings_room.load(**{name: given[name] for name in names})


def build_parser() -> Parser:
    """The whole parser from COMMANDS and GROUPS."""
    parser = Parser(
        prog="stagescope",
        description="Which stage of an AI agent is slow without reason, which failures belong together, what to mend this week.",
        epilog="start here: stagescope demo      your own traces: stagescope up, or stagescope ingest FILE",
    )
    parser.add_argument("--version", action="version", version=f"stagescope {_version()}")
    shelf = parser.add_subparsers(metavar="COMMAND", title="commands")
    groups: dict[str, Any] = {}
    for command in COMMANDS:
        group, _, rest = command.words.partition(" ")
        if rest and group not in groups:
            groups[group] = _group(shelf, group)
        _add(groups[group] if rest else shelf, rest or group, command)
    return parser


def _group(shelf: Any, name: str) -> Any:
    parser = shelf.add_parser(name, help=GROUPS[name], description=GROUPS[name].capitalize() + ".")
    parser.set_defaults(parser=parser)
    return parser.add_subparsers(metavar="ACTION", title="actions")


def _add(shelf: Any, name: str, command: Command) -> None:
    parser: ArgumentParser = shelf.add_parser(
        name,
        help=command.help,
        description=command.help[:1].upper() + command.help[1:] + ".",
        epilog="example:\n  " + command.example.replace("\n", "\n  "),
        formatter_class=RawDescriptionHelpFormatter,
    )
    command.options(parser)
    common = parser.add_argument_group("where data lives (or STAGESCOPE_STORE, STAGESCOPE_LOG, STAGESCOPE_FAILURES)")
    for item in COMMON:
        field = Settings.__dataclass_fields__[item]
        common.add_argument(f"--{item}", metavar="URL", help=f"{field.metadata['help']} (default {field.default})")
    parser.set_defaults(command=command)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("stagescope")
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    raise SystemExit(main())
