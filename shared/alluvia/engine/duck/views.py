"""Views over a table's data files in a DuckDB database: which files DuckDB reads in place, and which as a copy.

DuckDB reads Parquet as a table needs it nearly always. Where it would not (a file whose columns have other types than
the table's, are to be found by id under other names, or have a name that the view needs for itself), the file is read
as a scan does, and copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from pathlib import Path

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.arrow_parquet import pq
from alluvia.delta.data_files.scan import check_positions, live_rows, read_file
from alluvia.delta.deletion_vectors.descriptors import POSITIONS_MAX, cardinality_of
from alluvia.delta.deletion_vectors.storage import numbers, read_deletions, vector_parts
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.paths import is_own_name
from alluvia.delta.promoted_fields import PROPERTIES, moved
from alluvia.delta.schema.column_mapping import ColumnMapping, identities, misnamed
from alluvia.delta.schema.names import fold, places_by_name, places_of
from alluvia.delta.schema.variant_shredding import form_of
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.arrow_values import DuckType, fits, holds, narrows, told
from alluvia.engine.duck.database import Database
from alluvia.engine.duck.failures import UNREAD
from alluvia.engine.duck.file_kinds import FileKinds
from alluvia.engine.duck.promoted_sql import trust
from alluvia.engine.duck.relation import (
    FILE_NUMBER,
    ROW_NUMBER,
    RelationPart,
    RowPlaces,
    escape_glob,
    relation_parts,
    union_sql,
)
from alluvia.errors import Unavailable
from alluvia.recent import Recent
from alluvia.store import Store
from alluvia.store.caches.range_cache import RANGES
from alluvia.store.numbers import number_of

_POSITIONS = "alluvia_positions"
_KNOWN_FILES_MAX = 1000
_KNOWN_BYTES_MAX = 2_000_000
"""Bytes as JSON; in memory, columns take 8 to 15 times as much."""
_KNOWN_COLUMNS: Recent[tuple[object, ...], Mapping[str, DuckType]] = Recent(_KNOWN_BYTES_MAX)


def create_deleted(
    connection: Database, name: str, snapshot: Snapshot, store: Store, files: Sequence[AddFile]
) -> str | None:
    """Make a table of files' deleted rows and return its name.

    Its columns are `file`, the number of a file among those with a deletion vector, and `position`, both from 0.

    None, and no table, if no file has a deletion vector. Raises `Corrupt`.
    """
    having = [file for file in files if file.deletion_vector is not None]
    if not having:
        return None

    parts = vector_parts(having, snapshot.locate)
    known = RANGES.get(store, parts) if store.parallel else {}

    def read(file: AddFile) -> pa.Int64Array:
        deleted = read_deletions(store, file, snapshot.locate, known)
        if file.num_records is not None:
            check_positions(file, deleted, file.num_records)
        return deleted

    connection.execute(f"CREATE TABLE {name} (file UBIGINT, position BIGINT)")
    arrays = (array for some in _held_at_once(having) for array in store.map(read, some))
    for number, positions in enumerate(arrays):
        same = pa.repeat(pa.scalar(number, pa.uint64()), len(positions))
        connection.register(_POSITIONS, pa.table({"file": same, "position": positions}))
        connection.execute(f"INSERT INTO {name} FROM {_POSITIONS}")
        connection.unregister(_POSITIONS)
    return name


def _held_at_once(files: Sequence[AddFile]) -> Iterator[list[AddFile]]:
    """Yield files whose vectors may be in memory together, in their order."""
    some: list[AddFile] = []
    count = 0
    for file in files:
        cardinality = cardinality_of(file.deletion_vector or {})
        if some and count + cardinality > POSITIONS_MAX:
            yield some
            some, count = [], 0
        some.append(file)
        count += cardinality
    yield some


class Views:
    """Makes views in a schema of a database that may open files; `copies` maps each copy made to the file's name.

    `narrows` says that a view casts whole numbers of files to a smaller kind.
    `check_time` is called now and then, and raises when the time is up.
    """

    def __init__(
        self,
        connection: Database,
        schema: str,
        store: Store,
        folder: Path,
        check_time: Callable[[], None] = lambda: None,
    ) -> None:
        self.copies: dict[str, str] = {}
        self.narrows = False
        self._connection = connection
        self._schema = schema
        self._store = store
        self._folder = folder
        self._check_time = check_time
        self._made = 0

    def create(
        self,
        name: str,
        snapshot: Snapshot,
        files: Sequence[AddFile],
        urls: Sequence[str],
        copied: Callable[[str], bool] = lambda _: False,
        places: RowPlaces | None = None,
        *,
        as_stored: bool = False,
        in_place: bool = False,
        fields: Mapping[str, str] | None = None,
        named: Collection[str] | None = None,
    ) -> None:
        """Make the view of some files, which lie at `urls`; those of which `copied` says so are copied in any case.

        With `places`, its last columns are the number of each row's file among `files`, and of the row in the file.
        Where `copied` says so of `UNREAD`, so are all files with promoted fields that are not all in their columns, and
        those with variants, unless they are to be read `in_place`. With `as_stored`, the rows have promoted fields
        where files that are written now have them. `fields` are further columns, which the query names, each with the
        argument of `->>` that finds it in `properties`. `named` are the folded names of all columns that are needed;
        None for all.
        Raises `Corrupt`, `Unsupported`, `Unavailable` and DuckDB's errors.
        """
        unread = as_stored or copied(UNREAD)
        odd = {file.path for file in files if copied(file.path) or (unread and not all(trust(snapshot.promoted, file)))}
        if snapshot.has_variants and copied(UNREAD) and not in_place:
            odd |= {file.path for file in files if form_of(file.tags)}
        form = _Form(snapshot, places, as_stored=as_stored, named=None if fields else named)
        files = form.numbered(files)
        pairs = list(zip(files, urls, strict=True))
        promoted = () if as_stored or PROPERTIES not in form.schema.names else snapshot.promoted
        kinds = FileKinds(
            form.schema, form.physical_schema, form.partition_columns, files, promoted, snapshot.columns_digest
        )
        pairs.sort(key=lambda pair: kinds.of(pair[0]))
        odd |= self._odd(snapshot, [(file, url) for file, url in pairs if file.path not in odd], places)
        plain = [(file, url) for file, url in pairs if file.path not in odd]
        self._check_time()
        self._made += 1
        deleted = create_deleted(
            self._connection, f"{self._schema}.deleted_{self._made}", snapshot, self._store, [file for file, _ in plain]
        )
        selects = []
        parts = relation_parts(
            form.schema,
            form.partition_columns,
            [file for file, _ in plain],
            [url for _, url in plain],
            kinds,
            form.physical_schema,
            deleted,
            None if places is None else places.position,
            fields,
        )
        for part in parts:
            self._check_time()
            fitting = self._fitting(part, form)
            if fitting is not None:
                selects.append(fitting.sql())
            else:
                odd.update(file.path for file in part.files)
        copies = self._copies(form, [file for file in files if file.path in odd], fields)
        selects += [part.sql() for part in copies]
        shown = pa.schema([*form.shown, *(pa.field(each, pa.string()) for each in fields or {})])
        self._connection.later(f"CREATE VIEW {self._schema}.{name} AS {union_sql(shown, selects)}")

    def _odd(self, snapshot: Snapshot, files: Sequence[tuple[AddFile, str]], places: RowPlaces | None) -> set[str]:
        """Return the paths of the files in which DuckDB would not find the table's columns, as far as is known."""
        if snapshot.has_variants and snapshot.variant is None:
            return {file.path for file, _ in files}
        virtual = {FILE_NUMBER, ROW_NUMBER} & places_by_name(snapshot.physical_schema).keys()
        odd = {file.path for file, _ in files if snapshot.has_variants and form_of(file.tags) is None}
        odd |= {file.path for file, _ in files if virtual and file.deletion_vector}
        odd |= {file.path for file, _ in files if ROW_NUMBER in virtual and places}
        if snapshot.mapping is not ColumnMapping.ID:
            return odd
        expected = identities(snapshot.physical_schema)
        for file, url in files:
            self._check_time()
            leaves = self._connection.execute("SELECT name, field_id FROM parquet_schema($1)", [escape_glob(url)])
            if any(misnamed(name, identity, expected) for name, identity in leaves.fetchall()):
                odd.add(file.path)
        return odd

    def _fitting(self, part: RelationPart, form: _Form) -> RelationPart | None:
        """Return the part that reads some files as the table needs them; None if DuckDB may not convert their columns.

        None as well if a file has a column with a name that the view needs and that the table does not have.
        """
        kinds = self._columns(part, form.snapshot)
        if kinds is None:
            return None
        pairs = zip(form.schema, form.physical_schema, strict=True)
        stored = [theirs for ours, theirs in pairs if ours.name not in form.partition_columns]
        types = [(kinds[fold(field.name)], field.type) for field in stored if fold(field.name) in kinds]
        if part.reserved & kinds.keys() or not all(starmap(fits, types)):
            return None
        self.narrows = self.narrows or any(starmap(narrows, types))
        has_all = part.lacks or len(types) == len(stored)
        if part.unified is None or (has_all and all(starmap(holds, types))):
            return part
        return self._fitting(part.unified, form)

    def _columns(self, part: RelationPart, snapshot: Snapshot) -> Mapping[str, DuckType] | None:
        """Return the types of the columns that a part reads, by folded name.

        A file that this library wrote never changes, so its columns are cached.
        """
        files = part.files if part.compares else part.files[:1]
        if len(files) > _KNOWN_FILES_MAX or not all(is_own_name(file.path) for file in files):
            return self._columns_now(part)
        key = (number_of(self._store), *((snapshot.key(file), file.size) for file in files))
        columns = _KNOWN_COLUMNS.get(key)
        if columns is None:
            columns = self._columns_now(part)
            if columns is not None:
                said = orjson.dumps([key, [(name, told(kind)) for name, kind in columns.items()]])
                _KNOWN_COLUMNS.keep(key, columns, len(said))
        return columns

    def _columns_now(self, part: RelationPart) -> Mapping[str, DuckType] | None:
        columns = self._connection.columns(part.source)
        return None if columns is None else {fold(name): kind for name, kind in columns}

    def _copies(self, form: _Form, files: Sequence[AddFile], fields: Mapping[str, str] | None) -> list[RelationPart]:
        """Copy files, as the table needs them and without their deleted rows, and return the relation of the copies."""
        schema = pa.schema([field for field in form.shown if field.name not in form.partition_columns])
        copies, urls = [], []
        for file in files:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            url = str(self._folder / f"copy-{len(self.copies)}.parquet")
            try:
                with pq.ParquetWriter(url, schema, store_schema=False) as writer:
                    for batch in form.rows(self._store, file):
                        self._check_time()
                        writer.write_batch(batch)
            except OSError as error:
                msg = f"not enough disk space for a copy of data file {file.path}: {error.strerror}"
                raise Unavailable(msg) from error
            self.copies[url] = file.path
            values = form.logical(file)
            copies.append(replace(file, deletion_vector=None, stats=None, tags={}, partition_values=values))
            urls.append(url)
        kinds = FileKinds(form.shown, form.shown, form.partition_columns, copies)
        return relation_parts(form.shown, form.partition_columns, copies, urls, kinds, form.shown, fields=fields)


def _kept(snapshot: Snapshot, named: Collection[str] | None) -> Sequence[int]:
    """Return the places of the columns that a view needs, at least one.

    A view with one promoted field has all of them, and `properties`. A column with the name of DuckDB's number of a
    file is always kept, because it decides how files are read.
    """
    schema = snapshot.schema
    hiding = places_by_name(snapshot.physical_schema).get(FILE_NUMBER, ())
    kept = sorted({*places_of(schema, named), *hiding})
    if snapshot.promoted and named is not None:
        promoted = {PROPERTIES, *(field.column for field in snapshot.promoted)}
        if any(schema.field(at).name in promoted for at in kept):
            kept = sorted({*kept, *(at for name in promoted for at in schema.get_all_field_indices(name))})
    return kept or [0]


class _Form:
    """The columns of a view of a table's files: the `named` columns of the table, and the place of each row.

    The number of a file is the value of a column that it is partitioned by.
    """

    def __init__(
        self, snapshot: Snapshot, places: RowPlaces | None, *, as_stored: bool, named: Collection[str] | None
    ) -> None:
        self.snapshot = snapshot
        self._as_stored = as_stored
        self._places = places
        file = [] if places is None else [pa.field(places.file, pa.int32())]
        kept = _kept(snapshot, named)
        self.schema = pa.schema([*map(snapshot.schema.field, kept), *file])
        self.physical_schema = pa.schema([*map(snapshot.physical_schema.field, kept), *file])
        shown = set(self.schema.names)
        self.partition_columns = tuple(
            name for name in (*snapshot.partition_columns, *(field.name for field in file)) if name in shown
        )

    @property
    def shown(self) -> pa.Schema:
        """Return all columns, that of positions included."""
        return self.schema if self._places is None else self.schema.append(pa.field(self._places.position, pa.int64()))

    def numbered(self, files: Sequence[AddFile]) -> Sequence[AddFile]:
        """Return files with their numbers among them."""
        if self._places is None:
            return files
        name = self._places.file
        return [
            replace(file, partition_values={**file.partition_values, name: str(number)})
            for number, file in enumerate(files)
        ]

    def logical(self, file: AddFile) -> dict[str, str | None]:
        """Return a file's partition values by the names that the columns have in the table."""
        physical = {name: self.snapshot.physical_name(name) for name in self.snapshot.partition_columns}
        return {name: file.partition_values.get(physical.get(name, name)) for name in self.partition_columns}

    def rows(self, store: Store, file: AddFile) -> Iterator[pa.RecordBatch]:
        """Yield a file's live rows with the columns that stand in files, and their positions."""
        snapshot = self.snapshot
        schema = pa.schema([field for field in self.schema if field.name not in self.partition_columns])
        if self._places is None:
            for batch in read_file(snapshot, store, file, schema):
                rows = pa.Table.from_batches([batch])
                yield from moved(rows, snapshot.promoted).to_batches() if self._as_stored else [batch]
            return
        deleted, start = read_deletions(store, file, snapshot.locate), 0
        for batch in read_file(snapshot, store, replace(file, deletion_vector=None), schema):
            positions = pc.add(numbers(len(batch)), start)
            yield live_rows(batch.append_column(self._places.position, positions), deleted, start)
            start += len(batch)
