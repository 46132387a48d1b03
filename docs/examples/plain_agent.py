"""A small agent in plain Python, instrumented. Run: python docs/examples/plain_agent.py http://127.0.0.1:4318 [requests]

No model is called: `ask_model` stands where your client is. Everything about the spans is as in a real agent.
"""

from __future__ import annotations

import sys
import time

from stages import asked_by, stage, start_telemetry, used

TOOLS = {"search": "find passages", "calculator": "do sums", "calendar": "list meetings"}


def ask_model(prompt: str, answer_words: int) -> tuple[str, int, int]:
    """Put your model client here; returns text, prompt tokens, answer tokens as the API reports them."""
    time.sleep(0.002 + len(prompt) / 400_000 + 0.0005 * answer_words)
    return "word " * answer_words, len(prompt) // 4, answer_words


def choose_tool(question: str) -> str:
    with stage("tool_select", "decide", items=len(TOOLS)) as span:
        schemas = "\n".join(f"{name}: {summary}" for name, summary in TOOLS.items())
        prompt = f"Tools:\n{schemas}\nQuestion: {question}\nTool:"
        _, tokens_in, tokens_out = ask_model(prompt, 2)
        used(span, "small-model", tokens_in, tokens_out)
        span.set_attribute("stagescope.prompt.repeated_tokens", len(schemas) // 4)
        return "calculator" if any(char.isdigit() for char in question) else "search"


def call_tool(name: str, question: str) -> str:
    with stage("data_fetch", "fetch") as span:
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.name", name)
        if "broken" in question:
            raise TimeoutError("Tool execution exceeded 2s")  # the span gets status ERROR and the exception, by itself
        time.sleep(0.005)
        found = f"what {name} knows about {question}"
        span.set_attribute("stagescope.work.rows", 1)
        span.set_attribute("stagescope.work.bytes", len(found))
        return found


def answer(question: str) -> str:
    with stage("agent", "agent"):
        tool = choose_tool(question)
        facts = call_tool(tool, question)
        with stage("llm_generate", "generate") as span:
            text, tokens_in, tokens_out = ask_model(facts + question, 40)
            used(span, "large-model", tokens_in, tokens_out)
        with stage("human_approval", "wait", wait_ms=3.0):
            time.sleep(0.003)  # declared: nobody will call it slow
        return text


def main() -> int:
    endpoint = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:4318"
    requests = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    provider = start_telemetry("plain-agent", "1.0.0", endpoint)
    failed = 0
    for number in range(requests):
        who = {
            "user_id": f"u{number % 7}",
            "user_tier": "pro" if number % 3 else "free",
            "session_id": f"s{number % 5}",
        }
        with asked_by(**who, cloud_region="eu-west", device_type="ios" if number % 2 else "web"):
            try:
                answer(f"question {number}" if number % 10 else "a broken question")
            except TimeoutError:
                failed += 1
    provider.shutdown()
    print(f"{requests} requests, {failed} failed, sent to {endpoint}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
