"""The rows of a query as rows of a table: by position, in the table's types, as an append converts them. Pure.

Beyond what an append takes, a text in VALUES becomes what its column, or its part of a column, is. DuckDB gives all
rows of VALUES one type a column before anybody can tell it the table's: of 1 and '2.75' it makes 1 and 3. So the texts
are taken out, and each becomes a value of its column by itself. Those in lists and structs are marked as texts, so that
DuckDB does not make numbers of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from alluvia.delta.schema.caller_rows import conform, conform_by_position
from alluvia.delta.schema.serialization import normal_schema
from alluvia.delta.schema.types import type_name
from alluvia.engine.duck.text_values import literal_values, text_values
from alluvia.engine.queries.tokens import Token, tokens_of
from alluvia.errors import Invalid
from alluvia.query.engine import Result
from alluvia.query.parameters import Values
from alluvia.sql.binding import parameters
from alluvia.sql.grammar.cursor import Sql

_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
Texts = Mapping[int, Mapping[int, str]]
"""By column, then by row."""


def fitted(result: Result, schema: pa.Schema, *, literals: bool) -> pa.RecordBatchReader:
    """Return a query's rows with the names and types of a schema; with `literals`, texts become any type.

    Raises `Invalid`, as the rows are read, naming the column whose values do not fit.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in result:
            yield from _fitted(pa.Table.from_batches([batch]), schema, literals=literals).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _fitted(rows: pa.Table, schema: pa.Schema, *, literals: bool) -> pa.Table:
    if not literals:
        return conform_by_position(rows, schema)
    columns = [column.combine_chunks() for column in rows.columns]
    values = [literal_values(column, field) for column, field in zip(columns, schema, strict=True)]
    return conform(pa.Table.from_arrays(values, names=schema.names), schema)


def with_texts(rows: pa.Table, schema: pa.Schema, texts: Texts) -> pa.Table:
    """Return rows with the names and types of a schema, and with some texts in place of their NULL.

    Raises `Invalid`, naming the column, for a text that its type could only hold rounded or cut, or not at all.
    """
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    completed = _fitted(rows, nullable, literals=True)
    for column, by_row in texts.items():
        field = nullable.field(column)
        given = text_values(pa.array(by_row.values(), pa.string()), field)
        places = list(range(len(rows)))
        for at, row in enumerate(by_row):
            places[row] = len(rows) + at
        values = pa.concat_arrays([completed.column(column).combine_chunks(), given.cast(field.type)])
        completed = completed.set_column(column, field, values.take(pa.array(places, pa.int64())))
    return completed


def table_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table for a query's rows. Raises `Invalid`, naming one whose type Delta does not have."""
    fields = [pa.field(field.name, _stored(field.name, field.type)) for field in schema]
    return normal_schema(pa.schema(fields))


def _stored(name: str, kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        return _stored(name, kind.value_type)
    if types.is_null(kind):
        raise Invalid(f"column {name} is NULL in all rows: CAST(NULL AS …) says of which type")
    if types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if kind.equals(pa.uint64()):
        return pa.decimal128(20, 0)
    if (
        types.is_time(kind)
        or types.is_interval(kind)
        or types.is_duration(kind)
        or isinstance(kind, pa.BaseExtensionType)
    ):
        raise Invalid(
            f"column {name} is {type_name(kind)}, which Delta has no type for: CAST it to VARCHAR or a number"
        )
    return kind


def without_texts(source: Sql, values: Values) -> tuple[Sql, Texts]:
    """Return VALUES with NULL for texts that are values alone, and these; parameters with a text are such, too.

    Texts that are values in a list or a struct are cast to VARCHAR.
    """
    tokens = tokens_of(source.text)
    named = {start: name for start, _, name in parameters(source, tokens)}
    texts: dict[int, dict[int, str]] = {}
    edits = []
    for row, column, token in _alone(tokens):
        shown = source.text[token.start : token.end]
        text = values.get(named[token.start]) if token.start in named else _content(shown)
        if isinstance(text, str):
            texts.setdefault(column, {})[row] = text
            # A parameter stays where it is, since others are counted after it.
            edits.append((token, f"CASE WHEN {shown} IS NULL THEN NULL END" if token.start in named else "NULL"))
    edits += [(token, f"{source.text[token.start : token.end]}::VARCHAR") for token in _within(tokens)]
    edits.sort(key=lambda edit: edit[0].start)
    text = source.text
    for token, new in reversed(edits):
        text = f"{text[: token.start]}{new}{text[token.end :]}"
    return source._replace(text=text), texts


def _alone(tokens: Sequence[Token]) -> Iterator[tuple[int, int, Token]]:
    """Yield the texts and parameters that are all of a value, with row and column; none if more than rows follows."""
    row, column, depth = -1, 0, 0
    placed = []
    for at, token in enumerate(tokens[1:], 1):
        if token.word in _OPENING:
            depth += 1
            if depth == 1:
                row, column = row + 1, 0
        elif token.word in _CLOSING:
            depth -= 1
        elif token.word == "," and depth == 1:
            column += 1
        elif depth == 0 and token.word != ",":
            return
        elif depth == 1 and token.kind in ("text", "parameter") and _is_alone(tokens, at):
            placed.append((row, column, token))
    yield from placed


def _within(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the texts that are all of a value in a list or a struct."""
    around: list[str] = []
    for at, token in enumerate(tokens):
        if token.word in _OPENING:
            around.append(token.word)
        elif token.word in _CLOSING and around:
            around.pop()
        elif token.kind == "text" and around and at + 1 < len(tokens):
            starts, ends = {"[": ("[", ","), "{": (":",)}.get(around[-1], ()), ("]", ",", "}")
            if tokens[at - 1].word in starts and tokens[at + 1].word in ends:
                yield token


def _is_alone(tokens: Sequence[Token], at: int) -> bool:
    return tokens[at - 1].word in ("(", ",") and tokens[at + 1].word in (")", ",")


def _content(shown: str) -> str | None:
    """Return what a text in quotes says; None for one with escapes."""
    quote = shown.index("'") if shown[0] in "'eE" else -1
    if quote == 0 or (quote == 1 and "\\" not in shown):
        return shown[quote + 1 : -1].replace("''", "'")
    if shown.startswith("$"):
        mark = shown.index("$", 1) + 1
        return shown[mark:-mark]
    return None
