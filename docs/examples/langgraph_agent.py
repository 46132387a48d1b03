"""The same with LangGraph: each node becomes a stage. Run: python docs/examples/langgraph_agent.py http://127.0.0.1:4318

Needs: pip install langgraph
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from plain_agent import ask_model
from stages import asked_by, stage, start_telemetry, used


class State(TypedDict, total=False):
    question: str
    tool: str
    facts: str
    answer: str


def as_stage(kind: str, node: Callable[[State, Any], State]) -> Callable[[State], State]:
    """Wrap a node: its name is the stage's name, and it gets the span to say its work on."""

    def run(state: State) -> State:
        with stage(node.__name__, kind) as span:
            return node(state, span)

    return run


def tool_select(state: State, span: Any) -> State:
    _, tokens_in, tokens_out = ask_model("choose a tool for: " + state["question"], 2)
    used(span, "small-model", tokens_in, tokens_out)
    span.set_attribute("stagescope.work.items", 3)
    return {"tool": "search"}


def data_fetch(state: State, span: Any) -> State:
    span.set_attribute("gen_ai.tool.name", state["tool"])
    span.set_attribute("stagescope.work.rows", 1)
    return {"facts": "facts about " + state["question"]}


def llm_generate(state: State, span: Any) -> State:
    text, tokens_in, tokens_out = ask_model(state["facts"] + state["question"], 40)
    used(span, "large-model", tokens_in, tokens_out)
    return {"answer": text}


def build() -> Any:
    graph = StateGraph(State)
    steps = (("decide", tool_select), ("fetch", data_fetch), ("generate", llm_generate))
    for kind, node in steps:
        graph.add_node(node.__name__, as_stage(kind, node))
    names = [START, *(node.__name__ for _, node in steps), END]
    for before, after in pairwise(names):
        graph.add_edge(before, after)
    return graph.compile()


def main() -> int:
    endpoint = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:4318"
    provider = start_telemetry("langgraph-agent", "1.0.0", endpoint)
    agent = build()
    for number in range(10):
        with asked_by(user_id=f"u{number}", user_tier="free", session_id=f"s{number}"), stage("agent", "agent"):
            agent.invoke({"question": f"question {number}"})
    provider.shutdown()
    print(f"10 requests sent to {endpoint}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
