"""An edited stages.toml that makes no sense stops at start and says where."""

from pathlib import Path

import pytest

from ingest import mapping
from ingest.errors import BadSetting


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[texts]\n", "texts"),
        ("[text]\nModel = 3\n", "text.Model"),
        ("[text]\nModell = []\n", "Modell"),
        ('[[kind]]\nspan = "("\nkind = "check"\n', "kind[0].span"),
        ('[[kind]]\nspan = "(?=a)"\nkind = "check"\n', "kind[0].span"),
        ('[[kind]]\nspan = "a"\nkind = "chek"\n', "kind[0].kind"),
        ('[[kind]]\nkind = "check"\n', "kind[0]"),
        ('[time]\nWaitTime = [{key = "a", unit = "h"}]\n', "unit"),
        ("[budget]\ndecide = -1\n", "budget.decide"),
        ('[evidence]\n"Bad Name" = ["a"]\n', "Bad Name"),
        ("[text\n", "TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "stages.toml"
    path.write_text(text)
    with pytest.raises(BadSetting) as caught:
        mapping.load(path)
    assert place in str(caught.value)
    assert str(path) in str(caught.value)
