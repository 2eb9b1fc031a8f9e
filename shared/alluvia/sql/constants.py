"""The constants of a query's conditions, computed by DuckDB itself so that they mean what they mean in the query.

Only expressions of literals and of a few cheap functions are computed, on the planner's database, which has no tables,
files or network. The query's own `now()` is put in place of the functions that tell the time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from alluvia.sql.duck import planner
from alluvia.sql.functions import FOLDABLE, NOW_FUNCTIONS, TODAY_FUNCTIONS
from alluvia.sql.tree import Node, text_literal, walk
from alluvia.table.names import fold

CONSTANTS_MAX = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CAST_TYPES = frozenset(
    {
        "BIGINT", "BLOB", "BOOLEAN", "DATE", "DECIMAL", "DOUBLE", "FLOAT", "HUGEINT", "INTEGER", "INTERVAL",
        "SMALLINT", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_MS", "TIMESTAMP_S", "TINYINT", "UBIGINT",
        "UINTEGER", "VARCHAR",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Constant:
    """A text literal, whose type DuckDB takes from what it is compared with, or a value with a type of its own."""

    literal: str | None
    value: pa.Scalar | None


@dataclass(frozen=True, slots=True)
class Constants:
    """Computes constants as of `now_us`, in UTC. Names in `taken` (folded) are columns and not the time."""

    now_us: int
    taken: frozenset[str] = frozenset()

    def compute(self, nodes: Sequence[Node]) -> list[Constant] | None:
        """Return the values of some expressions; None if one of them is not a constant, is null, or fails."""
        if len(nodes) > CONSTANTS_MAX:
            return None
        literals = [text_literal(node) for node in nodes]
        pending = [node for node, literal in zip(nodes, literals, strict=True) if literal is None]
        if not all(self._is_foldable(node) for node in pending):
            return None
        values = iter(_evaluate([self._printable(node) for node in pending]))
        found = [Constant(literal, None if literal is not None else next(values, None)) for literal in literals]
        return found if all(one.literal is not None or one.value is not None for one in found) else None

    def cast(self, texts: Sequence[str], duckdb_type: str) -> list[pa.Scalar] | None:
        """Return text literals as DuckDB casts them to a type; None if one does not fit."""
        rows = _run(f"SELECT CAST($1 AS {duckdb_type}[])", [list(texts)])
        found = [] if rows is None else list(rows.column(0)[0].values)
        return found if found and all(value.is_valid for value in found) else None

    def moment_us(self, node: Node) -> int | None:
        """Return the moment that an expression means, in µs since the Unix epoch; None if it is not one."""
        found = self.compute([node])
        if found is None:
            return None
        value = found[0].value
        if found[0].literal is not None:
            values = self.cast([found[0].literal], "TIMESTAMPTZ")
            value = values[0] if values else None
        return None if value is None else moment_us(value)

    def _is_foldable(self, node: Node) -> bool:
        return all(self._is_foldable_part(part) for part in walk(node) if "class" in part)

    def _is_foldable_part(self, node: Node) -> bool:
        kind = node["class"]
        if kind == "CAST":
            return node["cast_type"]["id"] in _CAST_TYPES
        if kind == "FUNCTION":
            return fold(node["function_name"]) in FOLDABLE or self._is_now(node) is not None
        return kind == "CONSTANT" or (kind == "COLUMN_REF" and self._is_now(node) is not None)

    def _is_now(self, node: Node) -> str | None:
        """Return the type, if a node is a function of the time: TIMESTAMPTZ or DATE."""
        if node["class"] == "FUNCTION":
            name = "" if node["children"] else fold(node["function_name"])
        else:
            names = node["column_names"]
            # DuckDB reads the bare word as the function only where no column has that name.
            name = fold(names[0]) if len(names) == 1 and fold(names[0]) not in self.taken else ""
        if name in NOW_FUNCTIONS:
            return "TIMESTAMP WITH TIME ZONE"
        return "DATE" if name in TODAY_FUNCTIONS else None

    def _printable(self, value: Any) -> Any:
        """Copy an expression with the query's own time in place of the functions that tell it.

        A floating-point literal becomes a cast: printed by DuckDB, 2e0 would be 2.0, which is read as a decimal.
        """
        if isinstance(value, list):
            return [self._printable(child) for child in value]
        if not isinstance(value, dict):
            return value
        if value.get("class") == "CONSTANT" and value["value"]["type"]["id"] == "DOUBLE":
            return _cast_of(repr(float(value["value"]["value"])), "DOUBLE")
        if value.get("class") in ("FUNCTION", "COLUMN_REF") and (kind := self._is_now(value)) is not None:
            return _cast_of((_EPOCH + timedelta(microseconds=self.now_us)).isoformat(), kind)
        if value.get("function_name") == "ago":
            now = _cast_of((_EPOCH + timedelta(microseconds=self.now_us)).isoformat(), "TIMESTAMP WITH TIME ZONE")
            return {**value, "function_name": "-", "is_operator": True, "children": [now, *value["children"]]}
        return {key: self._printable(child) for key, child in value.items()}


def moment_us(value: pa.Scalar) -> int | None:
    """Return a date's midnight or a timestamp, UTC, in µs since the Unix epoch; None for another type."""
    if pa.types.is_date32(value.type):
        return int(value.value) * 86_400_000_000
    if pa.types.is_timestamp(value.type) and value.type.unit in _PER_UNIT:
        return int(value.value) * _PER_UNIT[value.type.unit]
    return None


_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}


def _evaluate(nodes: Sequence[Node]) -> list[pa.Scalar | None]:
    if not nodes:
        return []
    wrapper = json.loads(_template())
    wrapper["statements"][0]["node"]["select_list"] = list(nodes)
    text = _run("SELECT json_deserialize_sql($1::JSON)", [json.dumps(wrapper)])
    row = None if text is None else _run(text.column(0)[0].as_py(), [])
    if row is None or row.num_rows != 1:
        return [None] * len(nodes)
    return [value if (value := column[0]).is_valid else None for column in row.columns]


@cache
def _template() -> str:
    row = planner().execute("SELECT json_serialize_sql('SELECT 1')").fetchone()
    return str(row[0]) if row else ""


def _cast_of(text: str, kind: str) -> Node:
    literal = {"type": {"id": "VARCHAR", "type_info": None}, "is_null": False, "value": text}
    child = {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "query_location": 0, "value": literal}
    return {
        "class": "CAST",
        "type": "OPERATOR_CAST",
        "alias": "",
        "query_location": 0,
        "child": child,
        "cast_type": {"id": kind, "type_info": None},
        "try_cast": False,
    }


def _run(sql: str, parameters: list[Any]) -> pa.Table | None:
    """Return the rows, or None where DuckDB cannot compute them: then nothing is pruned by them."""
    try:
        return planner().execute(sql, parameters).to_arrow_table()
    except (duckdb.Error, pa.ArrowException):
        return None
