"""Hashes of keys: the same in Python and in Arrow, whatever else is hashed with them."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from alluvia.operations.retention.path_hashes import NO_HASHES, ROWS_MAX, WORDS_MAX, hashed, key_hash

KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


@given(st.lists(KEYS, max_size=20), st.integers(0, 20))
def test_a_key_has_one_hash_whatever_stands_beside_it(keys: list[str], start: int) -> None:
    column = pa.array(keys, pa.string())
    assert hashed(column).to_pylist() == [key_hash(key) for key in keys]
    assert hashed(column.slice(start)).equals(hashed(column).slice(start))


@given(st.sets(KEYS))
def test_different_keys_have_different_hashes(keys: set[str]) -> None:
    assert len(set(map(key_hash, keys))) == len(keys)


def test_many_keys_and_long_ones() -> None:
    keys = [f"t/day={number % 7}/part-{number:08}.parquet" for number in range(ROWS_MAX * 2 + 3)]
    keys[ROWS_MAX] = "x" * (WORDS_MAX * 9)
    found = hashed(pa.array(keys, pa.string())).to_pylist()
    assert len(set(found)) == len(keys)
    for at in (0, 1, ROWS_MAX - 1, ROWS_MAX, ROWS_MAX + 1, len(keys) - 1):
        assert found[at] == key_hash(keys[at])


def test_no_keys() -> None:
    assert hashed(pa.array([], pa.string())).equals(NO_HASHES)


def test_keys_that_differ_in_the_last_byte_of_their_words_alone_have_hashes_of_64_bits() -> None:
    keys = pa.array([f"aaaaaaa{chr(33 + at % 90)}bbbbbbb{chr(33 + at // 90)}" for at in range(8100)])
    found = hashed(keys).to_pylist()
    assert len(set(found)) == len({each & 0xFFFFFF_FFFF for each in found}) == 8100
    assert len({each & 0xFFFF for each in found}) > 4000
