"""Lines with the same keys: what is kept as columns is what the careful way makes of the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.events.ingest.columnar_batch import ColumnarBatch, EventParts, blocks_of, moved
from alluvia.events.ingest.columnar_parser import ParsedLines, _reader_of
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.event_rows import to_rows
from alluvia.events.ingest.values import NO_FIELDS, Fields, Limits
from tests.unit.events.ingest.lines import (
    EVERY_SCHEMA,
    MOVING,
    REJECTING,
    SCHEMAS,
    SHAPES,
    STRANGE,
    line,
    made,
    parsed,
    spaced,
    taken_apart,
)
from tests.unit.events.ingest.rows import ARRIVAL_US, DEFAULT, NOON_US


def as_objects(found: ParsedLines) -> list[dict[str, Any]]:
    return pa.table({path[0]: column for path, column in found.columns.columns.items()}).to_pylist()


@given(
    st.lists(STRANGE, max_size=3),
    st.integers(0, 12),
    SCHEMAS,
    st.sampled_from([NO_FIELDS, NO_FIELDS, Fields(("ip",), ()), Fields((), ("ts",)), REJECTING, MOVING]),
    st.sampled_from([Limits(), Limits(event_bytes=150)]),
    st.sampled_from(SHAPES),
    st.randoms(use_true_random=False),
)
def test_the_fast_way_gives_what_the_careful_one_gives(
    strange: list[bytes],
    many: int,
    schema: pa.Schema,
    fields: Fields,
    limits: Limits,
    plain: Callable[[int], bytes],
    random: Any,
) -> None:
    lines = [plain(number) for number in range(many)] + strange
    random.shuffle(lines)
    body = b"\n".join(lines)
    with patch("alluvia.events.ingest.columnar_batch.parse_columns", lambda *_: None):
        careful = made(body, schema, fields, limits)
    small = patch.multiple("alluvia.events.ingest.columnar_batch", BLOCK=8, BLOCK_BYTES_MIN=1)
    short = patch("alluvia.events.ingest.columnar_parser.LINES_MIN", 1)
    with patch("alluvia.events.ingest.envelope.MANY", 1), small, short:
        assert made(body, schema, fields, limits) == careful


@pytest.mark.parametrize("plain", SHAPES)
def test_lines_of_each_shape_become_the_same_rows_both_ways(plain: Callable[[int], bytes]) -> None:
    odd = [plain(5).replace(b'":', b'": ', 1), plain(6)[:-3], plain(7).replace(b"}", b',"n":1}', 1), plain(8) + b"}"]
    body = b"\n".join([*map(plain, range(150)), *odd, *map(plain, range(150, 300))])
    for schema in EVERY_SCHEMA:
        with patch("alluvia.events.ingest.columnar_batch.parse_columns", lambda *_: None):
            careful = made(body, schema, NO_FIELDS, Limits())
        assert made(body, schema, NO_FIELDS, Limits()) == careful


@pytest.mark.parametrize("declared", [False, True])
def test_most_lines_are_kept_as_columns_and_odd_ones_in_their_places(declared: bool) -> None:
    kinds = (
        ("ip", pa.string()),
        ("user", pa.string()),
        ("status", pa.int16()),
        ("ok", pa.bool_()),
        ("n", pa.float64()),
    )
    schema = pa.schema([*DEFAULT, *kinds]) if declared else DEFAULT
    odd = {3: line(3, status="4"), 5: b'{"a":1,"a":1}', 7: line(7, ip='a"b'), 9: line(9, extra=1), 11: b"{"}
    lines = [odd.get(number) or line(number) for number in range(400)]
    with patch.multiple("alluvia.events.ingest.columnar_batch", BLOCK=100, BLOCK_BYTES_MIN=1):
        plain, mixed = (taken_apart(b"\n".join(each)) for each in (lines[100:], lines))
        first = taken_apart(b"\n".join([*lines[7:11], *lines[100:]]))
    for found, events, rejects in ((plain, 300, 0), (mixed, 398, 2), (first, 304, 0)):
        assert isinstance(found.events, EventParts)
        assert (len(found.events), len(found.rejects)) == (events, rejects)
        assert [event.raw for event in found.events] == [orjson.dumps(event.value) for event in found.events]
        assert found.events[-1] == found.events[events - 1] == list(found.events)[-1]
        assert found.events[2:5] == list(found.events)[2:5]
        later = [event._replace(position=event.position + 7) for event in found.events]
        assert list(moved(found.events, 7)) == later == moved(list(found.events), 7)
        sent = sum(len(event.raw or b"") for event in found.events)
        assert sent <= found.events.text_bytes <= sent + len(lines) + sum(len(reject.raw) for reject in found.rejects)
    with patch("alluvia.events.ingest.event_columns.Conversion.__init__", side_effect=AssertionError):
        rows = to_rows(plain.events, schema, arrival_us=NOON_US, idempotency_key=None, new_id=lambda: "never")
    assert rows.table["event_id"].to_pylist() == [f"e{number}" for number in range(100, 400)]


@pytest.mark.parametrize(
    "sent",
    [
        [line(number) for number in range(300)],
        [spaced(line(number, n=None if number % 3 else 5)) for number in range(300)],
        [line(number, user=None if number % 2 else "é", ip=None) for number in range(300)],
        [
            orjson.dumps({"n": number, "event_id": f"e{number}", "ok": None if number % 2 else False})
            for number in range(300)
        ],
    ],
)
def test_lines_are_read_as_columns(sent: list[bytes]) -> None:
    broken = {7: b'{"event_id":"', 8: sent[8].replace(b"e8", b"a\\nb"), 9: sent[9].replace(b"e9", b"\t"), 299: b"5"}
    lines = [broken.get(number) or each for number, each in enumerate(sent)]
    found, whole = parsed(lines), parsed(sent)
    assert found is not None
    assert whole is not None
    assert (found.odd, whole.odd) == (broken, {})
    read = [orjson.loads(each) for number, each in enumerate(sent) if number not in broken]
    assert as_objects(found) == read
    same = {path: path for path in found.columns.columns}
    assert found.columns.texts(same).to_pylist() == [orjson.dumps(each).decode() for each in read]
    events = taken_apart(b"\n".join(lines)).events
    assert [each.raw for each in events] == [each for at, each in enumerate(lines) if at not in (7, 9, 299)]


@pytest.mark.parametrize("blank", [b"", b"  ", b"\t", b"\r"])
@pytest.mark.parametrize(
    "places", [(0,), (100,), (299,), (7, 8, 9, 250, 296, 297, 298, 299), range(0, 300, 2), range(0, 300, 9)]
)
def test_blank_lines_take_no_place(blank: bytes, places: Sequence[int]) -> None:
    lines = [blank if number in places else line(number) for number in range(300)]
    lines[5], lines[13], lines[255] = line(5)[:-2], line(13, n=0.5), line(255, extra=1)
    for returned in (b"",) if blank == b"\r" else (b"", b"\r"):
        body = b"".join(each + returned + b"\n" for each in lines)
        with patch("alluvia.events.ingest.columnar_batch.parse_columns", lambda *_: None):
            careful = made(body, DEFAULT, NO_FIELDS, Limits())
        assert made(body, DEFAULT, NO_FIELDS, Limits()) == careful
        [block] = blocks_of(body, len(body))
        part = block.lines
        assert isinstance(part, ParsedLines)
        assert (part.size, len(part.odd)) == (300 - len(places), 3)
    found = parsed(lines)
    assert found is not None
    assert found.size == len(found.columns) + 3
    assert set(found.odd.values()) == {lines[at] for at in (5, 13, 255)}


def test_odd_lines_among_those_that_are_looked_at_first_do_not_matter() -> None:
    sent = [line(number) for number in range(320)]
    odd = {0: line(0, extra=1), 100: b"[]", 180: orjson.dumps({"event_id": "e180"})}
    found = parsed([odd.get(number) or each for number, each in enumerate(sent)])
    assert found is not None
    assert found.odd == odd
    assert parsed([each if number % 3 else line(number, extra=1) for number, each in enumerate(sent)]) is None


def test_lines_with_nulls_of_several_kinds_are_cut() -> None:
    for sent in (
        [line(number, user="u" if number % 2 else None, n=5 if number % 3 else None) for number in range(300)],
        [line(number, user="u" if number % 2 else None, ok=True if number % 3 else None) for number in range(300)],
    ):
        found = parsed(sent)
        assert found is not None
        assert (found.size, len(found.odd)) == (300, 0)
        assert as_objects(found) == [orjson.loads(each) for each in sent]


@pytest.mark.parametrize(
    "odd",
    [
        b'{"event_id":"',
        line(0, n=0.5),
        line(0, ip="\\"),
        b"\xff" + line(0),
        line(0).replace(b",", b",\r", 1),
        line(0).replace(b",", b"\t,", 1) + b"\r",
    ],
)
def test_an_odd_line_takes_no_others_along(odd: bytes) -> None:
    for place in (0, 1000, 1999):
        body = b"\n".join([odd if number == place else line(number) for number in range(2000)])
        [block] = blocks_of(body, len(body))
        found = block.lines
        assert isinstance(found, ParsedLines)
        assert (found.size, found.odd) == (2000, {place: odd.strip()})


@pytest.mark.parametrize("odd", [line(7) + b"\r", b"  " + line(7), line(7).replace(b":", b" : "), spaced(line(7))])
def test_spaces_between_values_make_no_line_odd(odd: bytes) -> None:
    found = parsed([odd if number == 7 else line(number) for number in range(300)])
    assert found is not None
    assert (found.size, found.odd) == (300, {})


DEEP = {depth: b'{"a":' * depth + b"1" + b"}" * depth for depth in (16, 17, 253, 254, 1000)}


@pytest.mark.parametrize(
    "lines",
    [
        *([odd, *map(line, range(299))] for odd in DEEP.values()),
        *([line(number)[:-1] + b',"x":' + odd + b"}" for number in range(300)] for odd in DEEP.values()),
        (2 * [b'{"%b":1}' % (b"k" * 30_000)] + 500 * [b'{"":1}']) * 16,
        [orjson.dumps({"event_id": f"e{number}"} | {f"k{at}": at for at in range(600)}) for number in range(300)],
    ],
    ids=[*(f"{depth} deep {where}" for where in ("first", "each") for depth in DEEP), "long key", "many keys"],
)
def test_what_takes_too_much_by_columns_goes_the_careful_way(lines: list[bytes]) -> None:
    body = b"\n".join(lines)
    with patch("alluvia.events.ingest.columnar_batch.parse_columns", lambda *_: None):
        careful = made(body, DEFAULT, NO_FIELDS, Limits())
    written: list[int] = []
    with patch("alluvia.events.ingest.columnar_parser._reader_of", counted(written)):
        assert made(body, DEFAULT, NO_FIELDS, Limits()) == careful
    assert sum(written) <= len(body)


def counted(sizes: list[int]) -> Callable[..., Any]:
    """Return what makes readers that note how many bytes they write again."""

    def noted(kinds: Any) -> Any:
        reader = _reader_of(kinds)

        def encode_lines(objects: Sequence[object]) -> bytes:
            text = reader.encode_lines(objects)
            sizes.append(len(text) - 1)
            return text

        return reader._replace(encode_lines=encode_lines)

    return noted


def test_few_lines_and_lines_that_differ_are_not_tried() -> None:
    assert isinstance(taken_apart(b"\n".join([line(1)] * 255)).events, list)
    assert parsed([line(1), *[orjson.dumps({"other": 1})] * 2] * 200) is None
    assert parsed([line(number, ip={"nested": [1]}) for number in range(300)]) is None
    assert parsed([line(number, ip={}) for number in range(300)]) is None
    assert parsed([line(number, **{'quo"te': 1}) for number in range(300)]) is None
    assert parsed([line(number, ip={'quo"te': 1}) for number in range(300)]) is None
    assert parsed([b"{}"] * 300) is None
    assert parsed([line(1)] * 64) is not None
    assert parsed([line(1)] * 63) is None
    keys = {f"k{at}": at for at in range(100)}
    assert parsed([orjson.dumps(keys)] * 100) is not None
    assert parsed([orjson.dumps(keys)] * 99) is None


ELEMENTS = st.one_of(
    STRANGE,
    st.sampled_from([
        b"5", b"null", b"[]", b"{}", b'{"a":1,"a":2}', line(1, ip="},{"), line(1, ip="}, {"), b'{"a":[{"b":1},{}]}',
        line(1).replace(b"-7", b"[{},{}]"), b'{"a":[1,2]}', b"", line(1) + b"\n", b"\t" + line(2),
    ]),
)  # fmt: skip


def from_array(body: bytes, limits: Limits) -> tuple[Any, ...]:
    found = split(body, content_type="application/json", content_encoding=None, limits=limits)
    rows = to_rows(found.events, DEFAULT, arrival_us=ARRIVAL_US, idempotency_key="key", new_id=lambda: "new")
    events = [(event.position, event.value) for event in found.events]
    rejects = [(each.position, each.reason) for each in [*found.rejects, *rows.rejects]]
    kept = (list(rows.refused), list(rows.taken), list(rows.contents))
    return (events, rows.table.to_pylist(), rejects, *kept, found.too_large)


@given(
    st.lists(ELEMENTS, max_size=4),
    st.sampled_from([b",", b", ", b",\n", b",\r\n  ", b" ,", b",\n\n", b"\t,", b",\f", b"\0,"]),
    st.sampled_from([(b"[", b"]"), (b"[\n", b"\n]"), (b" [ ", b" ] "), (b"[", b",]"), (b"[", b""), (b"[[", b"]]")]),
    st.sampled_from([Limits(), Limits(event_bytes=150), Limits(events=9)]),
    st.sampled_from(
        [
            line,
            lambda at: spaced(line(at)),
            lambda at: line(at, ip={"n": [{"a": at}, {"a": 1}]}),
            lambda at: line(at, ip='"'),
        ]
    ),
    st.integers(0, 12),
    st.randoms(use_true_random=False),
)
def test_an_array_is_taken_apart_as_lines_are(
    odd: list[bytes],
    between: bytes,
    ends: tuple[bytes, bytes],
    limits: Limits,
    plain: Callable[[int], bytes],
    many: int,
    random: Any,
) -> None:
    elements = [plain(number) for number in range(many)] + odd
    random.shuffle(elements)
    body = ends[0] + between.join(elements) + ends[1]
    with patch("alluvia.events.ingest.envelope._split_elements", lambda *_: None):
        careful = from_array(body, limits)
    small = patch.multiple("alluvia.events.ingest.columnar_batch", BLOCK=8, BLOCK_BYTES_MIN=1)
    with (
        small,
        patch("alluvia.events.ingest.envelope.MANY", 1),
        patch("alluvia.events.ingest.columnar_parser.LINES_MIN", 1),
    ):
        assert from_array(body, limits) == careful


@pytest.mark.parametrize("between", [b",", b", ", b",\n", b",\r\n"])
def test_an_array_of_many_objects_is_read_as_columns(between: bytes) -> None:
    elements = [line(number) for number in range(300)]
    elements[7:9] = [line(7, ip='a"b'), line(8, n=0.5)]
    body = b"[" + between.join(elements) + b"]"
    found = split(body, content_type="application/json", content_encoding=None, limits=Limits())
    assert isinstance(found.events, EventParts)
    assert [len(part.odd) for part in found.events.parts if isinstance(part, ColumnarBatch)] == [2]
    assert [event.value for event in found.events] == [orjson.loads(each) for each in elements]
