"""Appends that take longer than a transaction may: they start again, with the files that they wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import MetadataChanged

SCHEMA = pa.schema([("x", pa.int64())])
HOUR = 3600


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("t", SCHEMA)


def slow_rows(meanwhile: Callable[[], Any]) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"x": [1]})
        meanwhile()
        yield pa.record_batch({"x": [2]})

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


def rows(table: Table) -> list[int]:
    found: list[int] = table.scan().read_all()["x"].to_pylist()
    return sorted(found)


def test_it_starts_again_on_the_newest_version(table: Table, other: Lake, clock: ManualClock) -> None:
    def meanwhile() -> None:
        other.table("t").append([{"x": 7}])
        clock.advance(HOUR + 1)

    assert table.append(slow_rows(meanwhile)).version == 2
    assert rows(table) == [1, 2, 7]


def test_a_transaction_of_its_own_that_was_applied_meanwhile_is_not_applied_again(
    table: Table, other: Lake, clock: ManualClock
) -> None:
    def meanwhile() -> None:
        other.table("t").append([{"x": 1}, {"x": 2}], txn=("app", 5))
        clock.advance(HOUR + 1)

    assert table.append(slow_rows(meanwhile), txn=("app", 5)).version == 1
    assert rows(table) == [1, 2]


def test_it_does_not_start_again_on_a_table_that_its_files_may_not_fit(
    table: Table, other: Lake, clock: ManualClock
) -> None:
    def meanwhile() -> None:
        other.table("t").evolve(properties={"delta.appendOnly": "true"})
        clock.advance(HOUR + 1)

    with pytest.raises(MetadataChanged, match="append again"):
        table.append(slow_rows(meanwhile))
    assert rows(table) == []


def test_an_added_column_is_no_hindrance(table: Table, other: Lake, clock: ManualClock) -> None:
    def meanwhile() -> None:
        other.table("t").evolve({"y": "string"})
        clock.advance(HOUR + 1)

    assert table.append(slow_rows(meanwhile)).version == 2
    assert rows(table) == [1, 2]
