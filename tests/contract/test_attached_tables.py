"""A table in another bucket, under a name in a lake on S3 and in a lake in a directory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.clock import SystemClock
from alluvia.errors import Corrupt, ReadOnly
from alluvia.store import open_store
from alluvia.store.s3.s3_conditions import PROOF_KEY
from tests.s3server import S3Server


@pytest.mark.parametrize("kind", ["s3", "directory"])
def test_a_table_in_another_bucket_is_read_where_it_is(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    options, place = s3_server.options, f"s3://{s3_server.new_bucket()}/theirs/orders"
    theirs = alluvia.connect(place.removesuffix("/orders"), **options)
    orders = theirs.create_table("orders", {"id": "long", "day": "string"}, ["day"])
    orders.append([{"id": number, "day": f"day {number % 2}"} for number in range(10)])
    orders.delete("id = 3")
    if kind == "directory":  # what the process finds in its environment is all that it has
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", options["endpoint_url"])
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["access_key_id"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret_access_key"])
        monkeypatch.setenv("AWS_REGION", options["region"])
        ours = alluvia.connect(tmp_path / "lake")
    else:
        ours = alluvia.connect(f"s3://{s3_server.new_bucket()}/ours", **options)
    ours.attach("orders", place)
    ours.create_table("mine", {"id": "long"}).append([{"id": 4}, {"id": 5}])
    assert ours["orders"].count() == 9
    found = ours.sql("SELECT sum(o.id) AS ids, count(m.id) AS mine FROM orders o LEFT JOIN mine m USING (id)")
    assert found.to_pylist() == [{"ids": 42, "mine": 2}]
    assert ours.sql("SELECT id FROM orders WHERE day = 'day 1' ORDER BY id")["id"].to_pylist() == [1, 5, 7, 9]
    with pytest.raises(ReadOnly):
        ours["orders"].append([{"id": 1, "day": "x"}])
    for name in ours.store.list(""):
        assert name.key.startswith(("mine/", "orders/_delta_log/", PROOF_KEY))


def test_files_in_another_bucket_are_read_as_long_as_they_are_the_same(s3_server: S3Server) -> None:
    options, place = s3_server.options, f"s3://{s3_server.new_bucket()}/theirs"
    bucket = open_store(place, SystemClock(), **options)
    for number in range(3):
        rows = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": [number]}), rows)
        bucket.put(f"day={number}/x y.parquet", rows.getvalue().to_pybytes())
    bucket.put("rows/a.csv", b"id,name\n1,x\n2,y\n")
    ours = alluvia.connect(f"s3://{s3_server.new_bucket()}/ours", **options)
    ours.sql(f"CREATE EXTERNAL TABLE t USING parquet LOCATION '{place}/*/*.parquet'")
    ours.create_external("rows", f"{place}/rows/a.csv")
    assert ours.sql("SELECT sum(id) AS ids, max(day) AS day FROM t").to_pylist() == [{"ids": 3, "day": 2}]
    assert ours["t"].to_arrow(where="day = 1").to_pylist() == [{"id": 1, "day": 1}]
    assert ours.sql("SELECT name FROM rows WHERE id = 2").to_pylist() == [{"name": "y"}]
    rows = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [100]}), rows)
    bucket.put("day=1/x y.parquet", rows.getvalue().to_pybytes())
    cold = alluvia.connect(ours.uri, **options)
    with pytest.raises(Corrupt, match=r"x y\.parquet, a file of an external table, has changed"):
        cold["t"].to_arrow()
    with pytest.raises(Corrupt, match=r"x y\.parquet, a file of an external table, has changed"):
        alluvia.connect(ours.uri, **options).sql("SELECT id, day FROM t")
    cold.sql("REFRESH TABLE t")
    assert cold.sql("SELECT sum(id) AS ids FROM t").to_pylist() == [{"ids": 102}]
