"""Stage names from span names: what changes from request to request (ids, numbers, query strings) goes, the rest stays.

Must stay true: a name without ids comes out as it went in, and normalising twice changes nothing.
"""

# In this order. RE2, so no look-around; a neighbour that must stay is put back as \1 or \2.
REPLACEMENTS: tuple[tuple[str, str], ...] = (
    (r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s?#]+", ""),  # scheme and host of a URL
    (r"[?#]\S*=\S*", ""),  # query string
    (r"(?i)\b(?:0x)?[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\b", "{id}"),  # UUID
    (r"(?i)\b[a-z]+[-_](?:[0-9]+[a-z]|[a-z]+[0-9])[a-z0-9]{14,}\b", "{id}"),  # toolu_01AbC…, call_9xY…
    (
        r"(?i)\b(?:0x)?(?:[0-9a-f]*[0-9][0-9a-f]*){1}[a-f0-9]{7,}\b",
        "{id}",
    ),  # 8 and more hex digits, one a number at least
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:.]+Z?)?", "{n}"),  # date
    (r"[0-9]{4,}", "{n}"),
    (r"(^|[\s/#:=_\[({,])[0-9]+($|[\s/#:=_\])},.?-])", r"\1{n}\2"),
    (r"(^|[\s/#:=_\[({,])[0-9]+($|[\s/#:=_\])},.?-])", r"\1{n}\2"),  # neighbours that shared a border
    (r"-[0-9]+$", "-{n}"),
    (r"([a-zA-Z]{4,})[0-9]{3}$", r"\1{n}"),  # worker123, but not sha256
    (r"(?:\{(?:n|id)\}[-_.:,]?){2,}", "{id}"),
)


def normalised(sql: str, max_length: int, max_words: int) -> str:
    """The SQL expression `sql` with ids replaced, cut to `max_words` words and `max_length` characters; '' becomes '(unnamed)'."""
    for pattern, replacement in REPLACEMENTS:
        sql = f"replaceRegexpAll({sql}, {_raw(pattern)}, {_raw(replacement)})"
    words = rf"^(\S+(?:\s+\S+){{{max_words - 1}}})\s+\S[\s\S]*$"
    sql = f"replaceRegexpOne({sql}, {_raw(words)}, {_raw(chr(92) + '1…')})"
    cut = f"substringUTF8(trimBoth({sql}), 1, {max_length})"
    return f"if({cut} = '', '(unnamed)', {cut})"


def _raw(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
