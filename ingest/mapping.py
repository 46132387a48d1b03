"""Compiles the rules of `stages.toml` into ClickHouse SQL over the Collector's `otel_traces` columns (docs/mapping.md).

Must stay true: each attribute map is walked once a span. A map lookup costs 0.3 us of missing key; a table of known keys
applied to the dictionary of keys costs next to nothing, so every value is found through small integer codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ingest import mapping_names
from ingest.mapping_facts import SLOTS, Facts, codes_sql, count_keys_sql, keys_of, quote, runs, unit_scales
from ingest.mapping_gathered import facts_of, gathered, least_rule, list_lengths, whole_numbers
from ingest.mapping_rules import KINDS, NS_PER_UNIT, Candidate, KindRule, Rules, StageRule, read_rules

KEEP = ("Timestamp", "TraceId", "SpanId", "ParentSpanId", "SpanName", "SpanKind", "ServiceName", "Duration", "Marks")
NONE = 9999
MAX_MESSAGE = 2000
# Whole columns at a time: branches evaluated lazily would compute shared parts again and again.
SETTINGS = "SETTINGS short_circuit_function_evaluation = 'disable'"
NUMBERS = ("InputTokens", "CachedTokens", "OutputTokens", "PayloadBytes", "Items", "Rows", "Retries")


@dataclass(frozen=True, slots=True)
class StageMapping:
    """Expressions for the columns of `stage_runs`, over the names that `prepared` adds to otel_traces' columns.

    `budgets`: milliseconds a run may cost by kind; `needs`: what a purpose needs (prompt_tokens,
    prompt_tokens_per_item, payload_bytes). `engine`: names of a model server's spans; `asks`: attributes that say which model a span asks.
    """

    levels: Sequence[Mapping[str, str]]
    expressions: Mapping[str, str]
    budgets: Mapping[str, float]
    needs: Mapping[str, float]
    engine: str = ""
    asks: Sequence[str] = ()

    def columns(self) -> Mapping[str, str]:
        """SQL by column name: Stage, Kind, dimensions, work, Failed, ErrorType, ErrorMessage, Evidence; to be read FROM `prepared(…)`."""
        return self.expressions

    def prepared(self, source: str) -> str:
        """A query in brackets: all of `source` (a table, or a query in brackets, with otel_traces' columns) and what `columns` needs.

        Nested and not a WITH clause, because the engine copies an alias wherever it is used and the query outgrows its limit.
        """
        for level in self.levels:
            added = ", ".join(f"{sql} AS {name}" for name, sql in level.items())
            source = f"(SELECT *, {added} FROM {source})"
        return source

    def select(self, source: str, keep: Sequence[str] = KEEP) -> str:
        """A SELECT of `keep` and every mapped column from `source`."""
        mapped = ",\n  ".join(f"{sql} AS {name}" for name, sql in self.expressions.items())
        return f"SELECT\n  {', '.join(keep)},\n  {mapped}\nFROM {self.prepared(source)}\n{SETTINGS}"


def load(path: str | Path | None = None) -> StageMapping:
    """The mapping of `path` (empty or None: the package's own). Raises BadSetting naming the file and the place in it."""
    rules = read_rules(path or None)
    compiler = _Compiler(rules)
    expressions = compiler.expressions()
    asks = keys_of([item for item in rules.columns["Model"] if item.key])
    return StageMapping(compiler.levels(), expressions, rules.budgets, rules.needs, rules.engine, asks)


class _Compiler:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.facts = Facts()
        # Facts that are gathered together are numbered one after the other.
        self.evidence = {name: self.facts.number(keys_of(found)) for name, found in rules.evidence.items() if found}
        counted = [run for name in NUMBERS for run in runs(rules.columns[name]) if not run[0].prefix]
        self.numbers = {self.facts.number(keys_of(run)) for run in counted if not run[0].count}
        self.lists = {self.facts.number(keys_of(run)) for run in counted if run[0].count}
        self.kinds = {self.facts.number((rule.attribute[0][0],)) for rule in rules.kinds if _of_one_key(rule)}

    def expressions(self) -> Mapping[str, str]:
        rules = self.rules
        texts = {name: self.text(found) for name, found in rules.columns.items() if name not in (*NUMBERS, "WaitTime")}
        found: dict[str, str] = {"Stage": "_stage", "Kind": "_kind", **texts}
        found["WaitTime"] = self.wait_time()
        for name in NUMBERS[:-1]:
            found[name] = self.number(rules.columns[name])
        found["Retries"] = f"toUInt16(least(ifNull({self.number(rules.columns['Retries'])}, 0), 65535))"
        found["Failed"] = "_failed"
        found["ErrorType"] = f"if(_failed = 1, {self.error_type()}, '')"
        found["ErrorMessage"] = f"if(_failed = 1, substring(_message, 1, {MAX_MESSAGE}), '')"
        found["Evidence"] = self.evidence_map()
        self.named_levels = self.named()
        return found

    def levels(self) -> Sequence[Mapping[str, str]]:
        """Names for inner queries, each level using those of the levels before it. The last to call: all facts must be known."""
        parts = [(f"_s{n}", layer, "SpanAttributes", 0) for n, layer in enumerate(self.facts.layers())]
        parts += [(f"_r{n}", layer, "ResourceAttributes", SLOTS // 2) for n, layer in enumerate(self.facts.layers())]
        wanted = "c > 0 AND v != ''"
        codes = ", ".join(
            f"arrayFilter((c, v) -> {wanted}, {name}, mapValues({column}))" for name, _, column, _ in parts
        )
        values = ", ".join(
            f"arrayFilter((v, c) -> {wanted}, mapValues({column}), {name})" for name, _, column, _ in parts
        )
        groups = (("_e", self.evidence.values()), ("_n", self.numbers), ("_j", self.lists), ("_k", self.kinds))
        # Whole arrays side by side: an array that a lambda captures is copied once for each element.
        return [
            {name: codes_sql(layer, column, shift) for name, layer, column, shift in parts},
            {"_fc": f"arrayConcat({codes})", "_fv": f"arrayConcat({values})"},
            {"_c": "arraySort(_fc)", "_v": "arraySort((v, c) -> c, _fv, _fc)"},
            {"_f": facts_of("_"), **{name: sql for group in groups for name, sql in gathered(*group).items()}},
            {
                **{f"{name}f": facts_of(name) for name, _ in groups},
                "_nn": whole_numbers("_nv"),
                "_jn": list_lengths("_jv"),
            },
            *self.named_levels,
        ]

    def named(self) -> Sequence[Mapping[str, str]]:
        exception = "indexOf(Events.Name, 'exception')"
        failed = self.rules.failed
        status = self.value(("http.response.status_code", "http.status_code"))
        result = f"substring({self.text(failed.results)}, 1, 4000)"
        unset = f"{exception} > 0 OR ifNull(toUInt16OrNull({status}), 0) >= {failed.http_status}"
        messages = ("StatusMessage", "_event['exception.message']", "_said")
        message = ", ".join(f"{text} != '', {text}" for text in messages)
        return [
            {"_raw": self.raw_stage(), "_event": f"Events.Attributes[{exception}]", "_said": self.text(failed.message)},
            {"_stage": mapping_names.normalised("_raw", self.rules.max_length, self.rules.max_words)},
            {"_rule": self.kind()},
            {"_kind": f"toLowCardinality({self.kind_name()})"},
            {"_result": f"if(_kind = 'fetch', {result}, '')"},
            {"_result_failed": f"(_result != '' AND match(_result, {quote(failed.result)}))" if failed.result else "0"},
            {
                "_failed": f"toUInt8(StatusCode = 'Error' OR (StatusCode != 'Ok' AND ({unset})) OR _result_failed)",
                "_message": f"multiIf({message}, _result_failed, _result, '')",
            },
        ]

    def value(self, keys: tuple[str, ...]) -> str:
        """The value of the first of `keys` that has one, else ''."""
        return f"_v[indexOf(_f, {self.facts.number(keys)})]" if keys else "''"

    def text(self, found: Sequence[Candidate]) -> str:
        """The first value found, else ''."""
        parts = [self.run_text(run) for run in runs(found)]
        if not parts:
            return "''"
        filled = ", ".join(f"nullIf({part}, '')" for part in parts)
        return parts[0] if len(parts) == 1 else f"coalesce({filled}, '')"

    def run_text(self, run: tuple[Candidate, ...]) -> str:
        first = run[0]
        value = self.value(keys_of(run))
        if first.prefix:
            value = f"toString(nullIf({count_keys_sql(first)}, 0))"
        elif first.count:
            value = f"if(isValidJSON({value}), toString(JSONLength({value})), '')"
        return (
            f"if({self.conditions(first.when)}, {value}, '')"
            if first.when
            else f"ifNull({value}, '')"
            if first.prefix
            else value
        )

    def number(self, found: Sequence[Candidate]) -> str:
        """Nullable(UInt64): decimal fractions are cut, negative and unreadable values are unknown."""
        parts = [self.run_number(run) for run in runs(found)]
        if not parts:
            return "CAST(NULL, 'Nullable(UInt64)')"
        return parts[0] if len(parts) == 1 else f"coalesce({', '.join(parts)})"

    def run_number(self, run: tuple[Candidate, ...]) -> str:
        first = run[0]
        if first.prefix:
            value = f"toUInt64(nullIf({count_keys_sql(first)}, 0))"
        else:
            name = "_j" if first.count else "_n"
            value = f"{name}n[indexOf({name}f, {self.facts.number(keys_of(run))})]"
        return f"if({self.conditions(first.when)}, {value}, NULL)" if first.when else value

    def wait_time(self) -> str:
        """Nanoseconds, at most the duration; a span that is one long wait waits for all of it."""
        parts = [
            f"toFloat64OrNull({self.run_text(run)}) * {NS_PER_UNIT[run[0].unit or 'ms']}"
            for run in runs(self.rules.columns["WaitTime"])
        ]
        kinds = ", ".join(quote(kind) for kind in self.rules.wait_kinds) or "''"
        whole = f"if(_kind IN ({kinds}), toFloat64(Duration), 0.)"
        given = f"coalesce({', '.join([*parts, whole])})"
        return f"toUInt64(least(toFloat64(Duration), if(isFinite({given}), greatest({given}, 0.), 0.)))"

    def conditions(self, wanted: Sequence[tuple[str, tuple[str, ...]]]) -> str:
        return " AND ".join(self.condition(key, values) for key, values in wanted) or "1"

    def condition(self, key: str, values: tuple[str, ...]) -> str:
        if "*" in values:
            return f"has(_f, {self.facts.number((key,))})"
        return f"{self.value((key,))} IN ({', '.join(quote(value) for value in values)})"

    def raw_stage(self) -> str:
        rules = self.rules
        branches = (
            [f"{self.text(rules.stage_names)} != '', {self.text(rules.stage_names)}"] if rules.stage_names else []
        )
        branches += [self.stage_branch(rule) for rule in rules.stage_rules]
        return f"toLowCardinality(multiIf({', '.join([*branches, 'toString(SpanName)'])}))" if branches else "SpanName"

    def stage_branch(self, rule: StageRule) -> str:
        keys = [part[1:-1] for part in rule.parts if part.startswith("{") and part != "{span}"]
        wanted = [f"match(SpanName, {quote(rule.span)})"] if rule.span else []
        wanted += [self.condition(key, ("*",)) for key in keys]
        texts = [
            "SpanName" if part == "{span}" else self.value((part[1:-1],)) if part.startswith("{") else quote(part)
            for part in rule.parts
        ]
        return f"{' AND '.join(wanted) or '1'}, concat({', '.join([*texts, quote('')])})"

    def kind(self) -> str:
        """The kind of the first rule that fits. Every rule gives its number or NONE and the least wins: whole columns, no branches."""
        exact: dict[tuple[int, str], int] = {}
        filled: dict[int, int] = {}
        numbers: list[str] = []
        for number, rule in enumerate(self.rules.kinds):
            if not _of_one_key(rule):
                numbers.append(f"if({self.kind_conditions(rule)}, {number}, {NONE})")
                continue
            key, values = rule.attribute[0]
            fact = self.facts.number((key,))
            if "*" in values:
                filled.setdefault(fact, number)
            else:
                for value in values:
                    exact.setdefault((fact, value), number)
        return f"least({', '.join([*numbers, least_rule('_k', exact, filled, NONE), str(NONE)])})"

    def kind_name(self) -> str:
        rules = self.rules.kinds
        fixed = [(number, rule.kind) for number, rule in enumerate(rules) if not rule.kind.startswith("{")]
        numbers, names = ", ".join(str(number) for number, _ in fixed), ", ".join(quote(kind) for _, kind in fixed)
        name = f"transform(_rule, [{numbers}], [{names}], 'other')" if fixed else "'other'"
        told = [
            (number, self.value((rule.kind[1:-1],))) for number, rule in enumerate(rules) if rule.kind.startswith("{")
        ]
        kinds = ", ".join(map(quote, KINDS))
        branches = ", ".join(f"_rule = {number} AND {value} IN ({kinds}), {value}" for number, value in told)
        return f"multiIf({branches}, {name})" if told else name

    def kind_conditions(self, rule: KindRule) -> str:
        wanted = [self.condition(key, values) for key, values in rule.attribute]
        wanted += [
            f"match({column}, {quote(text)})"
            for column, text in (("SpanName", rule.span), ("_stage", rule.stage))
            if text
        ]
        if rule.span_kind:
            wanted.append(f"SpanKind IN ({', '.join(map(quote, rule.span_kind))})")
        return " AND ".join(wanted)

    def error_type(self) -> str:
        """What the span says, its exception, its HTTP status, else the error name at the start of the message."""
        said = self.text(self.rules.failed.type)
        status = self.value(("http.response.status_code", "http.status_code"))
        named = r"extract(_message, '^([A-Za-z_][A-Za-z0-9_.]*(?:Error|Exception|Exhausted|Failed|Timeout|Interrupt|Unavailable))\\b')"
        tests = [
            (f"{said} != ''", said),
            ("_event['exception.type'] != ''", "_event['exception.type']"),
            (f"{named} != ''", named),
        ]
        tests.append((f"ifNull(toUInt16OrNull({status}), 0) >= 400", status))
        branches = ", ".join(f"{test}, {value}" for test, value in tests)
        return f"multiIf({branches}, '')"

    def evidence_map(self) -> str:
        """Map(LowCardinality(String), Float64) of the numeric facts, in the unit their name says; what is no number is left out."""
        if not self.evidence:
            return "CAST(map(), 'Map(LowCardinality(String), Float64)')"
        names = {number: name for name, number in self.evidence.items()}
        scales = {number * SLOTS + place + shift: scale for name, number in self.evidence.items()
                  for place, scale in enumerate(unit_scales(name, self.rules.evidence[name])) for shift in (0, SLOTS // 2) if scale != 1}  # fmt: skip
        codes, factors = [*scales] or [0], [*scales.values()] or [1.0]
        number = (
            "multiIf(lower(v) IN ('true', 'yes'), 1., lower(v) IN ('false', 'no'), 0., "
            f"toFloat64OrNull(v) * transform(c, {codes}, {factors}, 1.))"
        )
        name = f"transform(f, {[*names]}, {[*names.values()]}, '')"
        pairs = f"arrayMap((f, v, c, u) -> ({name}, if(u = 1, {number}, NULL)), _ef, _ev, _ec, arrayEnumerateUniq(_ef))"
        known = f"arrayFilter(p -> p.1 != '' AND isFinite(ifNull(p.2, nan)), {pairs})"
        return f"CAST(arrayMap(p -> (p.1, assumeNotNull(p.2)), {known}), 'Map(LowCardinality(String), Float64)')"


def _of_one_key(rule: KindRule) -> bool:
    """A rule about the value of one attribute and nothing else."""
    return len(rule.attribute) == 1 and not (rule.span or rule.stage or rule.span_kind)
