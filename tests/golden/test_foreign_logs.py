"""Tables as some writer may leave them, made by hand: what delta-spark reads as well, where it reads them at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.errors import Unsupported
from tests.judges import canonical

Json = dict[str, Any]
ROWS: list[Json] = [{"n": 1, "s": "x"}, {"n": 2, "s": None}]
PLAIN = pa.Table.from_pylist(ROWS)
NOON = datetime(2021, 1, 2, 12, 0, 0, 123_000)
PROTOCOL: Json = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def field(name: str, kind: Any, metadata: Json | None = None) -> Json:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata or {}}


def struct(**kinds: Any) -> Json:
    return {"type": "struct", "fields": [field(name, kind) for name, kind in kinds.items()]}


def meta(schema: Json, partition_by: Sequence[str] = (), **more: Any) -> Json:
    body = {"id": "x", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema)}
    return {"metaData": {**body, "partitionColumns": list(partition_by), "configuration": {}, **more}}


def add(path: str, partition_values: Mapping[str, str | None] | None = None, **more: Any) -> Json:
    body = {"path": path, "partitionValues": dict(partition_values or {}), "size": 1, "modificationTime": 1}
    return {"add": {**body, "dataChange": True, **more}}


PLAIN_META = meta(struct(n="long", s="string"))


class Made:
    """A table in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "_delta_log"
        self.log.mkdir(parents=True)

    def file(self, name: str, table: pa.Table, **options: Any) -> str:
        pq.write_table(table, self.folder / name, **options)
        return str(self.folder / name)

    def commit(self, *actions: Json, version: int = 0, end: str = "\n") -> None:
        text = "".join(json.dumps(action) + end for action in actions)
        (self.log / f"{version:020d}.json").write_bytes(text.encode())

    def files(self, schema: Json, *tables: pa.Table, **options: Any) -> None:
        """Make a table of some files without statistics."""
        names = [f"{at}.parquet" for at in range(len(tables))]
        for name, table in zip(names, tables, strict=True):
            self.file(name, table, **options)
        self.commit(PROTOCOL, meta(schema), *map(add, names))


def _partitions(kind: str, *pairs: tuple[str | None, Any]) -> tuple[Callable[[Made], None], list[Json]]:
    """Return what makes a table of a partition column with some values, and its rows."""

    def make(made: Made) -> None:
        for at in range(len(pairs)):
            made.file(f"{at}.parquet", pa.table({"n": [at]}))
        adds = [add(f"{at}.parquet", {"p": text}) for at, (text, _) in enumerate(pairs)]
        made.commit(PROTOCOL, meta(struct(n="long", p=kind), ["p"]), *adds)

    return make, [{"n": at, "p": value} for at, (_, value) in enumerate(pairs)]


def _absolute(made: Made) -> None:
    paths = [made.file(name, PLAIN.slice(at, 1)) for at, name in enumerate(["a b.parquet", "c%20d.parquet"])]
    made.commit(PROTOCOL, PLAIN_META, add(f"file:{quote(paths[0])}"), add(f"file://{quote(paths[1])}"))


def _relative(made: Made) -> None:
    for at, name in enumerate(["a b.parquet", "c.parquet"]):
        made.file(name, PLAIN.slice(at, 1))
    made.commit(PROTOCOL, PLAIN_META, add("./a%20b.parquet"), add("c.parquet"))


def _spelled_otherwise(made: Made) -> None:
    for name in ("a b.parquet", "c.parquet"):
        made.file(name, PLAIN)
    made.commit(PROTOCOL, PLAIN_META, add("a%20b.parquet"), add("c.parquet"))
    made.commit({"remove": {"path": "a b.parquet", "dataChange": True, "deletionTimestamp": 1}}, version=1)


def _unknown(made: Made) -> None:
    made.file("a.parquet", PLAIN)
    cdc = {"cdc": {"path": "_change_data/x", "partitionValues": {}, "size": 1, "dataChange": False}}
    made.commit(PROTOCOL, PLAIN_META, {"what": {"x": 1}}, cdc, add("a.parquet", strange={"a": [1]}), end="\r\n\n \n")


def _unknown_of_any_form(made: Made) -> None:
    """As in `transaction_log_schema_evolvability`, a test table of Delta's own."""
    made.file("a.parquet", PLAIN.slice(0, 1))
    made.file("b.parquet", PLAIN.slice(1, 1))
    strange = {"some_new_action": "text"}, {"foo": [1]}, {"a": 1, "b": None, "c": True}
    made.commit(*strange, PROTOCOL, PLAIN_META, {"some_new_action_alongside": ["a", "1"], **add("a.parquet")})
    made.commit(*strange, {**add("b.parquet"), "another": "x"}, version=1)


def _unknown_in_checkpoints(*, as_json: bool) -> Callable[[Made], None]:
    """Return what makes a table of which a checkpoint is left, in JSON or Parquet, that holds unknown actions too."""

    def make(made: Made) -> None:
        made.file("a.parquet", PLAIN)
        features = ["v2Checkpoint"]
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
        known = [
            {"protocol": protocol},
            PLAIN_META,
            add("a.parquet", strange=1),
            {"checkpointMetadata": {"version": 0}},
        ]
        unknown: list[Json] = [{"some_new_action": "text"}, {"another": [1]}, {"one_more": {"path": "x"}}]
        if as_json:
            made.commit(*known[:-1], *unknown, {**known[-1], "beside": 1})
            (made.log / f"{0:020d}.json").rename(made.log / f"{0:020d}.checkpoint.{UUID(int=1)}.json")
        else:
            table = pa.Table.from_pylist([*known, *unknown], _checkpoint_schema([*known, *unknown]))
            pq.write_table(table, made.log / f"{0:020d}.checkpoint.{UUID(int=1)}.parquet")

    return make


def _checkpoint_schema(rows: Sequence[Json]) -> pa.Schema:
    """Return the columns that hold some actions; what maps names to texts is a map there."""
    texts = pa.map_(pa.string(), pa.string())
    maps = {"partitionValues", "configuration", "options"}

    def kind(name: str, value: Any) -> pa.DataType:
        if name in maps:
            return texts
        if isinstance(value, dict):
            return pa.struct([pa.field(each, kind(each, inner)) for each, inner in value.items()])
        return pa.list_(pa.string()) if value == [] else pa.scalar(value).type

    return pa.schema([pa.field(name, kind(name, body)) for row in rows for name, body in row.items()])


def _nulls(made: Made) -> None:
    made.file("a.parquet", PLAIN)
    absent = dict.fromkeys(("stats", "tags", "deletionVector", "baseRowId"))
    protocol = {"protocol": {**PROTOCOL["protocol"], "readerFeatures": None, "writerFeatures": None}}
    made.commit(protocol, meta(struct(n="long", s="string"), name=None), {**add("a.parquet", **absent), "remove": None})


def _little_metadata(made: Made) -> None:
    made.file("a.parquet", PLAIN)
    fields = [{"name": name, "type": kind, "nullable": True} for name, kind in (("n", "long"), ("s", "string"))]
    metadata = meta({"type": "struct", "fields": fields})
    del metadata["metaData"]["configuration"]
    made.commit(PROTOCOL, metadata, add("a.parquet"))


def _statistics(made: Made) -> None:
    texts = [None, "", "{}", '{"numRecords":1}', '{"numRecords":1,"nullCount":{"n":0}}']
    for at in range(len(texts)):
        made.file(f"{at}.parquet", pa.table({"n": [at], "s": [str(at)]}))
    made.commit(PROTOCOL, PLAIN_META, *(add(f"{at}.parquet", stats=text) for at, text in enumerate(texts)))


def _keys(made: Made) -> None:
    values: list[dict[str, str]] = [{}, {"p": "a", "q": "b"}, {"p": ""}]
    for at in range(len(values)):
        made.file(f"{at}.parquet", pa.table({"n": [at], "p": ["in the file"]}))
    adds = [add(f"{at}.parquet", value) for at, value in enumerate(values)]
    made.commit(PROTOCOL, meta(struct(n="long", p="string"), ["p"]), *adds)


def _features(*names: str) -> Callable[[Made], None]:
    def make(made: Made) -> None:
        made.file("a.parquet", PLAIN)
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": names, "writerFeatures": names}
        made.commit({"protocol": protocol}, PLAIN_META, add("a.parquet"))

    return make


def _unmapped(made: Made) -> None:
    made.file("a.parquet", PLAIN)
    mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "zz"}
    schema = {"type": "struct", "fields": [field("n", "long", mapped), field("s", "string")]}
    made.commit(PROTOCOL, meta(schema), add("a.parquet"))


def _strays(made: Made) -> None:
    made.file("a.parquet", PLAIN)
    made.commit(PROTOCOL, PLAIN_META, add("a.parquet"))
    names = [
        f"{0:020d}.json.bak",
        f"{9:020d}.json.tmp",
        f".{1:020d}.json.crc",
        "foo.json",
        "1.json",
        "_last_vacuum_info",
    ]
    for name in [*names, f"{0:020d}.crc", f"{0:021d}.json", f"{2:020d}.checkpoint.parquet.tmp"]:
        (made.log / name).write_text("garbage")
    for folder in ("_staged_commits", "_commits", "_sidecars"):
        (made.log / folder).mkdir()
        (made.log / folder / f"{1:020d}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json").write_text("garbage")


def _encodings(made: Made) -> None:
    rows = pa.Table.from_pylist(MANY)
    encodings = {"n": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY", "d": "BYTE_STREAM_SPLIT", "o": "RLE"}
    options = {"use_dictionary": False, "data_page_version": "2.0", "compression": "brotli", "row_group_size": 70}
    made.files(struct(n="long", s="string", d="double", o="boolean"), rows, column_encoding=encodings, **options)


MANY: list[Json] = [{"n": n, "s": f"s{n % 7}" if n % 5 else None, "d": n / 7, "o": n % 3 == 0} for n in range(200)]
NESTED: Json = {"a": 1, "b": "x"}
CASES: dict[str, tuple[Callable[[Made], None], list[Json]]] = {
    "absolute paths": (_absolute, ROWS),
    "relative paths": (_relative, ROWS),
    "a file spelled in two ways": (_spelled_otherwise, ROWS),
    "unknown actions and fields, odd lines": (_unknown, ROWS),
    "unknown actions of any form": (_unknown_of_any_form, ROWS),
    "unknown actions in a checkpoint in JSON": (_unknown_in_checkpoints(as_json=True), ROWS),
    "unknown actions in a checkpoint in Parquet": (_unknown_in_checkpoints(as_json=False), ROWS),
    "nulls": (_nulls, ROWS),
    "little metadata": (_little_metadata, ROWS),
    "some statistics": (_statistics, [{"n": at, "s": str(at)} for at in range(5)]),
    "other partition keys": (_keys, [{"n": 0, "p": None}, {"n": 1, "p": "a"}, {"n": 2, "p": None}]),
    "no features": (_features(), ROWS),
    "features": (_features("vacuumProtocolCheck", "typeWidening-preview", "timestampNtz"), ROWS),
    "names for a mapping that is off": (_unmapped, ROWS),
    "strays in the log": (_strays, ROWS),
    "encodings": (_encodings, MANY),
    "names of another case": (
        lambda made: made.files(struct(n="long", q=struct(a="long")), pa.table({"N": [1], "Q": [{"A": 1}]})),
        [{"n": 1, "q": {"a": 1}}],
    ),
    "columns in another order, and more": (
        lambda made: made.files(struct(n="long", s="string"), pa.table({"z": [0], "s": ["y"], "n": [3]}), PLAIN),
        [*ROWS, {"n": 3, "s": "y"}],
    ),
    "no column of the table": (
        lambda made: made.files(struct(n="long", s="string"), pa.table({"z": [0, 0]})),
        [{"n": None, "s": None}] * 2,
    ),
    "fields in another order": (
        lambda made: made.files(
            struct(q={"type": "array", "elementType": struct(a="long", b="string"), "containsNull": True}),
            pa.table({"q": [[{"b": "x", "a": 1}, None], None]}),
            pa.table({"q": [[NESTED]]}),
        ),
        [{"q": [NESTED, None]}, {"q": None}, {"q": [NESTED]}],
    ),
    "files without rows": (
        lambda made: made.files(struct(n="long", s="string"), PLAIN.slice(0, 0), PLAIN),
        ROWS,
    ),
    "texts as bytes": (
        lambda made: made.files(
            struct(s="string"), pa.table({"s": ["é"]}), pa.table({"s": ["é".encode()]}), store_schema=False
        ),
        [{"s": "é"}] * 2,
    ),
    "bytes as texts, bytes of one length": (
        lambda made: made.files(
            struct(b="binary"),
            pa.table({"b": ["é\\x"]}),
            pa.table({"b": pa.array([b"abcd"], pa.binary(4))}),
            store_schema=False,
        ),
        [{"b": "é\\x".encode()}, {"b": b"abcd"}],
    ),
    "decimals of other scales": (
        lambda made: made.files(
            struct(m="decimal(10,2)"),
            pa.table({"m": pa.array([Decimal("1.5")], pa.decimal128(5, 1))}),
            pa.table({"m": pa.array([Decimal("2.55")], pa.decimal128(10, 2))}),
        ),
        [{"m": Decimal("1.50")}, {"m": Decimal("2.55")}],
    ),
    "numbers of other widths": (
        lambda made: made.files(
            struct(n="long", d="double"),
            *(
                pa.table({"n": pa.array([7], kind), "d": pa.array([1.5], pa.float32())})
                for kind in (pa.int8(), pa.int32())
            ),
            pa.table({"n": [2**40], "d": [0.1]}),
        ),
        [{"n": 7, "d": 1.5}, {"n": 7, "d": 1.5}, {"n": 2**40, "d": 0.1}],
    ),
    "times of other units": (
        lambda made: made.files(
            struct(t="timestamp"),
            *(pa.table({"t": pa.array([NOON], pa.timestamp(unit))}) for unit in ("ms", "us", "ns")),
            *(pa.table({"t": pa.array([NOON], pa.timestamp("us", zone))}) for zone in ("UTC", "Europe/Berlin")),
        ),
        [{"t": NOON.replace(tzinfo=UTC)}] * 5,
    ),
    "times as partition values": _partitions(
        "timestamp",
        ("2021-01-02 12:00:00.123", NOON.replace(tzinfo=UTC)),
        ("2021-01-02T12:00:00.123000Z", NOON.replace(tzinfo=UTC)),
        ("2021-01-02T14:00:00.123+02:00", NOON.replace(tzinfo=UTC)),
        ("2021-01-02", datetime(2021, 1, 2, tzinfo=UTC)),
        (None, None),
        ("", None),
    ),
    "decimals as partition values": _partitions(
        "decimal(10,2)", ("1.5", Decimal("1.50")), ("1E+1", Decimal("10.00")), ("-3", Decimal("-3.00"))
    ),
    "truth values as partition values": _partitions("boolean", ("true", True), ("False", False)),
    "floats as partition values": _partitions(
        "double", ("1.0E10", 1e10), ("-Infinity", float("-inf")), ("NaN", float("nan"))
    ),
    "days as partition values": _partitions("date", ("0001-01-01", date(1, 1, 1)), ("9999-12-31", date(9999, 12, 31))),
    "bytes as partition values": _partitions("binary", ("abc", b"abc"), ("\0\1", b"\0\1")),
}


@pytest.mark.parametrize("case", CASES)
def test_what_others_may_write_is_read(case: str, tmp_path: Path) -> None:
    make, expected = CASES[case]
    make(Made(tmp_path / "made"))
    table = alluvia.connect(str(tmp_path)).table("made")
    found = table.scan().read_all()
    wanted = canonical(pa.Table.from_pylist(expected, found.schema))
    assert canonical(found) == wanted
    assert canonical(table.lake.sql("SELECT * FROM made")) == wanted


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview"])
def test_a_table_that_a_catalog_manages_is_refused(feature: str, tmp_path: Path) -> None:
    _features(feature, "vacuumProtocolCheck")(Made(tmp_path / "made"))
    table = alluvia.connect(str(tmp_path)).table("made")
    reads: list[Callable[[], object]] = [table.scan, lambda: table.lake.sql("SELECT * FROM made"), table.history]
    for read in reads:
        with pytest.raises(Unsupported, match=f"{feature}: only its catalog may know its newest commits"):
            read()
