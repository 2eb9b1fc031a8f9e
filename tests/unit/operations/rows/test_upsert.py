"""Upserting rows by key: what matches, what becomes of it, and one row a key whoever else writes."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.errors import Invalid
from alluvia.operations.rows import source_keys
from alluvia.store import CountingStore
from tests.unit.operations.row_samples import SCHEMA, by_id, every_kind, ids, make
from tests.unit.operations.rows.keyed import row


@every_kind
def test_known_keys_are_updated_and_new_ones_inserted(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    before = by_id(table)
    report = table.upsert([row(3), row(100)], on=["id"])
    assert (report.version, report.rows_updated, report.rows_inserted, report.rows_deleted) == (4, 1, 1, 0)
    assert by_id(table) == before | {3: row(3), 100: row(100)}
    again = table.upsert([row(3), row(100)], on=["id"])
    assert (again.rows_updated, again.rows_inserted) == (2, 0)
    assert by_id(table) == before | {3: row(3), 100: row(100)}


@every_kind
def test_a_row_that_changes_its_partition_moves(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    table.upsert([row(3, place="c")], on=["id"])
    assert by_id(table)[3] == row(3, place="c")
    assert ids(table) == list(range(30))


@every_kind
def test_columns_that_the_rows_lack_keep_their_values(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    table.upsert([{"id": 3, "name": "x"}, {"id": 100, "name": "y"}], on=["id"])
    rows = by_id(table)
    assert (rows[3], rows[100]) == (row(3, "x"), {"id": 100, "name": "y", "place": None})


@every_kind
def test_only_named_columns_are_set(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    table.upsert([row(3, "x", "c"), row(100, "y", "c")], on=["id"], columns=["name"])
    rows = by_id(table)
    assert (rows[3], rows[100]) == (row(3, "x"), row(100, "y", "c"))


@every_kind
@pytest.mark.parametrize(
    ("options", "three", "hundred"),
    [
        ({"matched": "delete"}, None, None),
        ({"matched": "delete", "unmatched": "insert"}, None, "new"),
        ({"matched": "ignore"}, "n3", "new"),
        ({"matched": "ignore", "unmatched": "ignore"}, "n3", None),
        ({"unmatched": "ignore"}, "new", None),
        ({"when": "new.name > name"}, "new", "new"),
        ({"when": "new.name < name OR name IS NULL"}, "n3", "new"),
        ({"when": "name = 'n3'"}, "new", "new"),
        ({"when": "NULL"}, "n3", "new"),
        ({"delete_when": "name = 'n3'"}, None, "new"),
        ({"delete_when": "new.id = 4"}, "new", "new"),
        ({"delete_when": "name = 'n3'", "matched": "ignore", "insert_when": "new.id < 50"}, None, None),
        ({"insert_when": "new.id > 50"}, "new", "new"),
        ({"matched": "delete", "when": "name = 'n4'"}, "n3", None),
    ],
)
def test_what_becomes_of_rows(
    lake: Lake, kind: str, options: dict[str, Any], three: str | None, hundred: str | None
) -> None:
    table = make(lake, kind)
    table.upsert([row(3), row(100)], on=["id"], **options)
    rows = by_id(table)
    assert [rows[number]["name"] if number in rows else None for number in (3, 100)] == [three, hundred]
    assert rows.keys() - {3, 100} == set(range(30)) - {3}


@every_kind
def test_changes_with_an_operation_column_that_the_table_does_not_have(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    feed = [
        {**row(3), "op": "U", "seq": 2},
        {**row(4), "op": "D", "seq": 2},
        {**row(100), "op": "I", "seq": 1},
        {**row(101), "op": "D", "seq": 1},
    ]
    report = table.upsert(feed, on=["id"], delete_when="new.op = 'D'", insert_when="new.op <> 'D' AND new.seq > 0")
    assert (report.rows_updated, report.rows_deleted, report.rows_inserted) == (1, 1, 1)
    rows = by_id(table)
    assert (rows[3], rows[100]) == (row(3), row(100))
    assert rows.keys() == (set(range(30)) - {4}) | {100}


@every_kind
def test_null_keys_never_match(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    for _ in range(2):
        report = table.upsert([{"id": None, "name": "null", "place": "a"}], on=["id"])
        assert (report.rows_inserted, report.rows_updated) == (1, 0)
    found = table.scan(["name"], where="id IS NULL").read_all()["name"].to_pylist()
    assert found == ["null", "null"]


@every_kind
def test_several_key_columns(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    report = table.upsert([row(3, "x", "a"), row(13, "y", "a"), row(5, "z", None)], on=["id", "place"])  # type: ignore[arg-type]
    assert (report.rows_updated, report.rows_inserted) == (1, 2)
    assert by_id_and_place(table)[(13, "a")] == "y"
    assert by_id_and_place(table)[(13, "b")] == "n13"


def by_id_and_place(table: Table) -> dict[tuple[int, str], str]:
    return {(each["id"], each["place"]): each["name"] for each in table.scan().read_all().to_pylist()}


def test_several_rows_of_the_table_with_one_key_are_all_updated(lake: Lake) -> None:
    table = make(lake)
    table.append([row(3, "twin", "b")])
    assert table.upsert([{"id": 3, "name": "x"}], on=["id"]).rows_updated == 2


KEYS: list[tuple[str, list[Any], list[Any]]] = [
    ("string", ["a", "ä" * 40, "\U0010ffff" * 35], ["a", "ä" * 40 + "x"]),
    ("integer", [-(2**31), 0, 2**31 - 1], [0, 1]),
    ("decimal(38,4)", [Decimal("-1.5"), Decimal("99999999999999999999.0001")], [Decimal("99999999999999999999.0001")]),
    ("date", [date(1, 1, 1), date(2024, 2, 29)], [date(2024, 2, 29), date(2024, 3, 1)]),
    ("timestamp", [datetime(2024, 1, 1, microsecond=1, tzinfo=UTC)], [datetime(2024, 1, 1, tzinfo=UTC)]),
    ("timestamp_ntz", [datetime(2024, 1, 1, microsecond=1)], [datetime(2024, 1, 1, microsecond=1)]),
    ("double", [0.5, -0.0, float("inf")], [0.5, 0.0, 2.5]),
    ("binary", [b"", b"\x00\xff"], [b"\x00\xff", b"\x00"]),
    ("boolean", [True], [True, False]),
]


@every_kind
@pytest.mark.parametrize(("type_", "there", "given"), KEYS)
def test_keys_of_every_type(lake: Lake, kind: str, type_: str, there: list[Any], given: list[Any]) -> None:
    properties = {"delta.enableDeletionVectors": "true"} if kind == "vectors" else {}
    table = lake.create_table("t", {"key": type_, "n": "long"}, properties=properties)
    table.append([{"key": key, "n": 0} for key in there])
    report = table.upsert([{"key": key, "n": 1} for key in given], on=["key"])
    known = [key for key in given if key in there]
    assert (report.rows_updated, report.rows_inserted) == (len(known), len(given) - len(known))
    found = {each["key"]: each["n"] for each in table.scan().read_all().to_pylist()}
    assert found == dict.fromkeys(there, 0) | dict.fromkeys(given, 1)


@pytest.mark.parametrize(
    "give",
    [
        lambda table: table,
        lambda table: table.to_batches()[0],
        lambda table: pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
        lambda table: table.to_pylist(),
        lambda table: table.select(["place", "id", "name"]),
    ],
)
def test_rows_in_every_form(lake: Lake, give: Callable[[pa.Table], Any]) -> None:
    table = make(lake)
    report = table.upsert(give(pa.Table.from_pylist([row(3), row(100)], SCHEMA)), on=["id"])
    assert (report.rows_updated, report.rows_inserted) == (1, 1)


def test_no_rows_change_nothing(lake: Lake) -> None:
    table = make(lake)
    assert table.upsert(SCHEMA.empty_table(), on=["id"]).version == 3
    assert table.upsert([], on=["id"]).version == 3


@pytest.mark.parametrize(
    ("rows", "options", "named"),
    [
        ([row(3), row(3)], {}, "rows: the key id=3 occurs in 2 rows"),
        ([row(3), row(3, place="b"), row(3)], {"on": ["id", "place"]}, "the key id=3, place='a' occurs in 2 rows"),
        ([row(3)], {"on": ["none"]}, "on: 'none' is not a column of the table"),
        ([{"name": "x"}], {}, "on: 'id' is not a column of the rows"),
        ([row(3)], {"on": "id"}, "on: expected the names"),
        ([row(3)], {"on": []}, "on: expected the names"),
        ([{**row(3), "more": 1}], {}, "column more is not in the table"),
        ([{**row(3), "more": 1}], {"when": "new.id > 0"}, "column more is not in the table, and no condition"),
        ([row(3)], {"columns": ["none"]}, "columns: 'none' is not a column of the table"),
        ([{"id": 3}], {"columns": ["name"]}, "columns: 'name' is not a column of the rows"),
        ([row(3)], {"columns": ["name"], "matched": "delete"}, "columns: valid only with matched='update'"),
        ([row(3)], {"matched": "replace"}, "matched: 'replace' is not valid"),
        ([row(3)], {"unmatched": "delete"}, "unmatched: 'delete' is not valid"),
        ([row(3)], {"when": "new.none = 1"}, "none"),
        ([row(3)], {"insert_when": "name = 'x'"}, "name"),
        ([row(3)], {"insert_when": "true", "matched": "delete"}, "insert_when: valid only with unmatched='insert'"),
        ([row(3)], {"when": "true", "matched": "ignore"}, "when: valid only with"),
        ([{"id": "x", "name": "x", "place": "a"}], {}, "column id"),
        ("text", {}, "rows"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(lake: Lake, rows: Any, options: dict[str, Any], named: str) -> None:
    table = make(lake)
    with pytest.raises(Invalid, match=named):
        table.upsert(rows, **{"on": ["id"], **options})
    assert table.snapshot().version == 3


def test_columns_that_must_not_be_null(lake: Lake) -> None:
    schema = pa.schema([("id", pa.int64()), pa.field("must", pa.int64(), nullable=False), ("n", pa.int64())])
    table = lake.create_table("t", schema)
    table.append([{"id": 1, "must": 1}])
    assert table.upsert([{"id": 1, "n": 5}], on=["id"]).rows_updated == 1
    with pytest.raises(Invalid, match="column must must not be null"):
        table.upsert([{"id": 2, "n": 5}], on=["id"])
    with pytest.raises(Invalid, match="column must must not be null"):
        table.upsert([{"id": 1, "must": None}], on=["id"])


def test_an_append_only_table_is_refused_by_name(lake: Lake) -> None:
    table = make(lake, properties={"delta.appendOnly": "true"})
    with pytest.raises(Invalid, match="upsert: table t is append-only"):
        table.upsert([row(3)], on=["id"])


def test_only_files_that_can_hold_a_key_are_read(lake: Lake, store: CountingStore) -> None:
    table = make(lake)
    store.reset()
    table.upsert([row(3), row(5)], on=["id"])
    assert store.requests == {"get": 2, "put": 3}  # new commits, a file; it anew, the new rows, the commit
    store.reset()
    table.upsert([row(100), row(200)], on=["id"])
    assert store.requests == {"get": 1, "put": 2}
    store.reset()
    # 12 lies between 3 and 25, but each file is asked for keys within its own bounds
    table.upsert([row(3, place="a"), row(25, place="c")], on=["id", "place"])
    data = [key for kind, key in store.keys if kind == "get" and "/part-" in key]
    assert not [key for key in data if "place=b" in key]


def test_rows_that_set_nothing_new_rewrite_nothing(lake: Lake) -> None:
    table = make(lake)
    report = table.upsert([{"id": 3}], on=["id"])
    assert (report.version, report.rows_updated) == (3, 0)


def test_the_commit_says_what_was_done(lake: Lake) -> None:
    table = make(lake)
    table.upsert([row(3), row(100)], on=["id"], when="new.id > 0")
    entry = table.history(1)[0]
    assert entry.operation == "MERGE"
    assert entry.parameters == {"on": "id", "matched": "update", "unmatched": "insert", "when": "new.id > ?"}
    metrics = {name.removeprefix("numTargetRows"): entry.metrics[name] for name in entry.metrics if "Rows" in name}
    assert metrics["Inserted"] == metrics["Updated"] == "1"
    assert (metrics["Copied"], metrics["Deleted"], metrics["numSourceRows"]) == ("9", "0", "2")


def test_a_table_with_a_column_called_new_takes_no_conditions(lake: Lake) -> None:
    table = lake.create_table("t", {"id": "long", "new": "long"})
    assert table.upsert([{"id": 1, "new": 2}], on=["id"]).rows_inserted == 1
    with pytest.raises(Invalid, match="a column 'new'"):
        table.upsert([{"id": 1, "new": 2}], on=["id"], when="new.id = 1")


def test_a_file_between_the_least_and_the_greatest_of_very_many_keys_is_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_keys, "KEYS_SORTED_MAX", 5)
    table = lake.create_table("t", {"k": "long", "v": "string"})
    table.append([{"k": key, "v": "old"} for key in (50, 51)])
    table.append([{"k": 500, "v": "old"}])
    changes = table.upsert([{"k": key, "v": "new"} for key in range(100)], on=["k"])
    assert (changes.rows_inserted, changes.rows_updated, changes.files_read) == (98, 2, 1)
    rows = table.scan().read_all().to_pylist()
    assert sorted((row["k"], row["v"]) for row in rows) == [*((key, "new") for key in range(100)), (500, "old")]


@pytest.mark.parametrize("few", [0, source_keys.FEW_ROWS], ids=["by a query", "by Arrow"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.timestamp("us", tz="UTC")], ids=str)
def test_both_ways_to_find_keys_find_the_same(monkeypatch: pytest.MonkeyPatch, kind: pa.DataType, few: int) -> None:
    monkeypatch.setattr(source_keys, "FEW_ROWS", few)
    chance = random.Random(1)
    for _ in range(20):
        given: list[int | None] = [*chance.sample(range(30), chance.randint(5, 12)), None, None]
        there = [chance.choice([None, *range(30)]) for _ in range(4)]
        source = source_keys.SourceKeys(pa.table({"id": pa.array(given, pa.int64()).cast(kind)}))
        positions, numbers = source.pairs(pa.table({"id": pa.array(there, pa.int64()).cast(kind)}))
        wanted = {at: given.index(key) for at, key in enumerate(there) if key is not None and key in given}
        assert dict(zip(positions.to_pylist(), numbers.to_pylist(), strict=True)) == wanted
        assert positions.to_pylist() == sorted(wanted)


def test_all_conditions_see_one_time(lake: Lake) -> None:
    """One row is deleted and one inserted: they say what the time is to the conditions."""
    table = lake.create_table("t", {"n": "long"})
    table.append([{"n": number} for number in range(1000)])
    done = table.upsert(
        [{"n": number} for number in range(2000)],
        on=["n"],
        delete_when="epoch_us(now()) % 1000 = n",
        insert_when="epoch_us(now()) % 1000 + 1000 = new.n",
    )
    assert (done.rows_deleted, done.rows_inserted) == (1, 1)
    left = set(table.to_arrow()["n"].to_pylist())
    [deleted], [inserted] = set(range(1000)) - left, left - set(range(1000))
    assert inserted == deleted + 1000
