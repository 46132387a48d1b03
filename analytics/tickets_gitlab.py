"""Tickets as GitLab issues (REST v4). Found again by a label of their own, never by title.

Must stay true: an issue is created only after its label was looked for, and one PUT brings text and state together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from analytics.tickets_http import Api, Uncertain, json_of
from analytics.tickets_plan import CLOSED, Change
from analytics.tickets_text import markdown, merged

MOST_BODY = 900_000


class GitLabSink:
    """Issues of one project, given by number or by path `group/name`."""

    name = "gitlab"

    def __init__(self, api: Api, project: str, owner: Callable[[Change], str], extra: Callable[[Change], str]) -> None:
        self._api, self._path = api, f"/api/v4/projects/{quote(project, safe='')}/issues"
        self._owner, self._extra = owner, extra

    def apply(self, change: Change) -> str:
        found = self._find(change)
        if found is None:
            found = self._create(change)
        else:
            self._bring(found, change)
        return str(found["iid"])

    def _find(self, change: Change) -> dict[str, Any] | None:
        issues = sorted(self._labelled(change.marker), key=lambda item: int(item["iid"]))
        return issues[0] if issues else None

    def _labelled(self, label: str) -> Iterator[dict[str, Any]]:
        page = "1"
        while page:
            reply = self._api.get(self._path, {"labels": label, "scope": "all", "per_page": 100, "page": page})
            yield from json_of(reply)
            page = reply.headers.get("x-next-page", "")

    def _create(self, change: Change) -> dict[str, Any]:
        body = {
            "title": change.ticket.title[:250],
            "description": self._body("", change),
            "labels": f"stagescope,{change.marker}",
        }
        try:
            made: dict[str, Any] = json_of(self._api.change("POST", self._path, body, again=False))
        except Uncertain:
            found = self._find(change)
            if found is None:
                raise
            return found
        first = self._find(change) or made
        if first["iid"] != made["iid"]:
            double = {"state_event": "close", "description": f"Double of #{first['iid']}.", "labels": "stagescope"}
            self._api.change("PUT", f"{self._path}/{made['iid']}", double, again=True)
        if change.ticket.state == CLOSED:
            self._bring(first, change)
        return first

    def _bring(self, issue: Mapping[str, Any], change: Change) -> None:
        body = self._body(str(issue.get("description") or ""), change)
        state = "closed" if change.ticket.state == CLOSED else "opened"
        title = change.ticket.title[:250]
        if (issue.get("description"), issue.get("state"), issue.get("title")) == (body, state, title):
            return
        fields = {"title": title, "description": body}
        if state != issue.get("state"):
            fields["state_event"] = "close" if state == "closed" else "reopen"
        self._api.change("PUT", f"{self._path}/{issue['iid']}", fields, again=True)

    def _body(self, old: str, change: Change) -> str:
        return merged(old, markdown(change, self._owner(change), self._extra(change)))[:MOST_BODY]
