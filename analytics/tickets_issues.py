"""Tickets as issues of a tracker that has labels: the steps that are the same for every such tracker.

Must stay true: an issue is created only after its label was looked for, and it is found again by that label, never by title.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from analytics.tickets_http import Uncertain
from analytics.tickets_plan import CLOSED, Change
from analytics.tickets_text import markdown, merged

MOST_TITLE = 250


class Tracker(Protocol):
    """How one tracker says it. An issue is the tracker's own JSON object."""

    number: str  # the field with the issue's number
    text: str  # the field with its text
    closed: str  # what `state` says of closed and open ones
    opened: str
    most_text: int

    def labelled(self, label: str) -> Iterator[dict[str, Any]]:
        """Every issue with the label, open or closed."""
        ...

    def create(self, title: str, text: str, label: str) -> dict[str, Any]:
        """A new issue with our common label and this one. Raises Uncertain when it may or may not be there now."""
        ...

    def bring(self, issue: Mapping[str, Any], title: str, text: str, state: str) -> None:
        """Title, text and state in one request."""
        ...

    def double(self, mine: Mapping[str, Any], first: Mapping[str, Any]) -> None:
        """Close ours, which somebody else was quicker to open, and point to theirs."""
        ...


class IssueSink:
    """Each change becomes an issue once, however often it is applied."""

    def __init__(
        self, name: str, tracker: Tracker, owner: Callable[[Change], str], extra: Callable[[Change], str]
    ) -> None:
        self.name, self._tracker, self._owner, self._extra = name, tracker, owner, extra

    def apply(self, change: Change) -> str:
        """Returns the issue's number."""
        found = self._find(change)
        if found is None:
            found = self._create(change)
        else:
            self._bring(found, change)
        return str(found[self._tracker.number])

    def _find(self, change: Change) -> dict[str, Any] | None:
        """The oldest issue with the change's label; later ones are doubles."""
        number = self._tracker.number
        return min(self._tracker.labelled(change.marker), key=lambda issue: int(issue[number]), default=None)

    def _create(self, change: Change) -> dict[str, Any]:
        tracker = self._tracker
        try:
            made = tracker.create(change.ticket.title[:MOST_TITLE], self._text("", change), change.marker)
        except Uncertain:
            found = self._find(change)
            if found is None:
                raise
            return found
        first = self._find(change) or made
        if first[tracker.number] != made[tracker.number]:
            tracker.double(made, first)
        if change.ticket.state == CLOSED:
            self._bring(first, change)
        return first

    def _bring(self, issue: Mapping[str, Any], change: Change) -> None:
        tracker = self._tracker
        title, text = change.ticket.title[:MOST_TITLE], self._text(str(issue.get(tracker.text) or ""), change)
        state = tracker.closed if change.ticket.state == CLOSED else tracker.opened
        if (issue.get(tracker.text), issue.get("state"), issue.get("title")) != (text, state, title):
            tracker.bring(issue, title, text, state)

    def _text(self, old: str, change: Change) -> str:
        return merged(old, markdown(change, self._owner(change), self._extra(change)))[: self._tracker.most_text]
