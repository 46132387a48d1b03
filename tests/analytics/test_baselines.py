"""Baselines are kept, replaced and forgotten by name; a name that could be read as something else is refused."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from analytics import baselines
from analytics.baselines import Baseline
from analytics.findings import Window
from ingest.errors import BadSetting
from ingest.store import Store

START = datetime(2026, 11, 2, tzinfo=UTC)
DAY = Window(START, START + timedelta(days=1))


def test_saved_replaced_and_deleted(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store")) as store:
        assert baselines.listing(store) == []
        baselines.save(store, Baseline("old", DAY, "1.4.0", "before the change"), START)
        baselines.save(store, Baseline("other", DAY), START)
        assert baselines.get(store, "old") == Baseline("old", DAY, "1.4.0", "before the change", START)
        later = START + timedelta(days=3)
        baselines.save(store, Baseline("old", Window(DAY.end, later), "1.5.0"), later)
        assert baselines.get(store, "old").version == "1.5.0"
        baselines.delete(store, "old", START)
        assert [item.name for item in baselines.listing(store)] == ["other"]
        with pytest.raises(BadSetting, match="other"):
            baselines.get(store, "old")
        baselines.save(store, Baseline("old", DAY), later + timedelta(hours=1))
        assert baselines.get(store, "old").version == ""


@pytest.mark.parametrize("name", ["", "a=b", "2026/2027", "two words", "x" * 65])
def test_bad_names_are_refused(tmp_path: Path, name: str) -> None:
    with Store.open(str(tmp_path / "store")) as store, pytest.raises(BadSetting):
        baselines.save(store, Baseline(name, DAY))
