"""Conversions, drops and undrops on every kind of store; the rows also as other readers see them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.api.lake import Lake
from alluvia.errors import Invalid, TableNotFound
from tests.judges import judges_agree, ours

PATHS = ["p=a b/1.parquet", "p=%C3%A4%2F%25/x y+z.parquet", "p=__HIVE_DEFAULT_PARTITION__/~#.parquet"]


def put(lake: Lake, path: str, x: int) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [x]}), sink)
    lake.store.put(f"t/{path}", bytes(sink.getvalue()))


def test_a_converted_directory_is_a_table_like_another(lake: Lake) -> None:
    for number, path in enumerate(PATHS):
        put(lake, path, number)
    table = lake.convert(f"{lake.uri}/t" if "://" in lake.uri and "memory" not in lake.uri else "t", "t")
    values = {row["x"]: row["p"] for row in table.scan().read_all().to_pylist()}
    assert values == {0: "a b", 1: "ä/%", 2: None}
    table.append([{"x": 3, "p": "a b"}])
    table.delete("p = 'ä/%'")
    table.optimize(full=True)
    judges_agree(table)
    lake.drop_table("t")
    assert lake.tables() == []
    with pytest.raises(TableNotFound):
        table.snapshot()
    lake.create_table("t", {"y": "long"})
    version = lake.dropped()[0].version
    lake.drop_table("t")
    lake.undrop("t", version)
    assert len(ours(table)) == 3
    judges_agree(table, [table.snapshot().version])


def test_names_of_files_may_hold_what_urls_give_a_meaning(lake: Lake) -> None:
    names = ["a?x=1.parquet", "b#c.parquet", "d%20e.parquet", "f+g h.parquet", "i[0-9]*.parquet", "j'k\"l.parquet"]
    for number, name in enumerate(names):
        put(lake, name, number)
    table = lake.convert("t", "t")
    expected = list(range(len(names)))
    assert sorted(table.scan().read_all()["x"].to_pylist()) == expected
    assert lake.sql("SELECT x FROM t ORDER BY x")["x"].to_pylist() == expected
    table.optimize(full=True)
    judges_agree(table, [1])


def test_a_file_that_is_none_is_named(lake: Lake) -> None:
    put(lake, "1.parquet", 1)
    lake.store.put("t/notes.txt", b"text")
    with pytest.raises(Invalid, match=r"notes.txt cannot be part of a table"):
        lake.convert("t", "t")
    lake.store.put("t/empty.parquet", b"")
    lake.store.delete(["t/notes.txt"])
    with pytest.raises(Invalid, match=r"empty.parquet cannot be part of a table: it is not a Parquet file"):
        lake.convert("t", "t")
