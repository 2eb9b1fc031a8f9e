"""A table of events, known by their ids: bringing them, and what is there."""

from __future__ import annotations

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.api.table_rows import TableRows
from tests.contract.workers import events


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_events("t", partition_by=())


def ingest(table: TableRows, *ids: str) -> tuple[int, int]:
    """Ingest events. Returns how many rows came of them, and how many were duplicates."""
    answer = table.ingest(events(table._handle.at_hand().schema, ids))
    return answer.appended, answer.duplicates


def stored(table: Table) -> list[str]:
    """Return the ids of the rows that are there."""
    found: list[str] = table.scan(["event_id"]).read_all()["event_id"].to_pylist()
    return sorted(found)
