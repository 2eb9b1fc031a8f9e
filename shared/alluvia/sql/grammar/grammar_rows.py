"""INSERT, UPDATE, DELETE, TRUNCATE and MERGE INTO, from their tokens. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from alluvia.engine.duck.literals import quote_name
from alluvia.engine.queries.tokens import CLOSING, OPENING, Token, tokens_of
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
    """Return VALUES with NULL for DEFAULT, since columns are null by default; positions do not change.

    Raises `Invalid` for DEFAULT as a part of a value, which no database computes with.
    """
    text, tokens = source.text, tokens_of(source.text)
    for at, token in enumerate(tokens):
        if token.word != "default":
            continue
        following = tokens[at + 1].word if at + 1 < len(tokens) else ""
        if tokens[at - 1].word not in ("(", ",") or following not in (")", ",") or _depth(tokens[:at]) != 1:
            raise Invalid("DEFAULT stands alone as a value, as in VALUES (1, DEFAULT): it is not part of an expression")
        text = f"{text[: token.start]}NULL   {text[token.end :]}"
    return source._replace(text=text)


def _depth(tokens: Sequence[Token]) -> int:
    return sum((token.word in OPENING) - (token.word in CLOSING) for token in tokens)


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
        return cursor.alias_of(table)
    return cursor.identifier(" or ".join(following).upper())


def _assignments(cursor: Cursor, alias: str, *following: str) -> nodes.Assignments:
    assignments: list[tuple[str, Sql]] = []
    while not assignments or cursor.accept(","):
        if cursor.word() == "(":
            assignments += _assigned_together(cursor)
            continue
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
        assignments.append((name, _or_null(cursor.until(",", *following, what="a value"))))
    return tuple(assignments)


def _assigned_together(cursor: Cursor) -> nodes.Assignments:
    """Read (a, b) = (x, y)."""
    names = cursor.names("the name of a column")
    cursor.expect("=")
    cursor.accept("row")
    if cursor.word() != "(" or cursor.word(1) in ("select", "with", "from", "values"):
        raise Invalid("SET (a, b) = (SELECT …) is not supported: write SET a = (SELECT …), b = (SELECT …)")
    cursor.expect("(")
    values: list[Sql] = []
    while not values or cursor.accept(","):
        values.append(_or_null(cursor.until(",", what="a value")))
    cursor.expect(")")
    if len(values) != len(names):
        raise Invalid(f"SET ({', '.join(names)}) = (…) has {len(names)} columns, but {len(values)} values")
    return tuple(zip(names, values, strict=True))


def read_merge(cursor: Cursor) -> tuple[str, nodes.Node]:
    """Read MERGE INTO t [AS a] USING source [AS b] ON … WHEN …."""
    cursor.expect("merge", "into")
    table = cursor.table()
    alias = _alias(cursor, table, "using")
    cursor.expect("using")
    source, source_alias = _source(cursor)
    condition = _condition(cursor, alias, source_alias)
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


def _condition(cursor: Cursor, alias: str, source_alias: str) -> Sql:
    """Read ON and a condition, or USING (columns), which both rows must have equal."""
    if cursor.accept("using"):
        names = map(quote_name, cursor.names("the name of a column"))
        sides = quote_name(alias), quote_name(source_alias)
        return Sql(" AND ".join(f"{sides[0]}.{name} = {sides[1]}.{name}" for name in names))
    cursor.expect("on")
    return cursor.until("when", "returning", what="a condition")


def _source(cursor: Cursor) -> tuple[Sql, str]:
    first = cursor.at
    if cursor.word() == "(":
        cursor.brackets("SELECT …")
        name = ""
    else:
        name = cursor.alias_of(cursor.table("a table or a SELECT in parentheses"))
        if cursor.word() == "(":
            cursor.brackets("a version")
    source = cursor.slice(first, cursor.at)
    if cursor.accept("as") or cursor.word() not in ("on", "using"):
        name = cursor.identifier("another name of the source")
    if not name:
        raise cursor.wrong("a name for the source, as in USING (SELECT …) AS s")
    if cursor.word() == "(":
        cursor.names("the name of a column")
        source = cursor.slice(first, cursor.at)  # DuckDB names the columns
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
    values: tuple[Sql, ...] | None = None
    if cursor.accept("delete"):
        action, assignments = "delete", None
    elif cursor.accept("update"):
        action = "update"
        assignments = None
        if not _by_name(cursor, "UPDATE") and cursor.accept("set") and not cursor.accept("*"):
            assignments = _assignments(cursor, alias, "when", "returning")
    elif cursor.accept("insert"):
        action, (assignments, values) = "insert", _inserted(cursor)
    elif cursor.word() == "error":
        raise Invalid("THEN ERROR is not supported: a CHECK constraint of the table refuses rows")
    else:
        raise cursor.wrong("UPDATE, DELETE, INSERT or DO NOTHING")
    if (action == "insert") != (when == "unmatched"):
        raise Invalid(f"WHEN {_shown(when)} THEN {action.upper()} is not possible")
    if assignments is None and action == "update" and when == "unmatched by source":
        raise Invalid("WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *: there is no row of the source: name the columns")
    return nodes.WhenClause(when, condition, action, assignments, values)


def _by_name(cursor: Cursor, action: str) -> bool:
    """Read [BY NAME [*]], which says what `*` means anyway."""
    if not cursor.accept("by"):
        return False
    if cursor.accept("position"):
        raise Invalid(f"{action} BY POSITION is not supported: {action} takes the source's columns by name")
    cursor.expect("name")
    cursor.accept("*")
    return True


def _shown(when: str) -> str:
    return when.upper().replace("UNMATCHED", "NOT MATCHED")


def _inserted(cursor: Cursor) -> tuple[nodes.Assignments | None, tuple[Sql, ...] | None]:
    """Read what INSERT takes: the columns with their values, or values of all columns in order; neither for `*`."""
    if _by_name(cursor, "INSERT") or cursor.accept("*") or cursor.ended or cursor.word() == "when":
        return None, None
    if cursor.accept("default", "values"):
        return None, ()
    names = cursor.names("the name of a column") if cursor.word() == "(" else None
    if cursor.word() != "values":
        raise cursor.wrong("VALUES (…), or INSERT * for the source's columns by name")
    cursor.expect("values", "(")
    values: list[Sql] = []
    while not values or cursor.accept(","):
        values.append(_or_null(cursor.until(",", what="a value")))
    cursor.expect(")")
    if names is None:
        return None, tuple(values)
    if len(values) != len(names):
        raise Invalid(f"INSERT has {len(names)} columns, but {len(values)} values")
    return tuple(zip(names, values, strict=True)), None


def _or_null(value: Sql) -> Sql:
    """Return a value, or NULL for DEFAULT, since columns are null by default."""
    return Sql("NULL", value.placeholders) if value.text.lower() == "default" else value
