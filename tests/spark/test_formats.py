"""Every format is read as bulk ingestion reads it."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable

import pytest

from alluvia.events.ingest.values import Limits, RawEvent
from alluvia.files import event_files
from alluvia.store import CountingStore, MemoryStore
from alluvia_spark.backfill_job.normalise import normalise, read_events
from alluvia_spark.sources import files, formats
from alluvia_spark.sources.file_lists import folder_fields
from alluvia_spark.sources.files import BadFile, FileSplit, SourceFile
from alluvia_spark.sources.formats import read_blocks
from alluvia_spark.sources.lines import Block
from tests.cli.event_files import EVENTS, FORMS, csv, ndjson, parquet, zstd
from tests.spark.test_normalise import SCHEMA


def _split(store: MemoryStore, name: str, data: bytes) -> FileSplit:
    store.put(name, data)
    info = store.head(name)
    assert info is not None
    return FileSplit(SourceFile("s3://b", name, len(data), info.etag), 0, len(data))


def _read(name: str, data: bytes, kind: str | None = None) -> tuple[list[dict[str, object]], list[int], int]:
    """Return the events of a file, their positions, and the number of GETs."""
    inner = MemoryStore()
    split = _split(inner, name, data)
    store = CountingStore(inner)
    events, positions = [], []
    for block in read_blocks(store, split, line_limit_bytes=10**6, kind=kind):
        found, rejects = read_events(block, Limits())
        assert not rejects
        events += [event.value for event in found]
        positions += [event.position for event in found]
    return events, positions, store.requests.total()


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_read_by_one_request(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "PART_BYTES", 500)
    events, positions, requests = _read(name, FORMS[name](EVENTS))
    if ".csv" in name:
        assert events == [{key: str(value) for key, value in event.items()} for event in EVENTS]
    else:
        assert events == EVENTS
    assert positions == sorted(set(positions))
    assert requests == 1


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-32-be"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
def test_encodings(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    mark = "\ufeff" if encoding.endswith("be") else ""
    events, positions, _ = _read("a", pack((mark + ndjson(EVENTS).decode()).encode(encoding)))
    assert events == EVENTS
    assert positions[0] == (3 if encoding == "utf-8-sig" else 0)  # a mark of UTF-8 counts


def test_frames_of_zstd_and_long_files_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    data = zstd(ndjson(EVENTS[:30])) + zstd(ndjson(EVENTS[30:]))
    assert _read("a.zst", data)[0] == EVENTS
    monkeypatch.setattr(files, "FETCH_BYTES", 100)
    monkeypatch.setattr(formats, "FETCH_BYTES", 100)
    assert _read("a.zst", data)[0] == EVENTS
    assert _read("a.json", json.dumps(EVENTS).encode())[0] == EVENTS
    events, positions, _ = _read("a.parquet", parquet(EVENTS))
    assert (events, positions) == (EVENTS, list(range(40)))


def test_a_name_can_be_overruled() -> None:
    assert _read("a.csv", ndjson(EVENTS), "json")[0] == EVENTS
    assert _read("a.json", csv(EVENTS), "csv")[0][7]["n"] == "7"


@pytest.mark.parametrize(
    ("name", "data", "why", "before"),
    [
        ("a.gz", gzip.compress(ndjson(EVENTS) * 500, mtime=0)[:-9], "gzip data is damaged", 20_000),
        ("a", zstd(ndjson(EVENTS))[:-9], "zstd data is damaged", 0),
        ("a.ndjson.bz2", bz2.compress(ndjson(EVENTS)), "compressed with bzip2", 0),
        ("a.gz", b"\x00\x01\x02 no gzip", "data is not what its name says", 0),
        ("a.csv", b'event\na\nb\n"never' + b" closed\n" * 50, "a quote in row 3 is not closed", 2),
        ("a.csv", b"a,a\n1,2\n", "'a' twice", 0),
        ("a.parquet", parquet(EVENTS)[:-50], "cannot be read further", 0),
        ("a", ndjson(EVENTS).decode().encode("utf-16")[:-1], "not valid UTF-16-LE", 39),
        ("a", b'[{"n": 1}, {"n": 2}, {"n":' + b" " * 300, "element 2 is not one", 2),
    ],
)
def test_what_comes_before_a_damage_is_read_and_the_file_is_named(
    name: str, data: bytes, why: str, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_files, "VALUE_BYTES_MAX", 250)
    store = MemoryStore()
    split = _split(store, name, data)
    blocks = read_blocks(store, split, line_limit_bytes=10**6)
    found: list[RawEvent] = []
    with pytest.raises(BadFile, match=f"s3://b/{name} .*{why}") as raised:
        found.extend(event for block in blocks for event in read_events(block, Limits())[0])
    assert len(found) == before
    assert (raised.value.position > 0) is (before > 0)


LINES = [
    b'{"event_id":"a"}',
    b'{"event_id":"b","dt":"own"}',
    b'{"event_id":"c","\\u0064t":"own"}',
    b'{"event_id":"d","o":{"dt":1},"status":5 }',
    b"{ }",
    b"{broken}",
    b'["dt"]',
]
KEY = "logs/dt=2024-01-01/status=3/x%20y=a%2Fb/z=__HIVE_DEFAULT_PARTITION__/f=.json"
FOLDERS = {"dt": "2024-01-01", "status": 3, "x y": "a/b"}


def test_what_folders_say_is_text_or_what_the_column_takes() -> None:
    assert folder_fields(KEY, SCHEMA) == FOLDERS
    assert folder_fields("ts=2026112013/a", SCHEMA) == {"ts": "2026112013"}  # an hour


def test_what_folders_say_are_fields_of_the_lines_without_them() -> None:
    block = Block(0, b"\n".join(LINES))
    events, rejects = read_events(block, Limits(), FOLDERS)
    assert [event.value.get("event_id") for event in events] == ["a", "b", "c", "d", None]
    assert [event.value["dt"] for event in events] == ["2024-01-01", "own", "own", "2024-01-01", "2024-01-01"]
    assert [event.value["status"] for event in events] == [3, 3, 3, 5, 3]
    assert all(json.loads(event.raw or b"") == event.value for event in events)
    assert [reject.raw for reject in rejects] == [b'{broken,"dt":"2024-01-01","status":3,"x y":"a/b"}', b'["dt"]']
    rows = normalise(block, SCHEMA, arrival_us=1, key="k", limits=Limits(), folders=FOLDERS).rows
    assert rows["status"].to_pylist() == [3, 3, 3, 5, 3]


def test_what_folders_say_are_fields_of_other_events_without_them() -> None:
    store = MemoryStore()
    [block] = read_blocks(store, _split(store, "a", b'[{"event_id":"a"},{"dt":1}]'), line_limit_bytes=99)
    events, _ = read_events(block, Limits(), FOLDERS)
    assert [event.value for event in events] == [{"event_id": "a", **FOLDERS}, {**FOLDERS, "dt": 1}]
