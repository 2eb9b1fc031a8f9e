"""The constants of a query's conditions, computed by DuckDB itself so that they mean what they mean in the query.

Only expressions of literals and a few cheap functions are computed, on the planner's database, which has no tables,
files or network. Functions that return the current time get the query's own `now()`. Numbers are used directly, and
everything else is computed in as few statements as possible (`Constants.together`): a query can contain thousands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.names import fold
from alluvia.engine.duck.arrow_values import arrow_table
from alluvia.engine.duck.database import planner
from alluvia.engine.duck.literals import quote_name, quote_text
from alluvia.engine.queries.engine_tree import whole_number
from alluvia.engine.queries.functions import FOLDABLE, NOW_FUNCTIONS, TODAY_FUNCTIONS
from alluvia.engine.queries.parse import Node, is_constant, text_literal, walk
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.table_names import SCHEMA

CONSTANTS_MAX = 10_000
"""Lists of more are not looked at."""
EXPRESSIONS_MAX = 1000
"""So many different expressions are computed for one query; by the others nothing is pruned."""
EXPRESSION_PARTS_MAX = 32
"""An expression of more is not computed: DuckDB's parser takes cubic time for those that are nested deeply."""
_STATEMENT_EXPRESSIONS = 250
_STATEMENTS_MAX = 64
_INTEGERS = {"TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64()}
_T = TypeVar("_T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT = Context(prec=38)
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


Run = Callable[[str, Sequence[Any]], pa.Table | None]
"""Returns the rows of a statement that needs no table, with its parameters; None where DuckDB cannot run it."""


def _run(sql: str, parameters: Sequence[Any]) -> pa.Table | None:
    """Return the rows, or None where DuckDB cannot compute them: then nothing is pruned by them."""
    from alluvia.engine.duck.native import duckdb

    try:
        return arrow_table(planner(), sql, parameters)
    except (duckdb.Error, pa.ArrowException, Invalid):
        return None


@dataclass(slots=True)
class _Answers:
    """Answers of DuckDB and the next questions: casts by type and text, expressions by their SQL."""

    casts: dict[tuple[str, str], pa.Scalar | None] = field(default_factory=dict)
    values: dict[str, pa.Scalar | None] = field(default_factory=dict)
    asked_casts: dict[str, list[str]] = field(default_factory=dict)
    asked_values: dict[str, None] = field(default_factory=dict)
    waiting: bool = False
    statements: int = 0

    def ask_cast(self, duckdb_type: str, text: str) -> None:
        if (duckdb_type, text) not in self.casts:
            self.asked_casts.setdefault(duckdb_type, []).append(text)

    def ask_value(self, sql: str) -> None:
        if sql not in self.values:
            self.asked_values[sql] = None

    def settle(self, run: Run) -> None:
        """Compute all that was asked for."""
        if not self.asked_casts and not self.asked_values:
            return
        for duckdb_type, texts in self.asked_casts.items():
            # As one text: DuckDB binds a list of parameters slowly.
            rows = run(f"""SELECT TRY_CAST(from_json($1, '["VARCHAR"]') AS {duckdb_type}[])""", [json.dumps(texts)])
            values = [None] * len(texts) if rows is None else list(pc.list_flatten(rows.column(0).chunk(0)))
            for text, value in zip(texts, values, strict=True):
                self.casts[duckdb_type, text] = value if value is not None and value.is_valid else None
        asked = list(self.asked_values)
        taken = asked[: max(0, EXPRESSIONS_MAX - len(self.values))]
        for at in range(0, len(taken), _STATEMENT_EXPRESSIONS):
            self._evaluate(taken[at : at + _STATEMENT_EXPRESSIONS], run)
        self.values.update({sql: None for sql in asked if sql not in self.values})
        self.asked_casts, self.asked_values = {}, {}

    def _evaluate(self, expressions: list[str], run: Run) -> None:
        """Compute some expressions; where that fails, each half of them, to leave out those at fault."""
        if self.statements >= _STATEMENTS_MAX:
            return
        self.statements += 1
        row = run(f"SELECT {', '.join(expressions)}", [])
        if row is not None and row.num_rows == 1:
            values = [value if (value := column[0]).is_valid else None for column in row.columns]
            self.values.update(zip(expressions, values, strict=True))
        elif len(expressions) > 1:
            self._evaluate(expressions[: len(expressions) // 2], run)
            self._evaluate(expressions[len(expressions) // 2 :], run)


@dataclass(frozen=True, slots=True)
class Constants:
    """Computes constants as of `now_us`, in UTC. Names in `taken` (folded) are columns and not the time.

    `parameters` has the values of the query's parameters, by name. `run` has DuckDB run a statement.
    """

    now_us: int
    taken: frozenset[str] = frozenset()
    parameters: Mapping[str, pa.Scalar] = field(default_factory=dict, compare=False)
    run: Run = field(default=_run, compare=False)
    _answers: _Answers = field(default_factory=_Answers, compare=False, repr=False)

    def together(self, translate: Callable[[], _T]) -> _T:
        """Return what `translate` does with constants, all computed at once; it may run twice, first without values.

        It must ask for every constant whether or not it gets the others.
        """
        self._answers.waiting = True
        translated = translate()
        self._answers.waiting = False
        return translate() if self._answers.asked_casts or self._answers.asked_values else translated

    def compute(self, nodes: Sequence[Node]) -> list[Constant] | None:
        """Return the values of some expressions; None if one of them is not a constant, is null, or fails."""
        if len(nodes) > CONSTANTS_MAX:
            return None
        lookups = [self._lookup(node) for node in nodes]
        if None in lookups or (any(map(callable, lookups)) and not self._settled()):
            return None
        values = [lookup() if callable(lookup) else lookup for lookup in lookups]
        known = [one for one in values if one is not None]
        return known if len(known) == len(values) else None

    def cast(self, texts: Sequence[str], duckdb_type: str) -> list[pa.Scalar] | None:
        """Return text literals as DuckDB casts them to a type; None if one does not fit."""
        for text in texts:
            self._answers.ask_cast(duckdb_type, text)
        if not self._settled():
            return None
        values = [self._answers.casts[duckdb_type, text] for text in texts]
        known = [value for value in values if value is not None]
        return known if known and len(known) == len(values) else None

    def moment_us(self, node: Node) -> int | None:
        """Return the moment that an expression means, in µs since the Unix epoch; None if it is not one."""
        computed = self.compute([node])
        if computed is None:
            return None
        value = computed[0].value
        if computed[0].literal is not None:
            values = self.cast([computed[0].literal], "TIMESTAMPTZ")
            value = values[0] if values else None
        return None if value is None else moment_us(value)

    def _settled(self) -> bool:
        if not self._answers.waiting:
            self._answers.settle(self.run)
        return not self._answers.waiting

    def _lookup(self, node: Node) -> Constant | Callable[[], Constant | None] | None:
        """Return an expression's value, or what gives it once it is computed; None if it is not a constant."""
        if node["class"] == "PARAMETER":
            value = self.parameters.get(node["identifier"])
            return None if value is None or not value.is_valid else Constant(None, value)
        text, value = text_literal(node), _number(node)
        if text is not None or value is not None:
            return Constant(text, value)
        cast = _text_cast(node)
        if cast is not None:
            self._answers.ask_cast(*cast)
            return lambda: _valued(self._answers.casts[cast])
        parts = list(islice((part for part in walk(node) if "class" in part), EXPRESSION_PARTS_MAX + 1))
        sql = self._sql(node) if len(parts) <= EXPRESSION_PARTS_MAX else None
        if sql is None:
            return None
        self._answers.ask_value(sql)
        return lambda: _valued(self._answers.values[sql])

    def _sql(self, node: Node) -> str | None:
        """Return an expression of literals and cheap functions as SQL, at the query's own time; None for any other."""
        kind = node["class"]
        if kind == "CONSTANT":
            return _literal_sql(node["value"])
        if kind in ("FUNCTION", "COLUMN_REF") and (moment := self._is_now(node)) is not None:
            return self._now_sql(moment)
        if kind == "CAST" and node["cast_type"]["id"] in _CAST_TYPES:
            operand = self._sql(node["child"])
            cast = "TRY_CAST" if node["try_cast"] else "CAST"
            return None if operand is None else f"{cast}({operand} AS {_type_sql(node['cast_type'])})"
        return self._call_sql(node) if kind == "FUNCTION" else None

    def _call_sql(self, node: Node) -> str | None:
        name, operands = fold(node["function_name"]), [self._sql(child) for child in node["children"]]
        special = node["distinct"] or node["filter"] or node["catalog"] or node["schema"] not in ("", SCHEMA)
        if name not in FOLDABLE or special or any(child["alias"] for child in node["children"]):
            return None
        if name == "ago":
            name, operands = "-", [self._now_sql("TIMESTAMP WITH TIME ZONE"), *operands]
        return f"{quote_name(name)}({', '.join(map(str, operands))})" if None not in operands else None

    def _now_sql(self, kind: str) -> str:
        return f"CAST('{(_EPOCH + timedelta(microseconds=self.now_us)).isoformat()}' AS {kind})"

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


def moment_us(value: pa.Scalar) -> int | None:
    """Return a date's midnight or a timestamp, UTC, in µs since the Unix epoch; None for another type."""
    if isinstance(value, pa.Date32Scalar):
        return value.value * 86_400_000_000
    if isinstance(value, pa.TimestampScalar) and value.type.unit in _PER_UNIT:
        return value.value * _PER_UNIT[value.type.unit]
    return None


_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}


def _valued(value: pa.Scalar | None) -> Constant | None:
    return None if value is None else Constant(None, value)


def _number(node: Node) -> pa.Scalar | None:
    """Return an integer, decimal or floating-point literal; None for anything else, and for those beyond 64 bits."""
    if not is_constant(node) or node["value"]["is_null"]:
        return None
    kind, value = node["value"]["type"], node["value"]["value"]
    if kind["id"] in _INTEGERS:
        return pa.scalar(value, _INTEGERS[kind["id"]])
    if kind["id"] == "DOUBLE":
        return pa.scalar(float(value), pa.float64())
    if kind["id"] == "DECIMAL" and isinstance(value, int):
        width, scale = kind["type_info"]["width"], kind["type_info"]["scale"]
        return pa.scalar(Decimal(value).scaleb(-scale, _EXACT), pa.decimal128(width, scale))
    return None


def _text_cast(node: Node) -> tuple[str, str] | None:
    """Return the type and the text of a cast text literal, such as DATE '2024-01-31'; None for anything else."""
    if node["class"] != "CAST" or node["cast_type"]["type_info"] is not None:
        return None
    text, kind = text_literal(node["child"]), node["cast_type"]["id"]
    return None if text is None or kind not in _CAST_TYPES else (kind, text)


def _literal_sql(value: Mapping[str, Any]) -> str | None:
    """Return a literal as SQL that keeps its type; None for bytes and bits."""
    kind = value["type"]["id"]
    if value["is_null"]:
        return "NULL"
    if kind == "VARCHAR":
        return quote_text(value["value"]) if isinstance(value["value"], str) else None
    if kind == "DOUBLE":  # as 2.0, it would be a decimal
        return f"CAST('{float(value['value'])!r}' AS DOUBLE)"
    if kind == "DECIMAL":
        exact = Decimal(whole_number(value["value"])).scaleb(-value["type"]["type_info"]["scale"], _EXACT)
        return f"CAST('{exact:f}' AS {_type_sql(value['type'])})"
    return str(whole_number(value["value"])) if kind in (*_INTEGERS, "HUGEINT", "UHUGEINT") else None


def _type_sql(kind: Mapping[str, Any]) -> str:
    info = kind["type_info"]
    return f"DECIMAL({info['width']}, {info['scale']})" if kind["id"] == "DECIMAL" else str(kind["id"])
