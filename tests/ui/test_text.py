"""Numbers and tables as a person at a terminal sees them."""

import io
import json
from datetime import UTC, datetime

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ui import text


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.42, "0.42 ms"), (890, "890 ms"), (2100, "2.10 s"), (200_000, "3 m 20 s"), (None, "–"), (float("nan"), "–")],
)
def test_times_come_in_the_unit_a_person_would_say(value: float | None, said: str) -> None:
    assert text.ms(value) == said


@pytest.mark.parametrize(
    ("value", "said"), [(0.5, "500 ms"), (59.2, "59.20 s"), (7384, "2 h 03 m"), (200_000, "2.3 d")]
)
def test_long_times(value: float, said: str) -> None:
    assert text.seconds(value) == said


def test_table_lines_up_and_keeps_numbers_right() -> None:
    out = io.StringIO()
    text.table(text.columns("stage", ">p99"), [["tool_select", "890 ms"], ["llm", "2.10 s"]], out)
    assert out.getvalue().splitlines() == [
        "stage           p99",
        "───────────  ──────",
        "tool_select  890 ms",
        "llm          2.10 s",
    ]


def test_wide_letters_take_two_columns() -> None:
    out = io.StringIO()
    text.table(text.columns("stage", "x"), [["工具选择", "a"], ["tool", "b"]], out)
    lines = out.getvalue().splitlines()
    assert [text.width(line[: line.index(mark)]) for line, mark in ((lines[2], "a"), (lines[3], "b"))] == [10, 10]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_lines_that_fit_and_a_pipe_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    rows = [["x" * 200, "7"]]
    narrow, whole = Terminal(), io.StringIO()
    text.table(text.columns("what", ">n"), rows, narrow)
    text.table(text.columns("what", ">n"), rows, whole)
    assert max(len(line) for line in narrow.getvalue().splitlines()) <= 60
    assert "x" * 200 in whole.getvalue()


@given(st.text())
def test_stored_text_cannot_drive_the_terminal(stored: str) -> None:
    shown = text.printable(stored)
    assert all(letter >= " " and letter != "\x7f" for letter in shown)
    assert "\x1b" not in shown


@given(
    st.recursive(
        st.none() | st.floats() | st.text() | st.integers(-(2**53), 2**53),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_every_document_is_one_valid_json_document(document: object) -> None:
    json.loads(text.to_json(document))


def test_json_writes_times_in_utc() -> None:
    assert json.loads(text.to_json({"at": datetime(2026, 11, 30, tzinfo=UTC)})) == {"at": "2026-11-30T00:00:00Z"}


@pytest.mark.filterwarnings("error")
def test_a_time_to_the_nanosecond_is_written_without_a_warning() -> None:
    at = pd.Timestamp("2026-11-30T12:00:00.123456789", tz="UTC")
    assert json.loads(text.to_json({"at": at})) == {"at": "2026-11-30T12:00:00.123456Z"}
