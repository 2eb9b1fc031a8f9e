"""Tags, as the public API has them: what a lake and a table have in common with nothing else."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from alluvia.api.lake_catalog import LakeCatalog
from alluvia.commit.handle import TableHandle
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid

if TYPE_CHECKING:
    from alluvia.operations.references.tags import Tag


class TableTags:
    """`tag`, `untag` and `tags` of a table."""

    _handle: TableHandle

    def _readable(self, version: int | None, timestamp: datetime | str | None, tag: str | None) -> Snapshot:
        """Return what a reader sees of the newest version, or of the one that is asked for."""
        readable = self._handle.readable
        return readable(version, timestamp) if tag is None else self._tagged(version, timestamp, tag)

    def _tagged(self, version: int | None, timestamp: datetime | str | None, tag: str) -> Snapshot:
        from alluvia.operations.references import tags

        if version is not None or timestamp is not None:
            raise Invalid("version, timestamp, tag: give one of them")
        return tags.tagged(self._handle, tag)

    def tag(
        self,
        name: str,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        *,
        expires: str | timedelta | None = None,
        replace: bool = False,
    ) -> Tag:
        """Give a version a name, the newest by default: it stays readable until `untag`, whatever vacuum takes.

        `expires` says how long it is kept, as in `30d` or `12 hours`. With `replace`, a tag of that name now means
        this version. Raises `VersionNotFound`, `VersionExpired`, and `Invalid` for a name that is taken.
        """
        from alluvia.operations.references import tags

        return tags.tag_table(self._handle, name, version, timestamp, expires=expires, replace=replace)

    def untag(self, name: str) -> None:
        """Delete a tag: vacuum may take its version. Raises `VersionNotFound` if there is none of that name."""
        from alluvia.operations.references import tags

        tags.untag(self._handle.store, self._handle.name, name)

    def tags(self) -> list[Tag]:
        """Return the table's own tags, in the order of their names. Those of the lake count for its tables as well."""
        from alluvia.operations.references import tags

        return tags.table_tags(self._handle)


class LakeTags(LakeCatalog):
    """`tag`, `untag` and `tags` of a lake."""

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

        return tags.tag_lake(self, name, timestamp, expires=expires, replace=replace)

    def untag(self, name: str) -> None:
        """Delete a tag of the lake. Raises `VersionNotFound` if there is none of that name."""
        from alluvia.operations.references import tags

        tags.untag(self.store, None, name)

    def tags(self, *, tables: bool = False) -> list[Tag]:
        """Return the tags of the lake, with `tables` also those of its tables, in the order of their names."""
        from alluvia.operations.references import tags

        return tags.lake_tags(self, tables=tables)
