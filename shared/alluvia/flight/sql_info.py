"""What the server says of itself: CommandGetSqlInfo, with the numbers and meanings of `SqlInfo` in FlightSql.proto."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from alluvia.flight.handles import HELD_MS_MAX
from alluvia.sql.grammar.tokens import TEXT_LIMIT_BYTES
from alluvia.version import __version__

SCHEMA = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field(
            "value",
            pa.dense_union(
                [
                    pa.field("string_value", pa.string()),
                    pa.field("bool_value", pa.bool_()),
                    pa.field("bigint_value", pa.int64()),
                    pa.field("int32_bitmask", pa.int32()),
                    pa.field("string_list", pa.list_(pa.string())),
                    pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
                ]
            ),
            nullable=False,
        ),
    ]
)
_STRING, _BOOL, _BIGINT, _INT32, _LIST, _MAP = range(6)
_CASE_INSENSITIVE, _NULLS_AT_END, _FULL_OUTER_JOINS, _SERIALIZABLE, _FORWARD_ONLY, _TRANSACTIONS = 1, 3, 2, 4, 1, 1

_TRUE = (4, 9, 11, 506, 515, 516, 518, 520, 521, 523, 524, 539, 563, 572, 574)
_FALSE = (5, 500, 501, 519, 527, 532, 536, 537, 556, 565, 566, 573, 575, 576)
_TEXTS = {
    0: "Alluvia", 1: __version__, 2: pa.__version__, 504: '"', 513: "\\", 514: "",
    529: "schema", 530: "", 531: "",  # nothing is called a procedure or a catalog
}  # fmt: skip
_LISTS = (508, 509, 510, 511, 512)
_NUMBERS = {
    8: _TRANSACTIONS, 100: HELD_MS_MAX, 101: HELD_MS_MAX,
    503: _CASE_INSENSITIVE, 505: _CASE_INSENSITIVE, 507: _NULLS_AT_END,
    522: 0b11, 525: 0b11, 526: 0b1, 528: _FULL_OUTER_JOINS, 533: 0, 534: 0, 535: 0, 538: 0b1111, 540: 0b11,
    564: 1 << _SERIALIZABLE, 567: 1 << _FORWARD_ONLY, 568: 0, 569: 0b10, 570: 0, 571: 0,
}  # fmt: skip
_UNLIMITED = (*range(541, 556), 558, 560, 561)
_SIZES = {
    **dict.fromkeys(_UNLIMITED, 0),
    557: TEXT_LIMIT_BYTES,
    559: 128,
    562: _SERIALIZABLE,  # FlightSql.proto has an int32, the drivers and servers of Apache Arrow this
}
_READ_ONLY, _INGESTS, _DDL_TABLE, _CONVERT = 3, 10, 502, 517


def sql_info(wanted: Iterable[int], *, allow_writes: bool) -> pa.RecordBatch:
    """Return what is wanted, by number; all where that is nothing. Numbers of which nothing is known are left out."""
    known: dict[int, tuple[int, Any]] = {
        **{number: (_STRING, value) for number, value in _TEXTS.items()},
        **dict.fromkeys(_TRUE, (_BOOL, True)),
        **dict.fromkeys(_FALSE, (_BOOL, False)),
        **{number: (_BIGINT, value) for number, value in _SIZES.items()},
        **{number: (_INT32, value) for number, value in _NUMBERS.items()},
        **dict.fromkeys(_LISTS, (_LIST, [])),
        _READ_ONLY: (_BOOL, not allow_writes),
        **dict.fromkeys((_INGESTS, _DDL_TABLE), (_BOOL, allow_writes)),
        _CONVERT: (_MAP, []),
    }
    asked = list(dict.fromkeys(wanted)) or sorted(known)
    return _batch({number: known[number] for number in asked if number in known})


def _batch(found: Mapping[int, tuple[int, Any]]) -> pa.RecordBatch:
    kind = SCHEMA.field("value").type
    children: list[list[Any]] = [[] for _ in range(kind.num_fields)]
    kinds, offsets = [], []
    for type_code, value in found.values():
        kinds.append(type_code)
        offsets.append(len(children[type_code]))
        children[type_code].append(value)
    values = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(child, kind.field(at).type) for at, child in enumerate(children)],
        [kind.field(at).name for at in range(kind.num_fields)],
    )
    return pa.RecordBatch.from_arrays([pa.array(list(found), pa.uint32()), values], schema=SCHEMA)
