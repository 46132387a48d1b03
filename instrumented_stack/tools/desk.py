"""Tools on the desk: calendar, mail, a web page. Bookings and drafts stay in memory."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import httpx

from instrumented_stack.errors import BadRequest
from instrumented_stack.tools.texts import DATA


@lru_cache(maxsize=2)
def _load(name: str) -> tuple[dict[str, Any], ...]:
    return tuple(json.loads((DATA / name).read_text(encoding="utf-8")))


class Calendar:
    """Meetings from a file, plus what was booked since."""

    def __init__(self) -> None:
        self._meetings = list(_load("calendar.json"))

    def on(self, day: str) -> Sequence[dict[str, Any]]:
        return [item for item in self._meetings if item["day"] == day]

    def find(self, words: str) -> Sequence[dict[str, Any]]:
        return [item for item in self._meetings if words.lower() in item["title"].lower()]

    def book(self, day: str, start: str, room: str, title: str) -> dict[str, Any]:
        """Book an hour. Raises BadRequest when the room is taken at that time."""
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", day) or not re.fullmatch(r"[0-2]\d:[0-5]\d", start):
            raise BadRequest(f"not a day and time: {day!r} {start!r}")
        begin = _minutes(start)
        for item in self.on(day):
            first = _minutes(item["start"])
            if item["room"] == room and first < begin + 60 and begin < first + item["minutes"]:
                raise BadRequest(f"room {room} is taken at {item['start']} by {item['title']}")
        meeting = {"day": day, "start": start, "minutes": 60, "title": title, "room": room}
        self._meetings.append(meeting)
        return meeting


def _minutes(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])


def mail(words: str) -> Sequence[dict[str, Any]]:
    """Mails whose subject or text has any of the words of four letters and more; the best first."""
    wanted = set(re.findall(r"\w{4,}", words.lower()))
    scored = [
        (sum(word in (item["subject"] + item["text"]).lower() for word in wanted), item)
        for item in _load("mailbox.json")
    ]
    return [item for score, item in sorted(scored, key=lambda pair: -pair[0]) if score]


async def fetch_page(url: str, client: httpx.AsyncClient) -> str:
    """The readable text of a page. Raises BadRequest for anything but http and 2xx."""
    if not url.startswith(("http://", "https://")):
        raise BadRequest(f"not a web address: {url!r}")
    reply = await client.get(url)
    if not reply.is_success:
        raise BadRequest(f"{url} answered {reply.status_code}")
    return readable(reply.text)


def readable(page: str) -> str:
    """Text of an HTML page without scripts, styles and tags, a block a line."""
    bare = re.sub(r"(?is)<(script|style|head)\b.*?</\1>", "", page)
    lines = re.sub(r"(?s)<[^>]+>", "\n", bare).splitlines()
    return "\n".join(html.unescape(line).strip() for line in lines if line.strip())
