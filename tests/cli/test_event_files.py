"""Files of events in every form: each event once, however the file is cut, read again or worked on."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from alluvia.cli.commands.files import GROUP_FILES_MAX
from alluvia.errors import Invalid
from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.ingest.envelope import split_json
from alluvia.events.ingest.values import UNLIMITED
from alluvia.files import event_files
from alluvia.files.event_files import parts
from tests.cli.test_commands import Shell

EVENTS = [{"event_id": f"e{at}", "event": f"line\n{at}" if at % 3 else "plain", "n": at} for at in range(40)]


def ndjson(events: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def csv(events: list[dict[str, Any]]) -> bytes:
    rows = [f'{event["event_id"]},"{event["event"]}",{event["n"]}' for event in events]
    return "\n".join(["event_id,event,n", *rows]).encode()


def semicolons(events: list[dict[str, Any]]) -> bytes:
    """Return CSV as spreadsheets write it where the comma is in numbers."""
    rows = [f'{event["event_id"]};"{event["event"]}";{event["n"]}' for event in events]
    return "\r\n".join(['"event_id";event;n', *rows]).encode()


def parquet(events: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(events), sink)
    return sink.getvalue()


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


FORMS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "lines.ndjson": ndjson,
    "lines.ndjson.gz": lambda events: gzip.compress(ndjson(events)),
    "lines.zst": lambda events: zstd(ndjson(events)),
    "array.json": lambda events: json.dumps(events, indent=1).encode(),
    "line.json": lambda events: json.dumps(events).encode(),
    "table.csv": csv,
    "spreadsheet.csv": lambda events: b"\xef\xbb\xbf\r\n" + semicolons(events),
    "bars.csv": lambda events: semicolons(events).replace(b";", b"|"),
    "table.csv.gz": lambda events: gzip.compress(csv(events)),
    "table.parquet": parquet,
}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "lake")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have files of a few KB come in many parts, as large ones do."""
    for name, value in (("PART_BYTES", 300), ("VALUE_BYTES_MAX", 400), ("_CHUNK_BYTES", 64), ("PARQUET_ROWS", 7)):
        monkeypatch.setattr(event_files, name, value)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_rows_once(shell: Shell, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FORMS[name](EVENTS))
    shell.run("create", "t", "--column", "n:long")
    [report] = shell.rows("ingest", "t", str(tmp_path / name))
    assert (report["stored"], report["rejected"]) == (40, 0)
    assert shell.rows("ingest", "t", str(tmp_path / name))[0]["duplicates"] == 40
    assert shell.rows("query", "SELECT event_id, event, n FROM t ORDER BY n") == EVENTS


@pytest.mark.usefixtures("small")
def test_equal_events_in_several_parts_of_a_file_are_all_stored_and_once(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "same.ndjson").write_bytes(b'{"event":"tick"}\n' * 100)
    assert shell.rows("ingest", "t", str(tmp_path / "same.ndjson"))[0]["stored"] == 100
    assert shell.rows("ingest", "t", str(tmp_path / "same.ndjson"))[0]["duplicates"] == 100
    assert shell.rows("query", "SELECT count(*) AS n FROM t") == [{"n": 100}]


@pytest.mark.usefixtures("small")
def test_positions_of_rejects_count_from_the_start_of_the_file(shell: Shell, tmp_path: Path) -> None:
    lines = [b'{"event":"a"}\n'] * 60
    lines[50] = b'{"event":\n'
    (tmp_path / "broken.ndjson").write_bytes(b"".join(lines))
    assert shell.rows("ingest", "t", str(tmp_path / "broken.ndjson"))[0]["rejected"] == 1
    assert shell.rows("query", "SELECT position FROM t._rejects") == [{"position": 50}]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("odd", [b'[{"event_id":"x"},{"event_id":"y"}]', b'\xef\xbb\xbf{"event_id":"x"}', b'{"n":\n1}'])
@pytest.mark.parametrize("more", [b"", b'\n{"event_id":"last"}'])
def test_a_line_is_read_alike_wherever_a_part_begins(shell: Shell, tmp_path: Path, odd: bytes, more: bytes) -> None:
    lines = b'{"event_id":"%02d"}\n'
    before = [lines % number for number in range(-(-event_files.PART_BYTES // len(lines % 0)))]
    path = tmp_path / "odd.ndjson"
    path.write_bytes(b"".join(before) + odd + more)
    with path.open("rb") as file:
        assert [part.data.splitlines()[0] for part in parts(file, path.name)] == [
            b'{"event_id":"00"}',
            odd.split(b"\n")[0],
        ]
    found = split_json(path.read_bytes(), "application/x-ndjson", UNLIMITED)
    report = shell.rows("ingest", "t", str(path))[0]
    assert (report["stored"], report["rejected"]) == (len(found.events), len(found.rejects))
    reasons = shell.rows("query", "SELECT position, reason FROM t._rejects ORDER BY position")
    assert reasons == [{"position": each.position, "reason": each.reason} for each in found.rejects] != []


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("name", "end", "says"),
    [
        ("array.json", b', {"event_id": ]', "element 40"),
        ("array.json", b"] []", "more follows element 39"),
        ("table.csv", b'\nlast,"never closed' + b" \n" * 300, "is not closed"),
    ],
)
def test_what_comes_before_a_damage_is_ingested(shell: Shell, tmp_path: Path, name: str, end: bytes, says: str) -> None:
    whole = FORMS[name](EVENTS)
    (tmp_path / name).write_bytes((whole[: whole.rindex(b"]")] if name == "array.json" else whole) + end)
    result = shell.run("ingest", "t", str(tmp_path / name))
    assert (result.exit_code, says in result.stderr) == (1, True)
    assert "the events before it were ingested" in result.stderr
    assert shell.rows("query", "SELECT count(*) AS n FROM t") == [{"n": 40}]


def test_a_cut_gzip_file_gives_what_it_holds(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(ndjson(EVENTS * 50))[:-60])
    result = shell.run("ingest", "t", str(tmp_path / "cut.gz"))
    assert (result.exit_code, "gzip data is damaged" in result.stderr) == (1, True)
    assert shell.rows("query", "SELECT count(*) AS n FROM t") == [{"n": 40}]


def test_patterns_name_files(shell: Shell, tmp_path: Path) -> None:
    for at in range(3):
        (tmp_path / f"part{at}.ndjson").write_bytes(ndjson(EVENTS[at : at + 1]))
    reports = shell.rows("ingest", "t", str(tmp_path / "part[01]*.ndjson"))
    assert [Path(report["file"]).name for report in reports] == ["part0.ndjson", "part1.ndjson"]
    result = shell.run("ingest", "t", str(tmp_path / "*.csv"))
    assert (result.exit_code, "*.csv: no file matches" in result.stderr) == (1, True)


def test_csv_and_parquet_that_cannot_be_read_say_why(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    assert "'a' twice" in shell.run("ingest", "t", str(tmp_path / "twice.csv")).stderr
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    assert "the Parquet file is damaged" in shell.run("ingest", "t", str(tmp_path / "bad.parquet")).stderr
    assert not shell.lake.exists()  # a file without events makes no table
    (tmp_path / "empty.csv").write_text("a,b\n")
    assert "contains no events" in shell.run("ingest", "t", str(tmp_path / "empty.csv")).stderr


@pytest.mark.parametrize("more", [(), ("--workers", "2")])
def test_a_file_that_cannot_be_read_stops_no_other(shell: Shell, tmp_path: Path, more: tuple[str, ...]) -> None:
    names = ["1.ndjson", "2-empty.ndjson", "3-cut.json", "4-bad.parquet", "5-none.parquet", "6.ndjson"]
    cut = json.dumps(EVENTS).encode()[:-1] + b", {"
    texts = [ndjson(EVENTS[:3]), b"", cut, b"PAR1 and no more", parquet([{"event": "a"}][:0]), ndjson([{"event": "x"}])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_files, "VALUE_BYTES_MAX", 400)
        for name, text in zip(names, texts, strict=True):
            (tmp_path / name).write_bytes(text)
        result = shell.run("ingest", "t", str(tmp_path / "*.*"), str(tmp_path / "missing.csv"), "--json", *more)
    reports = {Path(row["file"]).name: row["stored"] for row in map(json.loads, result.stdout.splitlines())}
    assert reports == {"1.ndjson": 3, "2-empty.ndjson": 0, "3-cut.json": 37, "5-none.parquet": 0, "6.ndjson": 1}
    assert result.exit_code == 1
    for said in (
        "3-cut.json: expected one",
        "4-bad.parquet: the Parquet file is damaged",
        "missing.csv'",
        "3 of 7 files",
    ):
        assert said in result.stderr
    assert "empty" not in result.stderr
    assert "none.parquet" not in result.stderr
    assert shell.rows("query", "SELECT count(*) AS n FROM t") == [{"n": 41}]


@pytest.mark.parametrize("more", [(), ("--workers", "2")])
def test_small_files_are_committed_together_and_counted_each(
    shell: Shell, tmp_path: Path, more: tuple[str, ...]
) -> None:
    shell.rows("create", "t", "--column", "n:long")
    count = GROUP_FILES_MAX + 44
    for at in range(count):
        (tmp_path / f"{at:03}.ndjson").write_bytes(ndjson([{"event": "tick", "n": at}] * (at % 3 + 1)))
    (tmp_path / "017.ndjson").write_bytes(b'{"event_id":"a","n":1}\n{"event_id":"b","n":"one"}\n{"event_id":"c"}\n')
    (tmp_path / "018.ndjson").write_bytes(b'{"event_id":"a","n":1}\n{"event_id":"c","n":2}\n')
    files = str(tmp_path / "*.ndjson")
    reports = [list(row.values())[1:6] for row in shell.rows("ingest", "t", files, *more)]
    expected = [[at % 3 + 1, at % 3 + 1, 0, 0, 0] for at in range(count)]
    expected[17], expected[18] = [2, 2, 0, 1, 0], [1, 0, 1, 1, 1]
    assert reports == expected
    rejects = [row["reason"] for row in shell.rows("query", "SELECT reason FROM t._rejects ORDER BY 1")]
    assert ["n" in reason for reason in rejects] == [True, True]
    [commits] = shell.rows("query", "SELECT count(*) AS n FROM history('t') WHERE operation <> 'CREATE TABLE'")
    assert commits["n"] == 2
    again = shell.rows("ingest", "t", files, *more)
    assert [row["stored"] for row in again] == [0] * count
    assert [row["accepted"] for row in again] == [row[0] for row in expected]


def test_zstd_may_begin_with_a_frame_to_skip(shell: Shell, tmp_path: Path) -> None:
    frames = [bytes([first]) + b"\x2a\x4d\x18\x02\x00\x00\x00ab" for first in (0x50, 0x5F)]
    (tmp_path / "a.zst").write_bytes(frames[0] + frames[1] + zstd(ndjson(EVENTS)))
    assert shell.rows("ingest", "t", str(tmp_path / "a.zst"))[0]["stored"] == 40


def test_files_of_another_compression_are_refused_by_its_name(shell: Shell, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.ndjson", ndjson(EVENTS))
    large_window = b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + b"\x09\x00\x00 "  # RFC 8878, 3.1.1.1.2
    for data, said in (
        (bz2.compress(ndjson(EVENTS)), "compressed with bzip2"),
        (lzma.compress(ndjson(EVENTS)), "compressed with xz"),
        (gzip.compress(lzma.compress(ndjson(EVENTS))), "compressed with xz"),
        (packed.getvalue(), "compressed with zip"),
        (large_window, "compress it with --long=27"),
    ):
        (tmp_path / "a.ndjson").write_bytes(data)
        result = shell.run("ingest", "t", str(tmp_path / "a.ndjson"))
        assert (result.exit_code, said in result.stderr, result.stdout) == (1, True, "")


def test_cells_of_typed_columns_are_read_as_numbers_are(shell: Shell, tmp_path: Path) -> None:
    shell.run("create", "t", "--column", "seen:timestamp", "--column", "d:double", "--column", "price:decimal(9,2)")
    taken = [
        ("1700000000", ".5", ".50", "2023-11-14T22:13:20Z", 0.5, 0.5),
        (" 1700000000123 ", "-5.", "5.", "2023-11-14T22:13:20.123Z", -5.0, 5.0),
        ("1700000000123456", "+.5e1", "-.05", "2023-11-14T22:13:20.123456Z", 5.0, -0.05),
        ("1700000000.25", "7", "7.25", "2023-11-14T22:13:20.25Z", 7.0, 7.25),
    ]
    dates = ["2026", "20261120", "202611201200", "20261120120000", "0000000001"]  # which are no numbers of seconds
    cells = [row[:3] for row in taken] + [(date, "1", "1") for date in dates] + [("", ".", "1"), ("", "1", ".")]
    text = "event_id,seen,d,price\n" + "".join(f"{n:02},{','.join(row)}\n" for n, row in enumerate(cells))
    (tmp_path / "t.csv").write_text(text)
    [report] = shell.rows("ingest", "t", str(tmp_path / "t.csv"))
    assert (report["stored"], report["rejected"]) == (4, 7)
    assert shell.rows("ingest", "t", str(tmp_path / "t.csv"))[0]["duplicates"] == 4
    found = shell.rows("query", "SELECT seen, d, price FROM t ORDER BY event_id")
    assert [(row["seen"], row["d"], row["price"]) for row in found] == [row[3:] for row in taken]
    reasons = [row["reason"] for row in shell.rows("query", "SELECT reason FROM t._rejects WHERE reason LIKE 'seen:%'")]
    said = 'expected a timestamp: ISO 8601 text such as "2026-11-20T10:00:00Z", or a number of seconds, ms or µs'
    assert reasons == [f"seen: {said} since 1970, got a string"] * 5


def test_a_folder_and_a_uri_are_refused_with_what_to_type(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "logs [1]").mkdir()
    (tmp_path / "logs [1]" / "a.ndjson").write_bytes(ndjson(EVENTS))
    said = shell.run("ingest", "t", str(tmp_path / "logs [1]")).stderr
    pattern = said.split('"')[1]
    assert shell.rows("ingest", "t", pattern)[0]["stored"] == 40
    for name, fix in (
        ("s3://b/x y.ndjson", "`alluvia backfill t 's3://b/x y.ndjson'`"),
        ("https://example.com/x.ndjson", '"-"'),
        ("file:///x.ndjson", "leave out file://"),
    ):
        result = shell.run("ingest", "t", name)
        assert (result.exit_code, name in result.stderr, fix in result.stderr) == (1, True, True)


def read_csv(text: bytes) -> tuple[list[object], list[bytes]]:
    """Return the events of one body, and the texts of its rejects."""
    found = by_name("csv").read(SentBody({"content-type": "text/csv"}, text, 0), UNLIMITED)
    return [event.value for event in found.events], [reject.raw for reject in found.rejects]


@settings(max_examples=400)
@given(cells=st.lists(st.text('ab",\n', max_size=9), min_size=1, max_size=40))
@example(['5" pipe', "a,b", '"two\nlines"'])
def test_csv_is_cut_where_its_reader_ends_a_row(cells: list[str]) -> None:
    """A quote within a cell opens nothing."""
    text = "\n".join(["x,y", *cells, "z,z", ""]).encode()
    events, rejects = read_csv(text)
    assume(not any(b"\n" in raw for raw in rejects))  # after which the reader of a body reads no more
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
    assert found == [{"event_id": "a", "event": "x\ny"}, {"event_id": "b", "event": "z"}]


def test_several_processes_store_each_event_once(shell: Shell, tmp_path: Path) -> None:
    events = [{"event": "tick", "n": at, "text": "x" * 400} for at in range(12_000)]
    (tmp_path / "large.ndjson").write_bytes(ndjson(events))
    [report] = shell.rows("ingest", "t", str(tmp_path / "large.ndjson"), "--workers", "2")
    assert (report["stored"], report["rejected"]) == (12_000, 0)
    assert shell.rows("ingest", "t", str(tmp_path / "large.ndjson"))[0]["duplicates"] == 12_000
    [found] = shell.rows("query", "SELECT count(*) AS n, count(DISTINCT properties) AS different FROM t")
    assert found == {"n": 12_000, "different": 12_000}


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
