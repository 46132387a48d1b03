"""Tickets as signed JSON posts to an address of your own.

Must stay true: the same change carries the same Idempotency-Key, so that a receiver can drop what it had already.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

import orjson

from analytics.tickets_http import Api
from analytics.tickets_plan import Change, as_row
from analytics.tickets_text import markdown


class WebhookSink:
    """One POST a change: `action, key, marker, environment, title, state, reason, body, owner, ticket, finding`. A 2xx is a receipt;
    `{"id": …}` in the answer becomes the external id. With a secret, `X-Stagescope-Signature: sha256=…` signs the bytes."""

    name = "webhook"

    def __init__(self, api: Api, secret: str, owner: Callable[[Change], str], extra: Callable[[Change], str]) -> None:
        self._api, self._secret, self._owner, self._extra = api, secret, owner, extra

    def apply(self, change: Change) -> str:
        owner = self._owner(change)
        document = {
            "action": change.action,
            "key": change.key,
            "marker": change.marker,
            "idempotency_key": change.idempotency_key,
            "environment": change.ticket.environment,
            "title": change.ticket.title,
            "state": change.ticket.state,
            "reason": change.reason,
            "owner": owner,
            "body": markdown(change, owner, self._extra(change)),
            "ticket": as_row(change.ticket),
            "finding": change.finding.to_json() if change.finding else None,
        }
        content = orjson.dumps(document)
        headers = {"content-type": "application/json", "idempotency-key": change.idempotency_key}
        if self._secret:
            headers["x-stagescope-signature"] = (
                "sha256=" + hmac.new(self._secret.encode(), content, hashlib.sha256).hexdigest()
            )
        reply = self._api.post_bytes("", content, headers)
        return _told_id(reply.text, change.key)


def _told_id(text: str, key: str) -> str:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return key
    value = found.get("id") if isinstance(found, dict) else None
    return str(value)[:200] if isinstance(value, str | int) and not isinstance(value, bool) else key
