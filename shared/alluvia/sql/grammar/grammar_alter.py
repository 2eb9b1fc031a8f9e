"""ALTER TABLE, from its tokens. Pure."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from alluvia.delta.properties import CLUSTER_BY, CONSTRAINT, SORT_BY, names_text
from alluvia.engine.duck.literals import quote_name
from alluvia.errors import Invalid
from alluvia.sql.grammar import nodes
from alluvia.sql.grammar.cursor import Cursor
from alluvia.sql.grammar.grammar_options import read_comment_text, read_properties, read_property
from alluvia.sql.grammar.grammar_tables import check_no_parameters, read_column


def read_alter(cursor: Cursor) -> tuple[str, nodes.Node]:
    """Read ALTER TABLE."""
    cursor.expect("alter")
    if cursor.word() != "table":
        raise Invalid(f"ALTER {cursor.word().upper()} is not supported: only TABLE can be altered")
    cursor.expect("table")
    if_exists = cursor.accept("if", "exists")
    if if_exists:
        raise Invalid("ALTER TABLE IF EXISTS is not supported: leave IF EXISTS out")
    table = cursor.table()
    if cursor.accept("add", "constraint"):
        name = cursor.identifier("the name of the constraint")
        cursor.expect("check")
        condition = cursor.brackets("a condition")
        check_no_parameters(condition, "CHECK", "write the value into the condition")
        return "alter table", nodes.AlterTable(table, constraint=(name, condition))
    if cursor.accept("drop", "constraint"):
        there = cursor.accept("if", "exists")
        name = cursor.identifier("the name of the constraint")
        return "alter table", nodes.AlterTable(table, constraint=(name, None), if_exists=there)
    if cursor.accept("add"):
        return "alter table", _forced(cursor, _add_columns(cursor, table))
    if cursor.accept("drop", "column") or cursor.accept("drop", "columns"):
        return "alter table", _forced(cursor, _drop_columns(cursor, table))
    if cursor.accept("rename", "column"):
        old = cursor.identifier("the name of a column")
        cursor.expect("to")
        renamed = nodes.AlterTable(table, rename={old: cursor.identifier("the new name")})
        return "alter table", _forced(cursor, renamed)
    if cursor.accept("set", "tblproperties") or cursor.accept("set", "properties"):
        return "alter table", nodes.AlterTable(table, properties=read_properties(cursor))
    if cursor.accept("unset", "tblproperties") or cursor.accept("unset", "properties"):
        return "alter table", _unset(cursor, table)
    for word, name in (("sort", SORT_BY), ("cluster", CLUSTER_BY)):
        if cursor.accept(word, "by"):
            columns = () if cursor.accept("none") else cursor.names("the name of a column")
            value = names_text(columns) if columns else None
            return "alter table", nodes.AlterTable(table, properties={name: value})
    if cursor.word() == "alter" and (commented := _commented(cursor, table)) is not None:
        return "alter table", commented
    raise _alter_refused(cursor, table)


def _commented(cursor: Cursor, table: str) -> nodes.Comment | None:
    """Read ALTER COLUMN c COMMENT '…', as in Spark; None where something else comes."""
    before = cursor.at
    cursor.expect("alter")
    cursor.accept("column")
    column = cursor.identifier("the name of a column")
    if cursor.accept("comment"):
        return nodes.Comment("column", table, read_comment_text(cursor), column)
    cursor.at = before
    return None


def _forced(cursor: Cursor, node: nodes.AlterTable) -> nodes.AlterTable:
    """Read FORCE after a change of columns."""
    if cursor.word() in ("cascade", "restrict"):
        raise Invalid(
            f"ALTER TABLE … {cursor.word().upper()} is not supported: a change that views, rollups or published "
            "queries would not survive is refused, and FORCE in its place makes it all the same"
        )
    return replace(node, force=True) if cursor.accept("force") else node


def _add_columns(cursor: Cursor, table: str) -> nodes.AlterTable:
    if not cursor.accept("columns"):
        cursor.accept("column")
    if_not_exists = cursor.accept("if", "not", "exists")
    listed = cursor.accept("(")
    fields: list[pa.Field] = []
    while not fields or cursor.accept(","):
        if fields and cursor.accept("add"):
            cursor.accept("column")
        properties: dict[str, str] = {}
        field = read_column(cursor, properties)
        if properties:
            name, text = next(iter(properties.items()))
            kind = " as a list without a size" if pa.types.is_list(field.type) else ""
            raise Invalid(
                f"column {field.name}: add it{kind}, and the constraint afterwards: ALTER TABLE {table} ADD CONSTRAINT "
                f"{name.removeprefix(CONSTRAINT)} CHECK ({text})"
            )
        if not field.nullable:
            raise Invalid(
                f"column {field.name}: a column that is added must be nullable, since older rows have no value: leave "
                f"NOT NULL out, set the column with UPDATE, and {_not_null(table, field.name)}"
            )
        fields.append(field)
    if listed:
        cursor.expect(")")
    return nodes.AlterTable(table, add=pa.schema(fields), if_not_exists=if_not_exists)


def _not_null(table: str, column: str) -> str:
    """Return what has a column keep nulls out, for a message."""
    shown = column if column.isidentifier() else quote_name(column)
    return f"ALTER TABLE {table} ADD CONSTRAINT c CHECK ({shown} IS NOT NULL)"


def _drop_columns(cursor: Cursor, table: str) -> nodes.AlterTable:
    there = cursor.accept("if", "exists")
    if cursor.word() == "(":
        return nodes.AlterTable(table, drop=cursor.names("the name of a column"), if_exists=there)
    names = [cursor.identifier("the name of a column")]
    while cursor.accept(","):
        if cursor.accept("drop"):
            cursor.expect("column")
        names.append(cursor.identifier("the name of a column"))
    return nodes.AlterTable(table, drop=tuple(names), if_exists=there)


def _unset(cursor: Cursor, table: str) -> nodes.AlterTable:
    if_exists = cursor.accept("if", "exists")
    cursor.expect("(")
    names = [read_property(cursor)]
    while cursor.accept(","):
        names.append(read_property(cursor))
    cursor.expect(")")
    return nodes.AlterTable(table, properties=dict.fromkeys(names), if_exists=if_exists)


def _alter_refused(cursor: Cursor, table: str) -> Invalid:
    copy = (
        "CREATE VIEW with the names that you want, or CREATE TABLE … AS SELECT the columns that you want, and DROP the "
        "old table"
    )
    if cursor.accept("rename", "to"):
        return Invalid(f"ALTER TABLE … RENAME TO is not supported: {copy}")
    if cursor.word() == "alter":
        before = cursor.at
        cursor.at += 1
        cursor.accept("column")
        column = cursor.identifier("the name of a column")
        if cursor.accept("set", "not", "null"):
            return Invalid(f"ALTER COLUMN … SET NOT NULL is not supported: {_not_null(table, column)}")
        cursor.at = before
    if cursor.word() in ("alter", "change", "modify"):
        return Invalid(
            f"ALTER TABLE … {cursor.word().upper()} COLUMN is not supported: a column keeps its type; {copy}"
        )
    return cursor.wrong(
        "ADD COLUMN, RENAME COLUMN, DROP COLUMN, SET TBLPROPERTIES, ADD CONSTRAINT, SORT BY or CLUSTER BY"
    )
