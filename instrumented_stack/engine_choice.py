"""Tool choice by prompt on a real server, measured: `python -m instrumented_stack select --url http://127.0.0.1:8101`.
Every schema is in the prompt and the answer can only be one of the tools; how often it is the right one is the model's doing."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence

from instrumented_stack.catalogue import TOOLS_BY_NAME
from instrumented_stack.engine import Answer, Ask, EngineOptions
from instrumented_stack.engine_vllm import VllmEngine, tokens_of
from instrumented_stack.hardware import GPUS, MODELS
from instrumented_stack.select import Measured, questions, schemas


def measure_prompt(url: str, served: str, tools: Sequence[str] = tuple(TOOLS_BY_NAME)) -> Measured:
    """All labelled questions, one after the other. Raises AgentError when the server is away or refuses."""
    answers = asyncio.run(_ask_all(url, served, tuple(tools)))
    right = sum(answer.text == tool for answer, (_, tool) in zip(answers, questions(), strict=True))
    tokens = round(statistics.median(answer.input_tokens for answer in answers))
    cached = round(statistics.median(answer.cached_tokens for answer in answers))
    took_ms = 1e3 * statistics.median(answer.total_s for answer in answers)
    note = f"measured on {len(answers)} questions, {served} on {url}, {cached} of the tokens cached"
    return Measured("prompt", took_ms, tokens, right / len(answers), note)


async def _ask_all(url: str, served: str, tools: tuple[str, ...]) -> list[Answer]:
    engine = VllmEngine(EngineOptions(GPUS["CPU 2 cores"], MODELS["SmolLM2-135M"]), url, served)
    pasted = schemas(tools)
    try:
        return [
            await engine.generate(
                Ask(
                    tokens_of(pasted + text),
                    16,
                    "tool_select",
                    tokens_of(pasted),
                    text=text,
                    system=pasted,
                    choices=tools,
                )
            )
            for text, _ in questions()
        ]
    finally:
        await engine.close()
