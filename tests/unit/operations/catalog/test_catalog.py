"""The handles that a lake keeps: the ones in use stay warm, however many names are asked for."""

from __future__ import annotations

import pytest

from alluvia.api import lake_catalog
from alluvia.api.lake import Lake


def test_tables_in_use_stay_warm_and_the_others_are_let_go(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_catalog, "HANDLES_MAX", 10)
    for number in range(12):
        lake.create_table(f"t{number}", {"x": "long"}).append([{"x": number}])
        first = lake.catalog.handle("t0")
        for absent in range(5):
            assert f"absent{absent}" not in lake
            lake.catalog.handle(f"absent{absent}")
    assert len(lake.catalog._handles) <= 10
    assert lake.catalog.handle("t0") is first
    assert first.log.state is not None
    assert lake.catalog.handle("t1").log.state is None, "it was let go, and is opened again"
    assert lake.table("t1").count() == 1
