from __future__ import annotations

import random
import struct
import zlib
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from alluvia.clock import ManualClock
from alluvia.delta.deletion_vectors.descriptors import (
    StoredVector,
    decode_inline,
    decode_stored,
    decode_z85,
    encode_z85,
    stored_vector,
)
from alluvia.delta.deletion_vectors.roaring import decode_roaring, encode_roaring, sorted_positions
from alluvia.delta.deletion_vectors.storage import read_deletions, write_deletions
from alluvia.delta.log.actions import AddFile
from alluvia.errors import Corrupt, Unsupported
from alluvia.store import MemoryStore
from tests.inline_vectors import inline_vector

EXAMPLE = {"storageType": "i", "sizeInBytes": 40, "cardinality": 6}
"""The protocol's own example of an inline vector, in the first format, with numbers in network byte order."""
FILE = AddFile("part.parquet", {}, 1, 1, data_change=True, stats='{"numRecords":100}')


def positions(*numbers: int) -> pa.Int64Array:
    return pa.array(numbers, pa.int64())


@pytest.mark.parametrize(
    "text",
    ["wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"],
)
def test_inline_vectors_of_both_formats_are_read(text: str) -> None:
    size = len(text) // 5 * 4
    found = decode_inline({**EXAMPLE, "pathOrInlineDv": text, "sizeInBytes": size})
    assert found.to_pylist() == [3, 4, 7, 11, 18, 29]


@pytest.mark.parametrize("last", ["##093", "0@@r3"])
def test_an_inline_vector_is_read_however_its_last_word_is_padded(last: str) -> None:
    """Of 34 bytes, two are left for the last word: `##093` in tables of Delta's Rust implementation."""
    text = f"^Bg9^0rr910000000000iXQKl0rr91000005c8Xg{last}"
    found = decode_inline({"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": 34, "cardinality": 1})
    assert found.to_pylist() == [3]


def test_a_vector_is_written_as_the_reference_implementation_does() -> None:
    assert inline_vector(3, 4, 7, 11, 18, 29) == {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 44,
        "cardinality": 6,
    }


@pytest.mark.parametrize(
    ("descriptor", "expected"),
    [
        (
            {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4},
            StoredVector("ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", 4, 52),
        ),
        (
            {"storageType": "u", "pathOrInlineDv": "^-aqEH.-t@S}K{vb[*k^"},
            StoredVector("deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin", 0, 48),
        ),
        (
            {"storageType": "p", "pathOrInlineDv": "s3://my%20table/x.bin", "offset": 1},
            StoredVector("s3://my table/x.bin", 1, 49),
        ),
        ({"storageType": "i", "pathOrInlineDv": "0"}, None),
    ],
)
def test_a_descriptor_says_where_its_vector_lies(descriptor: dict[str, Any], expected: StoredVector | None) -> None:
    assert stored_vector({**descriptor, "sizeInBytes": 40, "cardinality": 6}) == expected


@pytest.mark.parametrize(
    ("count", "limit"),
    [
        *((0, 1), (1, 1), (10, 100), (4096, 65536), (4097, 65536), (65536, 65536), (70000, 70000)),
        *((5000, 10**6), (100000, 10**6), (1000, 2**40), (3, 2**62)),
    ],
)
def test_positions_come_back_whatever_their_number_and_spread(count: int, limit: int) -> None:
    chosen = sorted_positions(random.Random(count).sample(range(limit), count))
    data = encode_roaring(chosen)
    assert decode_roaring(data, count).equals(chosen)
    if count:
        with pytest.raises(ValueError, match="bitmap"):
            decode_roaring(data[:-1], count)
        with pytest.raises(ValueError, match="more positions than it should"):
            decode_roaring(data, count - 1)
    with pytest.raises(ValueError, match=f"instead of {count + 1}"):
        decode_roaring(data, count + 1)


def test_runs_are_kept_short() -> None:
    assert len(encode_roaring(sorted_positions(range(1_000_000)))) < 1000


def test_a_few_bytes_of_runs_do_not_become_memory() -> None:
    containers = 1100
    heads = b"".join(struct.pack("<HH", key, 65535) for key in range(containers))
    flags = b"\xff" * ((containers + 7) // 8)
    runs = struct.pack("<HHH", 1, 0, 65535) * containers
    cookie = struct.pack("<QII", 1, 0, 12347 | containers - 1 << 16)
    data = struct.pack("<I", 1681511377) + cookie + flags + heads + bytes(4 * containers) + runs
    frame = struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    descriptor = {"storageType": "p", "pathOrInlineDv": "/x", "sizeInBytes": len(data)}
    with pytest.raises(Unsupported, match="deletes 72089600 rows, more than this library reads of one file"):
        decode_stored({**descriptor, "cardinality": containers << 16}, frame)
    with pytest.raises(Corrupt, match="more positions than it should"):
        decode_stored({**descriptor, "cardinality": 1 << 20}, frame)


def test_runs_that_go_back_are_refused() -> None:
    def runs(*pairs: int) -> bytes:
        head = struct.pack("<QII", 1, 0, 12347) + b"\1" + struct.pack("<HH", 0, 5)
        return head + struct.pack(f"<H{len(pairs)}H", len(pairs) // 2, *pairs)

    assert decode_roaring(runs(1, 2, 65533, 2), 6).to_pylist() == [1, 2, 3, 65533, 65534, 65535]
    for pairs in ((9, 2, 1, 2), (1, 2, 3, 2)):
        with pytest.raises(ValueError, match="not in ascending order"):
            decode_roaring(runs(*pairs), 6)
    with pytest.raises(ValueError, match="exceeds its container"):
        decode_roaring(runs(65533, 5), 6)


def test_positions_are_ordered_and_counted_once() -> None:
    assert sorted_positions([5, 1, 5, 3]).to_pylist() == [1, 3, 5]
    assert sorted_positions(pa.chunked_array([pa.array([2]), pa.array([1])])).to_pylist() == [1, 2]
    with pytest.raises(ValueError, match="0 or more"):
        sorted_positions([1, -1])


@pytest.mark.parametrize("data", [b"", b"\0", b"HelloWorld", bytes(range(256))])
def test_z85_comes_back(data: bytes) -> None:
    assert decode_z85(encode_z85(data))[: len(data)] == data


def test_z85_is_that_of_its_specification() -> None:
    assert encode_z85(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"
    for broken in ("Hello World", "abc", "#####", "####1", "##$$$", "##093Hello", "ab~cd"):
        with pytest.raises(ValueError, match="Z85"):
            decode_z85(broken)


def store_with_vectors(*vectors: pa.Int64Array) -> tuple[MemoryStore, list[dict[str, Any]]]:
    store = MemoryStore()
    return store, write_deletions(store, "t/", ManualClock(), vectors)


def read(store: MemoryStore, descriptor: dict[str, Any]) -> list[int | None]:
    file = replace(FILE, deletion_vector=descriptor)
    return read_deletions(
        store, file, lambda path: path.removeprefix("/lake/") if path[0] == "/" else f"t/{path}"
    ).to_pylist()


def test_several_vectors_share_a_file() -> None:
    store, descriptors = store_with_vectors(positions(1, 2), positions(), positions(2**33, 2**33 + 7))
    assert [read(store, each) for each in descriptors] == [[1, 2], [], [2**33, 2**33 + 7]]
    assert len(list(store.list("t/"))) == 1
    assert write_deletions(store, "t/", ManualClock(), []) == []
    assert read_deletions(store, FILE, str).to_pylist() == []


def test_a_vector_may_be_named_by_an_absolute_path() -> None:
    store, (descriptor,) = store_with_vectors(positions(4))
    path = stored_vector(descriptor)
    assert path is not None
    absolute = {**descriptor, "storageType": "p", "pathOrInlineDv": f"/lake/t/{path.path}"}
    assert read(store, absolute) == [4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"storageType": "x"}, "storage type 'x'"),
        ({"pathOrInlineDv": None}, "no pathOrInlineDv"),
        ({"pathOrInlineDv": "short"}, "no readable file name"),
        ({"sizeInBytes": 7}, "bytes"),
        ({"sizeInBytes": None}, "sizeInBytes None"),
        ({"sizeInBytes": -1}, "sizeInBytes -1"),
        ({"offset": 2}, "bytes"),
        ({"offset": 10**6}, "truncated"),
        ({"cardinality": 3}, "instead of 3"),
        ({"cardinality": 1}, "more positions"),
        ({"storageType": "p", "pathOrInlineDv": "/lake/none.bin"}, "none.bin is missing"),
        ({"storageType": "i", "pathOrInlineDv": "00000", "sizeInBytes": 4}, "a known format number"),
        ({"storageType": "i", "pathOrInlineDv": "0000", "sizeInBytes": 4}, "multiple of five"),
    ],
)
def test_a_damaged_vector_is_named(change: dict[str, Any], message: str) -> None:
    store, (descriptor,) = store_with_vectors(positions(1, 2))
    with pytest.raises((Corrupt, Unsupported), match=message) as caught:
        read(store, {**descriptor, **change})
    if isinstance(caught.value, Corrupt):
        assert str(caught.value).startswith("data file part.parquet: ")


def test_a_changed_byte_is_found_by_the_checksum() -> None:
    store, (descriptor,) = store_with_vectors(positions(1, 2))
    (info,) = store.list("t/")
    data = bytearray(store.get(info.key))
    data[-6] ^= 1
    store.put(info.key, bytes(data))
    with pytest.raises(Corrupt, match="does not match its checksum"):
        read(store, descriptor)


@pytest.mark.slow
def test_no_bytes_make_another_error() -> None:
    seed = random.Random(7)
    framed = store_with_vectors(sorted_positions(range(0, 200_000, 3)))[0]
    (info,) = framed.list("t/")
    whole = framed.get(info.key)[1:]
    size = len(whole) - 8
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(seed.randint(1, 4)):
            data[seed.randrange(4, len(data) - 4)] = seed.randrange(256)
        descriptor = {"storageType": "i", "sizeInBytes": size, "cardinality": 66_667}
        descriptor["pathOrInlineDv"] = encode_z85(bytes(data[4:-4]))
        try:
            assert len(decode_inline(descriptor)) == 66_667
        except Corrupt:
            continue
    with pytest.raises(Corrupt):
        decode_stored({"storageType": "u", "sizeInBytes": size, "cardinality": 66_667}, bytes(len(whole)))
