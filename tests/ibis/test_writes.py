"""What ibis creates, fills, changes and drops, in this process and through a server that allows it."""

from __future__ import annotations

from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pytest
from ibis import _

import alluvia
from alluvia.client import requests, uploading
from alluvia.errors import Invalid, TableExists, TableNotFound, Unsupported
from alluvia.serverless import http
from tests.ibis.sample import ROWS, rows_of

NUMBERS = count()


@pytest.fixture
def name() -> str:
    return f"made_{next(NUMBERS)}"


def test_a_table_is_made_of_an_expression(con: Any, name: str) -> None:
    counted = con.table("events").group_by("event").agg(n=_.count())
    made = con.create_table(name, counted)
    expected = [{"event": "buy", "n": 6}, {"event": "click", "n": 7}, {"event": "view", "n": 7}]
    assert rows_of(made.order_by("event")) == expected
    with pytest.raises((TableExists, Invalid), match="already exists"):
        con.create_table(name, counted)
    assert rows_of(con.create_table(name, counted.filter(_.n > 6).select("n"), overwrite=True)) == [{"n": 7}] * 2
    typed = con.create_table(name, counted, schema={"event": "string", "n": "float32"}, overwrite=True)
    assert str(typed.schema()["n"]) == "float32"


def test_a_table_is_made_of_rows(con: Any, name: str) -> None:
    rows = con.table("events").order_by("id").to_pyarrow()
    assert rows_of(con.create_table(name, rows).order_by("id")) == ROWS
    with pytest.raises((TableExists, Invalid), match="already exists"):
        con.create_table(name, rows)
    assert con.table(name).count().to_pyarrow().as_py() == len(ROWS)
    assert rows_of(con.create_table(name, [{"a": 1.5}, {"a": None}], overwrite=True)) == [{"a": 1.5}, {"a": None}]
    found = con.create_table(
        name, {"n": [1], "at": [datetime(2026, 1, 1)]}, schema={"at": "timestamp", "n": "int16"}, overwrite=True
    )
    assert found.schema() == ibis.schema({"at": "timestamp(6)", "n": "int16"})


def test_a_table_without_rows_is_made_of_a_schema(con: Any, name: str) -> None:
    schema = {
        "id": "!int64",
        "at": "timestamp('UTC')",
        "parts": "struct<a: array<string>, b: map<string, decimal(10, 2)>>",
    }
    made = con.create_table(name, schema=schema)
    assert [str(kind) for kind in made.schema().types][1:] == [
        "timestamp('UTC', 6)",
        "struct<a: array<string>, b: map<!string, decimal(10, 2)>>",
    ]
    with pytest.raises(Invalid, match="id"):
        con.insert(name, [{"id": None, "at": None, "parts": None}])
    assert rows_of(made) == []


def test_rows_are_inserted(con: Any, name: str) -> None:
    made = con.create_table(name, schema={"n": "int32", "text": "string", "at": "timestamp('UTC')"})
    moment = ROWS[0]["at"]
    con.insert(name, pa.table({"n": [1], "at": pa.array([moment], pa.timestamp("ns", "UTC"))}))
    con.insert(name, [{"text": "a", "n": 2, "at": None}])
    con.insert(name, pa.table({"x": [3], "y": ["by position"], "z": pa.array([None], pa.timestamp("us", "UTC"))}))
    con.insert(name, con.table("events").filter(_.id == 0).select("at", n=_.user))
    batches = pa.table({"n": [5, 6]}).to_reader(1)
    con.insert(name, batches)
    assert rows_of(made.order_by("n")) == [
        {"n": 0, "text": None, "at": moment},
        {"n": 1, "text": None, "at": moment},
        {"n": 2, "text": "a", "at": None},
        {"n": 3, "text": "by position", "at": None},
        {"n": 5, "text": None, "at": None},
        {"n": 6, "text": None, "at": None},
    ]
    for wrong, says in (
        ([{"n": 2**40}], "column n: a value does not fit int32"),
        ([{"n": 1, "nope": 2}], "column nope: the table has no such column, only n, text, at"),
        ([{"n": "7"}], "n"),
    ):
        with pytest.raises(Invalid, match=says):
            con.insert(name, wrong)
    assert made.count().to_pyarrow().as_py() == 6


def test_rows_are_replaced(con: Any, name: str) -> None:
    made = con.create_table(name, [{"n": 1}, {"n": 2}])
    con.insert(name, [{"n": 3}], overwrite=True)
    assert rows_of(made) == [{"n": 3}]
    con.insert(name, con.table("events").filter(_.id > 17).select(n="id"), overwrite=True)
    assert rows_of(made.order_by("n")) == [{"n": 18}, {"n": 19}]
    con.truncate_table(name)
    assert rows_of(made) == []


def test_rows_are_not_replaced_by_what_reads_them(con: Any, name: str) -> None:
    made = con.create_table(name, [{"n": 1, "m": 1}, {"n": 2, "m": 1}])
    folded = "SELECT n, sum(m) AS m FROM source GROUP BY n"
    con.raw_sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('alluvia.merge_query' = '{folded}')")
    con.create_view(f"{name}_ones", made.filter(_.n == 1))
    for reads in (
        made.filter(_.n > 1),
        con.table(name.upper()),
        con.sql(f"SELECT * FROM {name.upper()}"),
        con.table(f"{name}_ones"),
        con.sql(f"FROM {name}_ones"),
        con.table(f"{name}_final"),
        con.sql(f"FROM {name}_final"),
    ):
        with pytest.raises(Invalid, match=f"the expression may read {name}, whose rows are gone before it runs"):
            con.insert(name, reads, overwrite=True)
    assert rows_of(made.order_by("n")) == [{"n": 1, "m": 1}, {"n": 2, "m": 1}]


def test_rows_are_updated_or_inserted_by_key(con: Any, name: str) -> None:
    made = con.create_table(name, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    con.upsert(name, ibis.memtable(pa.table({"id": [2, 3], "v": ["c", "d"]})), on="id")
    assert rows_of(made.order_by("id")) == [{"id": 1, "v": "a"}, {"id": 2, "v": "c"}, {"id": 3, "v": "d"}]


def test_views_are_made_and_dropped(con: Any, name: str) -> None:
    events = con.table("events")
    assert con.create_view(name, events.filter(_.id < 3)).count().to_pyarrow().as_py() == 3
    assert con.create_view(name, events.filter(_.id < 4), overwrite=True).count().to_pyarrow().as_py() == 4
    with pytest.raises((TableExists, Invalid), match="already"):
        con.create_view(name, events)
    con.drop_view(name)
    con.drop_view(name, force=True)
    with pytest.raises(TableNotFound):
        con.drop_view(name)


def test_tables_are_dropped(con: Any, name: str) -> None:
    con.create_table(name, [{"n": 1}])
    con.drop_table(name)
    con.drop_table(name, force=True)
    assert name not in con.list_tables()
    with pytest.raises(TableNotFound):
        con.drop_table(name)


def test_statements_of_one_text_are_one_transaction(con: Any, name: str) -> None:
    made = con.create_table(name, [{"n": 1}])
    said = con.raw_sql(f"INSERT INTO {name} VALUES (2); UPDATE {name} SET n = n * 10; SELECT sum(n) AS n FROM {name}")
    assert said.to_pylist() == [{"n": 30}]
    with pytest.raises(Invalid, match="nope"):
        con.raw_sql(f"DELETE FROM {name}; SELECT nope FROM {name}")
    assert con.raw_sql(f"SELECT count(*) AS n FROM {name}").to_pylist() == [{"n": 2}]
    assert rows_of(made.order_by("n")) == [{"n": 10}, {"n": 20}]


@pytest.mark.parametrize("way", ["in this process", "served"])
def test_a_branch_takes_what_the_lake_does_not_get(served_folder: Path, served_url: str, way: str) -> None:
    assert requests.BRANCH_HEADER == http.BRANCH_HEADER
    lake = alluvia.connect(served_folder)
    lake.branch(f"of_{way[0]}")
    con = ibis.alluvia.connect(served_url if way == "served" else served_folder, branch=f"of_{way[0]}")
    con.insert("users", [{"user": 7, "name": "zoe"}])
    assert con.create_table("on_branch", con.table("users")).count().to_pyarrow().as_py() == 4
    assert "on_branch" in con.list_tables()
    assert lake["users"].count() == 3
    assert "on_branch" not in lake.tables()
    with pytest.raises(Invalid, match="there is no branch 'nope'"):
        ibis.alluvia.connect(served_url if way == "served" else served_folder, branch="nope").table("users")


def test_many_rows_go_to_a_server_in_parts_and_come_back_by_a_link(
    served_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "WHOLE_BYTES_MAX", 10_000)
    con = ibis.alluvia.connect(served_url)
    numbers = pa.table({"n": range(2_500_000)})  # 20 MB as Arrow: more than an answer of the server takes
    made = con.create_table(name, numbers)
    assert made.to_pyarrow()["n"].combine_chunks().sort().equals(numbers["n"].combine_chunks())
    con.disconnect()


def test_a_server_cannot_replace_rows_by_those_of_this_process(served_url: str, name: str) -> None:
    con = ibis.alluvia.connect(served_url)
    con.create_table(name, [{"n": 1}])
    with pytest.raises(Unsupported, match="insert an expression instead"):
        con.con.append(name, pa.table({"n": [2]}), replace=True)
    assert rows_of(con.table(name)) == [{"n": 1}]


def test_what_could_not_be_filled_is_not_left_behind(served_url: str, name: str) -> None:
    con = ibis.alluvia.connect(served_url)

    def rows() -> Any:
        yield pa.record_batch({"n": [1]})
        raise ValueError("the rows end here")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), rows())
    with pytest.raises(ValueError, match="the rows end here"):
        con.create_table(name, reader)
    assert name not in con.list_tables()
    con.disconnect()
