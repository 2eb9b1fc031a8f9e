"""Lines with the same keys: what is kept as columns is what the careful way makes of the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import product
from typing import Any
from unittest.mock import patch

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.events.ingest.columnar_batch import ColumnarBatch, EventParts, blocks_of, moved
from alluvia.events.ingest.columnar_parser import ParsedLines, _reader_of, parse_columns
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.event_rows import _of_events, to_rows
from alluvia.events.ingest.values import NO_FIELDS, Fields, Limits, Split
from tests.unit.events.ingest.test_rows import ANY_TYPE, ARRIVAL_US, DEFAULT, NOON, NOON_US, TYPED

NDJSON = "application/x-ndjson"
BASE: dict[str, object] = {
    "event_id": "e", "ts": NOON, "event": "click", "ip": "1.2.3.4", "user": None, "status": 200, "ok": True, "n": -7,
}  # fmt: skip


def taken_apart(body: bytes, limits: Limits = Limits()) -> Split:  # noqa: B008 - it never changes
    return split(body, content_type=NDJSON, content_encoding=None, limits=limits)


def made(body: bytes, schema: pa.Schema, fields: Fields, limits: Limits) -> tuple[Any, ...]:
    found = taken_apart(body, limits)
    rows = to_rows(
        found.events, schema, arrival_us=ARRIVAL_US, idempotency_key="key", new_id=lambda: "new", fields=fields
    )
    rows.table.validate(full=True)
    whole = (list(rows.refused), list(rows.taken), list(rows.contents), rows.rejects)
    return (rows.table.to_pylist(), rows.table.schema, *whole, list(found.events), found.rejects, found.too_large)


def parsed(lines: list[bytes]) -> ParsedLines | None:
    text = b"\n".join(lines)
    return parse_columns(text)


def as_objects(found: ParsedLines) -> list[dict[str, Any]]:
    return pa.table({path[0]: column for path, column in found.columns.columns.items()}).to_pylist()


def line(number: int, **changes: object) -> bytes:
    return orjson.dumps({**BASE, "event_id": f"e{number}"} | changes)


def with_message_id(sent: bytes) -> bytes:
    """Return a line as Segment's libraries write it."""
    return sent.replace(b'"event_id"', b'"messageId"').replace(b'"ip":"1.2.3.4"', b'"sentAt":"%d"' % hash(sent))


def spaced(compact: bytes) -> bytes:
    """Return a line as Python's json module writes it."""
    return json.dumps(orjson.loads(compact), ensure_ascii=False).encode()


TEXTS = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    [
        NOON,
        "2020-01-01T12:00:00",
        "2020-02-30T00:00:00Z",
        "",
        '"',
        "\\",
        'x","n":1,"y":"',
        "\\\\",
        "\u2028",
        "é",
        "a" * 1025,
    ]
)
VALUES = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXTS | st.sampled_from([[], {"a": 1}])
)
STRANGE = st.one_of(
    st.tuples(st.sampled_from([*BASE, "properties", "messageId", "time", "sentAt", "other"]), VALUES).map(
        lambda pair: json.dumps(BASE | {"event_id": "s", pair[0]: pair[1]}, separators=(",", ":")).encode()
    ),
    st.tuples(st.sampled_from([*BASE]), TEXTS).map(
        lambda pair: json.dumps(BASE | {"event_id": "s", pair[0]: pair[1]}, ensure_ascii=False).encode()
    ),
    st.permutations([*BASE]).map(lambda names: orjson.dumps({name: BASE[name] for name in names[1:]})),
    st.tuples(st.integers(0, 100), st.sampled_from([bytes([code]) for code in b'"\\ \t\x00\x1f\xff0-,}'])).map(
        lambda edit: line(0)[: edit[0]] + edit[1] + line(0)[edit[0] :]
    ),
    st.sampled_from([
        line(1)[:-1] + b',"n":-7}', line(1)[:-1] + b',"event":"click"}', line(1).replace(b"-7", b"-0"), b"{}",
        b"5", b"", line(1).replace(b"200", b"200.0"), line(1).replace(b"-7", b"1.10"), line(1).replace(b"-7", b"-0.5"),
        line(1).replace(b"-7", b"0.1234567890123456789"), line(1).replace(b"-7", b"01.5"),
        line(1).replace(b"200", b"2e2"), line(1).replace(b"200", b"NaN"),
        line(1).replace(b"click", b"cl\\u0069ck"), line(1).replace(b'"ts"', b'"t\\u0073"'), line(1) + line(2),
        line(1).replace(b"200", b"9223372036854775807"), line(1).replace(b"200", b"9223372036854775808"),
        line(1) + b"\r", b" " + line(1), line(1)[:-1], line(1).replace(b"click", b"\xed\xa0\x80"),
        line(1).replace(b"click", b":null,"), line(1).replace(b'"click"', b'"\0\0"'), line(1).replace(b"-7", b"null"),
        line(1).replace(b"click", b"c\\nd"), line(1).replace(b"click", b"c\td"), spaced(line(1)),
    ]),
)  # fmt: skip
EVERY_SCHEMA = [
    DEFAULT, TYPED, ANY_TYPE, pa.schema([field for field in ANY_TYPE if field.name != "properties"]),
    pa.schema([*DEFAULT, ("user", pa.int32()), ("n", pa.int8()), ("status", pa.float64()), ("ok", pa.bool_())]),
    pa.schema([*DEFAULT.remove(4), ("z", pa.int64())]),
    pa.schema([*DEFAULT, ("z", pa.int64()), ("at", pa.int64()), ("plan", pa.string()), ("e", pa.bool_())]),
    pa.schema([*DEFAULT, pa.field("user", pa.string(), nullable=False)]), pa.schema(DEFAULT).remove(1),
    pa.schema([("event_id", pa.string()), *((name, pa.string()) for name in ("ts", "event", "ip", "user")),
               ("status", pa.int16()), ("ok", pa.bool_()), ("n", pa.int64()), ("received_at", pa.string())]),
]  # fmt: skip
SCHEMAS = st.sampled_from(EVERY_SCHEMA)
SHAPES: list[Callable[[int], bytes]] = [
    line,
    lambda at: spaced(line(at)),
    lambda at: line(at, user="u" if at % 2 else None),
    lambda at: line(at) + b"\r",
    lambda at: with_message_id(line(at)),
    lambda at: line(at, ts=NOON_US // 1000 + at),
    lambda at: line(at, ts=at * 10 ** (at % 19) % 2**63),
    lambda at: line(at).replace(b'"ts":', b'"time":'),
    lambda at: line(at, n=[0.5, at, 1e-4, at / 7, 5.0, 0.1 + 0.2, -0.0, 1e15, at * 1e9 + 0.1][at % 9]),
    lambda at: line(at, ip={"n": {"a": at, "b": None}}, ok={"z": "x", "a": at / 4, "e": {"e": True}}),
    lambda at: line(at, ip={"n": None if at % 2 else "x"}, ok={"z": None if at % 3 else 5}, n={"x": "x"}),
    lambda at: spaced(line(at, properties={"plan": "pro", "n": at, "ip": {"user": {"z": at, "a": "é"}}})).replace(
        b"ip", b"IP"
    ),
    lambda at: line(at, properties={"z": at, "status": at, "user": "u"}).replace(b'"user":null,', b""),
    lambda at: line(at, properties=None),
    lambda at: line(at, properties=None if at % 2 else "text"),
    lambda at: line(at, properties={"user": 5}),
    lambda at: line(at, properties={"status": 5, "n": "clash"}),
    lambda at: orjson.dumps({"properties": {"event": "a", "source": "b", "at": at}, "event_id": f"e{at}", "ts": NOON}),
    lambda at: orjson.dumps({"properties": {"z": at}, "event_id": f"e{at}", "ts": NOON}),
    lambda at: orjson.dumps({"event_id": {"a": 1}, "messageId": f"e{at}", "ts": NOON}),
    lambda at: line(at, ts={"a": at}),
    lambda at: line(at, ts={"a": at}, timestamp=NOON),
    lambda at: line(at, time={"a": at}),
    lambda at: line(at, messageId={"a": "b"}),
    lambda at: line(at, ts=at * 9**at % 2**63, n=None).replace(b'"ts":', b'"timestamp":'),
]


@given(
    st.lists(STRANGE, max_size=3),
    st.integers(0, 12),
    SCHEMAS,
    st.sampled_from([NO_FIELDS, NO_FIELDS, Fields(("ip",), ()), Fields((), ("ts",))]),
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


WIDE = {**BASE, "status": 100, "n": 1, "at": NOON}
KINDS = pa.schema([*(each.with_nullable(True) for each in DEFAULT), ("status", pa.int8()), ("n", pa.float64()),
                   ("at", DEFAULT.field("ts").type), pa.field("ip", pa.string(), nullable=False)])  # fmt: skip
NEED_A_LOOK: list[dict[str, object]] = [
    {"event_id": None}, {"event_id": ""}, {"event_id": "é" * 1024}, {"event_id": "é" * 1025}, {"ts": "yesterday"},
    {"ts": None}, {"ts": ""}, {"ts": "2020-02-30T12:00:00Z"}, {"ts": "2020-02-29T12:00:00Z"}, {"ts": "2020-01-01"},
    {"ts": "2020-01-01T12:00:00"}, {"ts": "0000-01-01T00:00:00Z"}, {"ts": "0000-12-31T12:59:59-23:59"},
    {"ts": "9999-12-31T23:59:59-23:59"},
    {"ts": "2020-01-01T12:00:00.1234567Z"}, {"ts": "2020-01-01T24:00:00Z"}, {"ts": "2020-01-01T12:00:60Z"},
    {"status": 127}, {"status": 128}, {"status": -129}, {"n": 2**53}, {"n": 2**53 + 1}, {"n": -(2**63)},
    {"n": 2**63 - 1}, {"n": None}, {"at": "no time"}, {"at": None}, {"at": "2020-01-01T12:00:00+01:00"}, {"ip": None},
    {"ip": ["a"]}, {"ip": {"a": 1}}, {"ok": None}, {"ok": 1}, {"ok": "true"}, {"status": 0.5},
    {"status": True}, {"status": 2**70},
]  # fmt: skip


INSTANTS = {
    "messageId": "e",
    "timestamp": NOON_US // 1000,
    "ms": NOON_US // 1000,
    "sentAt": NOON,
    "n": 1,
    "status": 100,
}
INSTANTS_KINDS = pa.schema([*DEFAULT, ("ms", DEFAULT.field("ts").type), ("messageId", pa.string())])
NO_PLAIN_INSTANTS: list[object] = [
    None, 0, -1, 10**8, 10**8 - 1, 1 - 10**8, -(10**8), 10**11, -(10**11), 10**14, 10**17 - 1, 10**17, 2**63 - 1,
    -(2**63), -62_135_596_800, -62_135_596_801, 99_999_999_999, 1_577_880_000.5, NOON, True,
]  # fmt: skip
NEED_ANOTHER_LOOK: list[dict[str, object]] = [
    {"messageId": None}, {"messageId": ""}, {"messageId": 7}, {"messageId": "x" * 1025}, {"event_id": "own"},
    *({name: found} for name, found in product(("timestamp", "ms"), NO_PLAIN_INSTANTS)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("usual", "schemas", "odd"),
    [
        *((WIDE, (DEFAULT, KINDS), odd) for odd in NEED_A_LOOK),
        *((INSTANTS, (DEFAULT, INSTANTS_KINDS), odd) for odd in NEED_ANOTHER_LOOK),
    ],
)
def test_values_that_need_a_look_are_looked_at_alone(
    usual: dict[str, object], schemas: tuple[pa.Schema, ...], odd: dict[str, object]
) -> None:
    own_id = next(iter(usual))
    for schema, every in product(schemas, (300, 100, 9, 3)):
        lines = [orjson.dumps(usual | {own_id: f"e{number}"}) for number in range(300)]
        for number in range(every // 2, 300, every):
            changed = usual | {own_id: f"e{number}"} | odd
            lines[number] = json.dumps(changed, separators=(",", ":"), ensure_ascii=False).encode()
        body = b"\n".join(lines)
        with patch("alluvia.events.ingest.columnar_batch.parse_columns", lambda *_: None):
            careful = made(body, schema, NO_FIELDS, Limits())
        with patch("alluvia.events.ingest.event_rows._of_events", wraps=_of_events) as looked_at:
            assert made(body, schema, NO_FIELDS, Limits()) == careful
        assert every == 3 or sum(len(call.args[0]) for call in looked_at.mock_calls) <= 300 // every + 1


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
    with patch("alluvia.events.ingest.event_rows._Conversion.__init__", side_effect=AssertionError):
        rows = to_rows(plain.events, schema, arrival_us=1, idempotency_key=None, new_id=lambda: "never")
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


NUMBERS = st.floats().map(repr) | st.floats(-1e6, 1e6).map(repr) | st.decimals(-(10**16), 10**16, places=3).map(str)


def of_number(number: int, text: str) -> bytes:
    return b'{"event_id":"e%d","n":%s}' % (number, text.encode())


@given(st.lists(NUMBERS | st.integers().map(str) | st.text("0123456789.-+eE xinfa", max_size=8), min_size=1))
def test_numbers_that_are_kept_have_the_value_that_was_sent(texts: list[str]) -> None:
    usual = [of_number(number, "0.5") for number in range(len(texts) * 4 + 64)]
    found = parsed([*usual, *(of_number(len(usual) + at, text) for at, text in enumerate(texts))])
    assert found is not None
    kept = [at for at in range(found.size) if at not in found.odd]
    for at, number in zip(kept, found.columns.columns["n",].to_pylist(), strict=True):
        text = "0.5" if at < len(usual) else texts[at - len(usual)].strip()
        assert number == orjson.dumps(orjson.loads(text))
        assert Decimal(number.decode()) == Decimal(text)


@given(st.integers(-(10**9), 10**9), st.integers(0, 4))
def test_usual_numbers_are_kept(value: int, decimals: int) -> None:
    texts = [str(value), str(value / 10**decimals), "0.5"]
    found = parsed([of_number(number, texts[number % 3]) for number in range(300)])
    assert found is not None
    assert (found.odd, found.columns.columns["n",].cast(pa.string()).to_pylist()[:3]) == ({}, texts)


@pytest.mark.parametrize("declared", [pa.float64(), pa.float32(), pa.int64(), pa.decimal128(20, 2), pa.string()])
def test_numbers_with_fractions_fill_columns_of_each_type(declared: pa.DataType) -> None:
    sent = [line(number, n=[0.25, number, 7.0, number / 3, -1.5][number % 5]) for number in range(300)]
    sent[7] = line(7).replace(b"-7", b"9007199254740993")
    schema, body = pa.schema([*DEFAULT, ("n", declared)]), b"\n".join(sent)
    with patch("alluvia.events.ingest.columnar_batch.parse_columns", lambda *_: None):
        careful = made(body, schema, NO_FIELDS, Limits())
    assert made(body, schema, NO_FIELDS, Limits()) == careful
    found = parsed(sent)
    assert found is not None
    assert found.odd == {7: sent[7]}


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
