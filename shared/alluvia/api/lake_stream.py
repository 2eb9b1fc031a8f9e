"""The public API: streams, which follow versions, and tags of a lake, which name them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.api.lake_catalog import OfCatalog
from alluvia.clock import datetime_of
from alluvia.delta.arguments import check_names
from alluvia.errors import Invalid, TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import did_you_mean
from alluvia.operations.catalog.catalog import WritableCatalog

if TYPE_CHECKING:
    from alluvia.operations.references.tags import Tag
    from alluvia.operations.streams.streams import StreamState


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as it is. `position` is the version of its source up to which it was read, -1 for none.

    `versions_behind` are those that it has not given; it and `source_version` are None where the source is gone. From
    `stale_after` on, vacuum may take what it has not given: by then, read or move it. None while it has given all.
    """

    name: str
    source: str
    position: int
    source_version: int | None
    versions_behind: int | None
    initial_rows: bool
    appends_only: bool
    moved_at: datetime | None
    stale_after: datetime | None


class Stream:
    """A stream of a lake, or of a transaction, which moves it when it commits."""

    def __init__(self, catalog: WritableCatalog, name: str) -> None:
        self._catalog = catalog
        self.name = name

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"

    def info(self) -> StreamInfo:
        """Return what the stream follows, and how far it has come. Raises `TableNotFound`."""
        from alluvia.operations.streams.streams import the_stream

        return info_of(self._catalog, the_stream(self._catalog, self.name))

    def scan(
        self, columns: Sequence[str] | None = None, *, max_versions: int | None = None, max_rows: int | None = None
    ) -> pa.RecordBatchReader:
        """Read the changes that the stream has not given, as `changes` has them: with type, version and time.

        `max_versions` and `max_rows` limit how many there are; whole versions, and one at least, so one that adds more
        rows is read whole. In a transaction, the first call decides: later ones give the same changes. Raises
        `TableNotFound`, `VersionExpired` where retention has taken changes, `Invalid` where the source was replaced.
        """
        batch = self._catalog.read_stream(self.name, max_versions, max_rows)
        if columns is None:
            return batch.reader()
        check_names("columns", columns)
        names = list(columns)
        unknown = next((name for name in names if name not in batch.schema.names), None)
        if unknown is not None:
            raise Invalid(
                f"columns: stream {self.name} has no column {unknown!r}; "
                f"{did_you_mean(unknown, batch.schema.names) or 'it has ' + ', '.join(batch.schema.names)}"
            )
        schema = pa.schema([batch.schema.field(name) for name in names])

        def selected() -> Iterator[pa.RecordBatch]:
            for rows in batch.batches():
                yield rows.select(names)

        return pa.RecordBatchReader.from_batches(schema, selected())

    def to_arrow(
        self, columns: Sequence[str] | None = None, *, max_versions: int | None = None, max_rows: int | None = None
    ) -> pa.Table:
        """Read changes, as `scan` does, into memory."""
        return self.scan(columns, max_versions=max_versions, max_rows=max_rows).read_all()


class LakeStreams(OfCatalog):
    """Makes, lists, moves and drops the streams of a lake."""

    def create_stream(
        self,
        name: str,
        table: str,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        *,
        offset: str | int | None = None,
        initial_rows: bool = False,
        appends_only: bool = False,
        exist_ok: bool = False,
    ) -> Stream:
        """Create a stream: a position in the changes of a table, which moves with the commit that uses them.

        It begins with the changes after a version, a moment or how long ago that was; by default, after the newest
        version. With `initial_rows`, what is read first are the rows of the table. With `appends_only`, only rows that
        were appended are read. Raises `TableNotFound`, `TableExists` if the name is taken, `VersionNotFound` and
        `VersionExpired`.
        """
        from alluvia.delta.arguments import moment_ago
        from alluvia.operations.streams.streams import create_stream

        if offset is not None:
            if version is not None or timestamp is not None:
                raise Invalid("version, timestamp, offset: give one of them")
            timestamp = moment_ago(offset, self.catalog.clock)
        create_stream(
            self.catalog,
            name,
            table,
            version,
            timestamp,
            initial_rows=initial_rows,
            appends_only=appends_only,
            exist_ok=exist_ok,
        )
        return Stream(self.catalog, name)

    def stream(self, name: str) -> Stream:
        """Return a stream, without a request. Reading it here does not move it: that takes `lake.transaction()`."""
        return Stream(self.catalog, name)

    def streams(self) -> list[StreamInfo]:
        """Return all streams, how far each is behind its table, and until when the table surely keeps the rest."""
        from alluvia.operations.streams.streams import list_streams

        return [info_of(self.catalog, stream) for stream in list_streams(self.catalog)]

    def move_stream(self, name: str, version: int | None = None, timestamp: datetime | str | None = None) -> StreamInfo:
        """Have a stream go on with the changes after a version or a moment, by default the newest version.

        What lies in between is not read, or is read again. Raises `TableNotFound`, and `Conflict` after a lost race.
        """
        from alluvia.operations.streams.streams import move_stream

        return info_of(self.catalog, move_stream(self.catalog, name, version, timestamp))

    def drop_stream(self, name: str) -> None:
        """Drop a stream. Raises `TableNotFound`."""
        from alluvia.operations.streams.streams import drop_stream

        drop_stream(self.catalog, name)


class LakeTags(OfCatalog):
    """`tag`, `drop_tag` and `tags` of a lake."""

    def tag(
        self,
        name: str,
        timestamp: datetime | str | None = None,
        *,
        expires: str | timedelta | None = None,
        replace: bool = False,
    ) -> Tag:
        """Give all tables as they are at one moment, now by default, a name: they stay readable as they are then.

        Of a transaction over several tables, all or nothing is in it. Now costs one PUT, one GET and one HEAD however
        many tables there are, and on S3 a second. A time in the past is looked up in each table. `expires` and
        `replace` are those of `Table.tag`. Raises `Invalid`, and `VersionExpired`, naming a table.
        """
        from alluvia.operations.references import tags

        return tags.tag_lake(self.catalog, name, timestamp, expires=expires, replace=replace)

    def drop_tag(self, name: str) -> None:
        """Delete a tag of the lake. Raises `VersionNotFound` if there is none of that name."""
        from alluvia.operations.references import tags

        tags.drop_tag(self.catalog.store, None, name)

    def tags(self, *, tables: bool = False) -> list[Tag]:
        """Return the tags of the lake, with `tables` also those of its tables, in the order of their names."""
        from alluvia.operations.references import tags

        return tags.lake_tags(self.catalog, tables=tables)


def info_of(catalog: WritableCatalog, stream: StreamState) -> StreamInfo:
    """Return a stream with how far it is behind its source. Two requests where the source is warm."""
    from alluvia.operations.streams.streams import stale_after_ms

    version = behind = stale_ms = None
    with suppress(TableNotFound):  # it was dropped
        source = catalog.handle(stream.source)
        newest = source.newest()
        if newest.state.metadata.id == stream.source_id:
            version, behind = newest.version, max(0, newest.version - stream.position)
            stale_ms = stale_after_ms(stream, source, newest)
    return StreamInfo(
        stream.name,
        stream.source,
        stream.position,
        version,
        behind,
        stream.initial_rows,
        stream.appends_only,
        _moment(stream.moved_ms),
        _moment(stale_ms),
    )


def _moment(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime_of(at_ms)
