"""The house keeps its shape: imports run one way, files and functions stay small, nothing of one machine is written down."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("ingest", "analytics", "instrumented_stack", "ui")
MAY_IMPORT = {
    "ingest": {"ingest"},
    "analytics": {"analytics", "ingest"},
    "instrumented_stack": {"instrumented_stack"},
    "ui": {"ui", "analytics", "ingest"},
}
STACK_STARTERS = {"ui/cli.py"}
SOURCES = sorted(path for name in (*PACKAGES, "bench", "tests") for path in (ROOT / name).rglob("*.py"))


def _imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_keeps_its_room(path: Path) -> None:
    text = path.read_text()
    name = str(path.relative_to(ROOT))
    tree = ast.parse(text)
    assert len(text.splitlines()) <= 300, f"{name} has over 300 lines"
    long = [
        f"{name}:{node.lineno} {node.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno + 1 > 40
    ]
    assert not long, f"functions over 40 lines: {long}"
    package = name.split("/")[0]
    if package in MAY_IMPORT:
        allowed = MAY_IMPORT[package] | ({"instrumented_stack"} if name in STACK_STARTERS else set())
        wrong = (_imported(tree) & set(PACKAGES)) - allowed
        assert not wrong, (
            f"{name} imports {wrong}: imports run ui → analytics → ingest, and only ui/cli.py starts the stack"
        )


def test_top_level_is_the_agreed_one() -> None:
    agreed = {"ingest", "analytics", "instrumented_stack", "ui", "tests", "deploy", "bench", "docs"}
    tracked = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    generated = {"build", "dist", "target", "__pycache__", "stagescope-data", "demo-data"}
    assert {name for name in tracked - generated if not name.endswith(".egg-info")} <= agreed
