"""The tools really work, refuse what means nothing, and can be switched off; the selector chooses well and fast."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from instrumented_stack.catalogue import TASKS, TOOLS_BY_NAME
from instrumented_stack.errors import BadRequest
from instrumented_stack.select import VectorSelector, measure, schema
from instrumented_stack.tools.box import Toolbox
from instrumented_stack.tools.desk import Calendar, mail, readable
from instrumented_stack.tools.documents import parse_document, query_table
from instrumented_stack.tools.numbers import calculator, convert_units
from instrumented_stack.tools.sandbox import run_code
from instrumented_stack.tools.texts import convert_format, search, summarise_text, translate


def test_search_finds_the_passage() -> None:
    assert search("which hotel price needs approval")[0]["id"] == "HB-003"
    assert search("zyx") == []
    assert search("") == []


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", "14"),
        ("(1 + 2) ** 3", "27"),
        ("1 / 3", "0.333333333333"),
        ("0.1 + 0.2", "0.3"),
        ("-7 // 2", "-4"),
        ("7 % 4", "3"),
    ],
)
def test_calculator_is_exact(expression: str, value: str) -> None:
    assert calculator(expression) == value


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "1 / 0",
        "__import__('os')",
        "x + 1",
        "9 ** 9 ** 9",
        "(" * 300,
        "1 +" * 400,
        "True",
        "'a' * 3",
        "\x00",
        "1e999",
        "7 ** 999 ** 1 ** 1 * 2 ** 999 * 9 ** 999 * 9 ** 999 * 9 ** 999 * 9 ** 999",
    ],
)
def test_calculator_refuses_what_is_no_arithmetic(bad: str) -> None:
    with pytest.raises(BadRequest):
        calculator(bad)


def test_units_and_dates() -> None:
    assert convert_units("12 km in mile") == "7.45645 mile"
    assert convert_units("1 foot to inches") == "12 inches"
    assert convert_units("2026-01-31 + 6 weeks") == "2026-03-14"
    assert convert_units("2026-01-01 until 2026-03-01") == "59 days"
    for bad in ("5 kg in km", "5 parsec in km", "2026-02-30 + 1 day", "9999-12-31 + 9 days", "hello"):
        with pytest.raises(BadRequest):
            convert_units(bad)


def test_the_pdf_is_read(tmp_path: Path) -> None:
    text = parse_document()
    assert text.splitlines()[0] == "Supply contract"
    assert "3. Notice period: three months to the end of a quarter." in text
    assert "8" not in text.splitlines()[-1]
    for name, body in (
        ("empty.pdf", b""),
        ("no.pdf", b"hello"),
        ("torn.pdf", b"%PDF-1.4 1 0 obj << /Filter /FlateDecode >> stream\nxx"),
    ):
        (tmp_path / name).write_bytes(body)
        with pytest.raises(BadRequest):
            parse_document(tmp_path / name)
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 << /Filter /FlateDecode >> stream\nnot deflate endstream")
    with pytest.raises(BadRequest, match="broken"):
        parse_document(tmp_path / "broken.pdf")


def test_the_table_answers() -> None:
    answer, rows = query_table("units by product where region=north")
    assert rows == 40
    assert {part.split(":")[0] for part in answer.split("; ")} == {"pump", "valve", "sensor", "filter", "controller"}
    with pytest.raises(BadRequest, match="no column"):
        query_table("revenue by planet")
    with pytest.raises(BadRequest, match="no column"):
        query_table("revenue by region where planet=mars")


def test_code_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    assert asyncio.run(run_code("print(6 * 7)")) == "42\n"
    target = tmp_path / "written"
    programs = [
        f"import pathlib; pathlib.Path({str(target)!r}).write_text('x' * 10)",
        *([] if os.geteuid() == 0 else ["import os; os.fork()"]),
        "raise ValueError('no')",
        "x = 'a' * 10**10",
        "(",
        "x" * 5_000,
    ]
    for program in programs:
        with pytest.raises(BadRequest):
            asyncio.run(run_code(program))
    assert not target.exists() or target.read_text() == ""


def test_texts() -> None:
    assert translate("the Delivery Note and a pump") == "the Lieferschein and a Pumpe"
    long = "The pump failed. It rained. The pump failed again because the pump seal was old. Lunch was fine."
    assert "Lunch" not in summarise_text(long)
    assert convert_format("a,b\n1,2|3", "markdown") == "| a | b |\n| --- | --- |\n| 1 | 2\\|3 |"
    assert json.loads(convert_format("a,b\n1,2", "json")) == [{"a": "1", "b": "2"}]
    assert convert_format('[{"a": "<b>"}]', "html") == "<table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table>"
    for bad, to in (("[1]", "csv"), ("[", "csv"), ("a\n1", "pdf")):
        with pytest.raises(BadRequest):
            convert_format(bad, to)
    assert readable("<p>one</p><script>two()</script><p>three &amp; four</p>") == "one\nthree & four"
    assert mail("invoice")[0]["subject"] == "Invoice question"


def test_a_room_cannot_be_booked_twice() -> None:
    calendar = Calendar()
    calendar.book("2027-01-04", "10:00", "R1", "Talk")
    assert calendar.find("talk")[0]["room"] == "R1"
    calendar.book("2027-01-04", "11:00", "R1", "Next")
    calendar.book("2027-01-04", "10:00", "R2", "Elsewhere")
    for start in ("10:30", "09:30", "soon"):
        with pytest.raises(BadRequest):
            calendar.book("2027-01-04", start, "R1", "Clash")
    assert not Calendar().find("talk")


def test_every_tool_answers_and_each_can_be_switched_off() -> None:
    async def main() -> None:
        box = Toolbox(tuple(TOOLS_BY_NAME))
        for name in TOOLS_BY_NAME:
            assert (await box.call(name, "how many miles are 12 km, or 'pump', revenue by region, review rule")).text
        for name in TOOLS_BY_NAME:
            smaller = Toolbox(tuple(other for other in TOOLS_BY_NAME if other != name))
            with pytest.raises(BadRequest, match="not switched on"):
                await smaller.call(name, "x")

    asyncio.run(main())
    assert {tool for task in TASKS.values() for tool in task.tools} <= set(TOOLS_BY_NAME)


def test_selection_by_vector_is_right_and_cheap() -> None:
    prompt, vector = measure()[:2]
    assert vector.right is not None
    assert vector.right >= 0.9
    assert (vector.tokens, prompt.right) == (0, None)
    assert prompt.tokens > 3_900
    assert VectorSelector(("mail", "search")).choose("translate this") in ("mail", "search")
    with pytest.raises(BadRequest):
        VectorSelector(())
    assert json.loads(json.dumps(schema("mail")))["name"] == "mail"
