"""Limits on the uploads in parts that a caller may have at once: their number and their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import alluvia
from alluvia.access.rights import Grant, Rights
from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.files.limits import FileLimits
from alluvia.files.uploads import parts
from alluvia.operations.results.upload_parts import UPLOAD_MS_MAX, UPLOADS
from alluvia.serverless.signed_paths import PathSigner, using_signer
from alluvia.store import MemoryStore
from functions.ingest.settings import IngestSettings
from tests.access import known
from tests.functions.parts import CSV, SETTINGS, begin, finish, send_parts
from tests.s3server import S3Server


@pytest.fixture(scope="module")
def lake(s3_server: S3Server) -> alluvia.Lake:
    return alluvia.connect(f"s3://{s3_server.new_bucket()}/lake", **s3_server.options)


@pytest.fixture
def memory() -> Iterator[tuple[Lake, ManualClock]]:
    clock = ManualClock()
    with using_signer(PathSigner(clock, b"k" * 32)):
        yield Lake(MemoryStore("parts", clock), clock), clock


def settings_of(caller: str, uploads: int = 3, size: int | None = None) -> IngestSettings:
    rights = Rights((Grant(frozenset({"append", "admin"}), ("*",)),), "test", caller)
    return replace(SETTINGS, authorization=known(rights), caller_uploads=uploads, caller_upload_bytes=size)


def test_a_caller_has_so_many_uploads_that_are_not_finished(memory: tuple[Lake, ManualClock]) -> None:
    lake, clock = memory
    one, other = settings_of("one"), settings_of("other")
    asked = f"bytes={len(CSV)}&format=csv"
    first, second = (begin(lake, table, asked, one)[1] for table in ("t", "u"))
    clock.advance(3600)
    assert begin(lake, "t", asked, one)[0] == 201
    written = list(lake.store.list(UPLOADS))
    status, answer = begin(lake, "t", asked, one)
    assert status == 429
    assert answer["error"] == (
        f"you have 3 unfinished uploads of up to {3 * len(CSV)} bytes together. One caller may have 3 "
        f"(ALLUVIA_CALLER_UPLOADS) of {4 << 30} bytes (ALLUVIA_CALLER_UPLOAD_BYTES): complete one. The first of them "
        f"expires in {23 * 3600} seconds"
    )
    assert list(lake.store.list(UPLOADS)) == written  # what is refused writes nothing
    assert begin(lake, "t", asked, other)[0] == begin(lake, "t", asked)[0] == 201
    send_parts(lake, first, CSV)
    assert finish(lake, first, one)[0] == 200
    assert [begin(lake, "t", asked, one)[0] for _ in range(2)] == [201, 429]
    lake.create_table("u", {"id": "long", "amount": "long"}).append([{"id": 7, "amount": 1}])
    lake.table("u").erase("id = 7")  # which deletes the second
    assert finish(lake, second, one)[0] == 404
    assert [begin(lake, "t", asked, one)[0] for _ in range(2)] == [201, 429]
    clock.advance(UPLOAD_MS_MAX // 1000 - 3600)
    assert [begin(lake, "t", asked, one)[0] for _ in range(2)] == [429, 429]  # none of the three is a day old
    clock.advance(3601)
    assert [begin(lake, "t", asked, one)[0] for _ in range(4)] == [201, 201, 201, 429]


def test_a_caller_has_so_many_bytes_that_are_not_finished(memory: tuple[Lake, ManualClock]) -> None:
    lake, _ = memory
    one = settings_of("one", size=50_000)
    assert [begin(lake, "t", f"bytes={size}&format=csv", one)[0] for size in (30_000, 20_001)] == [201, 429]
    assert begin(lake, "t", "bytes=20000&format=csv", one)[0] == 201
    status, answer = begin(lake, "t", "parts=1&format=csv", one)
    assert (status, answer["error"].rpartition(": ")[2]) == (413, "say how many it has (bytes=…)")
    small = replace(one, files=FileLimits(bytes_max=1000))
    assert begin(lake, "t", "parts=1&format=csv", settings_of("another", size=50_000))[0] == 413
    third = replace(small, authorization=settings_of("third").authorization)
    assert begin(lake, "t", "parts=1&format=csv", third)[0] == 201


def test_callers_that_begin_at_once_have_no_more(
    memory: tuple[Lake, ManualClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, _ = memory
    one, began, answers = settings_of("one", uploads=1), parts.begin, list[int]()

    def meanwhile(*args: Any) -> Any:
        monkeypatch.setattr(parts, "begin", began)
        answers.append(begin(lake, "t", "parts=1&format=csv", one)[0])
        return began(*args)

    monkeypatch.setattr(parts, "begin", meanwhile)
    answers.append(begin(lake, "t", "parts=1&format=csv", one)[0])
    assert answers == [201, 429]
