"""The values of a text's parameters, for each piece of it that DuckDB reads.

A SELECT gets them bound. A condition or a value of UPDATE, DELETE and MERGE is evaluated from its text, and gets them
as literals, which only our own code writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from alluvia.delta.schema.names import fold
from alluvia.engine.duck.literals import literal
from alluvia.engine.queries.schema_names import name_of
from alluvia.engine.queries.tokens import Token, tokens_of
from alluvia.errors import Invalid
from alluvia.nearest_name import did_you_mean
from alluvia.query.parameters import Values, arrow_row, check_names
from alluvia.sql.grammar.cursor import Sql
from alluvia.sql.grammar.nodes import Assignments

EXPRESSION_TOKENS_MAX = 20_000
"""Longer ones would keep DuckDB's planner busy for seconds."""
_Edit = tuple[int, int, str]


def check_used(text: str, values: Values) -> None:
    """Raise `Invalid`, naming it, for a parameter of a text without a value, or a value that is not used."""
    check_names((name for _, _, name in parameters(Sql(text), tokens_of(text))), values)
    if values:
        arrow_row(values)


def parameter_names(text: str) -> list[str]:
    """Return the names of a text's parameters, in the order in which they first come; those of `?` are `1`, `2`, …"""
    return list(dict.fromkeys(name for _, _, name in parameters(Sql(text), tokens_of(text))))


def bound(sql: Sql, values: Values) -> Values | None:
    """Return the values that a SELECT of the text binds, by the names that they have in it alone."""
    if not values:
        return None
    used = {}
    number = 0
    for start, _, name in parameters(sql, tokens_of(sql.text)):
        if sql.text[start] == "?":
            number += 1
            used[str(number)] = _value(name, values)
        else:
            used[name] = _value(name, values)
    return used


def expression(sql: Sql, values: Values, alias: str = "", columns: Sequence[str] = ()) -> str:
    """Return an expression with its parameters as literals, and without `alias.` before the names of columns."""
    tokens = tokens_of(sql.text)
    if len(tokens) > EXPRESSION_TOKENS_MAX:
        raise Invalid(
            f"a condition or value has more than {EXPRESSION_TOKENS_MAX} words and signs: use MERGE INTO, with the "
            "values as the rows of its source"
        )
    names = _qualifiers(sql.text, tokens, fold(alias), frozenset(map(fold, columns))) if alias else ()
    return _edited(sql.text, [*_literals(sql, values, tokens), *names])


def with_literals(sql: Sql, values: Values) -> str:
    """Return a SELECT, or a part of one, with its parameters as literals."""
    return _edited(sql.text, _literals(sql, values, tokens_of(sql.text)))


def _literals(sql: Sql, values: Values, tokens: Sequence[Token]) -> Iterable[_Edit]:

    return [(start, end, literal(_value(name, values))) for start, end, name in parameters(sql, tokens)]


def _edited(text: str, edits: Iterable[_Edit]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _value(name: str, values: Values) -> object:
    if name not in values:
        check_names([name], values)
    return values[name]


def parameters(sql: Sql, tokens: Sequence[Token]) -> Iterator[tuple[int, int, str]]:
    """Yield where the parameters of a piece of text are, and their names in the whole text."""
    number = sql.placeholders
    for token in tokens:
        if token.kind == "parameter":
            name = sql.text[token.start + 1 : token.end]
            if sql.text[token.start] == "?":
                number += 1
                name = str(number)
            yield token.start, token.end, name


def _qualifiers(text: str, tokens: Sequence[Token], alias: str, columns: frozenset[str]) -> Iterator[_Edit]:
    """Yield what blanks `alias.`, so that positions stay as they are.

    Where a column has the alias for a name, `alias.x` is the column `x` if there is one, as in DuckDB, else a field.
    """
    for at, token in enumerate(tokens[:-1]):
        if tokens[at + 1].word != "." or (at and tokens[at - 1].word == "."):
            continue
        following = name_of(text, tokens[at + 2]) if at + 2 < len(tokens) else ""
        if name_of(text, token) == alias and (alias not in columns or following in columns):
            yield token.start, tokens[at + 1].end, " " * (tokens[at + 1].end - token.start)


def assigned(assignments: Assignments, names: Sequence[str], table: str) -> Iterator[tuple[str, Sql]]:
    """Yield the columns that get values, as the table calls them, with the values. Raises `Invalid`, naming one."""
    seen: set[str] = set()
    columns = dict.fromkeys(names)
    for asked, value in assignments:
        name = column_of(asked, columns, table)
        if name in seen:
            raise Invalid(f"column {name} is set twice")
        seen.add(name)
        yield name, value


def column_of(name: str, names: Collection[str], table: str) -> str:
    """Return the column that a name means, in whatever case. Raises `Invalid`."""
    if name in names:
        return name
    column = next((each for each in names if fold(each) == fold(name)), None)
    if column is None:
        raise Invalid(
            f"table {table} has no column {name}: {did_you_mean(name, names) or 'it has ' + ', '.join(names)}"
        )
    return column
