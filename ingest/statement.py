"""What one SQL text asks for, judged from the engine's own reading of it.

Must stay true: a reader's text is canonical (formatted by the engine) before it is judged and run, so what is judged is what runs;
readonly=1 alone still lets `file()` read any file and INTO OUTFILE write one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

READABLE = frozenset("SELECT WITH SHOW DESCRIBE DESC EXISTS EXPLAIN".split())
SAFE_TABLE_FUNCTIONS = frozenset(
    "view viewexplain numbers numbers_mt zeros zeros_mt values sqlstandardvalues generateseries generate_series "
    "generaterandom null merge primes dictionary format mergetreeindex mergetreeprojection".split()
)
UNSAFE_FUNCTIONS = frozenset("file catboostevaluate".split())
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|\"(?:[^\"\\]|\\.)*\"|[A-Za-z_]\w*|\d[\w.]*|\s+|.", re.DOTALL)
_TOKEN_OR_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/|" + _TOKEN.pattern, re.DOTALL)
_NAME = r"(?:`[^`]*`|\"[^\"]*\"|\w+)"
_INSERT = re.compile(
    rf"\s*(?P<head>INSERT\s+INTO\s+(?:TABLE\s+)?{_NAME}(?:\s*\.\s*{_NAME})?\s*"
    r"(?:\((?:`[^`]*`|\"[^\"]*\"|[^`\")])*\)\s*)?)(?P<set>SETTINGS\s+[^;]*?\s+)?FORMAT\s+(?P<fmt>(?!VALUES\b)\w+)[ \t]*(?:;|\r?\n|$|\s)",
    re.IGNORECASE,
)
_FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*(?:SETTINGS\b[^']*)?;?\s*$", re.IGNORECASE)
_SETTING_FOR_READERS = re.compile(
    r"final|limit|offset|extremes|session_timezone|log_comment|log_queries|transform_null_in|priority|interactive_delay|"
    r"do_not_merge_across_partitions_select_final|count_distinct_implementation|format_csv_delimiter|skip_unavailable_shards|"
    r"(?:max|min|date_time|optimize|use|group_by|prefer|enable|join|any_join|cast|timeout|ignore|input_format|aggregate_functions|"
    r"query_profiler|parallel|short_circuit|low_cardinality|connect|receive|send|read|result|distributed|cancel)_\w+|"
    r"output_format_(?!schema)\w+"
)


@dataclass(frozen=True, slots=True)
class DataInsert:
    """An INSERT whose rows follow the statement as bytes: `head` up to the columns, the `fmt` of the rows, where they start."""

    head: str
    settings: str
    fmt: str
    data_from: int


def split_insert(text: bytes) -> DataInsert | None:
    """The statement in front of an INSERT's rows; None when the text holds no rows in a named format."""
    found = _INSERT.match(text[:65536].decode("latin-1"))
    if not found:
        return None
    head = found["head"].encode("latin-1").decode("utf-8", "replace")
    return DataInsert(head, (found["set"] or "").strip(), found["fmt"], found.end())


def output_format(sql: str, default: str) -> str:
    """The format the result will come in: the statement's own, else `default`."""
    found = _FORMAT.search(sql)
    return found.group(1) if found else default


def first_word(sql: str) -> str:
    """The statement's first word in capitals, past comments and parentheses."""
    found = re.match(r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(\w*)", sql, re.DOTALL)
    return found.group(1).upper() if found else ""


def parts(sql: str) -> int:
    """How many statements stand in the text, past comments: 0 for none, 2 and more for what no door runs at once."""
    tokens = [
        token for token in _TOKEN_OR_COMMENT.findall(sql) if not token.isspace() and token[:2] not in ("--", "/*")
    ]
    ends = [index for index, token in enumerate(tokens) if token == ";"]
    return sum(1 for begin, end in itertools.pairwise([-1, *ends, len(tokens)]) if end - begin > 1)


def has_result(sql: str) -> bool:
    """Whether the statement answers with rows (DDL and INSERT do not)."""
    return first_word(sql) in READABLE | {"CHECK", "FROM", "KILL"}


def refusal(canonical: str, table_functions: frozenset[str]) -> str | None:
    """Why a reader may not run this canonical text, or None. `table_functions` are the engine's, in lower case."""
    tokens = list(_tokens(canonical))
    first = next((token for token in tokens if token != "("), "")
    if first.upper() not in READABLE:
        return f"{first.upper() or 'this'} is not among what readers may run ({', '.join(sorted(READABLE))})"
    unsafe = (table_functions - SAFE_TABLE_FUNCTIONS) | UNSAFE_FUNCTIONS
    for index, token in enumerate(tokens):
        before, after = tokens[index - 1] if index else "", tokens[index + 1] if index + 1 < len(tokens) else ""
        if token.upper() == "OUTFILE" and before.upper() == "INTO":
            return "INTO OUTFILE writes files"
        name = token.strip('`"').lower()
        applied = before.upper() == "APPLY" or (before == "(" and index > 1 and tokens[index - 2].upper() == "APPLY")
        if name in unsafe and (after == "(" or applied):
            return f"function {name} reaches outside the tables"
    return None


def setting_refusal(name: str) -> str | None:
    """Why a reader may not set this, or None: some settings hold SQL, name files, or choose another parser."""
    return None if _SETTING_FOR_READERS.fullmatch(name) else f"setting {name} may be set only by the owner"


def set_statement(settings: Mapping[str, str]) -> str:
    """`SET a = '1', …`. Raises ValueError on a name that is not an identifier."""
    bad = next((name for name in settings if not re.fullmatch(r"[A-Za-z_]\w*", name)), None)
    if bad is not None:
        raise ValueError(bad)
    return "SET " + ", ".join(f"{name} = {quote(value)}" for name, value in settings.items())


def quote(text: str) -> str:
    """A string literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def escape_param(text: str) -> str:
    """A value for a `{name:String}` placeholder, which the engine reads as escaped text."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def _tokens(canonical: str) -> Iterator[str]:
    return (token for token in _TOKEN.findall(canonical) if not token.isspace())
