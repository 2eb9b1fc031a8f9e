from __future__ import annotations

import orjson
import pytest

from alluvia.delta.log.actions import AddFile, RemoveFile, Txn
from alluvia.delta.log.commit import parse_commit
from alluvia.delta.log.paths import (
    CheckpointFile,
    CommitFile,
    commit_name,
    decode_path,
    encode_path,
    folder_of,
    is_absolute,
    parse_name,
)
from alluvia.errors import Corrupt

NAME = "_delta_log/00000000000000000012.json"
ADD = b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":2,"dataChange":true}}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"add":{"path":"x"', "JSONDecodeError"),
        (ADD[:-9], "JSONDecodeError"),
        (b"[]", "AttributeError"),
        (b"null", "AttributeError"),
        (b'{"add":{"size":1}}', "path"),
        (b'{"add":"x"}', "Error"),
        (b'{"add":{"path":"a","size":"many","modificationTime":2,"dataChange":true}}', "many"),
        (b'{"protocol":{"minReaderVersion":1}}', "minWriterVersion"),
        (b'{"txn":{"version":1}}', "appId"),
        (b'{"commitInfo":"x"}', "ValueError"),
        (b"\xff\xfe", "JSONDecodeError"),
    ],
)
def test_a_damaged_line_is_named(line: bytes, reason: str) -> None:
    with pytest.raises(Corrupt, match=f"{NAME}, line 3: .*{reason}"):
        parse_commit(12, ADD + b"\n\n" + line + b"\n")


@pytest.mark.parametrize("data", [b"", b"\n", b"  \n\n"])
def test_an_empty_commit_is_damaged(data: bytes) -> None:
    with pytest.raises(Corrupt, match=f"{NAME} is empty"):
        parse_commit(12, data)


@pytest.mark.parametrize(
    ("line", "tag"),
    [
        (b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}', "protocol"),
        (b'{"metaData":{"id":"x","schemaString":"{}"}}', "metaData"),
    ],
)
def test_a_commit_holds_one_protocol_and_one_metadata(line: bytes, tag: str) -> None:
    with pytest.raises(Corrupt, match=f"{NAME} holds 2 {tag} actions"):
        parse_commit(12, line + b"\n" + line)


def test_what_a_reader_does_not_know_is_passed_over() -> None:
    lines = [
        b'{"commitInfo":{"timestamp":5,"operation":"WRITE"}}',
        b'{"someFutureAction":{"path":"x"}}',
        b'{"some_new_action":"text"}',
        b'{"foo":[1],"bar":7}',
        b'{"some_new_action_alongside":["a","1"],"txn":{"appId":"app","version":3}}',
        b'{"add":null,"remove":{"path":"r"}}',
        ADD[:-2] + b',"baseRowId":4,"clusteringProvider":"x","stats":null,"tags":null}}',
    ]
    found = parse_commit(12, b"\r\n".join(lines))
    assert found.adds == [AddFile("a", {}, 1, 2, data_change=True)]
    assert found.removes == [RemoveFile("r", 0, data_change=True)]
    assert found.txns == [Txn("app", 3)]
    assert found.timestamp_ms == 5


def test_the_in_commit_timestamp_comes_before_the_writers_own() -> None:
    assert parse_commit(0, b'{"commitInfo":{"inCommitTimestamp":7,"timestamp":5}}').timestamp_ms == 7
    assert parse_commit(0, ADD).timestamp_ms == 0


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("plain.parquet", "plain.parquet"),
        ("p=a%20b/x", "p=a b/x"),
        ("p=a%2520b/x", "p=a%20b/x"),
        ("p=100%25/x", "p=100%/x"),
        ("p=%C3%A9%F0%9F%8C%8A/x", "p=é🌊/x"),
        ("p=a+b/x", "p=a+b/x"),
        ("p=a%23%3F/x", "p=a#?/x"),
        ("s3://bucket/a%20b", "s3://bucket/a b"),
    ],
)
def test_a_path_is_decoded_exactly_once(uri: str, path: str) -> None:
    assert decode_path(uri) == path
    assert encode_path(path) == uri
    for tag, body in (("add", {"size": 1, "modificationTime": 1, "dataChange": True}), ("remove", {})):
        found = parse_commit(1, orjson.dumps({tag: {"path": uri, **body}}))
        for action in found.adds if tag == "add" else found.removes:
            assert action.path == action.key == path
            assert action.to_json()["path"] == uri
        assert len(found.adds) + len(found.removes) == 1


def test_a_file_is_known_by_its_path_and_its_deletion_vector() -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 1, "cardinality": 1}
    plain = AddFile("a", {}, 1, 2, data_change=True)
    with_vector = AddFile("a", {}, 1, 2, data_change=True, deletion_vector=vector)
    with_offset = AddFile("a", {}, 1, 2, data_change=True, deletion_vector={**vector, "offset": 4})
    assert len({plain.key, with_vector.key, with_offset.key}) == 3
    nulls = dict.fromkeys(vector, None)
    assert AddFile.from_json({**plain.to_json(), "deletionVector": nulls}) == plain


def test_the_number_of_rows_is_what_the_statistics_say() -> None:
    def rows(stats: str | None) -> int | None:
        return AddFile("a", {}, 1, 2, data_change=True, stats=stats).num_records

    assert rows('{"numRecords":7}') == 7
    for unclear in (None, "", "{}", "[]", '{"numRecords":null}', '{"numRecords":"7"}', '{"numRec'):
        assert rows(unclear) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000003.json", CommitFile(3, "00000000000000000003.json")),
        ("00000000000000000003.checkpoint.parquet", CheckpointFile(3, "00000000000000000003.checkpoint.parquet")),
        (
            "00000000000000000003.checkpoint.0000000002.0000000005.parquet",
            CheckpointFile(3, "00000000000000000003.checkpoint.0000000002.0000000005.parquet", 2, 5),
        ),
        (
            "00000000000000000003.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
            CheckpointFile(3, "00000000000000000003.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", v2=True),
        ),
        ("_last_checkpoint", None),
        ("3.json", None),
        ("00000000000000000003.crc", None),
        ("00000000000000000003.json.tmp", None),
        ("00000000000000000003.00000000000000000005.compacted.json", None),
        ("_sidecars/x.parquet", None),
        ("_commits/00000000000000000003.80a083e8-7026-4e79-81be-64bd76c43a11.json", None),
    ],
)
def test_names_of_log_files(name: str, expected: object) -> None:
    assert parse_name(name) == expected


def test_a_commit_has_twenty_digits() -> None:
    assert commit_name(12) == NAME


@pytest.mark.parametrize("path", ["s3://b/x", "file:/x", "file:///x", "/x", "abfss://c@a/x"])
def test_an_absolute_path_stands_for_itself(path: str) -> None:
    assert is_absolute(path)
    assert folder_of(path) == ""


@pytest.mark.parametrize(
    ("path", "folder"),
    [("x", ""), ("a:b/c", "a:b/"), ("ts=2021-01-01 10:00:00/x", "ts=2021-01-01 10:00:00/"), ("a/b://c", "a/b:/"),
     ("p=s3:/x", "p=s3:/"), ("./a//b/x", "a/b/"), ("../other/x", ""), ("a/../../x", "")]
)  # fmt: skip
def test_a_relative_path_may_hold_colons_and_has_a_folder(path: str, folder: str) -> None:
    assert not is_absolute(path)
    assert folder_of(path) == folder
