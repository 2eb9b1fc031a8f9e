from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote_plus

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.store import DirectoryStore, MemoryStore
from alluvia_spark.sources import file_lists, places
from alluvia_spark.sources import source as sources
from alluvia_spark.sources.files import BadFile, SourceFile, SourceOptions, read_range
from alluvia_spark.sources.places import SourceUri, compiled, fixed_part, parse
from alluvia_spark.sources.source import list_files


def _names(source: str | Path) -> list[str]:
    return [
        Path(key).name
        for page in list_files(str(source), ManualClock(), SourceOptions())
        for key in page["key"].to_pylist()
    ]


def _write(path: Path, data: bytes = b"{}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_links_that_lead_back_or_nowhere_are_no_files(tmp_path: Path) -> None:
    folder, other = tmp_path / "in", tmp_path / "other"
    _write(folder / "a.ndjson")
    _write(other / "b.ndjson")
    for link, target in (
        (folder / "itself.ndjson", "itself.ndjson"),
        (folder / "parent", "../in"),
        (folder / "above", tmp_path),
        (folder / "nowhere.ndjson", "gone"),
        (folder / "other", other),
        (other / "back", folder),
    ):
        link.symlink_to(target)
    found = ["a.ndjson", "b.ndjson"]
    assert [_names(source) for source in (folder, folder / "**" / "*.ndjson")] == [found, found]
    assert _names(folder / "parent") == found
    with pytest.raises(Invalid, match=r"source '.*itself\.ndjson' cannot be followed|matches no file"):
        _names(folder / "itself.ndjson")


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_every_spelling_of_s3_is_one_store(scheme: str) -> None:
    assert parse(f"{scheme}://bucket/logs/2015/*.gz") == SourceUri("s3://bucket", "logs/2015/*.gz")


def test_a_question_mark_in_an_s3_source_is_a_wildcard_and_no_query() -> None:
    assert parse("s3://bucket/log-?.json").path == "log-?.json"


@pytest.mark.parametrize("name", ["a#b", "?.json", "x?y=1#z"])
@pytest.mark.parametrize("start", ["file:", "file://", "file://localhost"])
def test_a_file_uri_ends_at_no_question_mark_and_no_hash(start: str, name: str) -> None:
    assert parse(f"{start}/in/{name}") == parse(f"/in/{name}") == SourceUri("file:///", f"in/{name}")


@pytest.mark.parametrize(
    "source", ["", "file://host/a.json", "hdfs://host/path", "https://host/file", "s3://bucket", "s3:///key"]
)
def test_other_sources_are_refused(source: str) -> None:
    with pytest.raises(Invalid, match="source"):
        parse(source)


def test_paths_become_absolute_and_file_uris_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse("a b.json") == parse(f"file://{tmp_path}/a%20b.json") == parse(f"{tmp_path}/x/../a b.json")
    assert parse("a b.json") == parse(f"file:{tmp_path}/a%20b.json")


@pytest.mark.parametrize(
    ("path", "fixed"),
    [
        ("logs/2015/*.gz", "logs/2015/"),
        ("logs/20*/x.gz", "logs/"),
        ("logs/{2015,2016}/x.gz", "logs/"),
        ("*.gz", ""),
        ("logs/a.gz", "logs/a.gz"),
    ],
)
def test_the_fixed_part_ends_before_the_first_wildcard(path: str, fixed: str) -> None:
    assert fixed_part(path) == fixed


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("logs/*.gz", ["logs/a.gz", "logs/.gz"], ["logs/deep/a.gz", "logs/a.GZ", "logs/a.gz2", "logs/agz"]),
        ("logs/*", ["logs/a.gz", "logs/deep/a.gz"], ["other/a"]),
        ("logs/d?", ["logs/d1", "logs/d1/deep/a"], ["logs/d", "logs/d12", "logs/d/"]),
        ("20[12]5/*.gz", ["2015/a.gz", "2025/a.gz"], ["2035/a.gz"]),
        ("[a-c]/[!x-z^]", ["a/b", "c/]"], ["d/b", "a/x", "a/^", "a//"]),
        ("[]a]", ["]", "a"], ["b", "[]a]"]),
        ("a[b", ["a[b"], ["ab"]),
        ("{a,b{1,2}}/*.{gz,zst}", ["a/x.gz", "b1/x.zst", "b2/x.gz"], ["b/x.gz", "a/x.bz2", "a/xgz"]),
        ("a,b}", ["a,b}"], ["a", "b}"]),
        ("logs/**/*.gz", ["logs/a.gz", "logs/1/2/a.gz"], ["logs.gz", "logs/1/a.zst", "logsx/a.gz"]),
        ("**/a", ["a", "1/2/a", "a/b"], ["1/ba"]),
        ("logs/**", ["logs/a", "logs/1/2"], ["logs", "other"]),
        ("a.b+c(d)", ["a.b+c(d)", "a.b+c(d)/x"], ["axb+c(d)"]),
        ("a\nb*", ["a\nb\nc"], []),
    ],
)
def test_patterns(pattern: str, fitting: list[str], others: list[str]) -> None:
    form = compiled(pattern)
    assert [key for key in [*fitting, *others] if form.fullmatch(key)] == fitting


@pytest.mark.parametrize("pattern", ["a{b", "{a,{b}", "[z-a]"])
def test_patterns_that_say_nothing(pattern: str) -> None:
    with pytest.raises(Invalid, match="source"):
        compiled(pattern)


def test_a_file_a_directory_and_a_glob(tmp_path: Path) -> None:
    one = _write(tmp_path / "_in" / "b.ndjson")
    _write(tmp_path / "_in" / "deep" / "a.ndjson.gz")
    _write(tmp_path / "_in" / "_SUCCESS")
    _write(tmp_path / "_in" / ".hidden" / "c.ndjson")
    _write(tmp_path / "_in" / "empty.ndjson", b"")
    assert _names(one) == ["b.ndjson"]
    assert _names(tmp_path / "_in") == ["b.ndjson", "a.ndjson.gz"]
    assert _names(f"{tmp_path}/_in/") == ["b.ndjson", "a.ndjson.gz"]
    assert _names(tmp_path / "_in" / "*.ndjson") == ["b.ndjson"]
    assert _names(tmp_path / "_in" / "*" / "*.gz") == ["a.ndjson.gz"]
    assert _names(tmp_path / "_in" / "**" / "*.{gz,ndjson}") == ["b.ndjson", "a.ndjson.gz"]


@pytest.mark.parametrize("name", ["lg[2024]", "a*", "{b}", "what?"])
def test_a_directory_whose_name_would_be_a_pattern(tmp_path: Path, name: str) -> None:
    _write(tmp_path / name / "x.json")
    _write(tmp_path / "lg2" / "other.json")
    _write(tmp_path / "aa" / "other.json")
    assert _names(tmp_path / name) == _names(f"{tmp_path / name}/") == ["x.json"]
    assert _names(tmp_path / "lg[2]") == ["other.json"]


def test_a_file_with_its_size_and_its_etag(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.ndjson.gz", b"12345")
    (page,) = list_files(str(path), ManualClock(), SourceOptions())
    (found,) = page.to_pylist()
    info = DirectoryStore(tmp_path).head("a.ndjson.gz")
    assert info is not None
    assert found == {"root": "file:///", "key": str(path)[1:], "size": 5, "etag": info.etag, "cut": False}


def test_nothing_to_read_and_formats_that_are_not_read(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="matches no file"):
        _names(tmp_path / "absent")
    _write(tmp_path / "in" / "a.avro")
    with pytest.raises(Invalid, match=r"a\.avro is in a format or a compression that is not read"):
        _names(tmp_path / "in")


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.ndjson", b'{"a": 1}\n' * 9, True),
        ("a", b"text\n" * 9, True),
        ("a.ndjson", b'{"broken\n' + b'{"a": 1}\n' * 9, True),
        ("a.ndjson", b"[1]\n" * 9, True),
        ("a.json", b"[" + b'{"a": 1},\n' * 9, False),
        ("a.json", b'[{"a": 1}]' + b"\n" * 9, False),
        ("a.json", b'{\n"a":' + b"1" * 20, False),
        ("a.gz", b'{"a": 1}\n' * 9, False),
        ("a.csv", b"a\n" * 20, False),
        ("a.parquet", b"a\n" * 20, False),
        ("a", b"PAR1" * 9, False),
        ("a", gzip.compress(b"a", mtime=0), False),
        ("a", '{"a": 1}\n'.encode("utf-16") * 3, False),
    ],
)
def test_only_plain_lines_are_divided(
    name: str, data: bytes, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CUT_BYTES_MIN", 15)
    _write(tmp_path / name, data)
    (page,) = list_files(str(tmp_path / name), ManualClock(), SourceOptions())
    assert page["cut"].to_pylist() == [expected]


PLACE = "s3://b"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The bucket `b`."""
    store = MemoryStore()
    monkeypatch.setattr(places, "open_store", lambda _root, _clock: store)
    for key, size in (("a b.gz", 5), ("deep/c.gz", 7), ("empty", 0)):
        store.put(key, b"x" * size)
    return store


def _of_list(key: str) -> list[tuple[object, ...]]:
    pages = list_files(f"{PLACE}/{key}", ManualClock(), SourceOptions(is_list=True))
    return [(f["root"], f["key"], f["size"], f["etag"]) for page in pages for f in page.to_pylist()]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lambda text: text.decode().encode("utf-16")])
def test_a_list_of_uris_is_asked_for_what_it_does_not_say(
    bucket: MemoryStore, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lists, "PAGE_FILES", 2)
    bucket.put("list", pack(b"s3://b/deep/c.gz\n\ns3a://b/a b.gz\r\ns3://b/gone.gz\ns3://b/empty"))
    etags = {info.key: info.etag for info in bucket.list("")}
    assert _of_list("list") == [
        (PLACE, "deep/c.gz", 7, etags["deep/c.gz"]),
        (PLACE, "a b.gz", 5, etags["a b.gz"]),
        (PLACE, "gone.gz", 1, '"missing"'),
    ]
    gone = SourceFile(PLACE, "gone.gz", 1, '"missing"')
    with pytest.raises(BadFile, match=r"gone\.gz is missing"):
        read_range(bucket, gone, 0, 1)
    bucket.put("gone.gz", b"{}")  # of which the job would read a byte
    with pytest.raises(Invalid, match=r"gone\.gz has changed since the job began"):
        read_range(bucket, gone, 0, 1)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("s3://b/in//a.json", "has a key with an empty part, '.' or '..', which is not read"),
        ("b,in/../a.json,5,e", "has a key with an empty part"),
        ("s3://b/in/", "is a folder"),
        ("s3://b/in/*.json", r"is missing \(a list names files; it takes no patterns\)"),
    ],
)
def test_a_line_that_names_no_file_that_is_read_is_a_bad_file(bucket: MemoryStore, line: str, why: str) -> None:
    bucket.put("list", f"{line}\n".encode())
    ((root, key, size, etag),) = _of_list("list")
    with pytest.raises(BadFile, match=f"source file s3://b/in/.* {why}"):
        read_range(bucket, SourceFile(str(root), str(key), 1, str(etag)), 0, 1)
    assert size


@pytest.mark.parametrize("header", ["", "bucket,key,size,etag\n", "Size,Key,Bucket,ETag\n"])
def test_a_list_with_sizes_and_etags_costs_no_request_a_file(bucket: MemoryStore, header: str) -> None:
    rows = ["b,deep/c.gz,7,abc", 'b,"x,y.gz",9,"""d-2"""']
    if header.startswith("Size"):
        rows = ["7,deep/c.gz,b,abc", '9,"x,y.gz",b,"""d-2"""']
    bucket.put("list.csv", (header + "\n".join(rows)).encode())
    assert _of_list("list.csv") == [(PLACE, "deep/c.gz", 7, '"abc"'), (PLACE, "x,y.gz", 9, '"d-2"')]


@pytest.mark.parametrize("form", ["CSV", "Parquet"])
def test_an_s3_inventory(bucket: MemoryStore, form: str) -> None:
    rows = [
        {"bucket": "b", "key": "a b.gz", "is_latest": True, "is_delete_marker": False, "size": 5, "e_tag": "one"},
        {"bucket": "b", "key": "a b.gz", "is_latest": False, "is_delete_marker": False, "size": 6, "e_tag": "old"},
        {"bucket": "b", "key": "gone", "is_latest": True, "is_delete_marker": True, "size": None, "e_tag": None},
        {"bucket": "b", "key": "c", "is_latest": True, "is_delete_marker": False, "size": 7, "e_tag": "two-3"},
    ]
    names = "Bucket, Key, IsLatest, IsDeleteMarker, Size, ETag"
    if form == "CSV":
        cells = [["" if cell is None else quote_plus(str(cell)) for cell in row.values()] for row in rows]
        text = "".join(",".join(f'"{cell.lower()}"' for cell in row) + "\n" for row in cells)
        bucket.put("inv/data/1.csv.gz", gzip.compress(text.encode()))
        key = "inv/data/1.csv.gz"
    else:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows), sink)
        bucket.put("inv/data/1.parquet", sink.getvalue().to_pybytes())
        key, names = "inv/data/1.parquet", "message s3.inventory { ... }"
    manifest = {
        "sourceBucket": "b",
        "destinationBucket": "arn:aws:s3:::b",
        "fileFormat": form,
        "fileSchema": names,
        "files": [{"key": key, "size": 1, "MD5checksum": "x"}],
    }
    bucket.put("inv/manifest.json", orjson.dumps(manifest))
    assert _of_list("inv/manifest.json") == [(PLACE, "a b.gz", 5, '"one"'), (PLACE, "c", 7, '"two-3"')]


@pytest.mark.parametrize(
    ("key", "data", "says"),
    [
        (
            "list",
            b"b,a,5\nb,a,many\n",
            r"line 2, 'b,a,many': the size 'many' is not a number .*manifest\.json\)\. A list",
        ),
        ("list", b"b\n", "s3://b/list is not a list of files: line 1, 'b': it has no bucket and key"),
        (
            "list",
            b"in/a.json\nin/b.json\n",
            "line 1, 'in/a.json': .* A list has a URI or an absolute path in each line",
        ),
        ("list", b"s3://b/a\n\nin/b.json\n", "line 3, 'in/b.json': it is neither a URI nor an absolute path"),
        ("list", b"\n \n", "it is empty"),
        ("list.json", b'["s3://b/a"]', r"it is not the manifest\.json of an S3 Inventory"),
        ("list", gzip.compress(b"s3://b/a b.gz", mtime=0)[:-4], "gzip data is damaged"),
        ("manifest.json", b"{}", "not a list of files"),
        ("manifest.json", b'{"destinationBucket": "b", "fileFormat": "ORC"}', "as CSV or Parquet"),
        ("absent", None, "absent, which is missing"),
        ("list", b"https://b/a\n", "line 1, 'https://b/a': .*must be s3"),
    ],
)
def test_lists_that_cannot_be_read(bucket: MemoryStore, key: str, data: bytes | None, says: str) -> None:
    if data is not None:
        bucket.put(key, data)
    with pytest.raises(Invalid, match=says):
        _of_list(key)
