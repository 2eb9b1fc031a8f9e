"""INSERT, UPDATE, DELETE, TRUNCATE and MERGE INTO, from their tokens. Pure."""

from __future__ import annotations

from alluvia.engine.queries.tokens import tokens_of
from alluvia.errors import Invalid
from alluvia.sql.grammar import nodes
from alluvia.sql.grammar.cursor import Cursor, Sql

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
    assignments: list[tuple[str, Sql]] = []
    while not assignments or cursor.accept(","):
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
        assignments.append((name, Sql("NULL", value.placeholders) if value.text.lower() == "default" else value))
    return tuple(assignments)


def read_merge(cursor: Cursor) -> tuple[str, nodes.Node]:
    """Read MERGE INTO t [AS a] USING source [AS b] ON … WHEN …."""
    cursor.expect("merge", "into")
    table = cursor.table()
    alias = _alias(cursor, table, "using")
    cursor.expect("using")
    source, source_alias = _source(cursor)
    if cursor.word() == "using":
        raise Invalid("MERGE INTO … USING (columns) is not supported: write ON t.id = s.id")
    cursor.expect("on")
    condition = cursor.until("when", "returning", what="a condition")
    clauses = []
    unconditional: set[str] = set()
    while cursor.accept("when"):
        clause = _clause(cursor, alias)
        if clause.when in unconditional:
            raise Invalid(f"WHEN {_shown(clause.when)} comes after one without a condition, so it would never apply")
        if clause.condition is None:
            unconditional.add(clause.when)
        clauses.append(clause)
    if not clauses:
        raise cursor.wrong("WHEN MATCHED or WHEN NOT MATCHED")
    _check_no_returning(cursor)
    return "merge", nodes.Merge(table, alias, source, source_alias, condition, tuple(clauses))


def _source(cursor: Cursor) -> tuple[Sql, str]:
    first = cursor.at
    if cursor.word() == "(":
        cursor.brackets("SELECT …")
        name = ""
    else:
        name = cursor.table("a table or a SELECT in parentheses").partition("/")[0]
        if cursor.word() == "(":
            cursor.brackets("a version")
    source = cursor.slice(first, cursor.at)
    if cursor.accept("as") or cursor.word() not in ("on", "using"):
        name = cursor.identifier("another name of the source")
    if not name:
        raise cursor.wrong("a name for the source, as in USING (SELECT …) AS s")
    if cursor.word() == "(":
        raise Invalid(
            f"USING … AS {name} (columns) is not supported: name the columns in the SELECT, as in SELECT a AS b"
        )
    return source, name


def _clause(cursor: Cursor, alias: str) -> nodes.WhenClause:
    when = "matched"
    if cursor.accept("not"):
        cursor.expect("matched")
        when = "unmatched"
        if cursor.accept("by", "source"):
            when = "unmatched by source"
        else:
            cursor.accept("by", "target")
    else:
        cursor.expect("matched")
    condition = cursor.until("then", what="a condition") if cursor.accept("and") else None
    cursor.expect("then")
    if cursor.accept("do", "nothing"):
        return nodes.WhenClause(when, condition, "nothing")
    if cursor.accept("delete"):
        action, assignments = "delete", None
    elif cursor.accept("update"):
        action = "update"
        if not cursor.accept("set"):
            assignments = None
        else:
            assignments = None if cursor.accept("*") else _assignments(cursor, alias, "when", "returning")
    elif cursor.accept("insert"):
        action, assignments = "insert", _inserted(cursor)
    else:
        raise cursor.wrong("UPDATE, DELETE, INSERT or DO NOTHING")
    if (action == "insert") != (when == "unmatched"):
        raise Invalid(f"WHEN {_shown(when)} THEN {action.upper()} is not possible")
    if assignments is None and action == "update" and when == "unmatched by source":
        raise Invalid("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *: there is no row of the source: name the columns")
    return nodes.WhenClause(when, condition, action, assignments)


def _shown(when: str) -> str:
    return when.upper().replace("UNMATCHED", "NOT MATCHED")


def _inserted(cursor: Cursor) -> nodes.Assignments | None:
    if cursor.accept("*"):
        return None
    if cursor.ended or cursor.word() == "when":
        return None
    if cursor.word() != "(":
        raise Invalid(
            "WHEN NOT MATCHED THEN INSERT: list the columns, as in INSERT (a, b) VALUES (s.a, s.b), or INSERT *"
        )
    names = cursor.names("the name of a column")
    cursor.expect("values", "(")
    values: list[Sql] = []
    while not values or cursor.accept(","):
        value = cursor.until(",", what="a value")
        values.append(Sql("NULL", value.placeholders) if value.text.lower() == "default" else value)
    cursor.expect(")")
    if len(values) != len(names):
        raise Invalid(f"INSERT has {len(names)} columns, but {len(values)} values")
    return tuple(zip(names, values, strict=True))
