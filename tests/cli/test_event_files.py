"""Files of events in every form: each event once, however the file is cut, read again or worked on."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from alluvia.cli.commands.files import GROUP_FILES_MAX, workers_for
from alluvia.events.ingest.envelope import split_json
from alluvia.events.ingest.values import UNLIMITED
from alluvia.files import event_files
from alluvia.files.event_files import parts
from tests.cli.event_files import EVENTS, FORMS, ndjson, parquet
from tests.cli.test_commands import Shell


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
        "missing.csv: No such file or directory",
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


def test_files_of_another_compression_are_refused_by_its_name(shell: Shell, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.ndjson", ndjson(EVENTS))
    large_window = b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + b"\x09\x00\x00 "  # RFC 8878, 3.1.1.1.2
    for data, said in (
        (bz2.compress(ndjson(EVENTS)), "compressed with bzip2"),
        (lzma.compress(ndjson(EVENTS)), "compressed with xz"),
        (gzip.compress(lzma.compress(ndjson(EVENTS))), "compressed with xz"),
        (packed.getvalue(), "the data is a zip archive"),
        (large_window, "compress it with --long=27"),
    ):
        (tmp_path / "a.ndjson").write_bytes(data)
        result = shell.run("ingest", "t", str(tmp_path / "a.ndjson"))
        assert (result.exit_code, said in result.stderr, result.stdout) == (1, True, "")


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


def test_several_processes_store_each_event_once(shell: Shell, tmp_path: Path) -> None:
    events = [{"event": "tick", "n": at, "text": "x" * 400} for at in range(12_000)]
    (tmp_path / "large.ndjson").write_bytes(ndjson(events))
    [report] = shell.rows("ingest", "t", str(tmp_path / "large.ndjson"), "--workers", "2")
    assert (report["stored"], report["rejected"]) == (12_000, 0)
    assert shell.rows("ingest", "t", str(tmp_path / "large.ndjson"))[0]["duplicates"] == 12_000
    [found] = shell.rows("query", "SELECT count(*) AS n, count(DISTINCT properties) AS different FROM t")
    assert found == {"n": 12_000, "different": 12_000}


@pytest.mark.parametrize(
    ("megabytes", "cores", "number"), [(63, 8, 1), (64, 8, 4), (64, 3, 3), (999, 2, 1), (64, None, 1)]
)
def test_several_processes_are_for_large_files_and_several_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, megabytes: int, cores: int | None, number: int
) -> None:
    for name in ("a", "b"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(megabytes << 19)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert workers_for([str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "missing"), "-"]) == number


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("blank", [b"\n", b" \t\r\n", b""])
@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_a_part_ends_with_the_line_that_fills_it(blank: bytes, end: bytes) -> None:
    """Ids of events without ids depend on where parts end."""
    lines = [b'{"n":%d,"text":"%b"}\n' % (at, b"x" * (at * 37 % 200)) for at in range(60)]
    text = b"".join(line + blank * (at % 4) for at, line in enumerate(lines)).rstrip() + end
    found = list(parts(io.BytesIO(text), "events.ndjson"))
    assert b"".join(part.data for part in found).rstrip() == text.rstrip()
    for part in found[:-1]:
        *before, _ = part.data.splitlines(keepends=True)
        assert len(b"".join(before)) < event_files.PART_BYTES <= len(part.data)
        assert part.data.endswith(b"\n")
    counts = [sum(bool(line.strip()) for line in part.data.split(b"\n")) for part in found]
    assert [part.position for part in found] == [sum(counts[:at]) for at in range(len(found))]
    assert sum(counts) == 60


@pytest.mark.usefixtures("small")
def test_a_line_that_takes_many_reads_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[bytes] = []
    cut = event_files._cut_lines

    def noted(text: bytes) -> Iterator[tuple[bytes, bool]]:
        searched.append(text)
        return cut(text)

    monkeypatch.setattr(event_files, "_cut_lines", noted)
    text = b'{"n":1}\n{"text":"%b"}\n{"n":3}\n' % (b"x" * 100_000)
    assert b"".join(part.data for part in parts(io.BytesIO(text), "events.ndjson")) == text
    assert sum(map(len, searched)) < 2 * len(text)
