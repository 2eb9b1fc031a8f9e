"""Rows of NDJSON with the same keys are read as columns. They are the rows, and the errors, of one line at a time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.errors import Invalid
from alluvia.events.ingest import envelope
from alluvia.files import event_files, json_rows
from alluvia.files.file_text import buffered
from alluvia.files.json_rows import JsonRows
from alluvia.files.limits import NAMES_MAX

LINES = 300
BASE: dict[str, Callable[[int], object]] = {
    "id": lambda at: at * 7 - 400,
    "at": lambda at: f"2026-11-{1 + at % 28:02}T{at % 24:02}:00:00Z",
    "day": lambda at: f"2026-11-{1 + at % 28:02}",
    "price": lambda at: at / 8,
    "code": lambda at: f"{at:03}",
    "ok": lambda at: at % 3 == 0,
    "none": lambda _: None,
    "some": lambda at: None if at % 2 else "x",
}
SCHEMA = pa.schema(
    [
        ("id", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("price", pa.float64()),
        pa.field("code", pa.string(), nullable=False), ("ok", pa.bool_()), ("none", pa.string()), ("some", pa.string()),
        ("more", pa.string()),
    ]
)  # fmt: skip
NUMBERS = ("0", "-0", "1.10", "1.5", "-0.0", "1e400", "1E5", "1e-7", "123456789.125", "9007199254740993", "0.1e1",
           "9223372036854775808", "-9223372036854775809", "0.12345678901234567890", "100000000000000000000000.5",
           "123456789012345678901234567890123456789", "NaN", "Infinity", "01", "+1", "1.", "3000000000")  # fmt: skip
TEXTS = ("", "a", " b ", "\\u0041", "\\ud800", '\\"', "\\n", "2026-02-30", "2026-11-20T10:00:00", "2026-11-20",
         "2026-11-20T10:00:00.1234567Z", "2026-11-20 10:00:00+01:00", "0000-01-01", "9999-12-31T23:59:59Z", "7",
         "Zoë", "\x01", "true", "1763632800000")  # fmt: skip
VALUES = (
    st.sampled_from(NUMBERS)
    | st.sampled_from(TEXTS).map('"{}"'.format)
    | st.sampled_from(["null", "true", "false", "{}", '{"a":1}', "[]", "[1,null]", '{"a":1,"a":2}'])
    | st.integers().map(str)
    | st.floats(allow_nan=False).map(repr)
    | st.text(max_size=8).map(json.dumps)
)
FULL_LINES = st.sampled_from(["", " ", "{", "[]", "1", '{"id":1}{"id":2}', '{"id":1,"id":2}', '{"more":"m"}', "{}"])


def fields_of(at: int) -> dict[str, str]:
    return {name: json.dumps(value(at)) for name, value in BASE.items()}


def line_of(fields: dict[str, str]) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"


ODD = st.tuples(st.integers(0, LINES - 1), st.sampled_from([*BASE, "more"]), VALUES)


def outcome(text: bytes, schema: pa.Schema | None) -> Any:
    """Return the types and the rows of a text, or the error."""
    rows = JsonRows(lambda: buffered(iter([text])), NAMES_MAX)
    try:
        found = schema or rows.schema({})
        tables = list(rows.tables(found))
    except Invalid as error:
        return type(error), str(error)
    table = pa.concat_tables(tables)
    table.validate(full=True)
    return found, [repr(row) for row in table.to_pylist()]


def both(text: bytes, schema: pa.Schema | None) -> tuple[Any, Any]:
    """Return the result, and the result of reading line by line."""
    with pytest.MonkeyPatch.context() as patch:
        fast = outcome(text, schema)
        patch.setattr(envelope, "MANY", sys.maxsize)
        return fast, outcome(text, schema)


@settings(max_examples=300)
@given(ODD | st.tuples(st.integers(0, LINES - 1), st.just(""), FULL_LINES), st.booleans(), st.booleans())
def test_one_odd_line(odd: tuple[int, str, str], is_declared: bool, is_crlf: bool) -> None:
    place, name, value = odd
    lines = [line_of(fields_of(at)) for at in range(LINES)]
    lines[place] = line_of(fields_of(place) | {name: value}) if name else value
    text = ("\r\n" if is_crlf else "\n").join(lines).encode()
    fast, slow = both(text, SCHEMA if is_declared else None)
    assert fast == slow


@settings(max_examples=150)
@given(st.lists(ODD, max_size=40), st.lists(st.tuples(st.sampled_from(list(BASE)), VALUES), max_size=2), st.booleans())
def test_many_odd_values(odd: list[tuple[int, str, str]], columns: list[tuple[str, str]], is_declared: bool) -> None:
    fields = [fields_of(at) | dict(columns) for at in range(LINES)]
    for place, name, value in odd:
        fields[place][name] = value
    fast, slow = both("\n".join(map(line_of, fields)).encode(), SCHEMA if is_declared else None)
    assert fast == slow


DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
SHORT = st.builds(lambda number, places: number / 10**places, st.integers(-(10**10), 10**10), st.integers(0, 8))


@settings(max_examples=200)
@given(st.lists(DOUBLES | SHORT | st.integers(-(2**60), 2**60), min_size=1) | st.lists(SHORT, min_size=1))
def test_numbers_keep_every_digit(numbers: list[float]) -> None:
    texts = [repr(number) for number in numbers] * (LINES // len(numbers) + 1)
    for last in ("null", "0.12345678901234567890", "12345678901234567890.5"):
        text = "\n".join(f'{{"n":{each},"s":"x"}}' for each in [*texts, last]).encode()
        fast, slow = both(text, None)
        assert fast == slow


def test_blocks_with_different_keys_follow_one_another() -> None:
    lines = [line_of(fields_of(at)) for at in range(4000)]
    lines += [json.dumps({"other": at, "id": at, "nested": {"a": at}}) for at in range(4000)]
    lines += [json.dumps({"id": at + 0.5, "more": "é"}, ensure_ascii=False) for at in range(4000)]
    fast, slow = both("\n".join(lines).encode(), None)
    assert fast == slow
    assert len(fast[1]) == 12_000
    assert fast[1][-1].startswith("{'id': 3999.5")


@pytest.mark.parametrize("first", ['{"more":"m"}', '{"ok":true,"more":1.5,"id":3}', '{"some":null,"nested":{"a":1}}'])
def test_columns_are_ordered_by_the_first_row_with_a_value(first: str) -> None:
    text = "\n".join([first, *(line_of(fields_of(at)) for at in range(LINES))]).encode()
    names = [*json.loads(first)]
    fast, slow = both(text, None)
    assert fast[0].names == names + [name for name in BASE if name not in names]
    assert fast == slow


@pytest.mark.parametrize("value", ["0.5", "7", "true"])
def test_only_strings_are_accepted_for_binary_columns(value: str) -> None:
    text = "\n".join(f'{{"id":{at},"data":{value}}}' for at in range(LINES)).encode()
    error, message = outcome(text, pa.schema([("id", pa.int64()), ("data", pa.binary())]))
    assert issubclass(error, Invalid)
    assert message.startswith("row 1, column data: expected a base64 string, got ")


@pytest.mark.parametrize("kept", [0, 200_000, 1 << 30])
def test_the_second_pass_reads_only_what_the_first_one_has_not_kept(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    lines = [line_of(fields_of(at)) for at in range(9000)]
    lines[2000:2000] = [""] * 3000
    lines[7000] = line_of(fields_of(7000) | {"code": '"\\u0041"'})
    text = "\n".join(lines).encode()
    expected = outcome(text, None)
    read: list[int] = []
    events = json_rows._events

    def counted(piece: bytes, start: int) -> Any:
        read.append(start)
        return events(piece, start)

    monkeypatch.setattr(json_rows, "_events", counted)
    monkeypatch.setattr(json_rows, "KEPT_BYTES", kept)
    monkeypatch.setattr(event_files, "PART_BYTES", 50_000)
    rows = JsonRows(lambda: buffered(iter([text])), NAMES_MAX)
    found = rows.schema({})
    pieces = len(read)
    assert pieces > 20
    read.clear()
    for _ in range(2):
        tables = list(rows.tables(found))
        assert (found, [repr(row) for row in pa.concat_tables(tables).to_pylist()]) == expected
    again = len(read) / 2 / pieces
    assert {0: again == 1, 200_000: 0 < again < 1, 1 << 30: again == 0}[kept]
