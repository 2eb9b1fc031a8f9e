"""CREATE, from its tokens. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from alluvia.delta.properties import CONSTRAINT
from alluvia.delta.schema.comments import COMMENT
from alluvia.delta.schema.list_sizes import size_constraint
from alluvia.engine.duck.literals import quote_name
from alluvia.engine.queries.tokens import tokens_of
from alluvia.errors import Invalid
from alluvia.sql.grammar import nodes
from alluvia.sql.grammar.cursor import Cursor, Sql
from alluvia.sql.grammar.grammar_objects import read_branch, read_schema, read_stream, read_tag
from alluvia.sql.grammar.grammar_options import read_comment_text, read_partitioning, read_properties
from alluvia.sql.grammar.types import column_type
from alluvia.table_names import new_name

_CREATE_INSTEAD = {
    "index": "SORT BY or CLUSTER BY the columns that queries ask for: files have statistics of each",
    "unique": "nothing enforces uniqueness: write with MERGE INTO, which keeps one row for each key",
    "database": "CREATE SCHEMA groups tables within a lake: connect to another lake for another set of schemas",
    "materialized": "call lake.create_rollup(name, query), or run `alluvia rollup`",
    "temp": "use a common table expression, or drop the table at the end of the text",
    "temporary": "use a common table expression, or drop the table at the end of the text",
    "sequence": "use uuid() or row_number() in the SELECT of an INSERT",
    "function": "write the expression into the query",
    "macro": "write the expression into the query",
    "type": "name the type in each table",
    "trigger": "follow table.changes(from_version)",
    "secret": "credentials belong to the process that connects",
    "role": "who may read or write is decided by the store's credentials and by the server's settings and tokens",
    "user": "who may read or write is decided by the store's credentials and by the server's settings and tokens",
}
_COLUMN_REFUSED = {
    "default": "columns are null by default: give the value in each INSERT",
    "primary": "nothing enforces uniqueness: write with MERGE INTO, which keeps one row for each key",
    "unique": "nothing enforces uniqueness: write with MERGE INTO, which keeps one row for each key",
    "references": "nothing enforces references between tables",
    "foreign": "nothing enforces references between tables",
    "generated": "compute the value in each INSERT",
    "as": "compute the value in each INSERT",
    "collate": "text is compared by its bytes; COLLATE in a query changes that",
}
_OPTION_INSTEAD = {
    "engine": "leave it out: tables have one format, Delta",
    "stored": "leave it out: tables have one format, Delta; CREATE EXTERNAL TABLE … STORED AS names that of files "
    "elsewhere",
    "row": "leave it out: tables have one format, Delta",
    "options": "set TBLPROPERTIES ('alluvia.…' = '…')",
    "settings": "set TBLPROPERTIES ('alluvia.…' = '…')",
    "ttl": "set TBLPROPERTIES ('alluvia.ttl' = '30 days', 'alluvia.ttl_column' = '…')",
    "primary": _COLUMN_REFUSED["primary"],
    "unique": _COLUMN_REFUSED["unique"],
    "index": _CREATE_INSTEAD["index"],
    "sortkey": "write SORT BY (…)",
    "distkey": "write PARTITION BY (…), or leave it out",
    "diststyle": "write PARTITION BY (…), or leave it out",
    "distributed": "write PARTITION BY (…), or leave it out",
    "sample": "leave it out: SELECT … USING SAMPLE takes a sample of any table",
    "inherits": "list the columns",
    "tablespace": "leave it out: a table is in the folder of its name",
    "on": "leave it out: there are no temporary tables",
    "strict": "leave it out: a value must always fit its column",
    "without": "leave it out: files have no row ids",
    "charset": "leave it out: text is UTF-8",
    "character": "leave it out: text is UTF-8",
    "collate": _COLUMN_REFUSED["collate"],
    "auto_increment": "use uuid() or row_number() in the SELECT of an INSERT",
    "data_retention_time_in_days": "set TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 7 days')",
}
"""Options of other products' CREATE TABLE."""

_OBJECTS: Mapping[str, Callable[[Cursor], nodes.Node]] = {
    "schema": read_schema,
    "branch": read_branch,
    "stream": read_stream,
}


def read_create(cursor: Cursor) -> tuple[str, nodes.Node]:
    """Read CREATE TABLE, and CREATE of a schema, a view, a stream, a tag or a branch."""
    cursor.expect("create")
    or_replace = cursor.accept("or", "replace")
    word = cursor.word()
    if word in _CREATE_INSTEAD:
        raise Invalid(f"CREATE {word.upper()} is not supported: {_CREATE_INSTEAD[word]}")
    if cursor.accept("view"):
        return "create view", _view(cursor, or_replace=or_replace)
    if cursor.word() == "tag":
        return "create tag", read_tag(cursor, or_replace=or_replace)
    if word in _OBJECTS:
        if or_replace:
            what = word.upper()
            raise Invalid(f"CREATE OR REPLACE {what} is not supported: DROP {what} IF EXISTS, and create it again")
        return f"create {word}", _OBJECTS[word](cursor)
    if cursor.accept("external"):
        cursor.expect("table")
        return "create external table", _external(cursor, or_replace=or_replace)
    cursor.expect("table")
    return "create table", _table(cursor, or_replace=or_replace)


def _view(cursor: Cursor, *, or_replace: bool) -> nodes.CreateView:
    if_not_exists = cursor.accept("if", "not", "exists")
    name = cursor.table("the name of a view")
    columns = cursor.names("the name of a column") if cursor.word() == "(" else ()
    comment = read_comment_text(cursor) if cursor.accept("comment") else None
    cursor.expect("as")
    query = cursor.rest("SELECT")
    check_no_parameters(query, "CREATE VIEW", "write the value into the SELECT, or filter where the view is queried")
    return nodes.CreateView(name, _with_names(query, name, columns), or_replace, if_not_exists, comment)


def check_no_parameters(sql: Sql, what: str, instead: str) -> None:
    """Raise `Invalid` for a parameter in SQL that is kept as a text, where it would have no value later."""
    for token in tokens_of(sql.text):
        if token.kind == "parameter":
            shown = sql.text[token.start : token.end]
            raise Invalid(f"{what} cannot have the parameter {shown}, because its text is kept: {instead}")


def _with_names(query: Sql, name: str, columns: Sequence[str]) -> Sql:
    """Return a SELECT whose first columns have other names."""
    if not columns:
        return query
    named = f"{quote_name(name)}({', '.join(map(quote_name, columns))})"
    return Sql(f"FROM (\n{query.text}\n) AS {named}", query.placeholders)


def _external(cursor: Cursor, *, or_replace: bool) -> nodes.External:
    """Read what follows CREATE EXTERNAL TABLE, in Spark's form or Hive's: its columns, the format, the location."""
    if_not_exists = cursor.accept("if", "not", "exists")
    table, kind, columns = cursor.table(), None, None
    if or_replace:
        raise Invalid(f"CREATE OR REPLACE EXTERNAL TABLE is not supported: DROP TABLE {table} first")
    if cursor.accept("("):
        columns, properties = _columns(cursor)
        if properties:
            raise Invalid(
                "CREATE EXTERNAL TABLE takes no constraints: nothing is written that they could be checked on"
            )
    if cursor.accept("using") or cursor.accept("stored", "as"):
        kind = cursor.identifier("PARQUET, CSV, TSV or NDJSON").lower()
    if not cursor.accept("location"):
        raise cursor.wrong("LOCATION")
    return nodes.External(table, cursor.string("a path, a URI or a glob"), kind, columns, if_not_exists)


def _clone(cursor: Cursor, table: str, *, or_replace: bool, if_not_exists: bool) -> nodes.Clone | None:
    """Read SHALLOW CLONE or DEEP CLONE of a table, at a version; None where something else comes."""
    if cursor.word() == "clone":
        raise cursor.wrong("SHALLOW CLONE, which shares the files, or DEEP CLONE, which copies them")
    deep = cursor.word() == "deep"
    if cursor.word(1) != "clone" or not (deep or cursor.word() == "shallow"):
        return None
    cursor.at += 2
    if or_replace:
        raise Invalid(f"CREATE OR REPLACE TABLE … CLONE is not supported: DROP TABLE {table} first")
    source, version, timestamp, tag = cursor.table(), None, None, None
    if cursor.accept("version", "as", "of"):
        version = cursor.number("a version")
    elif cursor.accept("tag", "as", "of"):
        tag = cursor.string("the name of a tag")
    elif cursor.accept("timestamp", "as", "of"):
        timestamp = cursor.string("a timestamp")
    if not cursor.ended:
        raise cursor.wrong("VERSION, TIMESTAMP or TAG AS OF, or the end: a clone has the columns of its source")
    return nodes.Clone(table, source, deep, if_not_exists, version, timestamp, tag)


def _location(cursor: Cursor) -> str | None:
    """Read [USING DELTA] LOCATION 'uri', which must be all of the rest; None where something else comes."""
    ahead = 2 if (cursor.word(), cursor.word(1)) == ("using", "delta") else 0
    if cursor.word(ahead) != "location":
        return None
    cursor.at += ahead + 1
    uri = cursor.string("the path or URI of a Delta table")
    if not cursor.ended:
        raise cursor.wrong("the end of the statement: a table at a LOCATION has its own columns and properties")
    return uri


def _table(cursor: Cursor, *, or_replace: bool) -> nodes.CreateTable | nodes.Attach | nodes.Clone:
    if_not_exists = cursor.accept("if", "not", "exists")
    if if_not_exists and or_replace:
        raise Invalid("CREATE OR REPLACE TABLE IF NOT EXISTS contradicts itself: leave one of the two out")
    table = new_name(cursor.table())
    cloned = _clone(cursor, table, or_replace=or_replace, if_not_exists=if_not_exists)
    if cloned is not None:
        return cloned
    uri = _location(cursor)
    if uri is not None:
        if or_replace:
            raise Invalid(f"CREATE OR REPLACE TABLE … LOCATION is not supported: DROP TABLE {table} first")
        return nodes.Attach(table, uri, if_not_exists)
    columns: pa.Schema | None = None
    properties: dict[str, str] = {}
    names = _names_alone(cursor)
    if not names and cursor.accept("("):
        columns, properties = _columns(cursor)
    layout: dict[str, tuple[str, ...]] = {}
    comment: str | None = None
    while not cursor.ended and cursor.word() != "as":
        if cursor.accept("comment"):
            cursor.accept("=")
            comment = read_comment_text(cursor)
        else:
            _option(cursor, layout, properties)
    query = cursor.rest("SELECT") if cursor.accept("as") else None
    if query is not None and columns is not None:
        raise Invalid(
            "CREATE TABLE … AS takes the types from the SELECT: CAST them there, and list names alone, as in t(a, b)"
        )
    if query is None and names:
        raise Invalid(f"CREATE TABLE {table}: column {names[0]} has no type; only CREATE TABLE … AS SELECT needs none")
    if query is None and columns is None:
        raise cursor.wrong("the columns of the table in parentheses, or AS SELECT")
    return nodes.CreateTable(
        table,
        if_not_exists,
        columns,
        layout.get("partition", ()),
        layout.get("sort", ()),
        layout.get("cluster", ()),
        properties,
        query,
        or_replace,
        names,
        comment,
    )


def _names_alone(cursor: Cursor) -> tuple[str, ...]:
    """Read the names of columns without types, in parentheses, as CREATE TABLE … AS takes them; else nothing."""
    if cursor.word() != "(" or cursor.word(2) not in (",", ")"):
        return ()
    return cursor.names("the name of a column")


def _columns(cursor: Cursor) -> tuple[pa.Schema, dict[str, str]]:
    fields: list[pa.Field] = []
    properties: dict[str, str] = {}
    while not (fields or properties) or cursor.accept(","):
        word = cursor.word()
        if word == "like":
            raise _like_refused(cursor)
        if word in ("constraint", "check") and (word == "constraint" or cursor.word(1) == "("):
            _add_constraint(cursor, properties)
        elif word in _COLUMN_REFUSED and cursor.word(1) in ("key", "(", ""):
            raise Invalid(f"{word.upper()} is not supported: {_COLUMN_REFUSED[word]}")
        else:
            fields.append(read_column(cursor, properties))
    cursor.expect(")")
    if not fields:
        raise Invalid("CREATE TABLE: the table needs a column")
    return pa.schema(fields), properties


def _like_refused(cursor: Cursor) -> Invalid:
    cursor.expect("like")
    source = cursor.table()
    return Invalid(
        f"CREATE TABLE … LIKE is not supported: take the columns with CREATE TABLE … AS FROM {source} LIMIT 0, or "
        f"change what SHOW CREATE TABLE {source} gives"
    )


def read_column(cursor: Cursor, properties: dict[str, str]) -> pa.Field:
    """Read a column with its type; its CHECKs go to the properties."""
    name = cursor.identifier("the name of a column")
    kind = column_type(cursor)
    if cursor.word() == "[":
        kind = _sized(cursor, name, kind, properties)
    nullable, metadata = True, None
    while cursor.word() not in (",", ")", "", "force"):
        word = cursor.word()
        if word in _COLUMN_REFUSED:
            raise Invalid(f"column {name}: {word.upper()} is not supported: {_COLUMN_REFUSED[word]}")
        if cursor.accept("not", "null"):
            nullable = False
        elif word in ("check", "constraint"):
            _add_constraint(cursor, properties)
        elif cursor.accept("comment"):
            metadata = {COMMENT: read_comment_text(cursor)}
        else:
            cursor.expect("null")
    return pa.field(name, kind, nullable, metadata)


def _sized(cursor: Cursor, name: str, kind: pa.DataType, properties: dict[str, str]) -> pa.DataType:
    """Read the size in brackets behind the type of the elements: the column is a list, its size a constraint."""
    cursor.expect("[")
    constraint, text = size_constraint(name, cursor.number("how many elements each list has"))
    cursor.expect("]")
    if cursor.word() == "[" or pa.types.is_nested(kind):
        raise Invalid(f"column {name}: only a list of plain values can have a fixed size: write [] for other lists")
    properties[CONSTRAINT + constraint] = text
    return pa.list_(kind)


def _add_constraint(cursor: Cursor, properties: dict[str, str]) -> None:
    """Read [CONSTRAINT name] CHECK (…)."""
    name = cursor.identifier("the name of the constraint") if cursor.accept("constraint") else ""
    if cursor.word() in _COLUMN_REFUSED:
        raise Invalid(f"{cursor.word().upper()} is not supported: {_COLUMN_REFUSED[cursor.word()]}")
    cursor.expect("check")
    condition = cursor.brackets("a condition")
    check_no_parameters(condition, "CHECK", "write the value into the condition")
    text = condition.text
    name = name or f"check_{1 + sum(each.startswith(CONSTRAINT) for each in properties)}"
    if CONSTRAINT + name in properties:
        raise Invalid(f"CONSTRAINT {name} occurs twice")
    properties[CONSTRAINT + name] = text


def _option(cursor: Cursor, layout: dict[str, tuple[str, ...]], properties: dict[str, str]) -> None:
    if cursor.accept("using"):
        if not cursor.accept("delta"):
            raise cursor.wrong("DELTA, the one format of tables")
    elif cursor.accept("partition", "by") or cursor.accept("partitioned", "by"):
        layout["partition"] = read_partitioning(cursor)
    elif cursor.accept("sort", "by") or cursor.accept("sorted", "by") or cursor.accept("order", "by"):
        layout["sort"] = cursor.names("the name of a column")
    elif cursor.accept("cluster", "by") or cursor.accept("clustered", "by"):
        layout["cluster"] = cursor.names("the name of a column")
    elif cursor.accept("tblproperties"):
        properties.update(read_properties(cursor))
    elif cursor.accept("with"):
        properties.update(read_properties(cursor, own=False))
    elif cursor.word() == "like":
        raise _like_refused(cursor)
    elif cursor.accept("location"):
        raise Invalid(
            "LOCATION goes with a Delta table that is there, and nothing else: CREATE TABLE t LOCATION '…'; a new "
            "table is in the folder of its name"
        )
    elif (option := cursor.word()) in _OPTION_INSTEAD:
        raise Invalid(f"CREATE TABLE … {option.upper()} is not supported: {_OPTION_INSTEAD[option]}")
    else:
        raise cursor.wrong("PARTITION BY, SORT BY, CLUSTER BY, COMMENT, TBLPROPERTIES or AS SELECT")
