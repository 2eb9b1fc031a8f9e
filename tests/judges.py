"""Readers that are not ours: `deltalake` and DuckDB's delta extension. They must see the rows that we see."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from alluvia.api.lake import Lake, Table
from alluvia.delta.refs import KEPT
from alluvia.store import DirectoryStore, Store, Wrapper
from alluvia.store.s3.bucket import S3Store
from tests.peer_duckdb import Peer

Rows = list[tuple[tuple[str, Any], ...]]


def canonical(table: pa.Table) -> Rows:
    """Return rows as sortable values, columns by name, rows in a fixed order; whoever read them."""
    columns = sorted(table.column_names)
    rows = zip(*(map(_plain, table[name].to_pylist()) for name in columns), strict=True)
    return sorted((tuple(zip(columns, row, strict=True)) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, dict):
        return tuple(sorted((key, _plain(each)) for key, each in value.items()))
    if isinstance(value, list):
        pairs = bool(value) and all(isinstance(each, tuple) and len(each) == 2 for each in value)
        plain = [tuple(map(_plain, each)) if pairs else _plain(each) for each in value]
        return tuple(sorted(plain, key=repr)) if pairs else tuple(plain)
    return value


def kinds(schema: pa.Schema) -> dict[str, str]:
    """Return each column's type, the same for every Arrow type that stands for one type of Delta."""
    return {field.name: _kind(field.type) for field in schema}


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{kind.field(at).name}: {_kind(kind.field(at).type)}' for at in range(len(kind)))}>"
    if pa.types.is_map(kind):
        return f"map<{_kind(kind.key_type)}, {_kind(kind.item_type)}>"
    if isinstance(kind, (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)):
        return f"list<{_kind(kind.value_type)}>"
    return str(kind).removeprefix("large_").removesuffix("_view")


def ours(table: Table, version: int | None = None) -> Rows:
    """Return the rows that this library reads."""
    return canonical(table.scan(version=version).read_all())


def deltalake_rows(table: Table, version: int | None = None) -> Rows:
    """Return the rows that `deltalake` reads."""
    return canonical(deltalake_table(table, version))


def deltalake_table(table: Table, version: int | None = None) -> pa.Table:
    """Read a table by `deltalake`'s `to_pyarrow_table`: Arrow's own reader."""
    return open_deltalake(table, version).to_pyarrow_table()


def deltalake_sql_table(table: Table, version: int | None = None, where: str = "true") -> pa.Table:
    """Read a table by `deltalake`'s `QueryBuilder`: DataFusion."""
    query = QueryBuilder().register("judged", open_deltalake(table, version))
    return pa.table(query.execute(f"SELECT * FROM judged WHERE {where}").read_all())


def open_deltalake(table: Table, version: int | None = None) -> DeltaTable:
    """Open a table of a directory or S3 lake with `deltalake`."""
    return DeltaTable(uri_of(table), version=version, storage_options=storage_options(table.lake.store))


def duckdb_rows(table: Table, version: int | None = None) -> Rows:
    """Return the rows that DuckDB's `delta_scan` reads."""
    return canonical(duckdb_table(table, version))


def duckdb_table(table: Table, version: int | None = None, where: str = "true") -> pa.Table:
    """Read a table by DuckDB's `delta_scan`."""
    at = "" if version is None else f", version := {version}"
    source = f"delta_scan('{uri_of(table).replace(chr(39), chr(39) * 2)}'{at})"
    return judge(table.lake.store).execute(f"SELECT * FROM {source} WHERE {where}").to_arrow_table()


Read = Callable[[Table], pa.Table]
READERS: dict[str, Read] = {
    "deltalake": deltalake_table,
    "deltalake SQL": deltalake_sql_table,
    "DuckDB": duckdb_table,
}
"""Other readers of tables, by name."""


def judges_agree(table: Table, versions: Iterable[int] | None = None) -> dict[int, Rows]:
    """Assert that both judges read our rows at every version, and return the rows by version."""
    with on_disk(table) as there:
        newest = there.snapshot().version
        found = {}
        for version in range(newest + 1) if versions is None else versions:
            rows = found[version] = ours(there, version)
            assert deltalake_rows(there, version) == rows, f"deltalake reads other rows of version {version}"
            assert duckdb_rows(there, version) == rows, f"delta_scan reads other rows of version {version}"
        return found


@contextmanager
def on_disk(table: Table) -> Iterator[Table]:
    """Give the table as it is, or a copy of it on the disk where it is in memory, which no judge can read."""
    if _bare(table.lake.store).url("x") is not None:
        yield table
        return
    with tempfile.TemporaryDirectory(prefix="alluvia-judge-") as place:
        copy = DirectoryStore(Path(place))
        for folder in (f"{table.name}/", KEPT):
            for info in table.lake.store.list(folder):
                copy.put(info.key, table.lake.store.get(info.key))
        yield Lake(copy, table.lake.clock).table(table.name)


def storage_options(store: Store) -> dict[str, str]:
    """Return what `deltalake` needs to reach a store's bucket."""
    bare = _bare(store)
    if not isinstance(bare, S3Store):
        return {}
    options = options_of(bare)
    return {
        "AWS_ENDPOINT_URL": options["endpoint_url"],
        "AWS_ACCESS_KEY_ID": options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
        "AWS_REGION": options["region"],
        "AWS_ALLOW_HTTP": "true",
        "conditional_put": "etag",
    }


def options_of(store: S3Store) -> dict[str, str]:
    """Return the options that a store on S3 was opened with."""
    address = store.address("x")
    assert address is not None
    return dict(address.options)


def _bare(store: Store) -> Store:
    while isinstance(store, Wrapper):
        store = store.inner
    return store


def uri_of(table: Table) -> str:
    """Return where a table is, as other engines want it."""
    store = _bare(table.lake.store)
    root = str(store.root) if isinstance(store, DirectoryStore) else store.uri
    return f"{root}/{table.name}"


def judge(store: Store) -> Peer:
    """Return the database of `delta_scan` for a store: to open one takes five times a query."""
    bare = _bare(store)
    return _judge(tuple(options_of(bare).items()) if isinstance(bare, S3Store) else ())


@cache
def _judge(options: tuple[tuple[str, str], ...]) -> Peer:
    return Peer("delta", options=dict(options))
