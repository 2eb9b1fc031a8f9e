"""Uploads in parts: presigned URLs of a real S3 server, what is checked, and that a file is stored once."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.access.rights import Grant, Rights
from alluvia.api.lake import Lake
from alluvia.clock import ManualClock, SystemClock
from alluvia.files.limits import FileLimits
from alluvia.files.uploads import parts
from alluvia.operations.erasure.erase import erase
from alluvia.operations.results.upload_parts import KEPT_MS, UPLOAD_MS_MAX, UPLOADS, clean_uploads
from alluvia.serverless.signed_paths import PathSigner, using_signer
from alluvia.store import MemoryStore
from functions.ingest.handler import respond
from functions.ingest.settings import IngestSettings
from functions.ingest.uploads import REPLAYED
from tests.access import known
from tests.faults.attempts import attempts, check_log, tried
from tests.faults.store import MODES
from tests.functions.parts import CSV, SETTINGS, begin, cut, finish, request, send_parts, told
from tests.s3server import S3Server


@pytest.fixture(scope="module")
def lake(s3_server: S3Server) -> alluvia.Lake:
    return alluvia.connect(f"s3://{s3_server.new_bucket()}/lake", **s3_server.options)


def test_what_is_said_at_the_beginning_holds_when_the_parts_have_come(lake: alluvia.Lake) -> None:
    query = "parts=2&format=csv&decimal_separator=%2C&date_format=%25d.%25m.%25Y&rename=Nr%3Dorder+id"
    data = b"Nr;Preis;am\n1;12,50;20.11.2026\n"
    status, begun = begin(lake, "german", query)
    assert status == 201
    for part, piece in zip(begun["parts"], cut(data, 2), strict=True):
        put(part["url"], piece)
    status, stored = finish(lake, begun)
    assert (status, stored["columns"]) == (200, {"order id": "long", "Preis": "double", "am": "date"})
    status, refused = begin(lake, "german", "parts=2&format=csv&date_format=%25d")
    assert (status, "date_format" in refused["error"]) == (400, True)


def put(url: str, data: bytes) -> None:
    headers = {"Content-Type": "application/octet-stream"}  # moto reads forms, urllib's default, as such
    with urlopen(HttpRequest(url, data, headers, method="PUT")) as answer:
        assert answer.status == 200


def parquet(data: bytes) -> bytes:
    sink = io.BytesIO()
    pq.write_table(arrow_csv.read_csv(pa.BufferReader(data)), sink, row_group_size=300)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("kind", "data"),
    [("csv", CSV), ("csv", gzip.compress(CSV)), ("parquet", parquet(CSV))],
    ids=["plain", "gzip", "parquet"],
)
def test_a_file_that_is_cut_anywhere_is_stored_by_presigned_urls(
    lake: alluvia.Lake, request: pytest.FixtureRequest, kind: str, data: bytes
) -> None:
    table = f"t_{request.node.callspec.id}"
    status, begun = begin(lake, table, f"parts=3&format={kind}")
    assert (status, [each["part"] for each in begun["parts"]]) == (201, [1, 2, 3])
    for part, piece in zip(begun["parts"], cut(data, 3), strict=True):
        put(part["url"], piece)
    sent = hashlib.sha256(data).hexdigest()
    status, stored = finish(lake, begun, sha256=sent, bytes=len(data))
    columns = {"id": "long", "amount": "long"}
    assert (status, stored) == (200, {"table": table, "rows": 2000, "version": 1, "columns": columns})
    assert lake.table(table).to_arrow().to_pylist()[-1] == {"id": 1999, "amount": 5997}
    assert finish(lake, begun) == (200, stored)
    assert told(lake, begun)[1]["answer"] == stored
    assert lake.table(table).count() == 2000


def test_what_is_missing_or_damaged_is_said_and_can_be_sent_again(lake: alluvia.Lake) -> None:
    begun = begin(lake, "mended", f"bytes={len(CSV)}&parts=3&format=csv")[1]
    pieces = cut(CSV, 3)
    put(begun["parts"][0]["url"], pieces[0])
    assert finish(lake, begun)[1]["error"].startswith("parts 2 and 1 others are missing")
    put(begun["parts"][1]["url"], pieces[1][:-5])
    put(begun["parts"][2]["url"], pieces[2])
    status, answer = finish(lake, begun)
    assert (status, answer["error"].partition(",")[0]) == (422, f"the parts have {len(CSV) - 5} bytes together")
    put(begun["parts"][1]["url"], pieces[1][:-5] + b"x,y,\n")
    status, answer = finish(lake, begun, sha256="0" * 64)
    assert (status, answer["error"].partition(":")[0]) == (422, "sha256")
    status, answer = finish(lake, begun)
    assert (status, "Expected 2 columns" in answer["error"]) == (422, True)
    state = told(lake, begun)[1]
    assert (state["state"], state["status"], state["answer"]) == ("failed", 422, answer)
    assert [part["bytes"] for part in state["parts"]] == list(map(len, pieces))
    assert "mended" not in lake
    put(state["parts"][1]["url"], pieces[1])
    assert finish(lake, begun)[1]["rows"] == 2000


@pytest.fixture
def memory() -> Iterator[tuple[Lake, ManualClock]]:
    clock = ManualClock()
    with using_signer(PathSigner(clock, b"k" * 32)):
        yield Lake(MemoryStore("parts", clock), clock), clock


def test_a_server_without_s3_signs_paths(memory: tuple[Lake, ManualClock]) -> None:
    lake, clock = memory
    begun = begin(lake, "t", f"bytes={20 << 20}&format=csv")[1]
    assert (begun["part_bytes"], len(begun["parts"])) == (8 << 20, 3)
    path, _, query = begun["parts"][0]["url"].partition("?")
    changed = query[:-1] + ("0" if query[-1] != "0" else "1")
    for other, signed in ((path.replace("parts/1", "parts/2"), query), (path, changed), (path, "")):
        assert respond(request("PUT", other, b"x", signed), SETTINGS, lake)["statusCode"] == 403
    clock.advance(UPLOAD_MS_MAX // 1000)
    assert respond(request("PUT", path, b"x", query), SETTINGS, lake)["statusCode"] == 403
    clock.advance(1)
    assert finish(lake, begun)[0] == told(lake, begun)[0] == 404
    assert not [info for info in lake.store.list(UPLOADS) if "part-" in info.key]


def test_one_works_at_a_time_and_who_died_is_followed(memory: tuple[Lake, ManualClock]) -> None:
    lake, clock = memory
    begun = begin(lake, "t", "parts=2&format=csv")[1]
    send_parts(lake, begun, CSV)
    upload = parts.find(lake.store, clock, "t", begun["id"])
    assert parts.take_lease(lake.store, clock, upload) is None
    assert finish(lake, begun)[0] == 202
    assert told(lake, begun)[1]["state"] == "running"
    clock.advance(parts.LEASE_MS // 1000)
    assert finish(lake, begun)[1]["rows"] == 2000
    assert lake.table("t").count() == 2000


def test_a_key_counts_for_files_in_one_request_and_in_parts(memory: tuple[Lake, ManualClock]) -> None:
    lake, _ = memory
    for count in (2, 3):
        begun = begin(lake, "t", f"parts={count}&format=csv&key=k")[1]
        send_parts(lake, begun, CSV)
        assert finish(lake, begun)[1]["version"] == 1
    again = respond(request("POST", "/v1/upload/t", CSV, "format=csv&key=k"), SETTINGS, lake)
    assert (json.loads(again["body"])["version"], again["headers"][REPLAYED]) == (1, "true")
    assert lake.table("t").count() == 2000


def test_events_come_in_parts_too(memory: tuple[Lake, ManualClock]) -> None:
    lake, _ = memory
    lake.create_events("clicks", pa.schema([("amount", pa.int64())]))
    begun = begin(lake, "clicks", "parts=2&format=csv")[1]
    send_parts(lake, begun, CSV)
    assert [finish(lake, begun)[1]["stored"] for _ in range(2)] == [2000, 2000]
    again = begin(lake, "clicks", "parts=3&format=csv")[1]
    send_parts(lake, again, CSV)
    assert finish(lake, again)[1]["duplicates"] == 2000
    whole = respond(request("POST", "/v1/upload/clicks", CSV, "format=csv"), SETTINGS, lake)
    assert json.loads(whole["body"])["duplicates"] == 2000
    assert lake.table("clicks").count() == 2000


def test_parts_for_a_branch_become_rows_there_alone(memory: tuple[Lake, ManualClock]) -> None:
    lake, _ = memory
    lake.create_table("t", {"id": "long", "amount": "long"})
    branch = lake.branch("fix")
    begun, lost = (begin(branch, "t", "parts=2&format=csv")[1] for _ in range(2))
    for each in (begun, lost):
        send_parts(lake, each, CSV)  # the paths of parts name no branch
    assert finish(lake, begun)[0] == 404
    assert finish(branch, begun)[1]["rows"] == 2000
    assert (branch.table("t").count(), lake.table("t").count()) == (2000, 0)
    lake.table("t").erase("id = -1")
    assert (finish(branch, lost)[0], list(lake.store.list(UPLOADS))) == (404, [])


@pytest.mark.parametrize("mode", MODES)
def test_completing_whose_nth_call_fails(mode: str) -> None:
    """Whatever failed, asking again stores the file once."""
    data = b"id,amount\nx,9\n"

    def uploaded(clock: ManualClock) -> MemoryStore:
        store = MemoryStore("faults", clock)
        upload = parts.begin(store, clock, "new", 2, None, {"format": "csv"})
        for part, piece in enumerate(cut(data, 2), 1):
            store.put(upload.part_key(part), piece)
        return store

    for store, clock in attempts(mode, uploaded):
        (key,) = (info.key for info in store.inner.list(UPLOADS) if info.key.endswith("upload.json"))
        begun = {"complete": f"/v1/upload/{'/'.join(key.split('/')[2:4])}/complete"}
        tried(finish, Lake(store, clock), begun)
        clock.advance(parts.LEASE_MS // 1000)
        status, answer = finish(Lake(store.inner, clock), begun)
        assert (status, answer["rows"]) == (200, 1), store.at
        lake = Lake(store.inner, clock)
        assert lake.table("new").to_arrow().to_pylist() == [{"id": "x", "amount": 9}], store.at
        check_log(lake, "new")


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ("parts=2", 400, "format: say what the parts are together"),
        ("parts=0&format=csv", 400, "parts: expected a whole number above 0"),
        ("parts=1001&format=csv", 400, "parts: at most 1000"),
        ("bytes=x&format=csv", 400, "bytes: expected a whole number above 0"),
        (f"bytes={2 << 30}&format=csv", 413, "the file has 2147483648 bytes, more than the limit of 1073741824"),
        ("parts=2&format=csv&create=false", 404, "there is no table 't', and create=false forbids to create it"),
        ("parts=2&format=csv&schema=a", 400, "schema: 'a' is not a column"),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_sent(
    memory: tuple[Lake, ManualClock], query: str, status: int, error: str
) -> None:
    lake, _ = memory
    found, answer = begin(lake, "t", query)
    assert (found, answer["error"][: len(error)]) == (status, error)
    assert list(lake.store.list(UPLOADS)) == []


def test_rights_are_asked_at_each_step(memory: tuple[Lake, ManualClock]) -> None:
    lake, _ = memory
    other = replace(SETTINGS, authorization=known(Rights((Grant(frozenset({"append"}), ("other",)),))))
    assert begin(lake, "t", "parts=1&format=csv", other)[0] == 403
    begun = begin(lake, "t", "parts=1&format=csv")[1]
    send_parts(lake, begun, CSV)
    assert finish(lake, begun, other)[0] == told(lake, begun, other)[0] == 403
    moved = begun | {"complete": begun["complete"].replace("/t/", "/other/")}
    assert finish(lake, moved, other)[0] == told(lake, moved, other)[0] == 404
    small = replace(SETTINGS, files=FileLimits(bytes_max=1000))
    assert finish(lake, begun, small)[0] == 413
    assert finish(lake, begun, sum=1)[0] == 400


def test_parts_are_no_longer_than_the_file_may_be(memory: tuple[Lake, ManualClock]) -> None:
    lake, _ = memory
    begun = begin(lake, "t", "parts=2&bytes=10&format=csv")[1]

    def sent(part: int, body: bytes, settings: IngestSettings = SETTINGS) -> int:
        path, _, query = begun["parts"][part - 1]["url"].partition("?")
        return int(respond(request("PUT", path, body, query), settings, lake)["statusCode"])

    assert [sent(1, b"x" * 8), sent(2, b"x" * 3), sent(1, b"x" * 7), sent(2, b"x" * 3)] == [200, 413, 200, 200]
    begun = begin(lake, "t", "parts=2&format=csv")[1]
    small = replace(SETTINGS, files=FileLimits(bytes_max=10))
    assert [sent(1, b"x" * 8, small), sent(2, b"x" * 3, small)] == [200, 413]


def test_parts_go_with_age_and_with_erased_rows(memory: tuple[Lake, ManualClock]) -> None:
    lake, clock = memory
    for table in ("t", "other"):
        begun = begin(lake, table, "parts=1&format=csv")[1]
        send_parts(lake, begun, CSV)
        finish(lake, begun)
    lake.table("t").erase("id = 7")
    assert {info.key.split("/")[2] for info in lake.store.list(UPLOADS)} == {"other"}
    assert clean_uploads(lake.store, clock).deleted == 0
    clock.advance(KEPT_MS // 1000 + 1)
    assert clean_uploads(lake.store, clock, dry_run=True).deleted == 3
    assert clean_uploads(lake.store, clock).deleted == 3
    assert list(lake.store.list(UPLOADS)) == []


@pytest.mark.parametrize("query", ["format=csv", "format=csv&evolve=1"])
@pytest.mark.parametrize("events", [False, True])
def test_an_erasure_stops_an_upload_that_is_being_completed(
    memory: tuple[Lake, ManualClock], monkeypatch: pytest.MonkeyPatch, query: str, *, events: bool
) -> None:
    lake, clock = memory
    if events:
        lake.create_events("t", pa.schema([("id", pa.int64()), ("amount", pa.int64())]))
        query = "format=csv"
    else:
        lake.create_table("t", {"id": "long"} if "evolve" in query else {"id": "long", "amount": "long"})
    begun = begin(lake, "t", f"parts=1&{query}")[1]
    send_parts(lake, begun, CSV)
    gathered = parts.gathered

    @contextmanager
    def erased_then(*args: Any) -> Iterator[tuple[Path, str]]:
        with gathered(*args) as found:
            Lake(lake.store, clock).table("t").erase("id = 7")
            yield found

    monkeypatch.setattr(parts, "gathered", erased_then)
    status, answer = finish(lake, begun)
    assert (status, answer["error"].partition(":")[0]) == (
        404,
        "the upload has expired, or rows of the table were erased",
    )
    assert lake.table("t").count() == 0
    left = {info.key.split("/")[-1]: lake.store.get(info.key) for info in lake.store.list(UPLOADS)}
    assert left == {"state.json": b"{}"}
    assert finish(lake, begun)[0] == told(lake, begun)[0] == 404


def test_an_erasure_deletes_uploads_before_it_commits(
    memory: tuple[Lake, ManualClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, _ = memory
    lake.create_table("t", {"id": "long", "amount": "long"})
    lake.table("t").append([{"id": 7, "amount": 1}])
    begun = begin(lake, "t", "parts=1&format=csv")[1]
    send_parts(lake, begun, CSV)
    answers = []

    def completed_first(*args: Any, **options: Any) -> Any:
        answers.append(finish(lake, begun)[0])
        return erase(*args, **options)

    monkeypatch.setattr("alluvia.events.ingest.erasing.erase", completed_first)
    lake.table("t").erase("id = 7")
    assert (answers, lake.table("t").count()) == ([404], 0)


def test_memory_does_not_follow_the_size_of_parts(tmp_path: Path) -> None:
    """The parts of a directory's lake are gathered on disk, chunk by chunk."""
    lake = alluvia.connect(str(tmp_path), clock=SystemClock())
    upload = parts.begin(lake.store, lake.clock, "t", 2, None, {"format": "csv"})
    for part in (1, 2):
        lake.store.put(upload.part_key(part), b"x" * 1000)
    with parts.gathered(lake.store, parts.complete_parts(lake.store, upload)) as (path, digest):
        assert (path.stat().st_size, digest) == (2000, hashlib.sha256(b"x" * 2000).hexdigest())
    assert not path.exists()
