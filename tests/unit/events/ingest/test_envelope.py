"""Request bodies taken apart: every event comes out as an event or as a reject with its bytes."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.values import Limits, Split

LIMITS = Limits(body_bytes=100_000, inflated_bytes=200_000, event_bytes=1_000)
NDJSON = "application/x-ndjson; charset=utf-8"


def take(body: bytes, content_type: str | None = "application/json", encoding: str | None = None) -> Split:
    return split(body, content_type=content_type, content_encoding=encoding, limits=LIMITS)


def packed(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


def values(found: Split) -> list[dict[str, object]]:
    return [event.value for event in found.events]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a":1}', [{"a": 1}]),
        (b'\n {\n  "a": 1\n}\r\n', [{"a": 1}]),
        (b'[{"a":1},{"a":2}]', [{"a": 1}, {"a": 2}]),
        (b'[\n  {"a": 1},\n  {"a": 2}\n]\n', [{"a": 1}, {"a": 2}]),
        (b'{"a":1}\n{"a":2}', [{"a": 1}, {"a": 2}]),
        (b'{"a":1}\r\n\r\n \t\r\n{"a":2}\r\n\n', [{"a": 1}, {"a": 2}]),
        (b'\xef\xbb\xbf{"a":1}\n{"a":2}\n', [{"a": 1}, {"a": 2}]),
        (b"[]", []),
        (b"", []),
        (b" \r\n\t", []),
    ],
)
def test_bodies(body: bytes, expected: list[dict[str, object]]) -> None:
    for sent in (body, packed(body)):
        found = take(sent)
        assert values(found) == expected
        assert [event.position for event in found.events] == list(range(len(expected)))
        assert found.rejects == []


def zstd(text: bytes) -> bytes:
    return pa.compress(text, codec="zstd", asbytes=True)


SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"  # RFC 8878, 3.1.2: a frame that says nothing
RAW_FRAME = b"\x28\xb5\x2f\xfd\x20\x07\x39\x00\x00" + b'{"a":1}'  # 3.1.1, by hand: one block as it is


@pytest.mark.parametrize("encoding", ["zstd", "ZSTD ", None, "gzip"])
@pytest.mark.parametrize(
    "sent",
    [
        RAW_FRAME,
        zstd(b'{"a":1}'),
        zstd(b'{"a"') + SKIPPABLE + zstd(b":1}"),
        SKIPPABLE + zstd(b'{"a":1}'),
        b"\x5f" + SKIPPABLE[1:] + RAW_FRAME,
    ],
)
def test_zstd_is_known_by_its_bytes(sent: bytes, encoding: str | None) -> None:
    assert values(take(sent, encoding=encoding)) == [{"a": 1}]


LARGE_WINDOW = b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + b"\x09\x00\x00 "  # 3.1.1.1.2: --long=31


def test_zstd_with_a_window_that_is_too_large_says_how_to_compress() -> None:
    one_reject(take(LARGE_WINDOW), LARGE_WINDOW, "larger than 128 MB: compress it with --long=27 at most")
    usual = LARGE_WINDOW[:5] + bytes([(27 - 10) << 3]) + b"\x39\x00\x00" + b'{"a":1}'
    assert values(take(usual)) == [{"a": 1}]


@pytest.mark.parametrize(
    ("name", "pack"),
    [("bzip2", bz2.compress), ("xz", lzma.compress), ("lz4", lambda text: pa.compress(text, "lz4", asbytes=True))],
)
def test_another_compression_is_named(name: str, pack: Callable[[bytes], bytes]) -> None:
    for text in (b'{"a":1}', b""):
        found = take(pack(text))
        one_reject(found, pack(text), f"compressed with {name}, which is not read: use gzip, zstd or none")
        assert found.unsupported


def test_deflate_is_zlib_as_http_has_it() -> None:
    assert values(take(zlib.compress(b'{"a":1}'), encoding="deflate")) == [{"a": 1}]
    assert values(take(b'{"a":1}', encoding="deflate")) == [{"a": 1}]


@pytest.mark.parametrize("encoding", ["gzip", "GZIP ", "x-gzip", None, "identity"])
def test_gzip_is_known_by_its_bytes(encoding: str | None) -> None:
    assert values(take(packed(b'{"a":1}'), encoding=encoding)) == [{"a": 1}]


def test_a_gzip_header_on_a_plain_body_is_forgiven() -> None:
    assert values(take(b'{"a":1}', encoding="gzip")) == [{"a": 1}]


def test_gzip_of_several_members_and_padding() -> None:
    members = [packed(f'{{"a":{number}}}\n'.encode()) for number in range(3_000)]
    found = take(b"".join(members) + b"\0" * 20)
    assert values(found) == [{"a": number} for number in range(3_000)]
    assert found.rejects == []


def one_reject(found: Split, raw: bytes, reason: str) -> None:
    assert found.events == []
    [reject] = found.rejects
    assert (reject.position, reject.raw) == (0, raw)
    assert reason in reject.reason


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (packed(b'{"a":1}')[:-1], "truncated"),
        (packed(b'{"a":1}')[:12], "truncated"),
        (packed(b'{"a":1}') + b"xyz", "damaged"),
        (packed(b'{"a":1}') + packed(b'{"a":2}')[:-4], "truncated"),
        (packed(b'{"a":1}')[:-8] + b"\0" * 8, "damaged"),
        (packed(b'{"a":1}')[:10] + b"\xff" * 20, "damaged"),
    ],
)
def test_damaged_gzip_is_kept_as_one_reject(sent: bytes, reason: str) -> None:
    one_reject(take(sent, encoding="gzip"), sent, reason)


@pytest.mark.parametrize(
    ("sent", "encoding", "reason"),
    [
        (RAW_FRAME[:-1], None, "damaged"),
        (RAW_FRAME + b"xyz", None, "damaged"),
        (RAW_FRAME[:4], "zstd", "damaged"),
        (zlib.compress(b'{"a":1}')[:-1], "deflate", "truncated"),
        (zlib.compress(b'{"a":1}') + b"x", "deflate", "more after its end"),
        (zlib.compress(b'{"a":1}')[:-1] + b"x", "deflate", "damaged"),
    ],
)
def test_damaged_zstd_and_deflate_are_kept_as_one_reject(sent: bytes, encoding: str | None, reason: str) -> None:
    one_reject(take(sent, encoding=encoding), sent, reason)


@pytest.mark.parametrize(
    ("bomb", "encoding"), [(zstd(b" " * 3_000_000), None), (zlib.compress(b" " * 3_000_000), "deflate")]
)
def test_other_bombs_are_stopped_at_the_limit(bomb: bytes, encoding: str | None) -> None:
    found = take(bomb, encoding=encoding)
    one_reject(found, bomb, "inflates to more than the limit of 200000 bytes")
    assert found.too_large


def test_a_gzip_bomb_is_stopped_at_the_limit_and_kept_small(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = packed(b" " * 50_000_000)
    inflated = []
    real = zlib.decompressobj

    class Watched:
        def __init__(self, bits: int) -> None:
            self._inner = real(bits)

        def decompress(self, data: bytes, limit: int) -> bytes:
            out = self._inner.decompress(data, limit)
            inflated.append(len(out))
            return out

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    monkeypatch.setattr(zlib, "decompressobj", Watched)
    found = take(bomb)
    one_reject(found, bomb, "inflates to more than the limit of 200000 bytes")
    assert found.too_large
    assert sum(inflated) == LIMITS.inflated_bytes + 1


def test_a_body_of_exactly_the_inflated_limit_is_taken() -> None:
    text = b'{"a":1}' + b" " * (LIMITS.inflated_bytes - 7)
    assert values(take(packed(text))) == [{"a": 1}]
    one_reject(take(packed(text + b" ")), packed(text + b" "), "limit")


def test_a_body_over_the_limit_is_kept_as_one_reject() -> None:
    body = b'{"a":1}\n' * 12_501
    found = take(body)
    one_reject(found, body, "100008 bytes, more than the limit of 100000")
    assert found.too_large
    assert len(take(body[:100_000]).events) == 12_500


@pytest.mark.parametrize("shape", ["[{}]", "{}", "[1e400, {}]"])
def test_more_events_than_the_limit_are_kept_as_one_reject(shape: str) -> None:
    events = ["{}"] * 10
    body = (shape.format(",".join(events)) if shape.startswith("[") else "\n\n".join(events)).encode()
    limits = Limits(events=11)
    assert len(split(body, content_type=None, content_encoding=None, limits=limits).events) == 10
    found = split(body, content_type=None, content_encoding=None, limits=Limits(events=9))
    one_reject(found, body, "more than the limit of 9 events")
    assert found.too_large


def test_an_unknown_encoding_is_a_reject() -> None:
    one_reject(take(b"\x8b\x03\x80", encoding="br"), b"\x8b\x03\x80", "'br' is not supported: send gzip")


def test_one_event_over_the_limit_does_not_stop_the_others() -> None:
    big = json.dumps({"event_id": "big", "a": "x" * 1_000}, separators=(",", ":")).encode()
    for body in (b'{"a":1}\n' + big + b'\n{"a":2}', b'[{"a":1},' + big + b',{"a":2}]'):
        found = take(body)
        assert values(found) == [{"a": 1}, {"a": 2}]
        assert [event.position for event in found.events] == [0, 2]
        [reject] = found.rejects
        assert (reject.position, reject.raw, str(reject.event_id).partition("#")[0]) == (1, big, "big")
        assert "more than the limit of 1000" in reject.reason


def test_a_broken_line_is_a_reject_and_the_others_are_events() -> None:
    body = b'{"a":1}\n{"a":\n[{"a":3}]\n"text"\n5\nnull\n{"a":"\xff"}\n{"a":7,"a":7}\n{"a":8}'
    found = take(body)
    assert [(event.position, event.value) for event in found.events] == [(0, {"a": 1}), (8, {"a": 8})]
    lines = body.split(b"\n")
    assert [(reject.position, reject.raw) for reject in found.rejects] == [(at, lines[at]) for at in range(1, 8)]
    reasons = [reject.reason for reject in found.rejects]
    assert "not valid JSON" in reasons[0]
    assert [text.rsplit("got ", 1)[-1] for text in reasons[1:5]] == ["an array", "a string", "a number", "null"]


@pytest.mark.parametrize("first", [b"garbage", b'{"a":', b"[1,2]", b"\xff"])
def test_a_broken_first_line_spoils_nothing(first: bytes) -> None:
    found = take(first + b'\n{"a":2}\n')
    assert values(found) == [{"a": 2}]
    assert [(reject.position, reject.raw) for reject in found.rejects] == [(0, first)]


@pytest.mark.parametrize(
    "body",
    [
        b'{\n  "a": 1,\n  "b": {}\n',
        b'[\n{"a":1},\n{"a":2}\n',
        b'[{"a":1},{"a":2}',
        b'{"a":1',
        b"garbage",
        b"\xff\xfe{\x00}\x00",
        b"nonsense\nmore nonsense",
    ],
)
def test_a_body_that_is_broken_as_a_whole_is_one_reject(body: bytes) -> None:
    one_reject(take(body), body.strip(), "not valid")


def test_the_content_type_makes_each_broken_line_a_reject() -> None:
    found = take(b"nonsense\nmore nonsense", NDJSON)
    assert [reject.raw for reject in found.rejects] == [b"nonsense", b"more nonsense"]


def test_bad_elements_of_an_array_are_rejects() -> None:
    found = take(b'[{"a": 1}, 5, {"a": NaN}, {"a": "\\ud800"}, {"a": 1, "a": 2}, {"a": 18446744073709551616}, "\xff"]')
    assert [event.position for event in found.events] == [0, 5]
    raws = [b"5", b'{"a": NaN}', b'{"a": "\\ud800"}', b'{"a": 1, "a": 2}', b'"\xff"']
    assert [reject.raw for reject in found.rejects] == raws
    assert [reject.position for reject in found.rejects] == [1, 2, 3, 4, 6]


def test_only_non_objects_in_an_array() -> None:
    found = take(b'[1,"x",null,[{}]]')
    assert (found.events, [reject.raw for reject in found.rejects]) == ([], [b"1", b'"x"', b"null", b"[{}]"])


LINE = st.one_of(
    st.binary(max_size=30),
    st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5), max_size=3).map(
        lambda item: json.dumps(item).encode()
    ),
).map(lambda line: line.replace(b"\n", b"").strip(b" \t\r"))


@given(st.lists(LINE, max_size=8), st.booleans())
def test_every_line_comes_out_once(lines: list[bytes], compressed: bool) -> None:
    sent = [line for line in [b'{"first":1}', *lines] if line]
    body = b"\n".join(sent)
    found = take(packed(body) if compressed else body, NDJSON)
    taken = {event.position: event.raw for event in found.events} | {bad.position: bad.raw for bad in found.rejects}
    assert len(found.events) + len(found.rejects) == len(sent)
    assert taken == dict(enumerate(sent))


@given(st.binary(max_size=200), st.sampled_from([None, "gzip", "br"]), st.sampled_from([None, NDJSON]))
def test_no_bytes_crash_it_and_none_vanish(body: bytes, encoding: str | None, content_type: str | None) -> None:
    found = take(body, content_type, encoding)
    nothing = body.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n") in (b"", b"[]")
    assert found.events or found.rejects or nothing


def test_objects_on_one_line_are_refused_with_what_to_do() -> None:
    hint = "send one object per line (curl -d strips line ends, --data-binary keeps them)"
    for body in (b'{"a":1}{"b":2}', b'{"a":1}{"b":2}\n{"c":3}', b'{\n"a":1}\n{\n"b":2}'):
        [reject] = split(body, content_type=None, content_encoding=None, limits=Limits()).rejects
        assert reject.reason.endswith(f": {hint}")
        assert reject.reason.startswith("not valid JSON: another value begins at character ")
