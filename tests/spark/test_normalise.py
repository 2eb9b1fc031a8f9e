from __future__ import annotations

import re
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.event_rows import to_rows
from alluvia.events.ingest.values import NO_FIELDS, Fields, Limits, Reject
from alluvia_spark.backfill_job.normalise import file_id, normalise, read_events
from alluvia_spark.sources.lines import Block, whole_lines
from tests.unit.events.ingest.lines import SCHEMAS, STRANGE, line

NDJSON = "application/x-ndjson"
SCHEMA = pa.schema(
    [
        pa.field("event_id", pa.string(), nullable=False),
        pa.field("ts", pa.timestamp("us", "UTC"), nullable=False),
        ("event", pa.string()),
        ("status", pa.int64()),
        ("properties", pa.string()),
        pa.field("received_at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
LINES = [
    b'{"event_id":"a","status":1}',
    b'  {"event_id":"b","n":12345678901234567890123}\r',
    b'{"event_id":"c","n":1.00}',
    b'{"status":"abc"}',
    b'{"event_id":"d","event_id":"e"}',
    b"{broken",
    b'["no object"]',
    b"7",
    b"",
    b"   ",
    b'{"event_id":"long","text":"' + b"x" * 60 + b'"}',
    b'{"event_id":"bad\xff"}',
]
LIMITS = Limits(event_bytes=60)


@given(st.lists(st.sampled_from(LINES), max_size=12))
def test_lines_are_read_as_ingestion_reads_a_body_of_them(lines: list[bytes]) -> None:
    # the first two lines keep the body from being one JSON value, which a request may be and a block of lines is not
    body = b"\n".join([b'{"event_id":"first"}', b'{"event_id":"second"}', *lines])
    expected = split(body, content_type=NDJSON, content_encoding=None, limits=LIMITS)
    events, rejects = read_events(Block(1000, body), LIMITS)
    assert [event.value for event in events] == [event.value for event in expected.events]
    assert [(reject.reason, reject.raw, reject.event_id) for reject in rejects] == [
        (reject.reason, reject.raw, reject.event_id) for reject in expected.rejects
    ]
    assert all(body[event.position - 1000 :].lstrip().startswith(event.raw or b"?") for event in events)


@given(
    st.lists(STRANGE | st.sampled_from(LINES), max_size=6),
    st.integers(0, 9),
    SCHEMAS,
    st.sampled_from([NO_FIELDS, Fields(("ip",), ()), Fields((), ("ts",))]),
    st.sampled_from([Limits(), Limits(event_bytes=150)]),
    st.integers(1, 40),
    st.randoms(use_true_random=False),
)
def test_nasty_events_become_what_ingestion_makes_of_them(
    strange: list[bytes], many: int, schema: pa.Schema, fields: Fields, limits: Limits, piece: int, random: Any
) -> None:
    """Rows, content hashes, rejects and reasons; only the ids that events without one are given differ."""
    lines = [line(number) for number in range(many)] + strange
    random.shuffle(lines)
    body = b"\n".join([line(100), line(101), *lines])
    with patch("alluvia.events.ingest.envelope.MANY", 2):
        sent = split(body, content_type=NDJSON, content_encoding=None, limits=limits)
        rows = to_rows(sent.events, schema, arrival_us=5, idempotency_key="key", new_id=lambda: "new", fields=fields)
        pieces = [body[at : at + piece * 10] for at in range(0, len(body), piece * 10)]
        blocks = [
            normalise(block, schema, arrival_us=5, key="key", limits=limits, fields=fields)
            for block in whole_lines(0, pieces, len(body))
        ]
    found = pa.concat_tables(block.rows for block in blocks)
    assert found.schema == rows.table.schema
    assert _but_for_ids(found) == _but_for_ids(rows.table)
    assert [bytes(each) for block in blocks for each in block.contents] == list(map(bytes, rows.contents))
    expected = sorted(map(_told, [*sent.rejects, *rows.rejects]), key=repr)
    rejects = [_told(each) for block in blocks for each in block.rejects]
    assert sorted(rejects, key=repr) == expected
    places = [event.position for block in blocks for event in block.read]
    assert places == sorted(set(places))
    for block in blocks:
        for event in reversed(block.read):
            assert body[event.position :].lstrip(b" \t\r\n").startswith((event.raw or b"?").strip())
    places += [each.position for block in blocks for each in block.rejects]
    assert {body[at:].lstrip(b" \t\r\n").partition(b"\n")[0].strip() for at in places} == set(
        map(bytes.strip, body.split(b"\n"))
    ) - {b""}


def _told(reject: Reject) -> tuple[str, bytes, str]:
    return reject.reason, reject.raw, re.sub(r'"key/\d+"', "", reject.given or "")


def _but_for_ids(rows: pa.Table) -> list[dict[str, object]]:
    found: list[dict[str, object]] = rows.to_pylist()
    return [{**row, "event_id": None} if str(row.get("event_id")).startswith("key/") else row for row in found]


def test_a_line_that_is_an_array_is_no_batch_of_events() -> None:
    events, rejects = read_events(Block(0, b'[{"event_id":"a"},{"event_id":"b"}]\n'), LIMITS)
    assert (events, [reject.reason for reject in rejects]) == ([], ["expected a JSON object, got an array"])


def test_a_line_that_was_cut_says_how_long_it_was() -> None:
    _, rejects = read_events(Block(5, b"x" * 100, cut_bytes=900), LIMITS)
    assert [(reject.position, reject.reason, len(reject.raw)) for reject in rejects] == [
        (5, "the event has 1000 bytes, more than the limit of 60", 100)
    ]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    events, rejects = read_events(Block(0, b'\xef\xbb\xbf{"event_id":"a"}\n'), LIMITS)
    assert [(event.position, event.value) for event in events] == [(3, {"event_id": "a"})]
    assert not rejects


def test_the_fields_that_a_table_names() -> None:
    block = Block(0, b'{"id":"bare","data":{"id":"a","at":1577880000}}\n{"id":"bare","time":1577880000}\n')
    fields = Fields(("data", "id"), ("data", "at"))
    rows = normalise(block, SCHEMA, arrival_us=5, key="file-1", limits=LIMITS, fields=fields).rows
    assert rows["event_id"].to_pylist() == ["a", "file-1/48"]
    assert rows["ts"].cast(pa.int64()).to_pylist() == [1_577_880_000_000_000] * 2


def test_ids_come_from_the_file_and_the_place() -> None:
    block = Block(100, b'{"event":"x"}\n{"event":"x"}\n{"event_id":"own"}\n{bad\n')
    found = normalise(block, SCHEMA, arrival_us=5, key="file-1", limits=LIMITS)
    again = normalise(block, SCHEMA, arrival_us=5, key="file-1", limits=LIMITS)
    assert found.rows["event_id"].to_pylist() == ["file-1/100", "file-1/114", "own"]
    assert [found.event(row).position for row in range(3)] == [100, 114, 128]
    assert found == again
    assert [reject.position for reject in found.rejects] == [147]
    assert found.rejects[0].event_id is not None


def test_files_are_told_apart() -> None:
    assert file_id("s3://bucket/a") == file_id("s3://bucket/a") != file_id("s3://bucket/b")
