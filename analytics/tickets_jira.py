"""Tickets as Jira Cloud issues (REST v3, text as Atlassian Document Format). Found again by a label of their own.

Must stay true: an issue is created only after its label was looked for; status moves only by transitions that the workflow offers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from analytics.tickets_adf import document
from analytics.tickets_http import Api, Refused, Uncertain, json_of
from analytics.tickets_plan import CLOSED, Change
from analytics.tickets_text import markdown
from ingest.errors import BadSetting

DONE = "done"
PAGE = 50


class JiraSink:
    """Issues of one project. `fields` are extra fields that the project requires, e.g. {"customfield_10010": {"value": "Core"}}."""

    name = "jira"

    def __init__(
        self,
        api: Api,
        project: str,
        fields: Mapping[str, Any],
        text: tuple[Callable[[Change], str], Callable[[Change], str]],
    ) -> None:
        self._api, self._project, self._fields = api, project, fields
        self._owner, self._extra = text

    def apply(self, change: Change) -> str:
        found = self._find(change)
        if found is None:
            found = self._create(change)
        self._bring(found, change)
        return str(found["key"])

    def _find(self, change: Change) -> dict[str, Any] | None:
        issues = sorted(self._labelled(change.marker), key=lambda item: int(item["id"]))
        return issues[0] if issues else None

    def _labelled(self, label: str) -> Iterator[dict[str, Any]]:
        jql = f'project = "{self._project}" AND labels = "{label}" ORDER BY created ASC'
        token: str | None = None
        while True:
            query: dict[str, Any] = {
                "jql": jql,
                "maxResults": PAGE,
                "fields": ["status", "summary", "description", "labels"],
            }
            if token:
                query["nextPageToken"] = token
            page = json_of(self._api.change("POST", "/rest/api/3/search/jql", query, again=True))
            yield from page.get("issues", [])
            token = page.get("nextPageToken")
            if not token:
                return

    def _create(self, change: Change) -> dict[str, Any]:
        fields = {
            "issuetype": {"name": "Task"},
            **self._fields,
            "project": {"key": self._project},
            "summary": change.ticket.title[:250],
            "description": self._text(change),
            "labels": ["stagescope", change.marker],
        }
        try:
            made: dict[str, Any] = json_of(
                self._api.change("POST", "/rest/api/3/issue", {"fields": fields}, again=False)
            )
        except Uncertain:
            found = self._find(change)
            if found is None:
                raise
            return found
        except Refused as refused:
            raise self._missing(refused) from refused
        first = self._find(change) or made
        if first["key"] != made["key"]:
            double = {"fields": {"summary": f"Double of {first['key']}", "labels": ["stagescope-double"]}}
            self._api.change("PUT", f"/rest/api/3/issue/{made['key']}", double, again=True)
            self._move(str(made["key"]), done=True)
        return {**made, **first}

    def _missing(self, refused: Refused) -> Exception:
        """Jira names the fields it wants: say so with the setting that holds them."""
        try:
            errors = refused.reply.json().get("errors", {})
        except (ValueError, AttributeError):
            errors = {}
        if not errors:
            return refused
        wanted = "; ".join(f"{name}: {why}" for name, why in errors.items())
        example = '{"' + next(iter(errors)) + '": {"value": "…"}}'
        return BadSetting(
            "STAGESCOPE_JIRA_FIELDS",
            "…",
            f"JSON with the fields that project {self._project} requires, as {example} ({wanted})",
        )

    def _bring(self, issue: Mapping[str, Any], change: Change) -> None:
        now = issue.get("fields") or {}
        wanted = {"summary": change.ticket.title[:250], "description": self._text(change)}
        if now and any(now.get(name) != value for name, value in wanted.items()):
            self._api.change("PUT", f"/rest/api/3/issue/{issue['key']}", {"fields": wanted}, again=True)
        status = (((now.get("status") or {}).get("statusCategory")) or {}).get("key", "new")
        should = change.ticket.state == CLOSED
        if (status == DONE) != should:
            self._move(str(issue["key"]), done=should)

    def _move(self, key: str, *, done: bool) -> None:
        """Take the first transition that leads where it should: a status of category `done`, or any other."""
        path = f"/rest/api/3/issue/{key}/transitions"
        offered = json_of(self._api.get(path))["transitions"]
        fitting = [item for item in offered if (item["to"]["statusCategory"]["key"] == DONE) == done]
        if not fitting:
            names = ", ".join(str(item["to"]["name"]) for item in offered) or "nothing"
            goal = "a done status" if done else "an open status"
            raise BadSetting(
                "STAGESCOPE_JIRA_PROJECT",
                self._project,
                f"a workflow that leads from {key} to {goal} (offered: {names})",
            )
        self._api.change("POST", path, {"transition": {"id": fitting[0]["id"]}}, again=True)

    def _text(self, change: Change) -> dict[str, Any]:
        return document(markdown(change, self._owner(change), self._extra(change)))
