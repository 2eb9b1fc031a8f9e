"""The answers of DESCRIBE and SUMMARIZE in the lake's terms: Delta's type names, which columns are nullable, comments.

Comments are in the column `extra`, which DuckDB leaves empty. DuckDB sees views, whose columns are all nullable, and
has its own type names. A type that Delta lacks keeps DuckDB's name. Inside a larger query (`FROM (DESCRIBE t)`) the
answer is DuckDB's own. Pure, except for parsing types and for looking up a view that is described.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from alluvia.delta.data_files.scan import Scan
from alluvia.delta.schema.types import type_name
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.database import planner
from alluvia.engine.duck.literals import quote_text
from alluvia.engine.queries.parse import Node
from alluvia.engine.queries.references import Reference, find_references
from alluvia.engine.queries.shown_names import Shown, column_name
from alluvia.operations.catalog.catalog import Catalog, shows_comments
from alluvia.operations.catalog.views import View

PROPERTIES = "properties"
_NO_COLUMN = re.compile(r'Referenced column "([^"\']+)" not found|does not have a column named "([^"\']+)"')
_NO_STRUCT = re.compile(rf"Cannot extract field '([^\"']+)' from expression \"{PROPERTIES}\"")
_NO_TABLE = re.compile(r'Referenced table "([^"\']+)" not found')
_SUBSCRIPT = re.compile(rf"\b{PROPERTIES}\s*\[\s*'([^\"']+)'\s*\]", re.IGNORECASE)


def field_sql(name: str) -> str:
    """Return the SQL of a field of `properties`, as text."""
    place = f"$.{name}" if name.isidentifier() else "/" + name.replace("~", "~0").replace("/", "~1")
    return f"{PROPERTIES}->>{quote_text(place)}"


def field_hint(message: str, text: str) -> str | None:
    """Return how to write the field that a query asks for as if it were a column; None where it asks for none.

    message: what DuckDB says of the query. text: the query.
    """
    match = _NO_COLUMN.search(message) or _NO_STRUCT.search(message)
    if match is None and message.startswith("Could not convert string"):
        match = _SUBSCRIPT.search(text)
    if match is not None:
        return f"A field without a column is in {PROPERTIES}: {field_sql(next(filter(None, match.groups())))}"
    if (match := _NO_TABLE.search(message)) is not None and match[1].isidentifier():
        return f"An object without a column is in {PROPERTIES}: {PROPERTIES}->>'$.{match[1]}.…'"
    return None


_NAMES = {
    "varchar": "string", "bigint": "long", "integer": "integer", "smallint": "short", "tinyint": "byte",
    "float": "float", "double": "double", "boolean": "boolean", "blob": "binary", "date": "date",
    "timestamp with time zone": "timestamp", "timestamp": "timestamp_ntz",
}  # fmt: skip
_TYPE, _NULL, _EXTRA = "column_type", "null", "extra"
TYPE_CHARS_MAX = 20_000


def describes(root: Node) -> bool:
    """Whether a query is DESCRIBE or SUMMARIZE."""
    return (root.get("from_table") or {}).get("type") == "SHOW_REF"


def in_our_terms(
    root: Node,
    scans: Mapping[Reference, Scan],
    batches: Iterable[pa.RecordBatch],
    check_time: Callable[[], None],
    shown: Shown,
    comments: Callable[[Snapshot | None], Mapping[str, str]],
) -> Iterator[pa.RecordBatch]:
    """Return the rows that DuckDB answers to DESCRIBE or SUMMARIZE in the terms of the lake.

    `comments` returns those of a table's columns, or for None those of a view's that is described. `check_time` is
    called for each type, and raises when the time is up. `shown` as for `column_name`.
    """
    table = _whole_table(root["from_table"]["query"], scans)
    told = comments(table)
    return map(partial(_changed, table=table, check_time=check_time, shown=shown, comments=told), batches)


def shown_comments(catalog: Catalog, root: Node, table: Snapshot | None) -> Mapping[str, str]:
    """Return the comments of the columns of the table or view that a query describes, as its caller sees them."""
    source: Snapshot | View | None = table
    if source is None:
        query = root["from_table"]["query"]
        named = {id(each.node): each.table for each in find_references(root, parameters=True).tables}
        name = named.get(id((query or {}).get("from_table")))
        source = catalog.find_view(name) if name is not None and _is_whole(query) else None
    return source.column_comments if source is not None and shows_comments(catalog, source.name) else {}


def _whole_table(query: Node, scans: Mapping[Reference, Scan]) -> Snapshot | None:
    """Return the table if a query gives all columns of one table, as they are."""
    source = query.get("from_table")
    scan = next((scan for reference, scan in scans.items() if reference.node is source), None)
    return None if scan is None or not _is_whole(query) else scan.snapshot


def _is_whole(query: Node) -> bool:
    """Whether a query gives all columns of the table or view that it names, by their names."""
    if query["from_table"].get("column_name_alias"):
        return False
    names = [star for star in query["select_list"] if star["class"] == "STAR" and not star["columns"]]
    plain = len(names) == len(query["select_list"]) == 1 and not any(
        names[0][key] for key in ("exclude_list", "replace_list", "qualified_exclude_list", "rename_list", "expr")
    )
    return plain and not query["group_expressions"]


def _changed(
    batch: pa.RecordBatch,
    table: Snapshot | None,
    check_time: Callable[[], None],
    shown: Shown,
    comments: Mapping[str, str],
) -> pa.RecordBatch:
    names = batch.column("column_name").to_pylist()
    if _EXTRA in batch.schema.names and comments:
        batch = _set(batch, _EXTRA, [comments.get(name) for name in names])
    if table is not None and names == table.schema.names:
        batch = _set(batch, _TYPE, [type_name(field.type) for field in table.schema])
        if _NULL in batch.schema.names:
            batch = _set(batch, _NULL, ["YES" if field.nullable else "NO" for field in table.schema])
        return batch
    types = []
    for text in batch.column(_TYPE).to_pylist():
        check_time()
        types.append(delta_name(text))
    return _set(_set(batch, "column_name", [column_name(name, shown) for name in names]), _TYPE, types)


def _set(batch: pa.RecordBatch, name: str, values: Sequence[str | None]) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), pa.array(values, pa.string()))


def delta_name(text: str) -> str:
    """Return Delta's name for DuckDB's text of a type; DuckDB's for one, or for a part of one, that Delta lacks.

    A type that is too long, or nested too deeply, to be parsed keeps DuckDB's name, too.
    """
    if len(text) > TYPE_CHARS_MAX:
        return text
    from alluvia.engine.duck.native import duckdb

    try:
        return _name(planner().type(text))
    except (duckdb.Error, RecursionError):
        return text


def _name(kind: Any) -> str:
    nested: dict[str, Callable[[dict[str, Any]], str]] = {
        "decimal": lambda parts: f"decimal({parts['precision']},{parts['scale']})",
        "list": lambda parts: f"array<{_name(parts['child'])}>",
        "map": lambda parts: f"map<{_name(parts['key'])},{_name(parts['value'])}>",
        "struct": lambda parts: f"struct<{','.join(f'{name}:{_name(part)}' for name, part in parts.items())}>",
    }
    return nested[kind.id](dict(kind.children)) if kind.id in nested else _NAMES.get(kind.id, str(kind))
