"""Parts of files of events: where each kind of file is cut, and odd cells."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from alluvia.errors import Invalid
from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.ingest.values import UNLIMITED
from alluvia.files import event_files
from alluvia.files.event_files import parts
from tests.cli.event_files import EVENTS, ndjson, zstd
from tests.cli.test_commands import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "lake")


def test_zstd_may_begin_with_a_frame_to_skip(shell: Shell, tmp_path: Path) -> None:
    frames = [bytes([first]) + b"\x2a\x4d\x18\x02\x00\x00\x00ab" for first in (0x50, 0x5F)]
    (tmp_path / "a.zst").write_bytes(frames[0] + frames[1] + zstd(ndjson(EVENTS)))
    assert shell.rows("ingest", "t", str(tmp_path / "a.zst"))[0]["stored"] == 40


def test_cells_of_typed_columns_are_read_as_numbers_are(shell: Shell, tmp_path: Path) -> None:
    shell.run("create", "t", "--column", "seen:timestamp", "--column", "d:double", "--column", "price:decimal(9,2)")
    taken = [
        ("1700000000", ".5", ".50", "2023-11-14T22:13:20Z", 0.5, 0.5),
        (" 1700000000123 ", "-5.", "5.", "2023-11-14T22:13:20.123Z", -5.0, 5.0),
        ("1700000000123456", "+.5e1", "-.05", "2023-11-14T22:13:20.123456Z", 5.0, -0.05),
        ("1700000000.25", "7", "7.25", "2023-11-14T22:13:20.25Z", 7.0, 7.25),
        ("20261120", "8", "8", "2026-11-20T00:00:00Z", 8.0, 8.0),
    ]
    dates = ["2026", "202611201200", "20261120120000", "0000000001"]  # which are no numbers of seconds
    cells = [row[:3] for row in taken] + [(date, "1", "1") for date in dates] + [("", ".", "1"), ("", "1", ".")]
    text = "event_id,seen,d,price\n" + "".join(f"{n:02},{','.join(row)}\n" for n, row in enumerate(cells))
    (tmp_path / "t.csv").write_text(text)
    [report] = shell.rows("ingest", "t", str(tmp_path / "t.csv"))
    assert (report["stored"], report["rejected"]) == (5, 6)
    assert shell.rows("ingest", "t", str(tmp_path / "t.csv"))[0]["duplicates"] == 5
    found = shell.rows("query", "SELECT seen, d, price FROM t ORDER BY event_id")
    assert [(row["seen"], row["d"], row["price"]) for row in found] == [row[3:] for row in taken]
    reasons = [row["reason"] for row in shell.rows("query", "SELECT reason FROM t._rejects WHERE reason LIKE 'seen:%'")]
    said = 'expected a timestamp: ISO 8601 text such as "2026-11-20T10:00:00Z", or a number of seconds, ms, µs or ns'
    assert reasons == [f"seen: {said} since 1970, got a string"] * 4


def read_csv(text: bytes) -> tuple[list[object], list[bytes]]:
    """Return the events of one body, and the texts of its rejects."""
    found = by_name("csv").read(SentBody({"content-type": "text/csv"}, text, 0), UNLIMITED)
    return [event.value for event in found.events], [reject.raw for reject in found.rejects]


@settings(max_examples=400)
@given(cells=st.lists(st.text('ab",\n\r ', max_size=9), min_size=1, max_size=40))
@example(['5" pipe', "a,b", '"two\nlines"'])
def test_csv_is_cut_where_its_reader_ends_a_row(cells: list[str]) -> None:
    """A quote within a cell opens nothing."""
    text = "\n".join(["x,y", *cells, "z,z", ""]).encode()
    events, rejects = read_csv(text)
    assume(events[-1:] == [{"x": "z", "y": "z"}])  # else a quote hides where rows end, and no more of the body is read
    with patch.object(event_files, "PART_BYTES", 8):
        cut = [read_csv(part.data) for part in parts(io.BytesIO(text), "a.csv")]
    assert [value for values, _ in cut for value in values] == events
    assert [raw for _, raws in cut for raw in raws] == rejects


def test_numbers_that_json_lacks_and_names_of_two_columns_are_not_lost(shell: Shell, tmp_path: Path) -> None:
    numbers = pa.table({"event_id": ["a", "b", "c"], "f": [1.5, float("nan"), float("-inf")], "l": [[1.0], [], None]})
    pq.write_table(numbers, tmp_path / "numbers.parquet")
    (report,) = shell.rows("ingest", "t", str(tmp_path / "numbers.parquet"))
    assert (report["stored"], report["rejected"]) == (1, 2)
    assert [row["raw"] for row in shell.rows("query", "SELECT decode(raw) AS raw FROM t._rejects ORDER BY raw")] == [
        '{"event_id":"b","f":NaN,"l":[]}',
        '{"event_id":"c","f":-Infinity,"l":null}',
    ]
    inner = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["y", "y"])
    for name, names, columns in (("x", ["x", "x"], [pa.array([1])] * 2), ("y", ["s"], [inner])):
        pq.write_table(pa.Table.from_arrays(columns, names), tmp_path / "twice.parquet")
        told = shell.run("ingest", "t", str(tmp_path / "twice.parquet")).stderr
        assert f"it has the column or field '{name}' twice" in told
    pairs = pa.table({"event_id": ["m"], "m": pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))})
    pq.write_table(pairs, tmp_path / "map.parquet")
    shell.rows("ingest", "t", str(tmp_path / "map.parquet"))
    assert shell.rows("query", "SELECT properties FROM t WHERE event_id = 'm'") == [
        {"properties": '{"m":[{"key":"k","value":1},{"key":"k","value":2}]}'}
    ]


def test_parquet_whose_types_are_views_is_read(shell: Shell, tmp_path: Path) -> None:
    texts = pa.array(["ä", None, "x" * 40], pa.string_view())
    rows = {
        "event_id": pa.array(["1", "2", "3"], pa.string_view()),
        "blob": pa.array([b"a", None, b"c"], pa.binary_view()),
        "tags": pa.array([["x"], None, []], pa.list_view(pa.string_view())),
        "inner": pa.StructArray.from_arrays([texts, pa.array([1, 2, 3], pa.int64())], ["text", "n"]),
        "price": pa.array([Decimal("1.50"), None, Decimal("2.25")], pa.decimal128(5, 2)),
        "seen": pa.array([0, None, 1], pa.timestamp("ms", "Europe/Berlin")),
    }
    pq.write_table(pa.table(rows), tmp_path / "views.parquet")
    [report] = shell.rows("ingest", "t", str(tmp_path / "views.parquet"))
    assert (report["stored"], report["rejected"]) == (3, 0)
    first = json.loads(shell.rows("query", "SELECT properties FROM t WHERE event_id = '1'")[0]["properties"])
    inner = {"text": "ä", "n": 1}
    seen = "1970-01-01T00:00:00Z"
    assert first == {"blob": "YQ==", "tags": ["x"], "inner": inner, "price": 1.5, "seen": seen}
    [report] = shell.rows("upload", "u", str(tmp_path / "views.parquet"))
    assert report["columns"] == {
        "event_id": "string",
        "blob": "binary",
        "tags": "array<string>",
        "inner": "struct<text:string,n:long>",
        "price": "decimal(5,2)",
        "seen": "timestamp",
    }
    [row] = shell.rows("query", "SELECT * FROM u WHERE event_id = '3'")
    assert (row["tags"], row["inner"]["text"], row["price"]) == ([], "x" * 40, 2.25)


def test_rows_of_a_csv_file_may_end_in_carriage_returns_alone(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "mac.csv").write_bytes(b'\xef\xbb\xbfevent_id,event\ra,"x\ry"\r\rb,z')
    assert shell.rows("ingest", "t", str(tmp_path / "mac.csv"))[0]["stored"] == 2
    found = shell.rows("query", "SELECT event_id, event FROM t ORDER BY 1")
    assert found == [{"event_id": "a", "event": "x\ry"}, {"event_id": "b", "event": "z"}]


def test_a_file_is_not_read_far_ahead() -> None:
    line = b'{"event":"tick","text":"' + b"x" * 1000 + b'"}\n'
    for data in (line * 50_000, b"[" + b",".join([line] * 50_000) + b"]"):
        stream = io.BytesIO(data)
        next(parts(stream, "large.json"))
        assert stream.tell() < len(data) // 2


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a[]{},:"\\\n ü'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a]", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(values=st.lists(VALUES, min_size=1, max_size=30), indent=st.sampled_from([None, 0, 2]), escaped=st.booleans())
def test_an_array_is_cut_into_its_elements(values: list[Any], indent: int | None, escaped: bool) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=escaped).encode()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("PART_BYTES", 50), ("_CHUNK_BYTES", 16)):
            patch.setattr(event_files, name, value)
        source: io.BufferedReader[Any] = io.BufferedReader(io.BytesIO(text), 16)
        found = list(event_files._elements(source.read(10), source))
    assert [json.loads(each) for each in found] == values
    assert all(each.count(b"\n") == 1 for each in found)


def test_an_object_that_is_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "VALUE_BYTES_MAX", 100)
    with pytest.raises(Invalid, match="one JSON object per line"):
        list(parts(io.BytesIO(b'{"a":\n"' + b"x" * 200 + b'"}'), "long.json"))
