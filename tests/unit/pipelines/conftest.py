from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.pipelines.pipeline import Pipeline

Declare = Callable[..., Pipeline]


@pytest.fixture
def events(lake: Lake) -> Table:
    table = lake.create_table("events", {"id": "long", "visitor": "string", "n": "long"})
    table.append(
        [{"id": 1, "visitor": "a", "n": 1}, {"id": 2, "visitor": "b", "n": 2}, {"id": 3, "visitor": "a", "n": 3}]
    )
    return table


@pytest.fixture
def declare(lake: Lake, tmp_path: Path) -> Declare:
    """Return a function that makes a pipeline of some declarations, in the place of those before."""

    def declared(*texts: str, on: Lake | None = None) -> Pipeline:
        (tmp_path / "all.sql").write_text(";\n".join(texts))
        return (on or lake).pipeline(tmp_path)

    return declared
