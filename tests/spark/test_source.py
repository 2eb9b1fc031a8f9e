from __future__ import annotations

from pathlib import Path

import pytest

from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia_spark.source import (
    OPEN_COST_BYTES,
    FileSplit,
    SourceFile,
    SourceUri,
    expand,
    matches,
    parse,
    plan_splits,
)


def _names(source: str | Path) -> list[str]:
    return [Path("/", file.key).name for file in expand(str(source), ManualClock())]


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
    [("logs/2015/*.gz", "logs/2015/"), ("logs/20*/x.gz", "logs/"), ("*.gz", ""), ("logs/a.gz", "logs/a.gz")],
)
def test_the_fixed_part_ends_before_the_first_wildcard(path: str, fixed: str) -> None:
    assert SourceUri("s3://bucket", path).fixed == fixed


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("logs/*.gz", "logs/a.gz", True),
        ("logs/*.gz", "logs/deep/a.gz", False),
        ("logs/*", "logs/deep/a.gz", True),
        ("logs/20[12]5/*.gz", "logs/2015/a.gz", True),
        ("logs/20[12]5/*.gz", "logs/2035/a.gz", False),
        ("logs/*", "logs/_SUCCESS", False),
        ("logs/*", "logs/.hidden/a.gz", False),
        ("*.gz", "a.GZ", False),
    ],
)
def test_patterns(pattern: str, key: str, expected: bool) -> None:
    assert matches(pattern, key, SourceUri("s3://bucket", pattern).fixed) is expected


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


def test_a_file_knows_its_size_and_its_uri(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.ndjson.gz", b"12345")
    (file,) = expand(str(path), ManualClock())
    assert (file.size, file.name, file.is_gzip) == (5, path.as_uri(), True)


def test_nothing_to_read_and_formats_that_are_not_read(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="matches no file"):
        expand(str(tmp_path / "absent"), ManualClock())
    _write(tmp_path / "in" / "a.parquet")
    with pytest.raises(Invalid, match=r"a\.parquet is not NDJSON"):
        expand(str(tmp_path / "in"), ManualClock())


def test_big_plain_files_are_cut_and_gzip_files_are_not() -> None:
    plain, packed = SourceFile("s3://b", "a", 250), SourceFile("s3://b", "b.gz", 250)
    assert plan_splits([plain, packed], 100) == [
        (FileSplit(plain, 0, 83),),
        (FileSplit(plain, 83, 166),),
        (FileSplit(plain, 166, 250),),
        (FileSplit(packed, 0, 250),),
    ]


def test_small_files_share_a_task_in_order() -> None:
    files = [SourceFile("s3://b", f"{at:02}", 1) for at in range(10)]
    tasks = plan_splits(files, 4 * OPEN_COST_BYTES)
    assert [len(task) for task in tasks] == [4, 4, 2]
    assert [split.file for task in tasks for split in task] == files
