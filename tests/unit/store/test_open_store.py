from __future__ import annotations

import re
from pathlib import Path

import pytest

import alluvia
from alluvia.clock import SystemClock
from alluvia.errors import Invalid
from alluvia.store import DirectoryStore, open_store
from alluvia.store.s3.bucket import S3Store


def test_a_path_and_a_file_uri_name_a_directory(tmp_path: Path) -> None:
    plain = open_store(f"{tmp_path}/a lake%20x", SystemClock())
    assert isinstance(plain, DirectoryStore)
    assert plain.root == tmp_path / "a lake%20x"
    uri = open_store(f"file://{tmp_path}/a%20lake", SystemClock())
    assert isinstance(uri, DirectoryStore)
    assert uri.root == tmp_path / "a lake"
    assert open_store(uri.uri, SystemClock()).uri == uri.uri
    assert open_store(f"file:{tmp_path}/a%20lake", SystemClock()).uri == uri.uri
    odd = open_store(f"file://localhost{tmp_path}/a#b?c", SystemClock())
    assert isinstance(odd, DirectoryStore)
    assert odd.root == tmp_path / "a#b?c"


def test_one_memory_uri_names_one_store() -> None:
    store = open_store("memory://one", SystemClock())
    assert open_store("memory://one", SystemClock()) is store
    assert open_store("memory://other", SystemClock()) is not store


def test_an_s3_uri_names_bucket_and_prefix() -> None:
    store = open_store("s3://bucket/a/prefix/", SystemClock(), region="eu-central-1", access_key_id="k",
                       secret_access_key="s")  # fmt: skip
    assert isinstance(store, S3Store)
    assert store.uri == "s3://bucket/a/prefix"
    assert store.url("t/x") == "s3://bucket/a/prefix/t/x"
    assert open_store("s3://bucket", SystemClock(), region="eu-central-1").url("t/x") == "s3://bucket/t/x"


@pytest.mark.parametrize(
    "uri", ["", "http://x/y", "s3://", "s3:///x", "s3://b/x?y=z", "s3://b/x#y", "s3:/b/x", "file://b/x"]
)
def test_another_uri_is_refused(uri: str) -> None:
    with pytest.raises(Invalid, match="lake URI"):
        open_store(uri, SystemClock())


@pytest.mark.parametrize("uri", ["dbfs:/lake/t", "s3:/lake/t", "gs:/lake/t"])
def test_a_scheme_with_one_slash_names_no_folder(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for opened in (alluvia.connect, alluvia.open_table):
        with pytest.raises(Invalid, match=f"{uri}'?.*expected s3://bucket/prefix"):
            opened(uri)
    alluvia.connect(f"./{uri}").create_table("t", {"x": "long"})
    assert (tmp_path / uri / "t").is_dir()


@pytest.mark.parametrize("uri", ["localhost:18471", "LAKE.example.com:443/", "127.0.0.1:8080/t", "[::1]:8080"])
def test_the_address_of_a_server_names_no_folder(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for opened in (alluvia.connect, alluvia.open_table):
        with pytest.raises(Invalid, match=re.escape(f"{uri!r} looks like the address of a server: write http://{uri}")):
            opened(uri)
    alluvia.connect(f"./{uri}").create_table("t", {"x": "long"})
    assert alluvia.connect(uri).tables() == ["t"]


@pytest.mark.parametrize("path", ["lake-10:30", "lake 2026-11-28T10:30", "a/b.c:80", "./x.y:80"])
def test_a_folder_may_have_a_colon_in_its_name(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert alluvia.connect(path).tables() == []


def test_the_uris_that_spark_writes_name_tables(tmp_path: Path) -> None:
    alluvia.connect(f"file:{tmp_path}/a%20lake").create_table("t", {"x": "long"})
    for uri in (f"file:{tmp_path}/a%20lake/t", f"file://{tmp_path}/a%20lake/t", str(tmp_path / "a lake" / "t")):
        assert alluvia.open_table(uri).snapshot().schema.names == ["x"]


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no_such"):
        open_store("s3://bucket", SystemClock(), no_such="x")
    with pytest.raises(Invalid, match="endpoint_url"):
        open_store(str(tmp_path), SystemClock(), endpoint_url="http://x")
