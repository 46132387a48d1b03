"""The extras for tool choice: FAISS gives the product's answers, the sentence model chooses right; without them a clear refusal."""

from __future__ import annotations

import json

import numpy as np
import pytest

from instrumented_stack import embeddings
from instrumented_stack.embeddings import FaissIndex, ProductIndex, SentenceEmbedding
from instrumented_stack.errors import BadRequest
from instrumented_stack.select import VectorSelector
from instrumented_stack.tools.texts import DATA


def need(*packages: str) -> None:
    if why := embeddings.missing(*packages):
        pytest.skip(why)


def test_the_sentence_model_chooses_the_right_tool() -> None:
    need("sentence_transformers", embeddings.MODEL_PACKAGE)
    selector = VectorSelector(embedding=SentenceEmbedding)
    questions = [json.loads(line) for line in (DATA / "choices.jsonl").read_text(encoding="utf-8").splitlines()]
    right = sum(selector.choose(item["text"]) == item["tool"] for item in questions)
    assert right / len(questions) >= 0.8


def test_faiss_finds_what_the_product_finds() -> None:
    need("faiss")
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 24))
    exact, index = ProductIndex(rows), FaissIndex(rows)
    for row in rng.normal(size=(50, 1, 24)):
        assert index.nearest(row) == exact.nearest(row)


def test_what_is_not_installed_is_named_with_the_way_to_install_it() -> None:
    assert embeddings.missing("json") == ""
    assert "no_such_package" in embeddings.missing("json", "no_such_package")
    assert "stagescope[embeddings]" in embeddings.missing("no_such_package")
    if embeddings.missing("sentence_transformers"):
        with pytest.raises(BadRequest, match="sentence_transformers"):
            SentenceEmbedding()
    if embeddings.missing("faiss"):
        with pytest.raises(BadRequest, match="faiss"):
            FaissIndex(np.zeros((1, 2)))
