"""Variants as text: what the specification says of bytes, and what DuckDB and Spark say of any value."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyspark.sql.variant_utils import VariantUtils

from alluvia.delta.schema.variants import variant_texts
from alluvia.errors import Unsupported

EMPTY = b"\x01\x00\x00"
"""Metadata without names."""


def texts(*values: bytes | None, metadata: bytes = EMPTY) -> list[str | None]:
    rows = [None if value is None else {"metadata": metadata, "value": value} for value in values]
    return list(variant_texts(pa.array(rows, pa.struct({"metadata": pa.binary(), "value": pa.binary()}))).to_pylist())


def primitive(kind: int, data: bytes = b"") -> bytes:
    return bytes([kind << 2]) + data


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (primitive(0), "null"),
        (primitive(1), "true"),
        (primitive(2), "false"),
        (primitive(3, b"\x80"), "-128"),
        (primitive(4, struct.pack("<h", -300)), "-300"),
        (primitive(5, struct.pack("<i", 70000)), "70000"),
        (primitive(6, struct.pack("<q", -(2**63))), "-9223372036854775808"),
        (primitive(7, struct.pack("<d", 1e300)), "1e+300"),
        (primitive(7, struct.pack("<d", float("nan"))), '"NaN"'),
        (primitive(7, struct.pack("<d", float("inf"))), '"Infinity"'),
        (primitive(8, b"\x02" + struct.pack("<i", 150)), "1.5"),
        (primitive(8, b"\x03" + struct.pack("<i", -5)), "-0.005"),
        (primitive(9, b"\x00" + struct.pack("<q", 10**17)), "100000000000000000"),
        (primitive(10, b"\x26" + (10**38 - 1).to_bytes(16, "little")), f"0.{'9' * 38}"),
        (primitive(11, struct.pack("<i", 18263)), '"2020-01-02"'),
        (primitive(12, struct.pack("<q", 1577934245123000)), '"2020-01-02 03:04:05.123+00:00"'),
        (primitive(13, struct.pack("<q", -1)), '"1969-12-31 23:59:59.999999"'),
        (primitive(14, struct.pack("<f", 0.1)), "0.1"),
        (primitive(14, struct.pack("<f", float("-inf"))), '"-Infinity"'),
        (primitive(15, b"\x02\0\0\0\x00\xff"), '"AP8="'),
        (primitive(16, b'\x03\0\0\0a"\n'), '"a\\"\\n"'),
        (primitive(17, struct.pack("<q", 11045_000_000)), '"03:04:05"'),
        (primitive(18, struct.pack("<q", 1577934245123456789)), '"2020-01-02 03:04:05.123456789+00:00"'),
        (primitive(19, struct.pack("<q", 1577934245000000000)), '"2020-01-02 03:04:05"'),
        (primitive(20, bytes(range(16))), '"00010203-0405-0607-0809-0a0b0c0d0e0f"'),
        (b"\x0dabc", '"abc"'),
        (b"\x01", '""'),
        (b"\x03\x02\x00\x01\x03\x00\x0c\x07", "[null,7]"),
        (b"\x13\x01\x00\x00\x00\x00\x01\x00", "[null]"),
        (b"\x02\x00\x00", "{}"),
    ],
)
def test_each_type_has_its_text(value: bytes, expected: str) -> None:
    assert texts(value) == [expected]


def test_fields_have_the_names_of_the_metadata_and_their_order() -> None:
    metadata = b"\x01\x02\x00\x02\x03bbc"
    value = b"\x02\x02\x00\x01\x02\x00\x04\x0c\x01\x0c\x02"
    assert texts(value, None, b"\x02\x01\x01\x00\x01\x00", metadata=metadata) == ['{"bb":2,"c":1}', None, '{"c":null}']
    swapped = b"\x02\x02\x01\x00\x00\x02\x04\x0c\x01\x0c\x02"
    assert texts(swapped, metadata=metadata) == ['{"bb":2,"c":1}']


def test_nesting_may_be_deeper_than_pythons_stack() -> None:
    value = primitive(1)
    for _ in range(5000):
        value = b"\x1f\x01\x00\x00\x00" + struct.pack("<II", 0, len(value)) + value
    assert texts(value) == ["[" * 5000 + "true" + "]" * 5000]


def bomb() -> bytes:
    """Return arrays of two values each, which are the same one, thirty deep."""
    value = primitive(1)
    for _ in range(30):
        value = b"\x0f\x02" + struct.pack("<III", 0, 0, len(value)) + value
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "ends after 0 bytes"),
        (primitive(6, b"\0"), "ends after 2 bytes"),
        (b"\x0dab", "ends after 3 bytes"),
        (b"\x05\xff", "utf-8"),
        (primitive(15, b"\xff\xff\xff\xff"), "ends after 5 bytes"),
        (b"\x13\xff\xff\xff\xff\x00", "ends after 6 bytes"),
        (b"\x03\x01\x05\x06\x00", "ends after 5 bytes"),
        (b"\x02\x01\x00\x00\x01\x00", "names its field 0, of 0"),
        (bomb(), "overlap"),
    ],
)
def test_damaged_bytes_are_refused(value: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        texts(value)


def test_fields_beside_columns_may_not_overlap_either() -> None:
    value = b"\x02\x02\x00\x01\x00\x00\x02\x0c\x01"
    row = {"metadata": b"\x01\x02\x00\x01\x02ab", "value": value, "typed_value": {"c": {"typed_value": 1}}}
    with pytest.raises(ValueError, match="overlap"):
        variant_texts(pa.array([row]))


def test_what_came_later_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="the type 21"):
        texts(primitive(21))
    with pytest.raises(Unsupported, match="version 2"):
        texts(primitive(0), metadata=b"\x02\x00\x00")


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["x"]),
        pa.array([{"value": b"\0"}]),
        pa.array([{"metadata": EMPTY, "typed_value": [1]}]),
        pa.array([{"metadata": EMPTY, "typed_value": {"a": 1}}]),
        pa.array([{"metadata": EMPTY, "value": b"\x0c\x01", "typed_value": {"a": {"value": b"\0"}}}]),
    ],
)
def test_what_is_not_a_variant_is_refused(array: pa.Array) -> None:
    with pytest.raises(ValueError, match="variant"):
        variant_texts(array)


def test_a_slice_of_a_column_gives_its_own_rows() -> None:
    rows = [
        {"metadata": EMPTY, "value": None, "typed_value": [{"typed_value": at}, {"typed_value": None}]}
        for at in range(5)
    ]
    array = pa.array([*rows, None, {**rows[0], "typed_value": None}])
    assert variant_texts(array.slice(2, 2)).to_pylist() == ["[2,null]", "[3,null]"]
    assert variant_texts(array.slice(5)).to_pylist() == [None, "null"]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
)
NAMES = st.sampled_from(["a", "b", "c", "long name", "Ä", ""])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=20)


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_any_value_comes_as_spark_wrote_it(values: list[Any]) -> None:
    written = [VariantUtils.parse_json(json.dumps(value)) for value in values]
    rows = [{"value": bytes(value), "metadata": bytes(metadata)} for value, metadata in written]
    assert [json.loads(text or "") for text in variant_texts(pa.array(rows)).to_pylist()] == values


SHREDDING = st.sampled_from(
    [
        "",
        "BIGINT",
        "VARCHAR",
        "DOUBLE",
        "BIGINT[]",
        "STRUCT(a BIGINT, b VARCHAR)",
        "STRUCT(a STRUCT(a BOOLEAN), c VARCHAR[])",
    ]
)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


@pytest.mark.slow
@given(st.lists(VALUES, min_size=1, max_size=8), SHREDDING)
def test_any_value_comes_as_duckdb_shredded_it(values: list[Any], shredding: str) -> None:
    # DuckDB 1.5.5 writes a text of 64 bytes as a short one, whose length has six bits, and reads "" itself.
    assume(all(len(text.encode()) != 64 for text in _texts(values)))
    given_texts = pa.table({"text": [json.dumps(value) for value in values]})
    options = f", SHREDDING {{'v': '{shredding}'}}" if shredding else ""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        connection.register("given", given_texts)
        file = Path(folder, "v.parquet")
        written = "SELECT CAST(CAST(text AS JSON) AS VARIANT) AS v FROM given"
        connection.execute(f"COPY ({written}) TO '{file}' (FORMAT parquet{options})")
        stored = pq.read_table(file)["v"].combine_chunks()
    assert [json.loads(text or "") for text in variant_texts(stored).to_pylist()] == values
