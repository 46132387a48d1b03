"""All twelve tools behind one call. A tool that is switched off is refused; what a tool says is text."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import httpx

from instrumented_stack.errors import BadRequest
from instrumented_stack.tools.desk import Calendar, fetch_page, mail
from instrumented_stack.tools.documents import parse_document, query_table
from instrumented_stack.tools.numbers import calculator, convert_units
from instrumented_stack.tools.sandbox import run_code
from instrumented_stack.tools.texts import DATA, convert_format, search, summarise_text, translate


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool said, and how many rows it looked at."""

    text: str
    rows: int = 0


class Toolbox:
    """The tools of one stack. `page_url`: where the local page is served; without one, fetch_page reads the file itself."""

    def __init__(self, enabled: tuple[str, ...], page_url: str = "", client: httpx.AsyncClient | None = None) -> None:
        self._page_url, self._client = page_url, client
        self._calendar = Calendar()
        every: Mapping[str, Callable[[str], Awaitable[Result]]] = {
            "search": self._search,
            "calculator": self._calculator,
            "convert_units": self._convert_units,
            "parse_document": self._parse_document,
            "query_table": self._query_table,
            "run_code": self._run_code,
            "translate": self._translate,
            "calendar": self._on_calendar,
            "mail": self._mail,
            "fetch_page": self._fetch_page,
            "summarise_text": self._summarise_text,
            "convert_format": self._convert_format,
        }
        self.tools = {name: every[name] for name in enabled}

    async def warm(self) -> None:
        """Load what tools load on their first call, so that no user waits for it."""
        for tool in ("search", "parse_document", "query_table", "translate", "mail", "run_code"):
            if tool in self.tools:
                await self.call(tool, "revenue by region")

    async def call(self, tool: str, text: str) -> Result:
        """Run one tool. Raises BadRequest (unknown, switched off, input without meaning) and TimeoutError."""
        if tool not in self.tools:
            raise BadRequest(f"tool {tool!r} is not switched on; on: {', '.join(self.tools)}")
        return await self.tools[tool](text)

    async def _search(self, text: str) -> Result:
        hits = search(text)
        return Result("\n".join(f"{hit['id']}: {hit['text']}" for hit in hits), len(hits))

    async def _calculator(self, text: str) -> Result:
        found = re.findall(r"[-+*/%() .\d]*\d[-+*/%() .\d]*", text)
        return Result(calculator(max(found, key=len, default=text).strip()), 1)

    async def _convert_units(self, text: str) -> Result:
        match = re.search(r"how many (\w+) are ([\d.]+) (\w+)", text)
        return Result(convert_units(f"{match[2]} {match[3]} in {match[1]}" if match else text), 1)

    async def _parse_document(self, _: str) -> Result:
        return Result(parse_document())

    async def _query_table(self, text: str) -> Result:
        answer, rows = query_table(text)
        return Result(answer, rows)

    async def _run_code(self, text: str) -> Result:
        numbers = re.findall(r"\d+", text) or ["3"]
        program = text.removeprefix("python:") if text.startswith("python:") else f"print(sum(range({numbers[0][:6]})))"
        return Result(await run_code(program))

    async def _translate(self, text: str) -> Result:
        quoted = re.search(r"'([^']*)'", text)
        return Result(translate(quoted[1] if quoted else text), 1)

    async def _on_calendar(self, text: str) -> Result:
        day = re.search(r"\d{4}-\d{2}-\d{2}", text)
        hits = self._calendar.on(day[0]) if day else self._calendar.find("review")
        return Result(
            "\n".join(f"{hit['day']} {hit['start']} {hit['title']} ({hit['room']})" for hit in hits), len(hits)
        )

    async def _mail(self, text: str) -> Result:
        hits = mail(text)
        return Result("\n".join(f"{hit['from']}: {hit['subject']}" for hit in hits), len(hits))

    async def _fetch_page(self, _: str) -> Result:
        from instrumented_stack.tools.desk import readable

        if self._client is None or not self._page_url:
            return Result(readable((DATA / "status.html").read_text(encoding="utf-8")))
        return Result(await fetch_page(self._page_url, self._client))

    async def _summarise_text(self, text: str) -> Result:
        return Result(summarise_text(text if len(text) > 200 else parse_document()))

    async def _convert_format(self, text: str) -> Result:
        table = text if text.lstrip().startswith("[") or "," in text else json.dumps([{"text": text}])
        return Result(convert_format(table, "markdown"))
