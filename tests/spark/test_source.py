from __future__ import annotations

from pathlib import Path

import pytest

from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.store import DirectoryStore
from alluvia_spark.globs import compiled, fixed_part
from alluvia_spark.source import SourceUri, list_files, parse


def _names(source: str | Path) -> list[str]:
    return [Path(key).name for page in list_files(str(source), ManualClock()) for key in page["key"].to_pylist()]


def _write(path: Path, data: bytes = b"{}\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_every_spelling_of_s3_is_one_store(scheme: str) -> None:
    assert parse(f"{scheme}://bucket/logs/2015/*.gz") == SourceUri("s3://bucket", "logs/2015/*.gz")


def test_a_question_mark_in_an_s3_source_is_a_wildcard_and_no_query() -> None:
    assert parse("s3://bucket/log-?.json").path == "log-?.json"


@pytest.mark.parametrize("source", ["", "hdfs://host/path", "https://host/file", "s3://bucket", "s3:///key"])
def test_other_sources_are_refused(source: str) -> None:
    with pytest.raises(Invalid, match="source"):
        parse(source)


def test_paths_become_absolute_and_file_uris_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse("a b.json") == parse(f"file://{tmp_path}/a%20b.json") == parse(f"{tmp_path}/x/../a b.json")


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


def test_a_file_with_its_size_and_its_etag(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.ndjson.gz", b"12345")
    (page,) = list_files(str(path), ManualClock())
    (found,) = page.to_pylist()
    info = DirectoryStore(tmp_path).head("a.ndjson.gz")
    assert info is not None
    assert found == {"root": "file:///", "key": str(path)[1:], "size": 5, "etag": info.etag, "cut": False}


def test_nothing_to_read_and_formats_that_are_not_read(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="matches no file"):
        _names(tmp_path / "absent")
    _write(tmp_path / "in" / "a.parquet")
    with pytest.raises(Invalid, match=r"a\.parquet is not NDJSON"):
        _names(tmp_path / "in")
