"""How GitHub says issues (REST, version 2022-11-28): labels, states, one PATCH for text and state together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from analytics.tickets_http import Api, json_of


class GitHub:
    """Issues of one repository `owner/name`."""

    number, text, closed, opened, most_text = "number", "body", "closed", "open", 60_000

    def __init__(self, api: Api, repo: str) -> None:
        self._api, self._path = api, f"/repos/{repo}/issues"

    def labelled(self, label: str) -> Iterator[dict[str, Any]]:
        page = 1
        while True:
            reply = self._api.get(self._path, {"labels": label, "state": "all", "per_page": 100, "page": page})
            yield from (item for item in json_of(reply) if "pull_request" not in item)
            if 'rel="next"' not in reply.headers.get("link", ""):
                return
            page += 1

    def create(self, title: str, text: str, label: str) -> dict[str, Any]:
        body = {"title": title, "body": text, "labels": ["stagescope", label]}
        made: dict[str, Any] = json_of(self._api.change("POST", self._path, body, again=False))
        return made

    def bring(self, issue: Mapping[str, Any], title: str, text: str, state: str) -> None:
        fields = {"title": title, "body": text, "state": state}
        if state != issue.get("state"):
            fields["state_reason"] = "completed" if state == self.closed else "reopened"
        self._api.change("PATCH", f"{self._path}/{issue['number']}", fields, again=True)

    def double(self, mine: Mapping[str, Any], first: Mapping[str, Any]) -> None:
        body = {
            "state": "closed",
            "state_reason": "not_planned",
            "body": f"Double of #{first['number']}.",
            "labels": ["stagescope"],
        }
        self._api.change("PATCH", f"{self._path}/{mine['number']}", body, again=True)
