"""What README and docs say exists: paths, commands, settings, make targets, modules of bench."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest

from ingest.settings import PREFIX, Settings
from ui import cli

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
DOCS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def between(name: str) -> str:
    return README.split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text())
    missing = [target for target in targets if "://" not in target and not (path.parent / target).exists()]
    assert missing == []


def test_where_is_has_a_path_for_every_question() -> None:
    rows = README.split("## Where is …?")[1].split("## ")[0].splitlines()[3:]
    assert len([row for row in rows if row.startswith("|")]) >= 20


def test_settings_table_is_the_code() -> None:
    rows = [row.split(" | ") for row in between("settings").strip().splitlines()[2:]]
    table = {row[0].strip("| `"): row[1].strip(" `") for row in rows}
    assert table == {PREFIX + item.name.upper(): str(item.default) for item in fields(Settings)}


def test_command_table_is_the_code() -> None:
    rows = between("commands").strip().splitlines()[2:]
    assert rows == [f"| `stagescope {command.words}` | {command.help} |" for command in cli.COMMANDS]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_examples_exist(path: Path) -> None:
    known = {command.words for command in cli.COMMANDS} | {
        words.split()[0] for words in (c.words for c in cli.COMMANDS)
    }
    named = re.findall(r"(?:^|`|bin/)stagescope ([a-z0-9-]+)", path.read_text(), re.MULTILINE)
    assert set(named) <= known


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_make_targets_and_bench_modules_exist(path: Path) -> None:
    text = path.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)) <= targets
    assert all(find_spec(f"bench.{name}") for name in re.findall(r"python -m bench\.([a-z_]+)", text))


def test_nothing_of_one_machine_is_written_down() -> None:
    for path in DOCS:
        assert not re.search(r"/work/|/root/|\.\./shared", path.read_text()), path
