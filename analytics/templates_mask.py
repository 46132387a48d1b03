"""From a message to its skeleton: what varies becomes `<*>`, what carries the meaning stays. Pure text, no state but caches.

Must stay true: the same message gives the same skeleton in every run, whatever was seen before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from analytics.templates_words import (
    BOOLEANS,
    CLOCK_WORDS,
    COMPARE,
    EXCEPTION_ENDINGS,
    FILE_ENDINGS,
    HTTP_VERBS,
    JOINERS,
    KEPT_KEYS,
    MEANING,
    STATES,
    STOP,
    TOP_LEVEL_DOMAINS,
    UNITS,
)

HOLE = "<*>"
BROKEN = "\ufffd"
HOLE_WORD = "\x02hole\x02"
LONGEST = 4096
CACHE_SIZE = 200_000

_QUOTED = re.compile(r"(?<![\w])\"([^\"]{0,400})\"|(?<![\w])'([^'\n]{0,400})'(?!\w)|`([^`\n]{0,400})`")
_KEY_BEFORE = re.compile(r"([A-Za-z_]+)\W{0,3}$")
_EDGES = "([{<\"'`“”«»)]}>,;:.!?…。、，；：！？"
_EDGES_LEFT = _EDGES.replace(".", "")
_NUMBER = re.compile(r"[-+#$€£~]?(?:0x[0-9a-f]+|\d[\d.,:_/'’-]*)(?:%|[a-zµ]{1,3}(?:/s)?)?", re.I)
_WHOLE = re.compile(
    r"""[a-z][a-z0-9+.-]*://\S+                                   # URL
    |[\w.+%-]+@[\w-]+(?:\.[\w-]+)+                                # e-mail
    |\[?[\w-]+(?:\.[\w-]+)+\]?:\d{1,5}                            # host:port
    |[a-z][\w-]*:(?:80|443|8080|8443|8000|8888|3128|1080|22|25|53|3306|5432|6379|9092|9200|27017)  # the same, bare name
    |/?\d{1,3}(?:\.\d{1,3}){3}(?:[:/]\d+)?                        # IPv4, with port or mask
    |(?:[0-9a-f]{2}[:-]){5,}[0-9a-f]{2}                           # MAC and longer
    |(?=[^:]*:[^:]*:)[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,8}(?:%\w+)?  # IPv6
    |\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:t[\d:.,+z-]+)?             # date
    |\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d+)?(?:[+-]\d{2}:?\d{2}|z)?  # time
    |(?:/[^\s/,;=()\[\]{}|]+){1,}/?                               # absolute path
    |[a-z]:\\\S*                                                  # Windows path
    |~?\.{0,2}/\S+                                                # relative path
    """,
    re.I | re.X,
)
_SPLIT = re.compile(r"(\.{2,}|[=:,;|()\[\]{}<>\"`“”«»]|(?<![^\W\d_])'|'(?![^\W\d_]))")
_HEX = re.compile(r"(?:0x)?[0-9a-f]{8,}", re.I)
_REVERSE = re.compile(r"(?:com|org|net|edu|gov|io|java|javax|android|cn|de|uk)(?:\.[\w$-]+){2,}[./\w$-]*")
_OBJECT = re.compile(r"[\w.$]+@[0-9a-f]{4,}", re.I)
_BRACED = re.compile(r"[\w.$/]*[A-Za-z]\{[^{}\s]*\d[^{}\s]*\}")
_DIGIT = re.compile(r"\d")
_INNER_DIGITS = re.compile(r"[-+]?\d+(?:[.,:/年月日時时分秒-]+\d+)*[年月日時时分秒]?")
_WIDE = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def skeleton(message: str) -> tuple[str, ...]:
    """The atoms of one message: words, delimiters and `<*>`; equal tuples mean the same pattern."""
    return reduce(" ".join(map(mask_token, split(message))).split())


def split(message: str) -> list[str]:
    """Raw tokens of the first 4,096 characters, with masked quotes and the quotes worth keeping opened."""
    text = message[:LONGEST]
    if '"' in text or "'" in text or "`" in text:
        text = _QUOTED.sub(_quote, text)
    return text.split()


def _quote(found: re.Match[str]) -> str:
    inner = next((group for group in found.groups() if group is not None), "")
    following = found.string[found.end() : found.end() + 2].lstrip()
    before = _KEY_BEFORE.search(found.string, max(0, found.start() - 40), found.start())
    words = inner.split()
    if not words:
        return f" {HOLE} "
    key = before is not None and before.group(1).lower() in KEPT_KEYS
    if following.startswith(":") or words[0] in HTTP_VERBS or key:
        return f" {inner} "
    lowered = [word.lower().strip(_EDGES) for word in words]
    if len(words) >= 3 and any(word in STOP or word in MEANING for word in lowered):
        return f" {inner} "
    if len(words) == 1 and lowered[0] in STATES:
        return f" {inner} "
    return f" {HOLE} "


def mask_token(token: str) -> str:
    """One raw token as masked atoms joined by blanks."""
    if token.isascii() and token.isalnum():
        plain = token.isalpha() and not (len(token) >= 8 and _HEX.fullmatch(token))
        return token if plain else HOLE
    if token == HOLE or not token.isprintable() or BROKEN in token:
        return HOLE
    if "{" in token:
        token = _BRACED.sub(HOLE_WORD, token)
    core = token.lstrip(_EDGES_LEFT).rstrip(_EDGES)
    if not core:
        return " ".join(_SPLIT.sub(r" \1 ", token.rstrip(".!?。！？")).split())
    if not core.isascii() and _WIDE.search(core):
        return _INNER_DIGITS.sub(f" {HOLE} ", token)
    middle = HOLE if _NUMBER.fullmatch(core) or _WHOLE.fullmatch(core) else _inside(core)
    if len(core) == len(token):
        return middle
    start = token.index(core)
    head, tail = token[:start], token[start + len(core) :].rstrip(".!?。！？…")
    return " ".join((*head, middle, *tail))


def _inside(core: str) -> str:
    parts = [part for part in _SPLIT.split(core) if part]
    out: list[str] = []
    for index, part in enumerate(parts):
        after_key = index > 0 and parts[index - 1] in "=:"
        out.append(_part(part, after_key))
    return " ".join(out)


def _part(part: str, after_key: bool) -> str:
    if len(part) == 1 and part in "=:,;|()[]{}<>\"'`“”«»":
        return part
    if part.strip("*") == "":
        return part if part == "*" else HOLE
    if part == HOLE_WORD or _DIGIT.search(part) or (len(part) >= 8 and _HEX.fullmatch(part)):
        return HOLE
    if after_key and part.lower() in BOOLEANS:
        return HOLE
    if "/" in part or "\\" in part:
        return HOLE if _path(part) else part
    if "." in part.strip("."):
        return HOLE if _host_or_package(part.strip(".")) else part
    return HOLE if _OBJECT.fullmatch(part) else part


def _path(part: str) -> bool:
    if part.startswith(("/", "./", "../", "~/")) and len(part) > 1:
        return True
    ending = part.rsplit(".", 1)[-1].lower() if "." in part else ""
    return part.count("/") + part.count("\\") >= 2 or ending in FILE_ENDINGS or bool(_REVERSE.match(part))


def _host_or_package(part: str) -> bool:
    last = part.rsplit(".", 1)[-1]
    if last.endswith(EXCEPTION_ENDINGS) or (last.isupper() and len(last) > 2):
        return False
    if _REVERSE.fullmatch(part):
        return True
    return last.lower() in TOP_LEVEL_DOMAINS or last.lower() in FILE_ENDINGS


def reduce(atoms: Sequence[str]) -> tuple[str, ...]:
    """Drop units, months, zones and day halves beside a placeholder; collapse lists of placeholders."""
    if HOLE not in atoms:
        return tuple(atoms)
    kept: list[str] = []
    words = [atom.lower().strip(".") for atom in atoms]
    hole_follows = _hole_follows(atoms, words)
    for place, (atom, word) in enumerate(zip(atoms, words, strict=True)):
        after = bool(kept) and kept[-1] == HOLE
        if word in CLOCK_WORDS and (after or hole_follows[place]):
            continue
        if after and (words[place : place + 2] in _DAY_HALVES or words[place - 1 : place + 1] in _DAY_HALVES):
            continue
        if (after and word in UNITS) or (word in COMPARE and hole_follows[place]):
            continue
        kept.append(atom)
    return _collapse(kept)


_DAY_HALVES = (["a", "m"], ["p", "m"])


def _hole_follows(atoms: Sequence[str], words: Sequence[str]) -> list[bool]:
    """Whether a placeholder comes next, looking past words of the clock and the calendar."""
    out = [False] * len(atoms)
    for place in range(len(atoms) - 2, -1, -1):
        out[place] = atoms[place + 1] == HOLE or (words[place + 1] in CLOCK_WORDS and out[place + 1])
    return out


def _collapse(atoms: Sequence[str]) -> tuple[str, ...]:
    out: list[str] = []
    for atom in atoms:
        out.append(atom)
        while len(out) >= 2:
            if out[-1] in ")]" and out[-2] in "([" and len(out) >= 3 and out[-3] == HOLE:
                del out[-2:]
            elif out[-1] in ")]" and len(out) >= 4 and out[-2] == HOLE and out[-3] in "([" and out[-4] == HOLE:
                del out[-3:]
            elif out[-1] == HOLE and out[-2] == HOLE:
                out.pop()
            elif out[-1] == HOLE and len(out) >= 3 and out[-3] == HOLE and out[-2] in JOINERS:
                del out[-2:]
            else:
                break
    return tuple(out)
