"""Where alerts go: Alertmanager, a Slack-style webhook, e-mail.

Must stay true: a receiver that is away loses nothing; what it was not told stands and is told at the next turn.
"""

from __future__ import annotations

import smtplib
from collections.abc import Sequence
from datetime import datetime, timedelta
from email.message import EmailMessage
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from analytics.alerts import RESOLVED, Alert
from analytics.findings import iso
from analytics.tickets_http import Api, Patience
from ingest.errors import BadSetting, Unavailable
from ingest.settings import Settings

WORDS = {"firing": "FIRING", "no_data": "NO DATA", "resolved": "RESOLVED", "pending": "PENDING"}
KEPT_ALIVE_FOR = timedelta(minutes=5)


class Notifier(Protocol):
    """`every_turn`: wants all active alerts at every turn (Alertmanager forgets what is not repeated); else only changes."""

    name: str
    every_turn: bool

    def send(self, alerts: Sequence[Alert], now: datetime) -> None:
        """Tell. Raises Unavailable (tell again later) or BadSetting."""


class Alertmanager:
    """`POST /api/v2/alerts`; labels name the alert, so that repeating one is no second one."""

    name = "alertmanager"
    every_turn = True

    def __init__(self, api: Api, environment: str) -> None:
        self._api, self._environment = api, environment

    def send(self, alerts: Sequence[Alert], now: datetime) -> None:
        body = [self._alert(item, now) for item in alerts]
        if body:
            self._api.change("POST", "/api/v2/alerts", body, again=True)

    def _alert(self, alert: Alert, now: datetime) -> dict[str, Any]:
        over = alert.state == RESOLVED
        return {
            "labels": {
                "alertname": f"stagescope_{alert.rule}",
                "severity": alert.severity,
                "environment": self._environment,
                **{name: str(value) for name, value in alert.labels.items()},
            },
            "annotations": {"summary": alert.summary, "state": alert.state, "value": f"{alert.value:.6g}"},
            "startsAt": iso(alert.started_at or alert.since),
            "endsAt": iso(alert.since if over else now + KEPT_ALIVE_FOR),
            "generatorURL": "",
        }


class Slack:
    """One message a turn with a line an alert."""

    name = "slack"
    every_turn = False

    def __init__(self, api: Api, environment: str) -> None:
        self._api, self._environment = api, environment

    def send(self, alerts: Sequence[Alert], now: datetime) -> None:
        lines = [
            line(item, self._environment).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            for item in alerts
        ]
        if lines:
            self._api.change("POST", "", {"text": "\n".join(lines)}, again=False)


class Mail:
    """One plain-text mail a turn."""

    name = "mail"
    every_turn = False

    def __init__(self, url: str, sender: str, to: Sequence[str], environment: str) -> None:
        self._url, self._sender, self._to, self._environment = url, sender, tuple(to), environment

    def send(self, alerts: Sequence[Alert], now: datetime) -> None:
        if not alerts:
            return
        message = EmailMessage()
        first = line(alerts[0], self._environment)
        message["Subject"] = first if len(alerts) == 1 else f"{first} (and {len(alerts) - 1} more)"
        message["From"], message["To"] = self._sender, ", ".join(self._to)
        message.set_content(
            "\n\n".join(f"{line(item, self._environment)}\nsince {iso(item.since)}" for item in alerts) + "\n"
        )
        try:
            self._deliver(message)
        except smtplib.SMTPAuthenticationError as err:
            raise BadSetting(
                "STAGESCOPE_SMTP_URL", "…", f"a user and password that the mail server accepts ({err.smtp_code})"
            ) from err
        except (OSError, smtplib.SMTPException) as err:
            raise Unavailable(
                f"the mail server {urlsplit(self._url).hostname} does not take the mail ({type(err).__name__})", 60
            ) from err

    def _deliver(self, message: EmailMessage) -> None:
        parts = urlsplit(self._url)
        kind = smtplib.SMTP_SSL if parts.scheme == "smtps" else smtplib.SMTP
        with kind(
            parts.hostname or "localhost", parts.port or (465 if parts.scheme == "smtps" else 25), timeout=30
        ) as server:
            if parts.username:
                if parts.scheme == "smtp":
                    server.starttls()
                server.login(unquote(parts.username), unquote(parts.password or ""))
            server.send_message(message)


def line(alert: Alert, environment: str) -> str:
    """One line a person understands at 3 a.m."""
    where = ", ".join(f"{name}={value}" for name, value in sorted(alert.labels.items()))
    return " ".join(
        f"[{WORDS[alert.state]}] {alert.severity} {alert.rule.replace('_', ' ')} in {environment}"
        f"{f' ({where})' if where else ''}: {alert.summary}".split()
    )


def notifiers(settings: Settings, patience: Patience | None = None) -> list[Notifier]:
    """Those that are set up. Raises BadSetting when one is half set up."""
    wait = patience or Patience(attempts=3, longest_wait_s=10.0)
    out: list[Notifier] = []
    if settings.alertmanager_url:
        api = Api("Alertmanager", settings.alertmanager_url, "STAGESCOPE_ALERTMANAGER_URL", {}, None, wait)
        out.append(Alertmanager(api, settings.environment))
    if settings.alert_slack_url:
        out.append(
            Slack(
                Api("the Slack webhook", settings.alert_slack_url, "STAGESCOPE_ALERT_SLACK_URL", {}, None, wait),
                settings.environment,
            )
        )
    if settings.alert_mail:
        if urlsplit(settings.smtp_url).scheme not in ("smtp", "smtps"):
            raise BadSetting(
                "STAGESCOPE_SMTP_URL", "…", "smtp(s)://user:password@host:port, because STAGESCOPE_ALERT_MAIL is set"
            )
        to = [item.strip() for item in settings.alert_mail.split(",") if item.strip()]
        out.append(Mail(settings.smtp_url, settings.smtp_from, to, settings.environment))
    return out
