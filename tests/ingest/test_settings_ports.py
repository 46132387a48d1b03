"""A port that cannot be bound is refused where it is read, whatever door it is for."""

import pytest

from ingest.errors import BadSetting
from ingest.settings import load


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_out_of_range_is_a_bad_setting(port: int) -> None:
    with pytest.raises(BadSetting, match="STAGESCOPE_OTLP_HTTP_PORT"):
        load({"STAGESCOPE_OTLP_HTTP_PORT": str(port)})
    with pytest.raises(BadSetting, match="STAGESCOPE_UI_PORT"):
        load({}, ui_port=port)


def test_any_free_port_may_be_asked_for() -> None:
    assert load({"STAGESCOPE_UI_PORT": "0"}).ui_port == 0
