from __future__ import annotations

import pytest

from alluvia.api.lake import Lake, Table
from tests.unit.rollups.hits import HITS, event


@pytest.fixture
def events(lake: Lake) -> Table:
    table = lake.create_table("events", {"day": "date", "path": "string", "n": "long"}, partition_by=["day"])
    table.append([event(0), event(0), event(1, None, None)])
    return table


@pytest.fixture
def hits(lake: Lake, events: Table) -> Table:
    return lake.create_rollup("hits", HITS)
