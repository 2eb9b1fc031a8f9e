"""An empty lake, with what runs texts on it."""

from __future__ import annotations

from pathlib import Path

import pytest

import alluvia
from alluvia.sql import merging
from tests.unit.sql.selected import TO_MERGE


@pytest.fixture
def lake(tmp_path: Path) -> alluvia.Lake:
    return alluvia.connect(tmp_path)


@pytest.fixture
def merged(lake: alluvia.Lake) -> alluvia.Lake:
    """Tables `t` (id, n, s) of three rows and `u` (id, n, x) of three, two of whose ids are in `t`."""
    for text in TO_MERGE:
        lake.sql(text)
    return lake


@pytest.fixture(params=["by keys", "by a query"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs rows by their keys in memory, and as if the source were too large for that."""
    if request.param == "by a query":
        monkeypatch.setattr(merging, "SOURCE_BYTES", 1)
