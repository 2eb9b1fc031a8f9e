"""An empty lake, with what runs texts on it."""

from __future__ import annotations

from pathlib import Path

import pytest

import alluvia
from alluvia.sql import merging


@pytest.fixture
def lake(tmp_path: Path) -> alluvia.Lake:
    return alluvia.connect(tmp_path)


@pytest.fixture
def merged(lake: alluvia.Lake) -> alluvia.Lake:
    """Tables `t` (id, n, s) of three rows and `u` (id, n, x) of three, two of whose ids are in `t`."""
    lake.sql("CREATE TABLE t (id BIGINT, n BIGINT, s STRING); CREATE TABLE u (id INT, n INT, x STRING)")
    lake.sql("INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')")
    lake.sql("INSERT INTO u VALUES (2, 200, 'y'), (3, 300, 'z'), (4, 400, 'w')")
    return lake


@pytest.fixture(params=["by keys", "by a query"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs rows by their keys in memory, and as if the source were too large for that."""
    if request.param == "by a query":
        monkeypatch.setattr(merging, "SOURCE_BYTES", 1)
