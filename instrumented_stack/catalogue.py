"""What the agent is made of: stages with their work, tasks with their flow, tools with their pace. Pure data; no fault is known here."""

from __future__ import annotations

from dataclasses import dataclass

EDGE, MIDDLE, CORE, TOOLS = "edge-worker", "middle-worker", "core-worker", "tool-runner"
GATEWAY, ORCHESTRATOR = "gateway", "orchestrator"
POOLS = {"edge": EDGE, "middle": MIDDLE, "core": CORE, "tools": TOOLS}


@dataclass(frozen=True, slots=True)
class Tokens:
    """A log-normal count: median and the standard deviation of its logarithm."""

    median: float
    sigma: float


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: its kind, the pool that runs it, and (for model stages) prompt made of a fixed system part and a varying part."""

    name: str
    kind: str
    pool: str
    system_tokens: int = 0
    input: Tokens = Tokens(0, 0)
    output: Tokens = Tokens(0, 0)
    gpu: int = 0

    @property
    def uses_model(self) -> bool:
        return self.output.median > 0


STAGES = {
    stage.name: stage
    for stage in (
        Stage("intent_parse", "parse", "edge", 96, Tokens(110, 0.35), Tokens(8, 0.25), gpu=0),
        Stage("tool_select", "decide", "edge", 120, Tokens(190, 0.35), Tokens(12, 0.2), gpu=1),
        Stage("tone", "check", "edge", 80, Tokens(240, 0.4), Tokens(5, 0.25), gpu=2),
        Stage("data_fetch", "fetch", "tools"),
        Stage("summarise", "generate", "middle", 128, Tokens(900, 0.5), Tokens(70, 0.4), gpu=0),
        Stage("aggregate", "aggregate", "middle", 160, Tokens(620, 0.45), Tokens(28, 0.35), gpu=1),
        Stage("outline", "generate", "middle", 112, Tokens(380, 0.4), Tokens(45, 0.35), gpu=2),
        Stage("format_check", "check", "middle", 112, Tokens(420, 0.4), Tokens(5, 0.25), gpu=3),
        Stage("fact_check", "check", "middle", 128, Tokens(760, 0.4), Tokens(14, 0.35), gpu=4),
        Stage("self_reflection", "check", "middle", 144, Tokens(820, 0.4), Tokens(32, 0.3), gpu=5),
        Stage("format_render", "render", "middle", 96, Tokens(560, 0.4), Tokens(22, 0.3), gpu=6),
        Stage("llm_generate", "generate", "core", 192, Tokens(720, 0.5), Tokens(100, 0.55), gpu=0),
        Stage("human_approval", "wait", "orchestrator"),
    )
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool's own pace: base seconds, seconds per row and per kB, spread (log), typical rows and answer bytes."""

    name: str
    summary: str
    base_s: float
    row_s: float
    kb_s: float
    sigma: float
    rows: int
    bytes: int
    risky: bool = False


TOOLS_BY_NAME = {
    tool.name: tool
    for tool in (
        Tool(
            "search", "find passages about a topic in the local document index", 0.090, 0.0080, 0.0006, 0.25, 12, 24_000
        ),
        Tool("calculator", "evaluate an arithmetic expression exactly", 0.012, 0.0, 0.0001, 0.2, 1, 200),
        Tool(
            "convert_units",
            "convert a quantity between units, or add and subtract dates",
            0.015,
            0.0,
            0.0001,
            0.2,
            1,
            240,
        ),
        Tool(
            "parse_document",
            "read the text and headings out of a PDF document",
            0.240,
            0.0,
            0.0030,
            0.3,
            0,
            60_000,
            True,
        ),
        Tool(
            "query_table",
            "answer a question over the rows of a table with filters and sums",
            0.180,
            0.0006,
            0.0009,
            0.25,
            180,
            36_000,
        ),
        Tool(
            "run_code",
            "run a short program in a sandbox and return what it prints",
            0.450,
            0.0,
            0.0005,
            0.35,
            0,
            2_000,
            True,
        ),
        Tool(
            "translate", "translate words and phrases with the company glossary", 0.040, 0.0010, 0.0004, 0.2, 20, 3_000
        ),
        Tool("calendar", "list, find or book meetings in the calendar", 0.060, 0.0015, 0.0004, 0.2, 30, 8_000),
        Tool("mail", "search the mailbox or draft a mail", 0.085, 0.0018, 0.0005, 0.25, 25, 18_000),
        Tool("fetch_page", "fetch a web page and return its readable text", 0.210, 0.0, 0.0020, 0.35, 0, 48_000, True),
        Tool("summarise_text", "shorten a long text to its key sentences", 0.070, 0.0, 0.0015, 0.2, 0, 30_000),
        Tool("convert_format", "convert between CSV, JSON, Markdown and HTML", 0.025, 0.0001, 0.0008, 0.2, 100, 20_000),
    )
}


@dataclass(frozen=True, slots=True)
class Task:
    """What one kind of request asks of the agent: its tools (called one after another) and the stages around them, in order."""

    name: str
    tools: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]


TASKS = {
    task.name: task
    for task in (
        Task(
            "weekly_report",
            ("query_table", "calendar"),
            (),
            ("aggregate", "llm_generate", "format_check", "format_render"),
        ),
        Task("question", ("search",), (), ("aggregate", "llm_generate", "format_render")),
        Task("calculation", ("calculator",), (), ("llm_generate", "format_check")),
        Task("conversion", ("convert_units",), (), ("llm_generate", "format_check")),
        Task(
            "document", ("parse_document",), ("outline",), ("summarise", "llm_generate", "fact_check", "format_render")
        ),
        Task("mail_draft", ("mail",), (), ("outline", "llm_generate", "tone", "format_render")),
        Task("analysis", ("query_table", "run_code"), (), ("aggregate", "llm_generate", "fact_check", "format_check")),
        Task("translation", ("translate",), (), ("llm_generate", "tone", "format_check")),
        Task("web_brief", ("fetch_page",), (), ("summarise", "llm_generate", "fact_check", "format_render")),
        Task("approval", ("calendar",), (), ("aggregate", "human_approval", "llm_generate", "format_render")),
        Task("reflection", ("search",), (), ("aggregate", "llm_generate", "self_reflection", "format_render")),
    )
}
DEFAULT_TASKS = {
    "weekly_report": 0.22,
    "question": 0.24,
    "calculation": 0.08,
    "conversion": 0.05,
    "document": 0.12,
    "mail_draft": 0.12,
    "analysis": 0.09,
    "translation": 0.05,
    "web_brief": 0.03,
}
DEFAULT_REGIONS = {"eu-west": 0.45, "us-east": 0.35, "ap-south": 0.20}
DEFAULT_DEVICES = {"ios": 0.35, "android": 0.35, "web": 0.30}
DEFAULT_TIERS = {"free": 0.6, "pro": 0.3, "enterprise": 0.1}
DEFAULT_VERSIONS = {"1.4.0": 1.0}

SCHEMA_TOKENS_PER_TOOL = 285
POLICY_TOKENS = 280
CATEGORY_TOKENS_PER_TOOL = 14
