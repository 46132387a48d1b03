"""Named baselines: a stretch of time, perhaps one version in it, kept under a name to compare with later.

Must stay true: saving a name again replaces it, and deleting one leaves no other touched.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from analytics.findings import Window, iso
from ingest.errors import BadSetting
from ingest.store import Store

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_COLUMNS = "Name, WindowFrom, WindowTo, Version, Note, SavedAt"


@dataclass(frozen=True, slots=True)
class Baseline:
    """A named window; `version` is empty for all versions."""

    name: str
    window: Window
    version: str = ""
    note: str = ""
    saved_at: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        window = {"from": iso(self.window.start), "to": iso(self.window.end)}
        saved = iso(self.saved_at) if self.saved_at else None
        return {"name": self.name, "window": window, "version": self.version, "note": self.note, "saved_at": saved}


def save(store: Store, baseline: Baseline, now: datetime | None = None) -> Baseline:
    """Keep a baseline; one of the same name is replaced. Raises BadSetting for a name that could be read as something else."""
    if not NAME.fullmatch(baseline.name):
        raise BadSetting(
            "baseline", baseline.name, "a name of letters, digits, dots, dashes and underscores, 64 at most"
        )
    if baseline.window.end <= baseline.window.start:
        raise BadSetting("baseline", iso(baseline.window.end), f"an end after {iso(baseline.window.start)}")
    kept = Baseline(baseline.name, baseline.window, baseline.version, baseline.note, now or datetime.now(UTC))
    _write(store, kept, deleted=False)
    return kept


def listing(store: Store) -> list[Baseline]:
    """All baselines, by name."""
    rows = store.read(f"SELECT {_COLUMNS} FROM baselines ORDER BY Name")
    return [_baseline(row) for row in rows.to_dict("records")]


def get(store: Store, name: str) -> Baseline:
    """The baseline of that name. Raises BadSetting, naming those there are."""
    found: Sequence[Baseline] = listing(store)
    for item in found:
        if item.name == name:
            return item
    known = ", ".join(item.name for item in found) or "none is saved yet"
    raise BadSetting("baseline", name, f"the name of a saved baseline ({known})")


def delete(store: Store, name: str, now: datetime | None = None) -> Baseline:
    """Forget a baseline; returns what it was. Raises BadSetting when there is none of that name."""
    found = get(store, name)
    moment = now or datetime.now(UTC)
    gone = Baseline(name, found.window, found.version, found.note, max(moment, found.saved_at or moment))
    _write(store, gone, deleted=True)
    return found


def _write(store: Store, item: Baseline, *, deleted: bool) -> None:
    row = {
        "Name": item.name,
        "WindowFrom": pd.Timestamp(item.window.start).floor("ms"),
        "WindowTo": pd.Timestamp(item.window.end).floor("ms"),
        "Version": item.version,
        "Note": item.note,
        "SavedAt": pd.Timestamp(item.saved_at or datetime.now(UTC)).floor("ms"),
        "IsDeleted": int(deleted),
    }
    store.insert("baselines", pd.DataFrame([row]))


def _baseline(row: dict[Any, Any]) -> Baseline:
    window = Window(_utc(row["WindowFrom"]), _utc(row["WindowTo"]))
    return Baseline(str(row["Name"]), window, str(row["Version"]), str(row["Note"]), _utc(row["SavedAt"]))


def _utc(value: Any) -> datetime:
    stamp = pd.Timestamp(value)
    moment: datetime = (stamp.tz_localize(UTC) if stamp.tzinfo is None else stamp.tz_convert(UTC)).to_pydatetime(
        warn=False
    )
    return moment
