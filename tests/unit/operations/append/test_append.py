from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.changes import Changes
from alluvia.delta.log.actions import AddFile
from alluvia.errors import Corrupt, Invalid, MetadataChanged, Unsupported
from alluvia.store import CountingStore
from tests.judges import judges_agree

SCHEMA = pa.schema([pa.field("x", pa.int64(), nullable=False), ("s", pa.string())])


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("t", SCHEMA)


def values(table: Table, column: str = "x") -> list[Any]:
    found: list[Any] = table.scan([column]).read_all()[column].to_pylist()
    return sorted(found, key=repr)


def test_rows_come_in_any_form(table: Table) -> None:
    rows = pa.table({"x": [1, 2]})
    forms: list[Any] = [rows, rows.to_batches()[0], rows.to_reader(), [{"x": 1}, {"x": 2}]]
    for version, form in enumerate(forms, 1):
        commit = table.append(form)
        assert (commit.version, commit.rows, commit.files) == (version, 2, 1)
    assert values(table) == [1, 1, 1, 1, 2, 2, 2, 2]


TEXTS = (pa.string(), pa.large_string(), pa.string_view())
BYTES = (pa.binary(), pa.large_binary(), pa.binary(1), pa.binary_view())


@pytest.mark.parametrize(("text", "data"), [(t, pa.binary()) for t in TEXTS] + [(pa.string(), b) for b in BYTES])
def test_every_form_of_text_and_bytes_is_taken(lake: Lake, text: pa.DataType, data: pa.DataType) -> None:
    table = lake.create_table("t", pa.schema([("s", pa.string()), ("b", pa.binary())]))
    table.append(pa.table({"s": pa.array(["a", None], text), "b": pa.array([b"x", None], data)}))
    assert table.to_arrow().sort_by("s").to_pylist() == [{"s": "a", "b": b"x"}, {"s": None, "b": None}]


@pytest.mark.parametrize("rows", [[{"s": "a"}], [{"x": "1"}], [{"x": 1, "z": 2}], "text", [{"x": None}]])
def test_rows_that_do_not_fit_change_nothing(table: Table, store: CountingStore, rows: Any) -> None:
    before = len(list(store.list("")))
    with pytest.raises(Invalid):
        table.append(rows)
    assert len(list(store.list(""))) == before
    assert table.snapshot().version == 0


def test_a_null_within_a_struct_that_allows_none_is_refused(lake: Lake) -> None:
    inner = pa.struct([pa.field("must", pa.int64(), nullable=False)])
    table = lake.create_table("s", pa.schema([("st", inner)]))
    with pytest.raises(Invalid, match="must"):
        table.append([{"st": {"must": None}}])
    table.append([{"st": {"must": 1}}, {"st": None}])
    assert table.scan().read_all().to_pylist() == [{"st": {"must": 1}}, {"st": None}]


def test_a_column_that_another_process_added_is_taken(table: Table, other: Lake) -> None:
    stale = other.table("t")
    stale.snapshot()
    table.evolve({"y": "long"})
    assert stale.append([{"x": 1, "y": 2}]).version == 2
    assert values(stale, "y") == [2]
    with pytest.raises(Invalid, match="column never"):
        stale.append([{"x": 1, "never": 2}])


def test_files_are_sorted_and_encoded_as_the_properties_say(lake: Lake, store: CountingStore) -> None:
    table = lake.create_table(
        "p", SCHEMA, sort_by=["s", "x"], properties={"alluvia.codec": "snappy", "alluvia.row_group_rows": "2"}
    )
    table.append([{"x": 3, "s": None}, {"x": 2, "s": "b"}, {"x": 9, "s": "a"}, {"x": 1, "s": "b"}])
    (file,) = table.snapshot().files
    parquet = pq.ParquetFile(pa.BufferReader(store.get(f"p/{file.path}")))
    assert parquet.read()["x"].to_pylist() == [9, 1, 2, 3]
    assert parquet.num_row_groups == 2
    assert parquet.metadata.row_group(0).column(0).compression == "SNAPPY"
    assert (file.size, file.num_records) == (len(store.get(f"p/{file.path}")), 4)


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_every_codec_is_read_by_the_judges(lake: Lake, codec: str) -> None:
    table = lake.create_table("c", SCHEMA, properties={"alluvia.codec": codec})
    for number in range(2):
        table.append([{"x": number}])
    table.optimize()
    judges_agree(table)


def test_a_transaction_number_is_applied_once(table: Table, other: Lake) -> None:
    first = table.append([{"x": 1}], txn=("app", 5))
    for again in (table, other.table("t")):
        for number in (5, 4, 0):
            commit = again.append([{"x": 1}], txn=("app", number))
            assert (commit.version, commit.rows) == (first.version, 0)
    assert table.append([{"x": 2}], txn=("another", 1)).version == 2
    assert table.append([{"x": 3}], txn=("app", 6)).version == 3
    assert values(table) == [1, 2, 3]
    assert table.snapshot().state.txns["app"].version == 6


def test_the_next_number_goes_in_after_another_process_has_recorded_the_one_before(table: Table, other: Lake) -> None:
    stale = other.table("t")
    stale.snapshot()
    table.append([{"x": 1}], txn=("app", 1))
    assert stale.append([{"x": 2}], txn=("app", 2)).version == 2
    assert stale.commit_files([], txn=("app", 3)).version == 3
    table.checkpoint()
    assert table.commit_files([], txn=("app", 3)).version == 3


def test_two_processes_with_one_number_commit_it_once(
    table: Table, other: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second looks before the first commits, and learns of it when it loses the race."""
    late = other.table("t")
    adds = late._handle.writer(late.snapshot()).write(pa.table({"x": [1], "s": ["late"]}, schema=SCHEMA))
    newest = late._handle.newest

    def overtaken(**_: Any) -> Any:
        found = newest()
        monkeypatch.setattr(late._handle, "newest", newest)
        table.append([{"x": 1, "s": "first"}], txn=("app", 1))
        return found

    monkeypatch.setattr(late._handle, "newest", overtaken)
    commit = late.commit_files(adds, txn=("app", 1))
    assert (commit.version, commit.rows) == (1, 0)
    assert values(table, "s") == ["first"]


@pytest.mark.parametrize(
    "txn", [("", 1), ("app", -1), ("app", True), ("app", 1.5), ("app",), "app", ("app", "1"), (1, 1)]
)
def test_a_malformed_transaction_number_is_refused(table: Table, txn: Any) -> None:
    with pytest.raises(Invalid, match="txn: expected"):
        table.append([{"x": 1}], txn=txn)
    with pytest.raises(Invalid, match="txn: expected"):
        table.commit_files([], txn=txn)


def test_files_written_elsewhere_are_committed(table: Table) -> None:
    handle = table._handle
    adds = handle.writer(table.snapshot()).write(pa.table({"x": [1, 2], "s": ["a", None]}, schema=SCHEMA))
    assert values(table) == []
    commit = table.commit_files(adds, txn=("job", 0), age=timedelta(hours=6))
    assert (commit.version, commit.rows) == (1, 2)
    assert table.commit_files(adds, txn=("job", 0)).version == 1
    assert values(table) == [1, 2]


def test_an_incompatible_change_of_the_schema_stops_an_append(table: Table, other: Lake) -> None:
    stale = other.table("t")
    stale.snapshot()
    handle = table._handle
    metadata = handle.newest().state.metadata
    harder = metadata.schema_string.replace('"nullable":true', '"nullable":false')
    handle.transaction(handle.newest()).commit(Changes("CHANGE", metadata=replace(metadata, schema_string=harder)))
    with pytest.raises(MetadataChanged):
        stale.append([{"x": 1}])
    with pytest.raises(Invalid, match="column s must not be null"):
        stale.append([{"x": 1}])


def test_files_hold_no_bounds_beside_which_a_nan_could_be_missed(lake: Lake, store: CountingStore) -> None:
    schema = pa.schema(
        [("x", pa.float64()), ("i", pa.int64()), ("s", pa.struct([("f", pa.float32()), ("t", pa.string())])),
         ("l", pa.list_(pa.float64()))]
    )  # fmt: skip
    table = lake.create_table("f", schema)
    table.append([{"x": math.nan, "i": 1, "s": {"f": 1.0, "t": "a"}, "l": [1.0]}, {"x": 1.0}])
    (file,) = table.snapshot().files
    group = pq.ParquetFile(pa.BufferReader(store.get(f"f/{file.path}"))).metadata.row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    assert {column.path_in_schema for column in columns if column.is_stats_set} == {"i", "s.t"}


def test_a_scan_gives_the_columns_asked_for_in_that_order(table: Table) -> None:
    table.append([{"x": 1, "s": "a"}])
    table.evolve({"late": "long"})
    assert table.scan(["s", "x"]).read_all().to_pylist() == [{"s": "a", "x": 1}]
    assert table.scan(["late"]).read_all().to_pylist() == [{"late": None}]
    assert table.scan().schema.names == ["x", "s", "late"]
    with pytest.raises(Invalid, match="columns: 'none'"):
        table.scan(["none"])
    with pytest.raises(Invalid, match="repeated"):
        table.scan(["x", "x"])


def test_a_scan_of_partition_columns_alone_counts_the_rows(lake: Lake) -> None:
    table = lake.create_table("p", pa.schema([("x", pa.int64()), ("c", pa.string())]), partition_by=["c"])
    table.append([{"x": 1, "c": "a"}, {"x": 2, "c": "a"}, {"x": 3}])
    assert values(table, "c") == ["a", "a", None] or values(table, "c") == [None, "a", "a"]
    assert len(table.scan(["c"]).read_all()) == 3


def test_a_missing_and_a_damaged_data_file_are_named(table: Table, store: CountingStore) -> None:
    table.append([{"x": 1}])
    (file,) = table.snapshot().files
    key = f"t/{file.path}"
    body = store.get(key)
    for damaged in (b"", b"garbage", body[:-8], body[: len(body) // 2]):
        store.put(key, damaged)
        with pytest.raises(Corrupt, match=file.path):
            table.scan().read_all()
    store.delete([key])
    with pytest.raises(Corrupt, match=f"{file.path} of version 1 is missing"):
        table.scan().read_all()


def test_a_snapshot_does_not_change(table: Table) -> None:
    table.append([{"x": 1}])
    snapshot = table.snapshot()
    table.append([{"x": 2}])
    table.evolve({"y": "long"})
    table.optimize()
    assert (snapshot.version, snapshot.schema.names, len(snapshot.files)) == (1, ["x", "s"], 1)


def test_a_file_outside_the_table_is_refused_or_read_but_never_mistaken(table: Table, store: CountingStore) -> None:
    table.append([{"x": 1}])
    elsewhere = AddFile("gs://elsewhere/x.parquet", {}, 1, 1, data_change=True)
    handle = table._handle
    handle.transaction(handle.newest()).commit(Changes("WRITE", adds=[elsewhere]))
    with pytest.raises(Unsupported, match="gs://elsewhere"):
        table.scan().read_all()


def test_time_travel_by_time_takes_any_spelling(table: Table, clock: ManualClock) -> None:
    moments = []
    for number in range(3):
        clock.advance(60)
        table.append([{"x": number}])
        moments.append(datetime.fromtimestamp(clock.now_us() / 1e6, UTC))
    for number, moment in enumerate(moments):
        later = moment + timedelta(seconds=30)
        spellings: list[Any] = [
            later, later.isoformat(), later.isoformat().replace("+00:00", "Z"),
            later.replace(tzinfo=None), later.replace(tzinfo=None).isoformat(" "),
        ]  # fmt: skip
        for spelling in spellings:
            assert table.snapshot(timestamp=spelling).version == number + 1
            assert len(table.scan(timestamp=spelling).read_all()) == number + 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"version": 1, "timestamp": "2024-01-01"}, "not both"),
        ({"timestamp": "yesterday"}, "'yesterday' is not an ISO 8601"),
        ({"timestamp": 5}, "got int"),
        ({"version": "1"}, "version: expected a whole number"),
        ({"version": True}, "version: expected a whole number"),
        ({"version": 1.0}, "version: expected a whole number"),
    ],
)
def test_a_version_that_is_none_is_refused(table: Table, arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(Invalid, match=named):
        table.snapshot(**arguments)


def test_a_file_of_one_row_is_as_one_of_many(lake: Lake, store: CountingStore) -> None:
    moment = datetime(2026, 11, 20, 12, tzinfo=UTC)
    schema = pa.schema([
        ("id", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("at", pa.timestamp("us", "UTC")),
        ("none", pa.int8()),
    ])  # fmt: skip
    table = lake.create_table("one", schema, partition_by=["day(at)", "bucket(4, id)"], sort_by=["n"])
    row = {"id": "a" * 40, "n": 7, "x": 0.5, "at": moment, "none": None}
    table.append([row])
    table.append([row, row])
    one, two = sorted(table.snapshot().files, key=lambda file: file.size)
    stats_one, stats_two = (json.loads(file.stats or "") for file in (one, two))
    assert (stats_one.pop("numRecords"), stats_two.pop("numRecords")) == (1, 2)
    assert stats_one == {**stats_two, "nullCount": {**stats_two["nullCount"], "none": 1}}
    assert (one.tags, one.path.rpartition("/")[0]) == (two.tags, two.path.rpartition("/")[0])
    assert table.to_arrow().to_pylist() == [row] * 3
    assert table.verify(full=True).findings == ()
    table.append([{**row, "id": "b" * 2000}])
    codecs = {}
    for file in table.snapshot().files:
        footer = pq.read_metadata(pa.BufferReader(store.get(f"one/{file.path}")))
        codecs[file.size] = footer.row_group(0).column(0).compression
    assert [codec for _, codec in sorted(codecs.items())] == ["UNCOMPRESSED", "ZSTD", "ZSTD"]
