"""INSERT, UPDATE, DELETE, TRUNCATE and MERGE INTO, from their tokens. Pure."""

from __future__ import annotations

from alluvia.errors import Invalid
from alluvia.sql import nodes
from alluvia.sql.tokens import Cursor, Sql

_ROWS_OF = ("select", "values", "with", "from", "table", "(", "pivot", "unpivot")


def read_insert(cursor: Cursor) -> tuple[str, nodes.Node]:
    """Read INSERT INTO t [(columns)] VALUES …, SELECT … or DEFAULT VALUES."""
    cursor.expect("insert")
    if cursor.word() in ("or", "overwrite", "ignore"):
        word = " ".join(("INSERT", cursor.word().upper(), cursor.word(1).upper() if cursor.word() == "or" else ""))
        raise Invalid(
            f"{word.strip()} is not supported: use MERGE INTO, or send DELETE and INSERT in one text, which is one "
            "transaction"
        )
    cursor.expect("into")
    cursor.accept("table")
    table = cursor.table()
    if cursor.word() in ("as", "by", "partition"):
        raise Invalid(
            f"INSERT INTO … {cursor.word().upper()} is not supported: list the columns, as in INSERT INTO t (a, b)"
        )
    columns = None
    if cursor.word() == "(" and cursor.word(1) not in ("select", "with", "from", "values", "("):
        columns = cursor.names("the name of a column")
    if cursor.accept("default", "values"):
        return "insert", nodes.Insert(table, columns, None, is_values=True)
    if cursor.word() not in _ROWS_OF:
        raise cursor.wrong("VALUES or SELECT")
    is_values = cursor.word() == "values"
    source = (
        cursor.until("returning", "on", what="VALUES or SELECT")
        if is_values
        else cursor.until("returning", what="SELECT")
    )
    _check_tail(cursor)
    return "insert", nodes.Insert(table, columns, _without_defaults(source) if is_values else source, is_values)


def _check_tail(cursor: Cursor) -> None:
    if cursor.word() == "on":
        raise Invalid("INSERT … ON CONFLICT is not supported: use MERGE INTO")
    _check_no_returning(cursor)


def _check_no_returning(cursor: Cursor) -> None:
    if cursor.word() == "returning":
        raise Invalid(
            "RETURNING is not supported: read the rows with a SELECT in the same text, which sees what it wrote"
        )


def _without_defaults(source: Sql) -> Sql:
    """Return VALUES with NULL for DEFAULT, which is what columns have by default; positions stay as they are."""
    from alluvia.sql.tokens import tokens_of

    text = source.text
    for token in tokens_of(text):
        if token.word == "default":
            text = f"{text[: token.start]}NULL   {text[token.end :]}"
    return source._replace(text=text)


def read_update(cursor: Cursor) -> tuple[str, nodes.Node]:
    """Read UPDATE t [AS a] SET … [WHERE …]."""
    cursor.expect("update")
    table = cursor.table()
    alias = _alias(cursor, table, "set")
    cursor.expect("set")
    assignments = _assignments(cursor, alias, "where", "from", "returning")
    if cursor.word() == "from":
        raise Invalid("UPDATE … FROM is not supported: use MERGE INTO … WHEN MATCHED THEN UPDATE SET …")
    where = cursor.until("returning", what="a condition") if cursor.accept("where") else None
    _check_no_returning(cursor)
    return "update", nodes.Update(table, alias, assignments, where)


def read_delete(cursor: Cursor) -> tuple[str, nodes.Node]:
    """Read DELETE FROM t [AS a] [WHERE …]."""
    cursor.expect("delete", "from")
    table = cursor.table()
    alias = _alias(cursor, table, "where", "using", "returning")
    if cursor.word() == "using":
        raise Invalid("DELETE … USING is not supported: use MERGE INTO … WHEN MATCHED THEN DELETE")
    where = cursor.until("returning", what="a condition") if cursor.accept("where") else None
    _check_no_returning(cursor)
    return "delete", nodes.Delete(table, alias, where)


def read_truncate(cursor: Cursor) -> tuple[str, nodes.Node]:
    """Read TRUNCATE [TABLE] t."""
    cursor.expect("truncate")
    cursor.accept("table")
    table = cursor.table()
    return "truncate", nodes.Delete(table, table, None)


def _alias(cursor: Cursor, table: str, *following: str) -> str:
    if cursor.accept("as"):
        return cursor.identifier("another name of the table")
    if cursor.ended or cursor.word() in following:
        return table.partition("/")[0]
    return cursor.identifier(" or ".join(following).upper())


def _assignments(cursor: Cursor, alias: str, *following: str) -> nodes.Assignments:
    found: list[tuple[str, Sql]] = []
    while not found or cursor.accept(","):
        if cursor.word() == "(":
            raise Invalid("SET (a, b) = (…) is not supported: write SET a = …, b = …")
        name = cursor.identifier("the name of a column")
        if cursor.accept("."):
            if name.lower() != alias.lower():
                raise Invalid(
                    f"SET {name}.…: a field of a struct cannot be set alone: set the column to a whole struct"
                )
            name = cursor.identifier("the name of a column")
        if cursor.word() in (".", "["):
            raise Invalid(
                f"SET {name}{cursor.word()}…: a part of a value cannot be set alone: set the column to a whole value"
            )
        cursor.expect("=")
        value = cursor.until(",", *following, what="a value")
        found.append((name, Sql("NULL", value.placeholders) if value.text.lower() == "default" else value))
    return tuple(found)
