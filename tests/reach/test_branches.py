"""What a branch has published is read by other readers as any table; and a branch on S3 works as one in a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

import alluvia
from alluvia.api.lake import Lake
from tests.judges import READERS, Read
from tests.reach.delta_spark import BY_SPARK
from tests.s3server import S3Server


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = alluvia.connect(str(tmp_path_factory.mktemp("lake")))
    _write(lake)
    return lake


def _write(lake: Lake) -> None:
    """Publish a table that the branch has changed, and one that it has created, after others have written."""
    lake.create_table("orders", {"id": "long", "day": "date"}, ["day"])
    lake.sql("INSERT INTO orders SELECT i, DATE '2026-01-01' + CAST(i % 2 AS INTEGER) FROM range(6) r(i)")
    fix = lake.branch("fix")
    fix.sql("INSERT INTO orders VALUES (10, DATE '2026-01-03')")
    fix.sql("CREATE TABLE made AS SELECT id, day FROM orders WHERE id > 4")
    lake.sql("DELETE FROM orders WHERE id = 0")
    fix.publish()
    other = lake.branch("other")
    other["orders"].delete("id = 1")
    other["orders"].checkpoint()
    other.publish()
    fix.drop()
    other.drop()
    lake["orders"].checkpoint()


@pytest.mark.parametrize("reader", [*READERS, pytest.param("delta-spark", marks=BY_SPARK)])
def test_other_readers_read_published_tables(request: pytest.FixtureRequest, reader: str, lake: Lake) -> None:
    read: Read = READERS[reader] if reader in READERS else request.getfixturevalue("delta_spark").read
    assert sorted(read(lake["orders"])["id"].to_pylist()) == [2, 3, 4, 5, 10]
    assert sorted(read(lake["made"])["id"].to_pylist()) == [5, 10]


def test_nothing_of_a_branch_is_left(lake: Lake) -> None:
    root = Path(lake.uri.removeprefix("file://"))
    assert [path for path in (root / "_alluvia" / "branches").rglob("*") if path.is_file()] == []


def test_a_branch_on_s3(s3_server: S3Server) -> None:
    lake = alluvia.connect(f"s3://{s3_server.new_bucket()}/lake", **s3_server.options)
    _write(lake)
    assert sorted(lake["orders"].to_arrow()["id"].to_pylist()) == [2, 3, 4, 5, 10]
    joined = lake.branch("more")
    joined["made"].append([{"id": 99}])
    assert lake.sql("SELECT max(id) AS id FROM more.made").to_pylist() == [{"id": 99}]
    assert joined.sql("SELECT max(id) AS id FROM lake.made").to_pylist() == [{"id": 10}]
    assert lake["orders"].verify(full=True).ok
