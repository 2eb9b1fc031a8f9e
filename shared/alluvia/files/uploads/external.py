"""External tables: Parquet, CSV and NDJSON files outside a lake, under a name in it, to be read.

The log of such a table lists the files as they were when it was declared or refreshed. Parquet files are read where
they are, each as long as it has the ETag that the log has. The rows of CSV and NDJSON files, which no reader of Delta
tables takes, are stored as Parquet in the table's folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import FILE_AGE_MS_MAX
from alluvia.delta.log.actions import AddFile, Metadata
from alluvia.delta.log.replay import State
from alluvia.delta.properties import EXTERNAL
from alluvia.delta.protocols import new_protocol
from alluvia.delta.schema.column_mapping import own_names
from alluvia.delta.schema.unified import UnifiedSchema
from alluvia.delta.snapshot import ETAG, Snapshot
from alluvia.errors import Invalid, TableExists
from alluvia.files.file_rows import format_of
from alluvia.files.limits import FileLimits, Misfit
from alluvia.files.sent import SentFile, SentRows
from alluvia.files.text_values import as_declared
from alluvia.files.uploads.storing import fitted
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import NewTable, WritableCatalog, rejects_handle
from alluvia.operations.tables.attach import ExternalPlace, absolute, find_files, place_of
from alluvia.operations.tables.convert import read_files
from alluvia.operations.tables.create import check_free, create, plan_create
from alluvia.operations.tables.drop_plan import FirstVersion
from alluvia.scratch import scratch_root
from alluvia.store import ObjectInfo, Store

LIMITS = FileLimits(bytes_max=1 << 40, seconds=900, memory_bytes=1 << 30)
"""What reading one file of rows may take."""
PIECE_ROWS = 1_000_000
"""Rows of text files that are put into a data file together."""


@dataclass(frozen=True, slots=True)
class ExternalReport:
    """A version of an external table, and the files that it reads; `changed` unless they are those of before."""

    version: int
    files: int
    bytes: int
    changed: bool = True


def create_external(
    catalog: WritableCatalog,
    name: str,
    locations: Sequence[str],
    kind: str | None = None,
    schema: pa.Schema | None = None,
) -> ExternalReport:
    """Declare an external table of files: exact paths and URIs, or globs, which are looked up now.

    Without a format, the names say it; without a schema, the files do. Raises `TableExists`; `Forbidden` for a place
    that may not be read; `Invalid`, naming the file, for files that are missing or do not make a table.
    """
    handle = catalog.handle(name).own()
    wanted = tuple(map(absolute, locations))
    if not wanted:
        raise Invalid("location: name a file or a glob")
    place = ExternalPlace(wanted, format_of(kind, "", wanted[0].rpartition("/")[2], b""), schema is not None)
    check_free(handle)
    files = find_files(handle.store, place)
    begun_ms = handle.clock.now_ms()
    columns, adds = _read(handle, place, files, schema)
    metadata = _metadata(handle, columns, place, adds)
    parameters = {"location": ", ".join(wanted), "format": place.kind}
    first = FirstVersion("CREATE EXTERNAL TABLE", parameters, adds, begun_ms=begun_ms)
    rejects = rejects_handle(catalog, name)
    if not create(handle, metadata, exist_ok=True, rejects=rejects, first=first):
        raise TableExists(f"table {name!r} already exists: choose another name, or DROP TABLE {name}")
    return ExternalReport(handle.newest().version, len(files), sum(info.size for info in files))


def refresh_external(handle: TableHandle) -> ExternalReport:
    """Look the files of an external table up again, and list them as they are now, in one commit.

    The table keeps its columns. Raises `Invalid` for any other table, and what `create_external` raises for the files.
    """
    snapshot = handle.newest()
    text = snapshot.properties.get(EXTERNAL)
    if text is None:
        raise Invalid(f"table {handle.name!r} is not external: there is nothing to refresh")
    place = place_of(text)
    files = find_files(handle.store, place)
    size = sum(info.size for info in files)
    known = {file.tags.get(SOURCE, ""): file.tags.get(ETAG) for file in snapshot.files}
    if known == {info.key: info.etag for info in files}:
        return ExternalReport(snapshot.version, len(files), size, changed=False)
    transaction = handle.transaction(snapshot, FILE_AGE_MS_MAX, upkeep=True)
    _, adds = _read(handle, place, files, snapshot.schema)
    there = {add.path for add in adds}
    now_ms = handle.clock.now_ms()
    removes = [file.removed(now_ms, data_change=True) for file in snapshot.files if file.path not in there]
    changes = Changes("REFRESH", {"files": str(len(files))}, adds, removes, can_match=lambda _: True)
    commit = transaction.commit(changes)
    return ExternalReport(snapshot.version if commit is None else commit.version, len(files), size)


SOURCE = "alluvia.source"
"""The tag of a data file with the path or URI of the file that its rows are of."""


def _metadata(handle: TableHandle, columns: pa.Schema, place: ExternalPlace, adds: Sequence[AddFile]) -> Metadata:
    partitions = list(adds[0].partition_values) if adds else []
    new = NewTable(columns, partitions)
    made = plan_create(new, handle.clock.new_id(), handle.clock.now_ms(), own_names)  # which the files have
    return replace(made, configuration={**made.configuration, EXTERNAL: place.to_text()})


def _read(
    handle: TableHandle, place: ExternalPlace, files: Sequence[ObjectInfo], schema: pa.Schema | None
) -> tuple[pa.Schema, list[AddFile]]:
    """Return the columns of files, and what puts them, or their rows, into the table."""
    if place.kind == "parquet":
        columns, adds = read_files(handle.store, files)
        if schema is not None:
            _check_columns(columns, schema)
            columns = schema
        etags = {info.key: info.etag for info in files}
        return columns, [_by_uri(add, etags[add.path]) for add in adds]
    texts = _Texts(handle.store, place.kind, files)
    columns = texts.schema() if schema is None else schema
    return columns, list(_stored(handle, texts, columns, columns if place.has_schema else None))


def _check_columns(columns: pa.Schema, wanted: pa.Schema) -> None:
    types = {field.name: field.type for field in columns}
    for field in wanted:
        if field.name not in types:
            raise Invalid(f"column {field.name} is in none of the files")
        if types[field.name] != field.type:
            raise Invalid(f"column {field.name} is {types[field.name]} in the files, not {field.type}")


def _by_uri(add: AddFile, etag: str) -> AddFile:
    path = f"file://{add.path}" if add.path.startswith("/") else add.path
    return replace(add, path=path, tags={**add.tags, ETAG: etag, SOURCE: add.path})


class _Texts:
    """CSV or NDJSON files, fetched one after another."""

    def __init__(self, store: Store, kind: str, files: Sequence[ObjectInfo]) -> None:
        self._store, self._kind = store, kind
        self.files = files

    def opened(self) -> Iterator[tuple[ObjectInfo, SentRows]]:
        """Yield each file with its rows."""
        for info in self.files:
            with TemporaryDirectory(dir=scratch_root()) as folder, _naming(info):
                path = Path(folder) / "file"
                self._store.get_file(info.key, path)
                with SentFile(path, self._kind, LIMITS).rows() as rows:
                    yield info, rows

    def schema(self) -> pa.Schema:
        """Return the columns that all files have. Raises `Invalid` where two contradict each other."""
        unified = UnifiedSchema()
        for info, rows in self.opened():
            with _naming(info):
                unified.add(info.key, rows.schema({}))
        return unified.schema


@contextmanager
def _naming(info: ObjectInfo) -> Iterator[None]:
    """Have errors about a file's rows name the file."""
    try:
        yield
    except Misfit as error:
        raise Invalid(f"{info.key}: {error}") from error


def _stored(handle: TableHandle, texts: _Texts, columns: pa.Schema, declared: pa.Schema | None) -> Iterator[AddFile]:
    """Write the rows of files as data files, and yield these."""
    metadata = _metadata(handle, columns, ExternalPlace((), ""), ())
    protocol = new_protocol("alluvia", metadata.schema_string, metadata.configuration)
    writer = handle.writer(Snapshot(State(-1, protocol, metadata), handle.root, handle.name))
    for info, rows in texts.opened():
        tags: Mapping[str, str] = {ETAG: info.etag, SOURCE: info.key}
        known = {*columns.names}
        missing = [name for name in rows.names or () if name not in known]
        if missing:
            raise Invalid(f"{info.key}: the table has no column {missing[0]!r:.100}")
        waiting: list[pa.Table] = []
        with _naming(info):
            for table in rows.tables(as_declared(columns, declared)):
                waiting.append(fitted(table, columns))
                if sum(map(len, waiting)) >= PIECE_ROWS:
                    yield from _tagged(writer.write(pa.concat_tables(waiting)), tags)
                    waiting = []
        yield from _tagged(writer.write(pa.concat_tables([columns.empty_table(), *waiting])), tags)


def _tagged(adds: Sequence[AddFile], tags: Mapping[str, str]) -> Iterator[AddFile]:
    for add in adds:
        yield replace(add, tags={**add.tags, **tags})
