"""Choosing one tool of twelve, two ways: all schemas in a prompt, or schemas embedded once and the nearest neighbour taken.
`python -m instrumented_stack select` measures both: time, tokens, how often the right tool is chosen."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from instrumented_stack.catalogue import POLICY_TOKENS, SCHEMA_TOKENS_PER_TOOL, TOOLS_BY_NAME
from instrumented_stack.embeddings import EMBEDDINGS, INDEXES, FaissIndex, ProductIndex, SentenceEmbedding, missing
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


def schemas(names: Sequence[str]) -> str:
    """What the prompt way pastes: the instruction and every tool's schema. Empty for no tools."""
    if not names:
        return ""
    listed = "\n".join(json.dumps(schema(name)) for name in names)
    return f"Answer with the name of the one tool that the request needs. Tools:\n{listed}\n"


class Embedding(Protocol):
    """Texts to rows of numbers; a larger dot product means nearer."""

    def embed(self, texts: Sequence[str]) -> Any: ...


class Index(Protocol):
    """Rows of numbers that can be searched."""

    def nearest(self, row: Any) -> int: ...


class TermEmbedding:
    """The light default: TF-IDF over words, word pairs and letter groups (scikit-learn), fitted on the schemas. A question is
    embedded by hand, which is the same and takes a tenth of `transform`, whose checks are made for whole collections."""

    def __init__(self, corpus: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"[A-Za-z]+|[+*/()]")
        letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True)
        self.parts = tuple(item.fit(list(corpus)) for item in (words, letters))
        self._fitted = tuple((item.build_analyzer(), item.vocabulary_, item.idf_.tolist()) for item in self.parts)
        self._width = sum(len(item.vocabulary_) for item in self.parts)

    def embed(self, texts: Sequence[str]) -> Any:
        import numpy as np

        rows = np.zeros((len(texts), self._width))
        for row, text in zip(rows, texts, strict=True):
            first = 0
            for analyse, vocabulary, idf in self._fitted:
                counts = Counter(vocabulary[term] for term in analyse(text) if term in vocabulary)
                weights = {at: (1 + math.log(count)) * idf[at] for at, count in counts.items()}
                length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
                for at, weight in weights.items():
                    row[first + at] = weight / length
                first += len(vocabulary)
        return rows


class VectorSelector:
    """Schemas embedded once; a choice is one embedding and one look-up. `embedding` makes the Embedding from the schema texts, `index`
    the Index from their rows."""

    def __init__(
        self,
        tools: Sequence[str] = tuple(TOOLS_BY_NAME),
        embedding: Callable[[Sequence[str]], Embedding] = TermEmbedding,
        index: Callable[[Any], Index] = ProductIndex,
    ) -> None:
        if not tools:
            raise BadRequest("no tool is switched on")
        self._tools = tuple(tools)
        texts = [f"{name.replace('_', ' ')} {TOOLS_BY_NAME[name].summary} {ALSO[name]}" for name in self._tools]
        self._embedding = embedding(texts)
        self._index = index(self._embedding.embed(texts))

    def choose(self, text: str) -> str:
        """The tool whose schema is nearest to `text`; the first one where nothing is near."""
        return self._tools[self._index.nearest(self._embedding.embed([text]))]


def selector_of(tools: Sequence[str], embedding: str, index: str) -> VectorSelector:
    """The selector that a scenario asks for by the names in embeddings.py."""
    rows = SentenceEmbedding if embedding == "sentence" else TermEmbedding
    return VectorSelector(tools, rows, FaissIndex if index == "faiss" else ProductIndex)


@dataclass(frozen=True, slots=True)
class Measured:
    """One way of choosing: milliseconds a choice (median), prompt tokens, share of right choices (None: not measured here)."""

    way: str
    ms: float
    tokens: int
    right: float | None
    note: str


def questions() -> list[tuple[str, str]]:
    """The labelled questions: text, and the tool that it needs."""
    lines = (DATA / "choices.jsonl").read_text(encoding="utf-8").splitlines()
    return [(str(item["text"]), str(item["tool"])) for item in map(json.loads, lines)]


def measure(tools: Sequence[str] = tuple(TOOLS_BY_NAME)) -> list[Measured]:
    """All ways over the labelled questions. Times and accuracy of vectors are measured (of extras only where they are installed);
    the prompt's time is the roofline's."""
    asked = questions()
    tokens = POLICY_TOKENS + SCHEMA_TOKENS_PER_TOOL * len(tools) + 310
    gpu, model = GPUS["Tesla T4"], MODELS["TinyLlama-1.1B"]
    prompt_s = prefill_s(gpu, model, tokens) + 12 * step_s(gpu, model, 1, tokens) + model.overhead_s
    found = [Measured("prompt", 1e3 * prompt_s, tokens, None, f"simulated: {model.name} on {gpu.name}")]
    found.append(_measured("vector", VectorSelector(tools), asked, "TF-IDF"))
    if not missing(*EMBEDDINGS["sentence"]):
        found.append(_measured("sentence", VectorSelector(tools, SentenceEmbedding), asked, "all-MiniLM-L6-v2"))
        if not missing(*INDEXES["faiss"]):
            both = VectorSelector(tools, SentenceEmbedding, FaissIndex)
            found.append(_measured("faiss", both, asked, "all-MiniLM-L6-v2, FAISS"))
    return found


def _measured(way: str, selector: VectorSelector, asked: Sequence[tuple[str, str]], how: str) -> Measured:
    times, right = [], 0
    selector.choose("warm")
    for text, tool in asked:
        began = time.perf_counter()
        right += selector.choose(text) == tool
        times.append(time.perf_counter() - began)
    middle = sorted(times)[len(times) // 2]
    return Measured(way, 1e3 * middle, 0, right / len(asked), f"measured on {len(asked)} questions, {how}")
