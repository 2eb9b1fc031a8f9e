"""Replay by hand; the property tests compare it with a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from alluvia.delta.log.actions import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from alluvia.delta.log.checkpoints.putting import parse_last_checkpoint
from alluvia.delta.log.checkpoints.reader import read_checkpoint
from alluvia.delta.log.checkpoints.writer import write_checkpoint
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.replay import State, replay
from alluvia.errors import Corrupt
from tests.unit.delta.log.build import fields_of

PROTOCOL = Protocol(1, 7, None, ("alluvia",))
METADATA = Metadata("id", '{"type":"struct","fields":[]}')
FIRST = CommitActions(0, {"inCommitTimestamp": 5}, PROTOCOL, METADATA)


def add(path: str, size: int = 1) -> AddFile:
    return AddFile(path, {}, size, 0, data_change=True)


def files(state: State) -> list[tuple[str, int]]:
    return [(file.path, file.size) for file in state.files]


def test_a_file_that_comes_again_is_there_once_with_its_last_action() -> None:
    state = replay(None, [FIRST, CommitActions(1, adds=[add("a", 1)]), CommitActions(2, adds=[add("a", 2)])])
    assert files(state) == [("a", 2)]


def test_remove_and_add_of_one_path_in_one_commit_leave_it_there() -> None:
    remove = add("a").removed(9, data_change=True)
    state = replay(None, [FIRST, CommitActions(1, adds=[add("a", 1)]),
                          CommitActions(2, adds=[add("a", 2)], removes=[remove])])  # fmt: skip
    assert files(state) == [("a", 2)]
    assert list(state.tombstones) == []


def test_a_removed_domain_is_gone_and_the_last_transaction_counts() -> None:
    state = replay(
        None,
        [
            FIRST,
            CommitActions(1, txns=[Txn("app", 4), Txn("other", 1)], domains=[DomainMetadata("d", "1")]),
            CommitActions(2, txns=[Txn("app", 3)], domains=[DomainMetadata("d", "", removed=True)]),
        ],
    )
    assert {name: txn.version for name, txn in state.txns.items()} == {"app": 3, "other": 1}
    assert state.domains == {}


def test_a_state_does_not_change_when_the_log_goes_on() -> None:
    before = replay(None, [FIRST, CommitActions(1, adds=[add("a"), add("b")])])
    after = replay(before, [CommitActions(2, removes=[add("a").removed(1, data_change=True)], adds=[add("c")])])
    assert [path for path, _ in files(before)] == ["a", "b"]
    assert [path for path, _ in files(after)] == ["b", "c"]
    assert (before.version, after.version) == (1, 2)


@pytest.mark.parametrize(
    ("first", "missing"),
    [(replace(FIRST, protocol=None), "protocol"), (replace(FIRST, metadata=None), "metaData")],
)
def test_a_log_without_protocol_or_metadata_is_damaged(first: CommitActions, missing: str) -> None:
    with pytest.raises(Corrupt, match=f"no {missing} action up to version 1"):
        replay(None, [first, CommitActions(1)])


@pytest.mark.parametrize("versions", [[0, 2], [1, 2], [0, 1, 1]])
def test_commits_must_follow_each_other(versions: list[int]) -> None:
    with pytest.raises(Corrupt, match="is missing from the log"):
        replay(None, [replace(FIRST, version=version) for version in versions])


def test_a_checkpoint_drops_expired_tombstones_and_its_adds_change_no_data() -> None:
    removes = [RemoveFile(f"r{time}", time, data_change=True) for time in (9, 10, 11)]
    state = replay(None, [FIRST, CommitActions(1, adds=[add("a")], removes=removes)])
    data, rows = write_checkpoint(state, tombstones_after_ms=10)
    assert rows == 2 + 1 + 1
    loaded = read_checkpoint(1, [("x", data)])
    assert [file.path for file in loaded.tombstones] == ["r11"]
    assert [file.data_change for file in loaded.files] == [False]
    schema = pq.ParquetFile(pa.BufferReader(data)).schema_arrow
    assert "commitInfo" not in schema.names
    assert all(field.nullable for kind in schema for field in (kind, *fields_of(kind.type)))


@pytest.mark.parametrize("missing", ["protocol", "metaData"])
def test_a_checkpoint_without_protocol_or_metadata_is_damaged(missing: str) -> None:
    data, _ = write_checkpoint(replay(None, [FIRST]), 0)
    table = pq.read_table(pa.BufferReader(data))
    rows = [row for row in table.to_pylist() if row[missing] is None]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), sink)
    with pytest.raises(Corrupt, match=f"checkpoint some/name holds no {missing}"):
        read_checkpoint(1, [("some/name", bytes(sink.getvalue()))])


def _partitioned(*values: dict[str, str | None]) -> bytes:
    """Return a partitioned table's checkpoint, with a file for each of some partition values."""
    first = CommitActions(0, {"inCommitTimestamp": 5}, PROTOCOL, replace(METADATA, partition_columns=("p",)))
    adds = [replace(add(str(at)), partition_values=each) for at, each in enumerate(values)]
    return write_checkpoint(replay(None, [first, CommitActions(1, adds=adds)]), 0)[0]


@pytest.mark.parametrize("values", [[{"p": "x"}, {}], [{}, {}]])
def test_a_partition_value_that_is_not_named_is_null(values: list[dict[str, str | None]]) -> None:
    found = read_checkpoint(1, [("x", _partitioned(*values))])
    assert [file.partition_values for file in found.files] == values


@pytest.mark.parametrize("dropped", [True, False])
def test_a_partitioned_tables_checkpoint_without_partition_values_is_damaged(*, dropped: bool) -> None:
    table = pq.read_table(pa.BufferReader(_partitioned({"p": "x"}, {"p": "y"})))
    rows = table.to_pylist()
    for row in rows:
        row["add"] = row["add"] and {**row["add"], "partitionValues": None}
    kept = [
        field
        for field in fields_of(table.schema.field("add").type)
        if not (dropped and field.name == "partitionValues")
    ]
    at = table.schema.get_field_index("add")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema.set(at, pa.field("add", pa.struct(kept)))), sink)
    with pytest.raises(Corrupt, match=r"checkpoint some/name: add\.partitionValues is missing"):
        read_checkpoint(1, [("some/name", bytes(sink.getvalue()))])


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"garbage" * 10])
def test_a_damaged_checkpoint_is_named(damage: bytes) -> None:
    with pytest.raises(Corrupt, match="some/name"):
        read_checkpoint(1, [("some/name", damage)])
    data, _ = write_checkpoint(replay(None, [FIRST]), 0)
    with pytest.raises(Corrupt, match="some/name"):
        read_checkpoint(1, [("some/name", data[:-20])])


def test_a_checkpoint_in_parts_is_one_state() -> None:
    one = replay(None, [FIRST, CommitActions(1, adds=[add("a")], txns=[Txn("app", 1)])])
    two = replay(None, [FIRST, CommitActions(1, adds=[add("b")], removes=[RemoveFile("r", 5, data_change=True)])])
    parts = [(f"part {at}", write_checkpoint(state, 0)[0]) for at, state in enumerate((one, two))]
    state = read_checkpoint(1, parts)
    assert [path for path, _ in files(state)] == ["a", "b"]
    assert [file.path for file in state.tombstones] == ["r"]
    assert state.txns == {"app": Txn("app", 1)}


def test_another_writers_checkpoint_is_read(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2, 3], "p": ["a b", "100%", None]})
    write_deltalake(tmp_path, rows, partition_by=["p"])
    table = DeltaTable(tmp_path)
    table.delete("x = 1")
    table.create_checkpoint()
    name = f"{table.version():020d}.checkpoint.parquet"
    state = read_checkpoint(table.version(), [(name, (tmp_path / "_delta_log" / name).read_bytes())])
    assert {file.partition_values["p"] for file in state.files} == {"100%", None}
    assert all((tmp_path / file.path).is_file() for file in state.files)
    (gone,) = state.tombstones
    assert gone.partition_values == {"p": "a b"}
    assert state.files.get(next(iter(state.files)).key) is not None
    assert state.metadata.partition_columns == ("p",)


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (b'{"version":3,"size":5}', 3),
        (b'{"version":0}', 0),
        (b"", None),
        (b'{"version":', None),
        (b'{"version":"3"}', None),
        (b'{"version":-1}', None),
        (b'{"version":3.5}', None),
        (b"[]", None),
        (b"\xff", None),
    ],
)
def test_the_last_checkpoint_is_a_hint(data: bytes, version: int | None) -> None:
    hint = parse_last_checkpoint(data)
    assert (None if hint is None else hint.version) == version
