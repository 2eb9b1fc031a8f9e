"""Small tables to change rows of, with and without deletion vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table

KINDS: dict[str, Mapping[str, str]] = {
    "copied": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
}
every_kind = pytest.mark.parametrize("kind", KINDS)
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("place", pa.string())])


def make(
    lake: Lake, kind: str = "copied", properties: Mapping[str, str] | None = None, *, sort_by: tuple[str, ...] = ()
) -> Table:
    """Create the table `t`: files of ids 0 to 9, 10 to 19 and 20 to 29 in the places a, b and c."""
    given = {**KINDS[kind], **(properties or {})}
    table = lake.create_table("t", SCHEMA, partition_by=["place"], sort_by=sort_by, properties=given)
    for number, place in enumerate("abc"):
        table.append([{"id": at, "name": f"n{at}", "place": place} for at in range(number * 10, number * 10 + 10)])
    return table


def ids(table: Table, version: int | None = None) -> list[int]:
    """Return the ids of all rows, in order."""
    found: list[int] = table.scan(["id"], version=version).read_all()["id"].to_pylist()
    return sorted(found)


def by_id(table: Table) -> dict[Any, dict[str, Any]]:
    """Return the rows by id, of which each must stand there once."""
    rows = table.scan().read_all().to_pylist()
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows)
    return found
