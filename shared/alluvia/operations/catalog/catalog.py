"""Protocols of a lake's tables, for operations and queries: restricted to a caller or not, staged or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from alluvia.access.rights import Rights
from alluvia.clock import Clock
from alluvia.commit.handle import ReadableTable, TableHandle
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.request_batching import RequestGroups
from alluvia.operations.catalog.views import View
from alluvia.store import Store
from alluvia.table_names import REJECTS

if TYPE_CHECKING:
    from alluvia.operations.streams.stream_batches import StreamBatch
    from alluvia.operations.streams.streams import StreamState


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that is to be created: its columns, how its rows are divided into files and sorted, and its properties.

    Fields of the schema may have a `comment` in their metadata. `partition_by` has columns, or transforms of them such
    as `day(ts)`. Either `sort_by` or `cluster_by` orders rows.
    """

    schema: pa.Schema
    partition_by: Sequence[str] = ()
    sort_by: Sequence[str] = ()
    properties: Mapping[str, str] | None = None
    cluster_by: Sequence[str] = ()
    comment: str | None = None


class Catalog(Protocol):
    """Finds the tables, views and streams below one place by name. Nothing is inherited, so that each implementation
    says for each method what its caller may do.
    """

    @property
    def store(self) -> Store:
        """The store of the place."""

    @property
    def clock(self) -> Clock:
        """The clock of whatever is done to its tables."""

    @property
    def rights(self) -> Rights | None:
        """What the caller may do; None: everything."""

    @property
    def origin(self) -> str:
        """The id of the branch that the tables are on; empty for the lake itself."""

    @property
    def moves_streams(self) -> bool:
        """Whether what is read of a stream counts as read from then on."""

    def __contains__(self, name: object) -> bool: ...

    def handle(self, name: str) -> ReadableTable:
        """Return a table to be read, without a request. Raises `Invalid` for what cannot be a table's name."""

    def readable(self, names: Iterable[str]) -> dict[str, Snapshot]:
        """Return the tables of some names as they are at one moment, with what has been committed to all of them.

        Missing ones are left out.
        """

    def tables(self, *, rejects: bool = False, dropped: bool = False) -> list[str]:
        """Return the names of the tables, in order, those of rejected events and of dropped tables if asked for."""

    def find_view(self, name: str) -> View | None:
        """Return a view; None if there is none of that name."""

    def note_read(self, scan: Scan) -> None:
        """Take note of what a query reads of a table, where a transaction needs to know."""

    def find_stream(self, name: str) -> StreamState | None:
        """Return a stream; None if there is none of that name."""

    def read_stream(self, name: str, max_versions: int | None = None, max_rows: int | None = None) -> StreamBatch:
        """Return what a stream has not given yet. Raises what `streams.next_batch` does."""


class WritableCatalog(Catalog, Protocol):
    """The same, where tables can be created, and streams, rejects and transactions are at home."""

    @property
    def ingestion(self) -> RequestGroups[Any, Any]:
        """The groups in which requests of several threads ingest."""

    def handle(self, name: str) -> TableHandle:
        """Return a table to be read and changed, without a request. Raises `Invalid` as `Catalog.handle` does."""

    def log_handle(self, name: str) -> TableHandle:
        """Return the handle of a table or of a stream's log, as transactions name them. Raises `Invalid`."""

    def create(self, name: str, new: NewTable, *, exist_ok: bool, replace: bool = False) -> TableHandle:
        """Create a table, in one commit; or put it in the place of one, in a transaction.

        Raises `TableExists` or `Invalid`.
        """


def shows_comments(catalog: Catalog, name: str) -> bool:
    """Whether the comments of a table or a view and of its columns are shown to a catalog's caller.

    One that may read it only in part sees none: they may mention hidden rows and columns.
    """
    return catalog.rights is None or not catalog.rights.restriction(name)


def rejects_handle(catalog: WritableCatalog, name: str) -> TableHandle | None:
    """Return the handle of a table's rejected events, without a request; None for a table of rejected events."""
    return None if name.endswith(f"/{REJECTS}") else catalog.handle(f"{name}/{REJECTS}")


def check_whole_lake(store: Store, what: str) -> None:
    """Raise `Invalid` on a branch, for an operation on a lake as a whole."""
    if store.is_branch:
        raise Invalid(f"{what} concerns the lake and all its branches: do it on the lake itself")
