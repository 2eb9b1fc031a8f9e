"""JSON in and out: what orjson would change without a word is kept or refused."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.errors import Invalid
from alluvia.json_values.jsontext import (
    ExactNumber,
    canonical,
    canonical_all,
    decode,
    decode_all,
    encode,
    encode_all,
    split_array,
    split_object,
    split_stream,
)

NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30).map(lambda d: f"{d:f}"),
    st.builds("{}e{}".format, st.integers(-999, 999), st.integers(-500, 500)),
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)


def same(value: Any) -> Any:
    """Return the value with every number as an exact Decimal."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, dict):
        return [(key, same(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [same(item) for item in value]
    return Decimal(value.text if isinstance(value, ExactNumber) else repr(value))


def exactly(text: str) -> Any:
    """Parse JSON with every number as an exact Decimal, by the standard library alone."""
    return json.loads(text, parse_int=Decimal, parse_float=Decimal, object_pairs_hook=list)


@given(st.lists(NUMBERS, min_size=1, max_size=5), st.booleans())
def test_every_number_keeps_its_value_in_and_out(numbers: list[str], spaced: bool) -> None:
    text = (", " if spaced else ",").join(numbers)
    [value] = decode_all([f'{{"n":[{text}]}}'.encode()])
    assert same(value) == [("n", [Decimal(number) for number in numbers])]
    assert dict(exactly(encode(value).decode()))["n"] == [Decimal(number) for number in numbers]


VALUES = st.recursive(
    st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=5,
)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": ")])


@given(st.lists(st.dictionaries(TEXT, VALUES, max_size=3), min_size=1, max_size=4), SEPARATORS, st.booleans())
def test_any_object_survives(objects: list[dict[str, object]], separators: tuple[str, str], ascii_only: bool) -> None:
    texts = [json.dumps(item, separators=separators, ensure_ascii=ascii_only) for item in objects]
    values = decode_all([text.encode() for text in texts])
    assert [same(value) for value in values] == [same(json.loads(text)) for text in texts]


def test_a_big_integer_keeps_its_digits() -> None:
    value = decode(b'{"n": 1180591620717411303424, "small": 9007199254740993}')
    assert value == {"n": ExactNumber("1180591620717411303424"), "small": 9007199254740993}
    assert encode(value) == b'{"n":1180591620717411303424,"small":9007199254740993}'


@pytest.mark.parametrize(
    "text", ["1" * 30, "1e400", "\\", '"', 'a "1": 0.1000000000000000055511151231257827, ', '\\"' + "9" * 30]
)
@pytest.mark.parametrize("number", ["1" * 30, "1e400", "0.1000000000000000055511151231257827", "7", "0.5"])
def test_digits_in_texts_are_no_numbers(text: str, number: str) -> None:
    sent = f'{{{json.dumps(text)}:{number},"z":[{json.dumps(text)},{number}]}}'
    exact = {"7": 7, "0.5": 0.5}.get(number, ExactNumber(number))
    assert decode_all([sent.encode()] * 3) == [{text: exact, "z": [text, exact]}] * 3


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1e-400", "0.1000000000000000055511151231257827", "9" * 5000,
                                    "1e99999999999999999999", "1e-99999999999999999999"])  # fmt: skip
def test_numbers_beyond_a_double_stay_as_text(number: str) -> None:
    assert decode(f"[{number}]".encode()) == [ExactNumber(number)]


def test_long_digits_in_a_string_are_left_alone() -> None:
    assert decode(b'{"card": "4111111111111111111111", "n": 1}') == {"card": "4111111111111111111111", "n": 1}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"a":1,"a":2}', "the key 'a' occurs twice"),
        (b'{"x":{"b":[{"a":1,"b":2,"a":1}]}}', "the key 'a' occurs twice"),
        (b'{"a\\u003a":1,"a:":2}', "the key 'a:' occurs twice"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"a": "\\udc00\\ud800"}', "surrogate"),
        (b'{"a": "\xed\xa0\x80"}', "not valid UTF-8: byte 7"),
        (b'{"a": "\xff"}', "not valid UTF-8: byte 7"),
        (b'{"a": "\x00"}', "not valid JSON"),
        (b'{"a": 1', "not valid JSON"),
        (b"{'a': 1}", "not valid JSON"),
        (b'{"a": 01}', "not valid JSON"),
        (b'{"a": 1} {"b": 2}', "not valid JSON"),
        (b"", "not valid JSON"),
        (b'{"a":' * 254 + b"1" + b"}" * 254, "nested too deeply"),
        (b"[" * 5000 + b"]" * 5000, "nested too deeply"),
        (b"[" * 200_000, "nested too deeply"),
    ],
)
def test_what_cannot_be_kept_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        decode(raw)


def test_a_nul_and_a_pair_of_surrogates_are_text() -> None:
    assert decode(b'{"a": "x\\u0000y", "b": "\\ud83d\\ude00"}') == {"a": "x\0y", "b": "😀"}


def test_the_deepest_object_that_is_taken_can_be_written_again() -> None:
    raw = b'{"a":' * 252 + b"{}" + b"}" * 252
    assert encode(decode(raw)) == raw


def test_one_bad_text_does_not_spoil_the_others() -> None:
    values = decode_all([b'{"a":1}', b"{", b'{"a":18446744073709551616}', b'{"a":1,"a":1}'])
    assert values[0] == {"a": 1}
    assert isinstance(values[1], Invalid)
    assert values[2] == {"a": ExactNumber("18446744073709551616")}
    assert isinstance(values[3], Invalid)


ODD = st.one_of(
    st.sampled_from([
        b'{"n":9007199254740993.0}', b'{"n":0.1000000000000000055}', b'{"n":1e400}', b'{"n":123456789012345678901234}',
        b'{"a":1,"a":2}', b'{"a\\u003a":1,"b":2}', b'{"a":{"b":1,"b":1}}', b'{ "a" : [ 1.0 , "x  y" ] }', b'{"a":NaN}',
        b'{"a":"\\ud800"}', b'{"a":"\xff"}', b'{"a":1}{"b":2}', b'[{"a":1}', b"", b"{}", b"7",
        b'{"a":' * 254 + b"1" + b"}" * 254,
        b'{"a":' * 252 + b"{}" + b"}" * 252, b'{"a" :1, "a":1}', b'{"a":-0.0,"b":1E5}',
    ]),
    st.dictionaries(TEXT, VALUES, max_size=3).map(lambda value: json.dumps(value, ensure_ascii=False).encode()),
    st.binary(max_size=12),
)  # fmt: skip


@given(st.lists(ODD, max_size=4), st.integers(0, 130), SEPARATORS)
def test_a_text_is_read_alike_in_any_company(odd: list[bytes], company: int, separators: tuple[str, str]) -> None:
    plain = json.dumps({"a": 1, "text": "x, y: z"}, separators=separators).encode()

    def told(raws: list[bytes]) -> list[str]:
        return [str(value) if isinstance(value, Invalid) else repr(value) for value in decode_all(raws)]

    found = told([plain] * company + odd)
    assert found == told([plain]) * company + [text for raw in odd for text in told([raw])]


@given(st.lists(st.dictionaries(TEXT, VALUES, max_size=3), max_size=4), st.sampled_from([0, 1, 520]))
def test_values_are_written_alike_in_any_company(values: list[dict[str, Any]], company: int) -> None:
    sent: list[object] = [{"a": "x\n,\ny"}] * company
    sent += [decode(json.dumps(value).encode()) for value in values]
    assert list(encode_all(sent)) == [encode(value) for value in sent]
    assert list(canonical_all(sent)) == [canonical(value) for value in sent]


def test_the_deepest_value_is_written_in_company() -> None:
    deep = decode(b'{"a":' * 252 + b"{}" + b"}" * 252)
    deeper = {"b": deep}
    assert list(encode_all([deep, deeper, {}])) == [encode(deep), encode(deeper), b"{}"]


@pytest.mark.parametrize(
    ("raw", "pieces"),
    [
        (b"[]", []),
        (b" [ ] ", []),
        (b'[ {"a": NaN} , "\xff" ,\n[1,2] ]', [b'{"a": NaN}', b'"\xff"', b"[1,2]"]),
        (b'["\\ud800"]', [b'"\\ud800"']),
        (b"[" + b"9" * 5000 + b"]", [b"9" * 5000]),
        (b"[1,]", None),
        (b"[1 2]", None),
        (b"[1", None),
        (b"[1] 2", None),
        (b"{}", None),
        (b"[,1]", None),
    ],
)
def test_an_array_is_cut_into_its_elements(raw: bytes, pieces: list[bytes] | None) -> None:
    assert split_array(raw) == pieces
    if pieces:
        assert split_array(raw, len(pieces)) == pieces
        assert split_array(raw, 1) == pieces[:1]


@pytest.mark.parametrize(
    ("raw", "pieces"),
    [
        (b"{}", []),
        (b' { "a" : NaN ,"\\u0061":[1,2]\n, "b":"\xff" } ', [("a", b"NaN"), ("a", b"[1,2]"), ("b", b'"\xff"')]),
        (b'{"a":1,}', None),
        (b'{"a" 1}', None),
        (b'{"a":1 "b":2}', None),
        (b'{1:"a"}', None),
        (b'{"a":1', None),
        (b'{"a":1}{}', None),
        (b"[]", None),
    ],
)
def test_an_object_is_cut_into_its_members(raw: bytes, pieces: list[tuple[str, bytes]] | None) -> None:
    assert split_object(raw) == pieces


@pytest.mark.parametrize(
    ("raw", "pieces"),
    [
        (b'{"a":1}{"b":"}{"}', [b'{"a":1}', b'{"b":"}{"}']),
        (b' 1 "x"\n[2]null ', [b"1", b'"x"', b"[2]", b"null"]),
        (b'{"a":"\xff"}{}{"b', [b'{"a":"\xff"}', b"{}", b'{"b']),
        (b"[" * 100_000, [b"[" * 100_000]),
        (b"{}{}{}{}", [b"{}", b"{}", b"{}{}"]),
        (b" ", []),
    ],
)
def test_a_stream_is_cut_into_its_texts(raw: bytes, pieces: list[bytes]) -> None:
    assert split_stream(raw, 3 if raw == b"{}{}{}{}" else 10) == pieces


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"a":1}{"b":2}', "not valid JSON: another value begins at character 7"),
        (b'{"a":1}]', "not valid JSON: more follows the value at character 7"),
        (b'{"a', "not valid JSON: Unterminated string starting at character 1"),
        (b'{"a":"\n"}', "not valid JSON: Invalid control character at character 6"),
        (b'{"a":"\\x"}', "not valid JSON: Invalid \\escape at character 6"),
        (b'{"a":}', "not valid JSON: Expecting value at character 5"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(raw: bytes, reason: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode(raw)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        *[("1.50", "1.5"), ("1E5", "100000.0"), ("-0", "0")],
        *[(number, number) for number in ("100000000000000000000", "0.12345678901234567890", "1e400")],
    ],
)
def test_the_notation_of_numbers_is_as_the_readme_says(sent: str, kept: str) -> None:
    assert encode(decode(b'{"n":%s}' % sent.encode())) == b'{"n":%s}' % kept.encode()
