"""Masks people and prompts before anything is kept. Masking twice equals masking once."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Any

from ingest.errors import BadSetting
from ingest.otlp_clean import Mask
from ingest.otlp_text import value_text

USERS = re.compile(
    r"(user|enduser)(\.(id|name|email|full_name|hash|pseudo\.id))|gen_ai\.user|langfuse\.user\.id|.*\.user_?id"
)
PROMPTS = re.compile(
    r"gen_ai\.(input\.messages|output\.messages|system_instructions|prompt|completion|tool\.call\.(arguments|result)|tool\.definitions)(\..*)?"
    r"|(input|output)\.value|llm\.(input_messages|output_messages|prompts|choices|prompt_template)(\..*)?"
    r"|gen_ai\.event\.content|traceloop\.entity\.(input|output)|(retrieval|reranker)\..*documents?(\..*)?|tool\.parameters"
    r"|ai\.(prompt|response\.(text|object|toolCalls)|toolCall\.(args|result))(\..*)?|embedding\.(text|embeddings)(\..*)?"
    r"|langfuse\.(observation|trace)\.(input|output)|(input|output|system_prompt|pydantic_ai\.all_messages|all_messages_events)"
)
HASHED = re.compile(r"h:[0-9a-f]{16}")
MASKED = re.compile(r"\[masked \d+ bytes\]")
MODES = ("", "hash", "drop")


def mask(users: str, prompts: str, salt: str) -> Mask | None:
    """What to do with attributes of people and prompts: '' keep, 'hash' (keyed; equal stays equal), 'drop' (only the size stays).

    None when nothing is to be masked. Raises BadSetting.
    """
    for name, mode in (("STAGESCOPE_MASK_USERS", users), ("STAGESCOPE_MASK_PROMPTS", prompts)):
        if mode not in MODES:
            raise BadSetting(name, mode, "empty, hash or drop")
    if not users and not prompts:
        return None
    key = salt.encode()

    def apply(item: Any) -> bool:
        if users and USERS.fullmatch(item.key):
            return _replace(item, users, key)
        if prompts and PROMPTS.fullmatch(item.key):
            return _replace(item, prompts, key)
        return False

    return apply


def _replace(item: Any, mode: str, key: bytes) -> bool:
    text = value_text(item.value)
    if not text or HASHED.fullmatch(text) or MASKED.fullmatch(text):
        return False
    raw = text.encode()
    digest = hmac.new(key, raw, hashlib.sha256).hexdigest()[:16]
    item.value.string_value = f"h:{digest}" if mode == "hash" else f"[masked {len(raw)} bytes]"
    return True
