"""How GitLab says issues (REST v4): labels, state events, one PUT for text and state together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from analytics.tickets_http import Api, json_of


class GitLab:
    """Issues of one project, given by number or by path `group/name`."""

    number, text, closed, opened, most_text = "iid", "description", "closed", "opened", 900_000

    def __init__(self, api: Api, project: str) -> None:
        self._api, self._path = api, f"/api/v4/projects/{quote(project, safe='')}/issues"

    def labelled(self, label: str) -> Iterator[dict[str, Any]]:
        page = "1"
        while page:
            reply = self._api.get(self._path, {"labels": label, "scope": "all", "per_page": 100, "page": page})
            yield from json_of(reply)
            page = reply.headers.get("x-next-page", "")

    def create(self, title: str, text: str, label: str) -> dict[str, Any]:
        body = {"title": title, "description": text, "labels": f"stagescope,{label}"}
        made: dict[str, Any] = json_of(self._api.change("POST", self._path, body, again=False))
        return made

    def bring(self, issue: Mapping[str, Any], title: str, text: str, state: str) -> None:
        fields = {"title": title, "description": text}
        if state != issue.get("state"):
            fields["state_event"] = "close" if state == self.closed else "reopen"
        self._api.change("PUT", f"{self._path}/{issue['iid']}", fields, again=True)

    def double(self, mine: Mapping[str, Any], first: Mapping[str, Any]) -> None:
        body = {"state_event": "close", "description": f"Double of #{first['iid']}.", "labels": "stagescope"}
        self._api.change("PUT", f"{self._path}/{mine['iid']}", body, again=True)
