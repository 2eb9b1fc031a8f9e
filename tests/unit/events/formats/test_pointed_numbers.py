"""Numbers such as `1.000` in CSV without commas: rejects, unless the body or the sender says what the points are."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pytest

from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.ingest.event_rows import to_rows
from alluvia.events.ingest.messages import pack, unpack
from alluvia.events.ingest.rejects import given_text, read_given
from alluvia.events.ingest.values import UNLIMITED, EventRows, Origin, RawEvent, event_schema

COLUMNS = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("d", pa.decimal128(9, 3)), ("s", pa.string())])
SCHEMA = event_schema(COLUMNS)
ARRIVAL_US = 1_795_168_800_000_000


def events_of(text: str, **options: str) -> list[RawEvent]:
    sent = SentBody({"content-type": "text/csv"}, text.encode(), ARRIVAL_US, options=options)
    return list(by_name("csv").read(sent, UNLIMITED).events)


def made(events: list[RawEvent]) -> EventRows:
    ids = map(str, count())
    return to_rows(events, SCHEMA, arrival_us=ARRIVAL_US, idempotency_key=None, new_id=lambda: next(ids))


@pytest.mark.parametrize(
    ("text", "options", "doubtful"),
    [
        ("event_id;n\na;1.000\nb;7", {}, {"a": ["n"]}),
        ("event_id;n\na; 1.000.000 ", {}, {"a": ["n"]}),
        ("event_id;x\na;1.234\nb;-2.500", {}, {"a": ["x"], "b": ["x"]}),
        ("event_id;d;n\na;1.234;2.000", {}, {"a": ["n", "d"]}),
        ("event_id;x\na;1.234\nb;12.5", {}, {}),
        ("event_id;x\na;0.125\nb;1.234", {}, {}),
        ("event_id;x\na;1.0000", {}, {}),
        ("event_id;s\na;1.000", {}, {}),
        ("event_id;other\na;1.000", {}, {}),
        ("event_id;n\na;1.000", {"decimal_separator": "."}, {}),
        ("event_id,n\na,1.000", {}, {}),
        ("event_id\tn\na\t1.000", {}, {"a": ["n"]}),
        ("event_id|x\na|1.234", {}, {"a": ["x"]}),
    ],
)
def test_a_point_that_may_group_digits_is_a_reject(
    text: str, options: dict[str, str], doubtful: dict[str, list[str]]
) -> None:
    events = events_of(text, **options)
    found = made(events)
    reasons = {
        events[index].value["event_id"]: [part.split(":")[0] for part in reject.reason.split("; ")]
        for index, reject in zip(found.refused, found.rejects, strict=True)
    }
    assert reasons == doubtful
    assert len(found.table) == len(events) - len(doubtful)


def test_the_reason_says_what_decides() -> None:
    [reject] = made(events_of("event_id;n\na;2.500")).rejects
    assert reject.reason == (
        "n: points may be decimal or group digits, so that 1.000 is 1 or 1000: `alluvia ingest --decimal-separator` "
        "says which, and `alluvia rejects replay --set` repairs rejects"
    )


def test_the_doubt_goes_through_queues_and_rejects() -> None:
    [event] = events_of("event_id;n\na;1.000")
    [message] = pack("t", [event], Origin(ARRIVAL_US), str).messages
    [queued] = unpack(message.decode()).events
    assert queued.given == event.given
    assert made([queued]).rejects == made([event]).rejects != []
    assert read_given(given_text(event, Origin(ARRIVAL_US))).given == event.given
