"""Talking to a tracker's REST API: bounded speed, retries that respect Retry-After, errors a person can act on.

Must stay true: no secret reaches a message, and a request that may have been done is never repeated blindly.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx

from ingest.errors import BadSetting, Unavailable

PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class Uncertain(Unavailable):
    """The answer to a write never came: it may have been done. Look before doing it again."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Up to `attempts` tries, waits doubling from `first_wait_s` to `longest_wait_s`, at least `gap_s` between requests."""

    attempts: int = 5
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    gap_s: float = 0.2
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class Api:
    """One tracker. `setting` is the name of the setting that holds its token, for messages."""

    name: str
    base: str
    setting: str
    headers: Mapping[str, str]
    auth: tuple[str, str] | None = None
    patience: Patience = field(default_factory=Patience)
    transport: httpx.BaseTransport | None = None
    _last: float = 0.0

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> httpx.Response:
        """A read, tried again while the tracker is away."""
        return self._try("GET", path, {"params": dict(params or {})}, again=True)

    def change(self, method: str, path: str, body: Any, *, again: bool) -> httpx.Response:
        """A write. `again`: it may be repeated without harm; else an unknown outcome raises Uncertain."""
        return self._try(method, path, {"json": body}, again=again)

    def post_bytes(self, path: str, content: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """A POST whose receiver drops repeats by its Idempotency-Key."""
        return self._try("POST", path, {"content": content, "headers": dict(headers)}, again=True)

    def _try(self, method: str, path: str, what: Mapping[str, Any], *, again: bool) -> httpx.Response:
        wait = self.patience.first_wait_s
        problem = ""
        for attempt in range(self.patience.attempts):
            if attempt:
                self.patience.sleep(min(wait, self.patience.longest_wait_s))
                wait = 2 * wait
            try:
                reply = self._once(method, path, what)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as err:
                problem = f"{self.name} at {self._host()} cannot be reached ({type(err).__name__})"
                continue
            except httpx.TransportError as err:
                problem = f"{self.name} at {self._host()} broke off ({type(err).__name__})"
                if not again:
                    raise Uncertain(problem) from err
                continue
            told = _retry_after(reply)
            if not _passing(reply):
                return self._judged(reply, method, path)
            problem = f"{self.name} answers {reply.status_code} to {method} {path}"
            if reply.status_code >= 500 and not again:
                raise Uncertain(problem)
            wait = max(wait, told) if told else wait
            if told > self.patience.longest_wait_s:
                raise Unavailable(f"{problem} and asks to wait {told:.0f} s", told)
        raise Unavailable(f"{problem}, tried {self.patience.attempts} times; it is tried again at the next run", wait)

    def _once(self, method: str, path: str, what: Mapping[str, Any]) -> httpx.Response:
        pause = self._last + self.patience.gap_s - self.patience.clock()
        if pause > 0:
            self.patience.sleep(pause)
        self._last = self.patience.clock()
        with httpx.Client(timeout=30.0, transport=self.transport, trust_env=False, follow_redirects=False) as client:
            headers = {**self.headers, **what.get("headers", {})}
            rest = {name: value for name, value in what.items() if name != "headers"}
            return client.request(method, self.base.rstrip("/") + path, headers=headers, auth=self.auth, **rest)

    def _judged(self, reply: httpx.Response, method: str, path: str) -> httpx.Response:
        if reply.is_success:
            return reply
        code = reply.status_code
        if code in (401, 403):
            raise BadSetting(
                self.setting,
                "…",
                f"a token that {self.name} accepts for {method} {path} (it answers {code}: {said(reply)})",
            )
        if code in (301, 302, 307, 308):
            target = str(reply.headers.get("location", "")).split("?")[0]
            raise BadSetting(
                self.setting.rsplit("_", 1)[0] + "_URL", self.base, f"the address that does not redirect (to {target})"
            )
        if code == 404:
            raise BadSetting(
                self.setting, "…", f"a project that exists and that the token may see ({method} {path} answers 404)"
            )
        raise Refused(f"{self.name} refuses {method} {path} with {code}: {said(reply)}", reply)

    def _host(self) -> str:
        return httpx.URL(self.base).host or self.base


class Refused(Unavailable):
    """The tracker understood and said no (400, 409, 410, 422 …)."""

    def __init__(self, message: str, reply: httpx.Response) -> None:
        super().__init__(message)
        self.reply = reply


def json_of(reply: httpx.Response) -> Any:
    """The JSON of an answer; an HTML page in its place means that something stands between us and the tracker."""
    try:
        return reply.json()
    except ValueError:
        kind = reply.headers.get("content-type", "no content type").split(";")[0]
        raise Unavailable(
            f"{reply.url.host} answers {reply.status_code} with {kind} instead of JSON: {said(reply)}"
        ) from None


def said(reply: httpx.Response) -> str:
    """What an answer says, in one short line: the fields of a JSON error, or the title of an HTML page."""
    try:
        found = reply.json()
    except ValueError:
        text = reply.text
        low = text.lower()
        if "<title>" in low:
            start = low.index("<title>") + 7
            text = text[start : low.find("</title>", start)]
        return " ".join(text.split())[:200] or "nothing"
    return " ".join(_words(found).split())[:300] or "nothing"


def _words(found: Any) -> str:
    if isinstance(found, dict):
        parts = []
        for key, value in found.items():
            if key in ("errors", "error", "errorMessages", "message", "messages", "error_description") or isinstance(
                value, str
            ):
                parts.append(f"{key}: {_words(value)}" if key not in ("message", "errorMessages") else _words(value))
        return "; ".join(part for part in parts if part)
    if isinstance(found, list):
        return ", ".join(_words(item) for item in found)
    return str(found)


def _passing(reply: httpx.Response) -> bool:
    """Whether waiting may help; GitHub says 'too fast' with 403 and a header."""
    if reply.status_code in PASSING:
        return True
    limited = reply.headers.get("retry-after") or reply.headers.get("x-ratelimit-remaining") == "0"
    return reply.status_code == 403 and bool(limited)


def _retry_after(reply: httpx.Response) -> float:
    """Seconds to wait as told by Retry-After (seconds or a date) or x-ratelimit-reset; 0 when nothing is said."""
    text = reply.headers.get("retry-after", "").strip()
    if text.replace(".", "", 1).isdigit():
        return float(text)
    if text:
        parsed = email.utils.parsedate_to_datetime(text) if "," in text else None
        return max(0.0, (parsed - datetime.now(UTC)).total_seconds()) if parsed else 0.0
    reset = reply.headers.get("x-ratelimit-reset", "")
    if reset.isdigit() and (reply.status_code == 429 or reply.headers.get("x-ratelimit-remaining") == "0"):
        return max(0.0, float(reset) - datetime.now(UTC).timestamp())
    return 0.0
