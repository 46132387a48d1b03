"""Choosing one tool of twelve, two ways: all schemas in a prompt, or schemas embedded once and the nearest neighbour taken.
`python -m instrumented_stack select` measures both: time, tokens, how often the right tool is chosen."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from instrumented_stack.catalogue import POLICY_TOKENS, SCHEMA_TOKENS_PER_TOOL, TOOLS_BY_NAME
from instrumented_stack.errors import BadRequest
from instrumented_stack.hardware import GPUS, MODELS, prefill_s, step_s
from instrumented_stack.tools.texts import DATA

# Words that people use for a tool and its summary does not.
ALSO: Mapping[str, str] = {
    "search": "search handbook rule look up documents say about find passages anything",
    "calculator": "calculate what is plus minus times percent sum add up work out how much arithmetic + - * / ( )",
    "convert_units": "convert km miles kg pounds litres gallons date weeks days after before until how many in",
    "parse_document": "read attached PDF contract document text headings extract open notice period signed",
    "query_table": "table rows filter sum total revenue units region quarter product sales highest per by",
    "run_code": "run execute python program script code sandbox prints simulate write a short program",
    "translate": "translate German word glossary term how do we say sentence into",
    "calendar": "calendar meeting book room Monday free hour week next appointment list meetings",
    "mail": "mail e-mail draft write mailbox customer inbox unread search mails did anybody write",
    "fetch_page": "fetch open web page website link http download status page get the text",
    "summarise_text": "summarise shorten summary key sentences gist long text paragraphs minutes",
    "convert_format": "convert CSV JSON Markdown HTML table rows reformat turn into export as list",
}


def schema(name: str) -> dict[str, Any]:
    """A tool's schema as it is pasted into prompts."""
    tool = TOOLS_BY_NAME[name]
    question = {"type": "string", "description": f"what to {tool.summary}"}
    return {
        "name": name,
        "description": f"{tool.summary.capitalize()}.",
        "parameters": {"type": "object", "properties": {"input": question}},
    }


class Embedding(Protocol):
    """Texts to rows of numbers; a larger dot product means nearer."""

    def embed(self, texts: Sequence[str]) -> Any: ...


class TermEmbedding:
    """The light default: TF-IDF over words, word pairs and letter groups (scikit-learn), fitted on the schemas."""

    def __init__(self, corpus: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.pipeline import make_union

        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"[A-Za-z]+|[+*/()]")
        letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True)
        self._union = make_union(words, letters).fit(list(corpus))

    def embed(self, texts: Sequence[str]) -> Any:
        return self._union.transform(list(texts))


class SentenceEmbedding:
    """A sentence model that is installed on this machine (`sentence-transformers` and a folder with the model)."""

    def __init__(self, folder: str) -> None:
        from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found]

        self._model = SentenceTransformer(folder)

    def embed(self, texts: Sequence[str]) -> Any:
        return self._model.encode(list(texts), normalize_embeddings=True)


class VectorSelector:
    """Schemas embedded once; a choice is one embedding and one product. `embedding` makes the Embedding from the schema texts."""

    def __init__(
        self,
        tools: Sequence[str] = tuple(TOOLS_BY_NAME),
        embedding: Callable[[Sequence[str]], Embedding] = TermEmbedding,
    ) -> None:
        if not tools:
            raise BadRequest("no tool is switched on")
        self._tools = tuple(tools)
        texts = [f"{name.replace('_', ' ')} {TOOLS_BY_NAME[name].summary} {ALSO[name]}" for name in self._tools]
        self._embedding = embedding(texts)
        self._matrix = self._embedding.embed(texts)

    def choose(self, text: str) -> str:
        """The tool whose schema is nearest to `text`; the first one where nothing is near."""
        scores = self._embedding.embed([text]) @ self._matrix.T
        dense = scores.toarray() if hasattr(scores, "toarray") else scores
        return self._tools[int(dense.ravel().argmax())]


@dataclass(frozen=True, slots=True)
class Measured:
    """One way of choosing: milliseconds a choice (median), prompt tokens, share of right choices (None: not measured here)."""

    way: str
    ms: float
    tokens: int
    right: float | None
    note: str


def measure(tools: Sequence[str] = tuple(TOOLS_BY_NAME)) -> list[Measured]:
    """Both ways over the labelled questions. The vector's time and accuracy are measured; the prompt's time is the roofline's."""
    questions = [json.loads(line) for line in (DATA / "choices.jsonl").read_text(encoding="utf-8").splitlines()]
    selector = VectorSelector(tools)
    times, right = [], 0
    for item in questions:
        began = time.perf_counter()
        right += selector.choose(item["text"]) == item["tool"]
        times.append(time.perf_counter() - began)
    tokens = POLICY_TOKENS + SCHEMA_TOKENS_PER_TOOL * len(tools) + 310
    gpu, model = GPUS["Tesla T4"], MODELS["TinyLlama-1.1B"]
    prompt_s = prefill_s(gpu, model, tokens) + 12 * step_s(gpu, model, 1, tokens) + model.overhead_s
    vector = Measured(
        "vector",
        1e3 * sorted(times)[len(times) // 2],
        0,
        right / len(questions),
        f"measured on {len(questions)} questions",
    )
    return [Measured("prompt", 1e3 * prompt_s, tokens, None, f"simulated: {model.name} on {gpu.name}"), vector]
