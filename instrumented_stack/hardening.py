"""The hardening measures: breakers, clean text, answer cache, session state with versions. Each is off or on by a switch and says so when it acts."""

from __future__ import annotations

import asyncio
import unicodedata
from collections import deque
from dataclasses import dataclass, field

from instrumented_stack.errors import StateConflictError

BASIC_TIMEOUT_S, RISKY_TIMEOUT_S = 2.0, 5.0
PAYLOAD_LIMIT_BYTES = 500_000
WATERMARK = 0.75
SCHEMA_VERSION = "3"


@dataclass(slots=True)
class Breaker:
    """Opens after three failures in a row, or when the p95 of the last forty calls is above `slow_s`; tries again after `rest_s`."""

    slow_s: float = 1.5
    rest_s: float = 30.0
    failures: int = 0
    opened_s: float = -1e18
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=40))

    def allows(self, now_s: float) -> bool:
        return now_s - self.opened_s >= self.rest_s

    def note(self, now_s: float, took_s: float, failed: bool) -> bool:
        """Record one call; True when this call opened the breaker."""
        self.failures = self.failures + 1 if failed else 0
        self.recent.append(took_s)
        ordered = sorted(self.recent)
        slow = len(ordered) >= 20 and ordered[int(0.95 * len(ordered))] > self.slow_s
        if self.failures < 3 and not slow:
            return False
        self.failures, self.opened_s = 0, now_s
        self.recent.clear()
        return True


def clean(text: str) -> str:
    """NFC without control characters (tab and line ends stay) and without halves of surrogate pairs."""
    normal = unicodedata.normalize("NFC", text)
    return "".join(
        char
        for char in normal
        if not 0xD800 <= ord(char) <= 0xDFFF and (char in "\t\n\r" or unicodedata.category(char) != "Cc")
    )


class AnswerCache:
    """Deterministic answers for 300 s; at most `limit` of them."""

    def __init__(self, keep_s: float = 300.0, limit: int = 10_000) -> None:
        self._keep_s, self._limit = keep_s, limit
        self._until: dict[tuple[str, str], float] = {}

    def hit(self, task: str, text: str, now_s: float) -> bool:
        """Whether a finished answer is there."""
        return self._until.get((task, text), 0.0) > now_s

    def keep(self, task: str, text: str, now_s: float) -> None:
        """An answer was given; one that failed never comes here."""
        if len(self._until) >= self._limit:
            self._until = {item: until for item, until in self._until.items() if until > now_s}
            if len(self._until) >= self._limit:
                self._until.clear()
        self._until[(task, text)] = now_s + self._keep_s


STEPS = ("received", "planning", "acting", "answering", "done")


@dataclass(slots=True)
class Session:
    """One user's conversation: its step, and a version that grows with each write."""

    step: str = "received"
    version: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Sessions:
    """Session state with a lock per session. A write waits at most `timeout_s` for the lock, and needs the version it read."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._sessions: dict[str, Session] = {}

    def get(self, name: str) -> Session:
        return self._sessions.setdefault(name, Session())

    async def write(self, name: str, step: str, expected_version: int | None = None, hold_s: float = 0.0) -> int:
        """Move a session to `step`; the new version. Raises StateConflictError on a lock timeout or a version that moved on."""
        session = self.get(name)
        try:
            await asyncio.wait_for(session.lock.acquire(), self._timeout_s)
        except TimeoutError:
            raise StateConflictError(
                f"session {name} is held by another writer for over {self._timeout_s:g} s"
            ) from None
        try:
            if expected_version is not None and session.version != expected_version:
                found = session.version
                raise StateConflictError(f"session {name} is at version {found}, the write expected {expected_version}")
            if step not in STEPS:
                raise StateConflictError(f"session {name} cannot go from {session.step} to {step}")
            if hold_s:
                await asyncio.sleep(hold_s)
            session.step = step
            session.version += 1
            return session.version
        finally:
            session.lock.release()
