"""Level two: which patterns are one problem, by text, error type, stage, frames and scene (scikit-learn).

Must stay true: a pattern joins a known cluster or starts one of its own; nothing known moves, and no pattern is noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import AgglomerativeClustering
from sklearn.feature_extraction.text import HashingVectorizer

from analytics.findings import finding_key
from analytics.templates_mask import HOLE
from analytics.templates_words import STATES, STOP

ALIKE = 0.8
MOST_AT_ONCE = 2500
Floats = NDArray[np.float64]
_WEIGHTS = {"text": 0.55, "type": 0.2, "stage": 0.1, "frames": 0.15}


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of failure text at one stage: what level two compares."""

    pattern_id: str
    template_id: str
    atoms: tuple[str, ...]
    error_type: str
    code: str
    stage: str
    frames: tuple[str, ...]
    scene: str

    @property
    def words(self) -> list[str]:
        return [atom.lower() for atom in self.atoms if atom != HOLE and any(char.isalpha() for char in atom)]

    @property
    def generic(self) -> bool:
        """Too little text to say the same thing at two stages."""
        return sum(word not in STOP for word in self.words) < 3


def assign(
    new: Sequence[Pattern], known: Sequence[Pattern], cluster_of: Mapping[str, str], apart: frozenset[frozenset[str]]
) -> dict[str, str]:
    """Cluster id for each of `new` (pattern id → cluster id). `apart` holds pairs of pattern or cluster ids that must not meet."""
    out: dict[str, str] = {}
    overflow = new[MOST_AT_ONCE:]
    rest = list(new[:MOST_AT_ONCE])
    if known and rest:
        rest = _join_known(rest, known[-MOST_AT_ONCE:], cluster_of, apart, out)
    out.update(_among(rest, apart))
    out.update({item.pattern_id: varied(item) for item in overflow})
    return out


def cluster_name(pattern_id: str) -> str:
    return f"fc-{pattern_id[:10]}"


def varied(item: Pattern) -> str:
    """The one cluster that takes texts of a stage and error type when every text is a pattern of its own."""
    return "fc-" + finding_key("varied", item.stage, item.error_type).rsplit("-", 1)[-1][:10]


def similarity(left: Sequence[Pattern], right: Sequence[Pattern]) -> Floats:
    """len(left) × len(right), 0..1; -1 where two patterns must never meet."""
    text = _vectors(left) @ _vectors(right).T
    total = _WEIGHTS["text"] * np.asarray(text.toarray(), dtype=np.float64)
    weight = np.full(total.shape, _WEIGHTS["text"])
    for name in ("type", "stage"):
        ours = [getattr(item, "error_type" if name == "type" else "stage") for item in left]
        theirs = [getattr(item, "error_type" if name == "type" else "stage") for item in right]
        equal, both = _equal(ours, theirs)
        total += _WEIGHTS[name] * (equal & both)
        weight += _WEIGHTS[name] * both
    overlap, framed = _frames(left, right)
    total += _WEIGHTS["frames"] * overlap
    weight += _WEIGHTS["frames"] * framed
    out: Floats = total / weight
    return _rules(out, left, right)


def _rules(out: Floats, left: Sequence[Pattern], right: Sequence[Pattern]) -> Floats:
    same_stage, _ = _equal([item.stage for item in left], [item.stage for item in right])
    same_code, _ = _equal([item.code for item in left], [item.code for item in right])
    same_scene, both_known = _equal(*([item.scene.replace("new", "") for item in side] for side in (left, right)))
    generic = np.array([item.generic for item in left])[:, None] | np.array([item.generic for item in right])[None, :]
    mine, theirs = _bags([_states(item) for item in left], [_states(item) for item in right])
    opposed = (mine @ (1 - theirs).T > 0) & ((1 - mine) @ theirs.T > 0)
    out = np.where(opposed, -1.0, out)
    out = np.where(same_scene & both_known & same_stage, 1.0, out)
    return np.where(~same_code | (~same_stage & generic) | (both_known & ~same_scene), -1.0, out)


def _states(item: Pattern) -> frozenset[str]:
    return frozenset(word for word in item.words if word in STATES)


def _bags(left: Sequence[frozenset[str]], right: Sequence[frozenset[str]]) -> tuple[Floats, Floats]:
    """Membership matrices of both sides over one vocabulary."""
    names = {name: place for place, name in enumerate(sorted(frozenset().union(*left, *right)))}
    out = []
    for side in (left, right):
        bag = np.zeros((len(side), max(1, len(names))))
        for row, members in enumerate(side):
            bag[row, [names[name] for name in members]] = 1.0
        out.append(bag)
    return out[0], out[1]


def _join_known(
    new: list[Pattern],
    known: Sequence[Pattern],
    cluster_of: Mapping[str, str],
    apart: frozenset[frozenset[str]],
    out: dict[str, str],
) -> list[Pattern]:
    rest: list[Pattern] = []
    alike = similarity(new, known)
    for row, item in zip(alike, new, strict=True):
        for place in np.argsort(-row, kind="stable"):
            home = cluster_of[known[place].pattern_id]
            if row[place] < ALIKE:
                rest.append(item)
                break
            if not (
                {frozenset((item.pattern_id, home)), frozenset((item.pattern_id, known[place].pattern_id))} & apart
            ):
                out[item.pattern_id] = home
                break
        else:
            rest.append(item)
    return rest


def _among(items: Sequence[Pattern], apart: frozenset[frozenset[str]]) -> dict[str, str]:
    if len(items) < 2:
        return {item.pattern_id: cluster_name(item.pattern_id) for item in items}
    distance = 1.0 - similarity(items, items)
    place = {item.pattern_id: index for index, item in enumerate(items)}
    for pair in apart:
        if len(pair) == 2 and all(name in place for name in pair):
            i, j = (place[name] for name in pair)
            distance[i, j] = distance[j, i] = 2.0
    np.fill_diagonal(distance, 0.0)
    model = AgglomerativeClustering(
        n_clusters=None, metric="precomputed", linkage="complete", distance_threshold=1.0 - ALIKE
    )
    labels = model.fit_predict(np.minimum(distance, distance.T) if not apart else np.maximum(distance, distance.T))
    first: dict[int, str] = {}
    for item, label in zip(items, labels, strict=True):
        first.setdefault(int(label), cluster_name(item.pattern_id))
    return {item.pattern_id: first[int(label)] for item, label in zip(items, labels, strict=True)}


def _vectors(items: Sequence[Pattern]) -> Any:
    texts = [" ".join(word for word in item.words if word not in STOP) or "nothing" for item in items]
    model = HashingVectorizer(n_features=2**18, ngram_range=(1, 2), alternate_sign=False, token_pattern=r"[^\W\d_]{2,}")
    return model.transform(texts)


def _equal(left: Sequence[str], right: Sequence[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    one, other = np.array(left, dtype=object)[:, None], np.array(right, dtype=object)[None, :]
    return (one == other).astype(bool), ((one != "") & (other != "")).astype(bool)


def _frames(left: Sequence[Pattern], right: Sequence[Pattern]) -> tuple[Floats, Floats]:
    """Jaccard overlap of the three innermost frames, and where both sides have any."""
    mine, theirs = _bags([frozenset(item.frames[:3]) for item in left], [frozenset(item.frames[:3]) for item in right])
    shared = mine @ theirs.T
    size = mine.sum(axis=1)[:, None], theirs.sum(axis=1)[None, :]
    both = ((size[0] > 0) & (size[1] > 0)).astype(np.float64)
    return shared / np.maximum(size[0] + size[1] - shared, 1.0), both
