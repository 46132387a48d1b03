"""Reads `kafka://[user:password@]host:9092[,host…][?option=value&…]`. Secrets are never shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ingest.errors import BadSetting

NAME = "STAGESCOPE_LOG"
COMPRESSIONS = ("none", "gzip", "lz4", "zstd", "snappy")
PASSED_ON = frozenset(
    "client_id security_protocol sasl_mechanism sasl_plain_username sasl_plain_password sasl_kerberos_service_name "
    "sasl_kerberos_domain_name ssl_cafile ssl_certfile ssl_keyfile ssl_password ssl_crlfile ssl_ciphers".split()
)
NUMBERS = frozenset("session_timeout_ms heartbeat_interval_ms max_poll_interval_ms".split())
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class KafkaPlace:
    """Where the log is and how to speak to it. `compression` None means none."""

    brokers: tuple[str, ...]
    group: str = "stagescope"
    compression: str | None = "lz4"
    initial_offset: str = "earliest"
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timing: Mapping[str, int] = field(default_factory=dict)

    def client_options(self) -> dict[str, Any]:
        """Arguments that every client takes."""
        return {
            "bootstrap_servers": list(self.brokers),
            "bootstrap_timeout_ms": 10_000,
            "reconnect_backoff_max_ms": 2000,
            "client_id": "stagescope",
            **self.client,
        }

    def group_options(self) -> dict[str, Any]:
        """Arguments that only a consumer takes."""
        return {"group_id": self.group, "auto_offset_reset": self.initial_offset, **self.timing}


def kafka_place(url: str) -> KafkaPlace:
    """The place that a `kafka://` address names. Raises BadSetting."""
    parts = urlsplit(url)
    if parts.scheme != "kafka":
        raise BadSetting(NAME, parts.scheme or url, "memory: or kafka://host:9092[,host…]")
    login, _, hosts = parts.netloc.rpartition("@")
    brokers = tuple(host if ":" in host else f"{host}:9092" for host in hosts.split(",") if host)
    if not brokers:
        raise BadSetting(NAME, "kafka://", "a broker: kafka://host:9092[,host…]")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if login:
        user, _, password = login.partition(":")
        options = {"sasl_plain_username": unquote(user), "sasl_plain_password": unquote(password), **options}
        options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", **options}
    compression = options.pop("compression", "lz4")
    if compression not in COMPRESSIONS:
        raise BadSetting(f"{NAME} compression", compression, f"one of {', '.join(COMPRESSIONS)}")
    offset = options.pop("initial_offset", "earliest")
    if offset not in ("earliest", "latest"):
        raise BadSetting(f"{NAME} initial_offset", offset, "earliest or latest")
    group = options.pop("group", "stagescope")
    timing = {name: _number(name, options.pop(name)) for name in sorted(NUMBERS & options.keys())}
    return KafkaPlace(brokers, group, None if compression == "none" else compression, offset, _client(options), timing)


def _client(options: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name == "ssl_check_hostname":
            found[name] = value.lower() not in ("0", "false", "no")
        elif name in PASSED_ON:
            found[name] = value
        else:
            known = ", ".join(
                sorted(PASSED_ON | NUMBERS | {"compression", "group", "initial_offset", "ssl_check_hostname"})
            )
            raise BadSetting(f"{NAME} option {name}", "…", f"one of {known}")
    protocol = found.get("security_protocol", "PLAINTEXT")
    if protocol not in PROTOCOLS:
        raise BadSetting(f"{NAME} security_protocol", protocol, f"one of {', '.join(PROTOCOLS)}")
    return found


def _number(name: str, text: str) -> int:
    if not text.isdigit():
        raise BadSetting(f"{NAME} {name}", text, "a whole number of milliseconds")
    return int(text)
