"""Every setting in one frozen dataclass. The only place that reads the environment; an unknown STAGESCOPE_ variable is an error."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from ingest.errors import BadSetting

PREFIX = "STAGESCOPE_"
TEST_ONLY = frozenset({"STAGESCOPE_TEST_KAFKA", "STAGESCOPE_TEST_ES", "STAGESCOPE_TEST_CLICKHOUSE"})


def setting(default: Any, help_text: str, *, secret: bool = False) -> Any:
    """A dataclass field with its help; `secret` values are never printed."""
    return field(default=default, metadata={"help": help_text, "secret": secret})


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings; read each from STAGESCOPE_<NAME IN CAPITALS>, command line options win."""

    store: str = setting(
        "./stagescope-data", "where data lives: a folder, chdb:///abs/folder, or http(s)://user:pass@host:8123/database"
    )
    log: str = setting("memory:", "the log between receiver and store: memory: or kafka://host:9092[,host…]")
    failures: str = setting("store:", "the failure log: store: or http(s)://…:9200 (Elasticsearch)")
    host: str = setting("127.0.0.1", "address that every server of ours listens on")
    otlp_grpc_port: int = setting(4317, "OTLP/gRPC port")
    otlp_http_port: int = setting(4318, "OTLP/HTTP port")
    clickhouse_port: int = setting(8123, "port of the ClickHouse HTTP interface over the embedded engine")
    ui_port: int = setting(8501, "port of the pages")
    consume_port: int = setting(0, "port of the /metrics and /healthz of `consume`; 0 means none")
    max_body_bytes: int = setting(16 * 1024 * 1024, "largest request body as received (compressed)")
    max_inflated_bytes: int = setting(64 * 1024 * 1024, "largest request body after decompression")
    max_message_bytes: int = setting(
        900_000, "largest message put into the log; larger requests are split between spans"
    )
    max_working_bytes: int = setting(
        256 * 1024 * 1024, "bytes of requests at work at one time; more are turned away (429)"
    )
    mask_users: str = setting("", "user ids, names and e-mails in attributes: empty keeps, hash, or drop")
    mask_prompts: str = setting("", "prompts, answers and tool arguments in attributes: empty keeps, hash, or drop")
    mask_salt: str = setting("", "key of the hashes that mask", secret=True)
    stages: str = setting("", "path of a stages.toml of your own; empty means the one that comes with the package")
    scrape: str = setting("", "exporter pages to read, http://host:9400/metrics, comma-separated (dcgm-exporter, vLLM)")
    scrape_seconds: float = setting(15.0, "seconds between two readings of exporters, GPUs and the host")
    scrape_peers: str = setting("", "hosts whose round trip is measured, name=host:port, comma-separated")
    environment: str = setting("default", "name of this deployment; tickets of different environments stay apart")
    owners: str = setting("", "path of an owners.toml that says who mends what; empty means nobody is named")
    tickets_folder: str = setting("", "folder for ticket files; empty means <store folder>/tickets or ./tickets")
    ticket_verified_hours: float = setting(24.0, "hours that a problem must measure better before its ticket closes")
    jira_url: str = setting("", "address of Jira Cloud, https://your-site.atlassian.net")
    jira_project: str = setting("", "key of the Jira project that gets the tickets")
    jira_user: str = setting("", "e-mail of the Jira account")
    jira_token: str = setting("", "API token of the Jira account", secret=True)
    jira_fields: str = setting("", "JSON of extra fields the Jira project requires, also issuetype")
    github_url: str = setting("https://api.github.com", "address of GitHub's REST API")
    github_repo: str = setting("", "owner/name of the GitHub repository that gets the tickets")
    github_token: str = setting("", "GitHub token with write access to issues", secret=True)
    gitlab_url: str = setting("https://gitlab.com", "address of GitLab")
    gitlab_project: str = setting("", "number or path (group/name) of the GitLab project that gets the tickets")
    gitlab_token: str = setting("", "GitLab token with scope api", secret=True)
    webhook_url: str = setting("", "address that gets each ticket change as JSON", secret=True)
    webhook_secret: str = setting("", "key that signs what is sent to webhook_url", secret=True)
    alert_rules: str = setting("", "path of an alerts.toml of your own; empty means the built-in rules")
    alertmanager_url: str = setting("", "address of an Alertmanager, http://host:9093")
    alert_slack_url: str = setting("", "incoming webhook of Slack or anything that speaks its JSON", secret=True)
    alert_mail: str = setting("", "comma-separated e-mail addresses that get alerts")
    smtp_url: str = setting("", "mail server for alerts, smtp(s)://user:password@host:587", secret=True)
    smtp_from: str = setting("stagescope@localhost", "sender of alert mails")


def load(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Settings from the environment, then from `overrides` that are not None. Raises BadSetting."""
    source = os.environ if environ is None else environ
    names = {PREFIX + item.name.upper(): item for item in fields(Settings)}
    unknown = sorted(name for name in source if name.startswith(PREFIX) and name not in names and name not in TEST_ONLY)
    if unknown:
        raise BadSetting(unknown[0], "…", _nearest(unknown[0], names))
    values: dict[str, Any] = {}
    for name, item in names.items():
        if name in source:
            values[item.name] = _parse(name, source[name], item.default)
    values.update({key: value for key, value in overrides.items() if value is not None})
    for name, value in values.items():
        if name.endswith("_port") and not 0 <= value <= 65535:
            raise BadSetting(PREFIX + name.upper(), value, "a port from 0 to 65535")
    return Settings(**values)


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"a setting of Stagescope{', such as ' + ' or '.join(near) if near else ''}; README.md lists them all"


def _parse(name: str, text: str, default: object) -> Any:
    if default is MISSING or isinstance(default, str):
        return text
    try:
        value = float(text) if isinstance(default, float) else int(text)
    except ValueError:
        raise BadSetting(name, text, f"a number such as {default}") from None
    if not math.isfinite(value) or value < 0:
        raise BadSetting(name, text, f"a number such as {default}, not below 0")
    return value
