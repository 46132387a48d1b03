"""From settings to a tracker: the visible table of sinks. Says which setting is missing before anything is sent.

Must stay true: secrets go from settings into headers and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from analytics.tickets_files import FilesSink
from analytics.tickets_github import GitHub
from analytics.tickets_gitlab import GitLab
from analytics.tickets_http import Api, Patience
from analytics.tickets_issues import IssueSink
from analytics.tickets_jira import JiraSink
from analytics.tickets_plan import Change, TicketSink
from analytics.tickets_webhook import WebhookSink
from ingest.errors import BadSetting
from ingest.settings import Settings

SINKS = ("files", "jira", "github", "gitlab", "webhook")
Words = Callable[[Change], str]


def sink(
    name: str, settings: Settings, folder: Path, words: tuple[Words, Words], patience: Patience | None = None
) -> TicketSink:
    """The sink called `name`. `folder` is where files go; `words` are (owner of a change, extra Markdown). Raises BadSetting."""
    wait = patience or Patience()
    if name == "files":
        return FilesSink(folder, *words)
    if name == "github":
        _need(settings, "github_repo", "github_token")
        headers = {
            "accept": "application/vnd.github+json",
            "x-github-api-version": "2022-11-28",
            "authorization": f"Bearer {settings.github_token}",
        }
        api = Api("GitHub", settings.github_url, "STAGESCOPE_GITHUB_TOKEN", headers, None, wait)
        return IssueSink(name, GitHub(api, settings.github_repo), *words)
    if name == "gitlab":
        _need(settings, "gitlab_project", "gitlab_token")
        headers = {"private-token": settings.gitlab_token}
        api = Api("GitLab", settings.gitlab_url, "STAGESCOPE_GITLAB_TOKEN", headers, None, wait)
        return IssueSink(name, GitLab(api, settings.gitlab_project), *words)
    if name == "jira":
        _need(settings, "jira_url", "jira_project", "jira_user", "jira_token")
        auth = (settings.jira_user, settings.jira_token)
        api = Api("Jira", settings.jira_url, "STAGESCOPE_JIRA_TOKEN", {"accept": "application/json"}, auth, wait)
        return JiraSink(api, settings.jira_project, _fields(settings.jira_fields), words)
    if name == "webhook":
        _need(settings, "webhook_url")
        api = Api("the webhook", settings.webhook_url, "STAGESCOPE_WEBHOOK_URL", {}, None, wait)
        return WebhookSink(api, settings.webhook_secret, *words)
    raise BadSetting("to", name, f"one of {', '.join(SINKS)}")


def _need(settings: Settings, *names: str) -> None:
    for item in names:
        if not getattr(settings, item):
            raise BadSetting(f"STAGESCOPE_{item.upper()}", "", Settings.__dataclass_fields__[item].metadata["help"])


def _fields(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise BadSetting(
            "STAGESCOPE_JIRA_FIELDS", text[:60], 'a JSON object such as {"customfield_10010": {"value": "Core"}}'
        )
    return found
