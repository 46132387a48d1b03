"""The command line: help for each command, one-line errors, exit codes, one JSON document."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ingest.store import Store
from ui import cli

ALL = [command.words for command in cli.COMMANDS]


def test_words_are_unique_and_groups_are_known() -> None:
    assert len(set(ALL)) == len(ALL)
    assert {words.split()[0] for words in ALL if " " in words} <= set(cli.GROUPS)


@pytest.mark.parametrize("words", ALL)
def test_help_has_an_example_that_parses(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([*words.split(), "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "example:" in shown
    assert f"stagescope {words}" in shown.split("example:")[1]


def test_no_command_shows_help_and_counts_as_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "stagescope demo" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv",
    [
        ["nonsense"],
        ["findings", "--kind", "odd"],
        ["analyze", "--last", "soon"],
        ["analyze", "--last", "1h", "--from", "2026-01-01"],
        ["analyze", "--from", "2026-13-01"],
        ["analyze", "--from", "2026-01-02", "--to", "2026-01-01"],
        ["findings", "--store", "ftp://x"],
    ],
)
def test_bad_usage_is_exit_2_and_one_line(argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = cli.main([*argv, *([] if "--store" in argv or argv == ["nonsense"] else ["--store", str(tmp_path)])])
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1
    assert said.err.startswith("stagescope")


def test_an_unknown_variable_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("STAGESCOPE_STOER", "x")
    assert cli.main(["findings"]) == 2
    said = capsys.readouterr().err
    assert "STAGESCOPE_STOER" in said
    assert "STAGESCOPE_STORE" in said
    assert len(said) < 300


@pytest.mark.parametrize("value", ["nan", "-1", "inf", "soon"])
def test_a_number_without_meaning_is_refused_at_start(
    value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STAGESCOPE_SCRAPE_SECONDS", value)
    assert cli.main(["findings"]) == 2
    assert f"STAGESCOPE_SCRAPE_SECONDS='{value}'" in capsys.readouterr().err


def test_looking_at_a_missing_store_makes_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none"
    assert cli.main(["findings", "--store", str(missing)]) == 1
    assert str(missing) in capsys.readouterr().err
    assert not missing.exists()


def test_findings_of_an_untouched_store_say_that_nobody_looked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Store.open(str(tmp_path)).close()
    assert cli.main(["findings", "--store", str(tmp_path)]) == 0
    assert "stagescope analyze" in capsys.readouterr().out
    assert cli.main(["findings", "--json", "--store", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_sql_reads_and_never_writes(tmp_path: Path) -> None:
    Store.open(str(tmp_path)).close()

    def sql(query: str, *more: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "ui.cli", "sql", query, "--store", str(tmp_path), *more]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)

    assert json.loads(sql("SELECT 1 AS one", "--format", "JSONEachRow").stdout) == {"one": 1}
    for bad in ("INSERT INTO tickets (Key) VALUES ('x')", "DROP TABLE tickets", "SELECT nothing FROM tickets", " "):
        refused = sql(bad)
        assert refused.returncode == 1
        assert len(refused.stderr.strip().splitlines()) == 1
    assert sql("SELECT count() FROM tickets").stdout.split() == ["count()", "0"]
    assert json.loads(sql("SELECT 1 AS one FORMAT JSONEachRow; -- its own format").stdout) == {"one": 1}
    both = sql("SELECT 1 FORMAT CSV", "--format", "TSV")
    assert (both.returncode, both.stdout) == (2, "")
    for bad in (";", os.fsdecode(b"SELECT '\xff'")):
        refused = sql(bad)
        assert refused.returncode == 1
        assert len(refused.stderr.splitlines()) == 1


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    Store.open(str(tmp_path)).close()
    command = f"{sys.executable} -m ui.cli sql 'SELECT * FROM numbers(3000000)' --store {tmp_path} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "number\n"
    assert done.stderr == ""
