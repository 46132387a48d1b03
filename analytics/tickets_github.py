"""Tickets as GitHub issues (REST, version 2022-11-28). Found again by a label of their own, never by title.

Must stay true: an issue is created only after its label was looked for, and one PATCH brings body and state together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from analytics.tickets_http import Api, Uncertain, json_of
from analytics.tickets_plan import CLOSED, Change
from analytics.tickets_text import markdown, merged

MOST_BODY = 60_000


class GitHubSink:
    """Issues of one repository `owner/name`."""

    name = "github"

    def __init__(self, api: Api, repo: str, owner: Callable[[Change], str], extra: Callable[[Change], str]) -> None:
        self._api, self._path, self._owner, self._extra = api, f"/repos/{repo}/issues", owner, extra

    def apply(self, change: Change) -> str:
        found = self._find(change)
        if found is None:
            found = self._create(change)
        else:
            self._bring(found, change)
        return str(found["number"])

    def _find(self, change: Change) -> dict[str, Any] | None:
        """The oldest issue with the change's label; later ones are doubles."""
        issues = sorted(self._labelled(change.marker), key=lambda item: int(item["number"]))
        return issues[0] if issues else None

    def _labelled(self, label: str) -> Iterator[dict[str, Any]]:
        page = 1
        while True:
            reply = self._api.get(self._path, {"labels": label, "state": "all", "per_page": 100, "page": page})
            batch = json_of(reply)
            yield from (item for item in batch if "pull_request" not in item)
            if 'rel="next"' not in reply.headers.get("link", ""):
                return
            page += 1

    def _create(self, change: Change) -> dict[str, Any]:
        body = {
            "title": change.ticket.title[:250],
            "body": self._body("", change),
            "labels": ["stagescope", change.marker],
        }
        try:
            made: dict[str, Any] = json_of(self._api.change("POST", self._path, body, again=False))
        except Uncertain:
            found = self._find(change)
            if found is None:
                raise
            return found
        first = self._find(change) or made
        if first["number"] != made["number"]:
            self._double(made, first)
        if change.ticket.state == CLOSED:
            self._bring(first, change)
        return first

    def _double(self, mine: Mapping[str, Any], first: Mapping[str, Any]) -> None:
        """Another installation was quicker: ours is closed and points there."""
        body = {
            "state": "closed",
            "state_reason": "not_planned",
            "body": f"Double of #{first['number']}.",
            "labels": ["stagescope"],
        }
        self._api.change("PATCH", f"{self._path}/{mine['number']}", body, again=True)

    def _bring(self, issue: Mapping[str, Any], change: Change) -> None:
        body = self._body(str(issue.get("body") or ""), change)
        state = "closed" if change.ticket.state == CLOSED else "open"
        title = change.ticket.title[:250]
        if (issue.get("body"), issue.get("state"), issue.get("title")) == (body, state, title):
            return
        fields: dict[str, Any] = {"title": title, "body": body, "state": state}
        if state != issue.get("state"):
            fields["state_reason"] = "completed" if state == "closed" else "reopened"
        self._api.change("PATCH", f"{self._path}/{issue['number']}", fields, again=True)

    def _body(self, old: str, change: Change) -> str:
        return merged(old, markdown(change, self._owner(change), self._extra(change)))[:MOST_BODY]
