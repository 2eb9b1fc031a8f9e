"""Files that are made to harm who reads them: they are refused, and nothing else is."""

from __future__ import annotations

import gzip
import io
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alluvia
from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.events.ingest.compression import TooLarge
from alluvia.files import json_types
from alluvia.files.limits import FileLimits, FileNames
from alluvia.files.sent import SenderDisconnected, SentFile
from alluvia.files.uploads.storing import Stored, Upload, store
from alluvia.processes import pool
from alluvia.processes.reading import READERS
from alluvia.store import MemoryStore
from tests.damaged_parquet import footer_of, with_false_levels
from tests.functions.sent_files import SETTINGS, refused, rows, send
from tests.serving import serving


def parquet(**options: Any) -> bytes:
    table = pa.table({"id": range(20), "s": ["x", None] * 10, "l": [[1], None] * 10, "t": [{"q": 1.5}] * 20})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=10, **options)
    return sink.getvalue()


@pytest.fixture
def lake(tmp_path: Path) -> alluvia.Lake:
    return alluvia.connect(str(tmp_path / "lake"))


def ndjson(values: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def test_a_footer_at_which_the_library_aborts(lake: alluvia.Lake) -> None:
    damaged = with_false_levels(parquet())
    lake.create_events("events", pa.schema([]))
    for table in ("t", "events"):
        status, error = refused(send(lake, table, damaged))
        assert (status, "the process that read it crashed (SIGABRT)" in error) == (422, True)
    assert lake.tables() == ["events"]
    assert send(lake, "t", b"a\n1\n", "format=csv")[0] == 200
    assert rows(lake, "t") == [{"a": 1}]


def test_a_server_goes_on_after_a_footer_at_which_the_library_aborts(tmp_path: Path) -> None:
    from alluvia.cli.client import Client

    with serving(tmp_path / "lake") as (process, port):
        client = Client(port)
        for _ in range(3):
            assert client.post("/v1/upload/t", with_false_levels(parquet())).status == 422
        reply = client.post("/v1/upload/t", parquet())
        assert (reply.status, reply.json()["rows"], process.poll()) == (200, 20, None)


PLACES = st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=4)
FILES = [parquet(), parquet(compression="none", data_page_version="2.0", use_dictionary=False)]


@settings(max_examples=60)
@given(st.sampled_from(FILES), st.booleans(), PLACES)
def test_bytes_of_footers_and_pages_are_changed(data: bytes, in_footer: bool, changes: list[tuple[float, int]]) -> None:
    """A file is stored if it still is one, or refused; nothing else, whatever becomes of the process that reads it."""
    start, end = footer_of(data)
    first, past = (start, end) if in_footer else (4, start)
    damaged = bytearray(data)
    for place, byte in changes:
        damaged[first + int(place * (past - first))] = byte
    clock = ManualClock()
    lake = Lake(MemoryStore("damaged", clock), clock)
    try:
        done = store(lake.catalog, Upload("t", SentFile(bytes(damaged), "parquet", FileLimits(seconds=60))))
    except Invalid:
        assert lake.tables() == []
    else:
        assert isinstance(done, Stored)
        assert lake.table("t").count() == done.rows


@pytest.mark.parametrize("nested", [False, True])
def test_names_are_bounded_by_a_setting(lake: alluvia.Lake, nested: bool) -> None:
    few = replace(SETTINGS, files=FileLimits(names_max=10))
    values = [{"a": {f"n{at}": at}} if nested else {f"n{at}": at} for at in range(10 + (not nested))]
    status, error = refused(send(lake, "t", ndjson(values), "", few))
    assert (status, "more than the limit of 10 columns and fields" in error) == (422, True)
    assert lake.tables() == []
    assert send(lake, "t", ndjson(values[:9]), "", few)[0] == 200
    table = pa.table({"a": [values[0]], "b": [{f"n{at}": at for at in range(9)}]})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    assert refused(send(lake, "p", sink.getvalue(), "", few))[0] == 422


def test_the_work_for_names_grows_with_the_fields_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    see = json_types.JsonType.see

    def counted(self: Any, values: Any, row: Any) -> None:
        nonlocal seen
        seen += len(values)
        see(self, values, row)

    monkeypatch.setattr(json_types.JsonType, "see", counted)
    kind = json_types.JsonType("a", FileNames(5000))
    kind.see([{f"n{at}": {"deep": at}} for at in range(2000)], lambda at: at + 1)
    assert kind.kind().num_fields == 2000
    assert seen == 3 * 2000


def test_time_is_bounded_by_a_setting(lake: alluvia.Lake) -> None:
    file = gzip.compress(b"a,b\n" + b"12345,67890\n" * 20_000_000, 1)
    brief = replace(SETTINGS, files=FileLimits(bytes_max=1 << 30, seconds=0.2))
    lake.create_events("events", pa.schema([]))
    for table, query in (("t", "format=csv"), ("t", "format=csv&key=k"), ("events", "format=csv")):
        status, error = refused(send(lake, table, file, query, brief))
        assert (status, "more than the limit of 0.2 seconds" in error) == (413, True)
    assert lake.tables() == ["events"]


def test_memory_is_bounded_by_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "OVERHEAD_BYTES", 250 << 20)
    file = SentFile(b'{"a":[' + b"[]," * 2_000_000 + b"[]]}", "ndjson", FileLimits(bytes_max=1 << 30, memory_bytes=1))
    with pytest.raises(TooLarge, match="more memory than the limit of 1 bytes"), file.rows() as found:
        found.schema({})


def test_work_for_a_sender_that_has_gone_is_left() -> None:
    asked = []

    def gone() -> bool:
        asked.append(time.monotonic())
        return len(asked) > 3

    file = SentFile(gzip.compress(b"a\n" + b"12345\n" * 40_000_000, 1), "csv", FileLimits(1 << 30, cancelled=gone))
    with pytest.raises(SenderDisconnected), file.rows() as found:
        found.schema({})
    assert all(worker.alive for worker in READERS._idle)
