"""How often Python's garbage collector looks at everything. Tasks come and go by the million here and hardly ever in cycles;
a full collection over all loaded modules would make every request under way wait for it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def rare_collections() -> Iterator[None]:
    """Inside: what is loaded already is not looked at again, and new objects seldom."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
