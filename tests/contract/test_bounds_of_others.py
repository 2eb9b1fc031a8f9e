"""Files of other writers: no condition loses a row, whatever the writer said or left out of its bounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import isnan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import alluvia
from alluvia.api.lake import Lake
from alluvia.delta.skipping.pruning import FEW_FILES

NAN = float("nan")
NUMBERS = (1.0, 2.0, NAN, 3.0)
ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "x": NUMBERS,
        "f": pa.array(NUMBERS, pa.float32()),
        "s": pa.array([{"y": number, "t": "a"} for number in NUMBERS]),
        "l": [[number] for number in NUMBERS],
    }
)
CONDITIONS = (
    *("x > 5", "x >= 5", "x = 'nan'::DOUBLE", "x <> 2", "x > 1e300", "NOT (x <= 3)", "x BETWEEN 5 AND 'nan'::DOUBLE"),
    *("x IN ('nan'::DOUBLE, 7)", "f > 5", "f::DOUBLE > 5", "s.y > 5", "s.y = 'nan'::DOUBLE", "l[1] > 5"),
    *("id = 3 AND x > 5", "x < 5", "x <= 3", "NOT (s.y > 2)"),
)


def attached(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "theirs", ROWS)
    lake.attach("t", folder / "theirs")


def external(lake: Lake, folder: Path) -> None:
    folder.joinpath("theirs").mkdir()
    pq.write_table(ROWS, folder / "theirs" / "x.parquet")
    lake.create_external("t", str(folder / "theirs" / "*.parquet"))


def converted(lake: Lake, folder: Path) -> None:
    folder.joinpath("lake", "t").mkdir(parents=True)
    pq.write_table(ROWS, folder / "lake" / "t" / "x.parquet")
    lake.convert("t", "t")


def deep_clone(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "theirs", ROWS)
    lake.attach("source", folder / "theirs")
    lake.clone("source", "t", deep=True)


def shallow_clone(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "lake" / "source", ROWS)
    lake.clone("source", "t")


def with_own_files(lake: Lake, folder: Path) -> None:
    """Some of the table's files are ours, and one of theirs has a deletion vector."""
    converted(lake, folder)
    lake["t"].evolve(properties={"delta.enableDeletionVectors": "true"})
    lake["t"].append(ROWS.slice(0, 1))
    lake["t"].delete("id = 1")
    lake["t"].append(ROWS.slice(0, 1))


MAKERS = (attached, external, converted, deep_clone, shallow_clone, with_own_files)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_numbers_that_are_none_are_found(tmp_path: Path, make: Callable[[Lake, Path], None]) -> None:
    lake = alluvia.connect(tmp_path / "lake")
    make(lake, tmp_path)
    lake.create_table("same", ROWS.schema).append(ROWS)
    for condition in CONDITIONS:
        expected = lake.sql(f"SELECT id FROM same WHERE {condition} ORDER BY id").to_pylist()
        assert lake.sql(f"SELECT id FROM t WHERE {condition} ORDER BY id").to_pylist() == expected, condition
        found = lake["t"].to_arrow(["id"], where=condition)
        assert sorted(found.to_pylist(), key=lambda row: row["id"]) == expected, condition
    joined = "SELECT t.id FROM t JOIN same ON t.x = same.x AND same.id > 2 ORDER BY t.id"
    assert lake.sql(joined)["id"].to_pylist() == [3, 4]
    for query in ("SELECT max(x) FROM t", "SELECT max(f) FROM t", "SELECT x FROM t ORDER BY x DESC LIMIT 1"):
        assert isnan(lake.sql(query)[0][0].as_py()), query
    if make in (converted, deep_clone, shallow_clone, with_own_files):
        lake["t"].update({"id": "id + 10"}, where="x > 5")
        assert lake.sql("SELECT id FROM t WHERE s.y > 5")["id"].to_pylist() == [13]
        assert lake["t"].delete("x >= 5").rows_deleted == 1
        assert sorted(lake["t"].to_arrow()["id"].to_pylist()) == [1, 2, 4]


def test_a_part_of_a_struct_is_read_alone(tmp_path: Path) -> None:
    """The guard for structs with numbers changes none of their values, nulls and missing fields included."""
    folder = tmp_path / "lake" / "t"
    folder.mkdir(parents=True)
    kind = pa.struct([("y", pa.float64()), ("t", pa.string())])
    values = [{"y": -0.0, "t": None}, None, {"y": None, "t": "b"}, {"y": float("inf"), "t": ""}]
    pq.write_table(pa.table({"id": range(4), "s": pa.array(values, kind)}), folder / "a.parquet")
    pq.write_table(pa.table({"id": [4]}), folder / "b.parquet")
    lake = alluvia.connect(tmp_path / "lake")
    lake.convert("t", "t")
    found = lake.sql("SELECT s, s.y, s.t FROM t ORDER BY id")
    assert found["s"].to_pylist() == [*values, None]
    assert repr(found["y"].to_pylist()) == repr([-0.0, None, None, float("inf"), None])
    assert found["t"].to_pylist() == [None, None, "b", "", None]


A31, A32 = "a" * 31, "a" * 32
TEXTS = {
    "delta-spark, half a character as ?": (f"{A31}😀zz", f"{A31}?\ufffd"),
    "delta-spark, half a character as U+FFFD": (f"{A31}😀zz", f"{A31}\ufffd"),
    "delta-spark, both halves": (f"{A31}😀zz", f"{A31}\ufffd\ufffd"),
    "delta-spark, a tie-breaker below the rest": (f"{A32}😀zz", f"{A32}\ufffd"),
    "delta-spark, 31 units and a half of 17 characters": ("a😀" + "😀" * 17, "a😀" + "😀" * 14 + "?\ufffd"),
    "delta-spark, 32 units of 17 characters": ("aa" + "😀" * 17, "aa" + "😀" * 15 + "\ufffd"),
    "cut without a sign": (f"{A32}zz", A32),
    "cut in half without a sign": (f"{A31}😀zz", f"{A31}?"),
    "cut to 32 characters of two bytes": ("é" * 40, "é" * 32),
    "not cut": ("éé?", "éé?"),
}
ZONED, PLAIN = pa.timestamp("us", "UTC"), pa.timestamp("us")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


TIMES = {
    "a zone west, without its seconds": (at("1880-01-01T05:00:59.5"), "1880-01-01T00:04:57.500-04:56"),
    "a zone east, without its seconds": (at("1930-01-01T00:00:00"), "1930-01-01T00:19:32.000+00:19"),
    "Liberia": (at("1971-05-05T12:00:30"), "1971-05-05T11:15:30.000-00:44"),
    "rounded to zero": (at("1969-12-31T23:59:59.998500"), "1969-12-31T23:59:59.999Z"),
    "cut to the millisecond": (at("2024-05-05T12:00:00.123456"), "2024-05-05T12:00:00.123Z"),
    "an offset": (at("2024-05-05T12:00:00.123456"), "2024-05-05T14:00:00.123+02:00"),
}


def foreign_table(lake: Lake, kind: pa.DataType, rows: list[Any], bounds: list[tuple[Any, Any]]) -> None:
    """Make a table of one file a row, as another writer names its files, with the bounds that it gives them."""
    table = lake.create_table("t", pa.schema([("k", kind), ("n", pa.int64())]), properties={"alluvia.writers": "any"})
    for at, value in enumerate(rows):
        table.append([{"k": value, "n": at}])
        key = f"t/_delta_log/{at + 1:020d}.json"
        log = [json.loads(line) for line in lake.store.get(key).splitlines()]
        (add,) = (action["add"] for action in log if "add" in action)
        path = f"part-{at:05d}-0a1b2c3d.c000.snappy.parquet"
        lake.store.copy(f"t/{add['path']}", f"t/{path}")
        low, high = bounds[at]
        stats = {"numRecords": 1, "minValues": {"k": low, "n": at}, "maxValues": {"k": high, "n": at}}
        add |= {"path": path, "stats": json.dumps({**stats, "nullCount": {"k": 0, "n": 0}}), "tags": {}}
        lake.store.put(key, "\n".join(map(json.dumps, log)).encode())


def check(place: Path, rows: list[Any], shown: list[str]) -> None:
    """Look for each row by every comparison, also where files are judged by the columns of a checkpoint."""
    assert len(rows) > FEW_FILES
    for checkpoint in (False, True):
        lake = alluvia.connect(place)
        if checkpoint:
            lake["t"].checkpoint()
            lake = alluvia.connect(place)
        for number, text in enumerate(shown):
            for where in (f"k = {text}", f"k >= {text} AND n = {number}", f"k <= {text} AND n = {number}"):
                assert number in lake["t"].to_arrow(["n"], where=where)["n"].to_pylist(), where
            if number % 4 == 0:
                assert number in lake.sql(f"SELECT n FROM t WHERE k = {text}")["n"].to_pylist(), text
    kind = lake["t"].schema.field("k").type
    lake["t"].upsert(pa.table({"k": pa.array(rows, kind), "n": range(100, 100 + len(rows))}), on=["k"])
    assert sorted(lake["t"].to_arrow()["n"].to_pylist()) == [*range(100, 100 + len(rows))]


def test_texts_that_others_have_cut_are_found(tmp_path: Path) -> None:
    found: dict[str, tuple[str, str]] = {}
    for first in "bcde":
        for case, (row, high) in enumerate(TEXTS.values()):
            text = f"{first}{row[1:]}{case if high != row else ''}"
            found[text] = text[:16], f"{first}{high[1:]}"
    lake = alluvia.connect(tmp_path / "lake")
    foreign_table(lake, pa.string(), [*found], [*found.values()])
    check(tmp_path / "lake", [*found], [f"'{text}'" for text in found])


@pytest.mark.parametrize("kind", [ZONED, PLAIN], ids=str)
def test_times_whose_bounds_others_have_cut_are_found(tmp_path: Path, kind: pa.DataType) -> None:
    found: dict[datetime, tuple[str, str]] = {}
    zoned = kind == ZONED
    for n in range(FEW_FILES):
        for moment, text in TIMES.values():
            if zoned or text.endswith("Z"):
                day = (datetime.fromisoformat(text[:10]) + timedelta(days=n)).date().isoformat()
                bound = f"{day}{text[10:] if zoned else text[10:].removesuffix('Z')}"
                row = moment + timedelta(days=n)
                found[row if zoned else row.replace(tzinfo=None)] = (bound, bound)
        if len(found) > FEW_FILES:
            break
    lake = alluvia.connect(tmp_path / "lake")
    foreign_table(lake, kind, [*found], [*found.values()])
    shown = [f"{'TIMESTAMPTZ' if zoned else 'TIMESTAMP'} '{row.isoformat(sep=' ')}'" for row in found]
    check(tmp_path / "lake", [*found], shown)
