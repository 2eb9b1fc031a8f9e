"""What statements run on, a lake or a transaction over its tables, and which rights they need.

What queries read is checked where their tables are resolved (`query.permitted`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alluvia.access.rights import ADMIN, APPEND, READ, WRITE, Rights
from alluvia.commit.versions import version_with
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.relation import RowPlaces
from alluvia.errors import TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.query.engine import Result, run
from alluvia.query.limits import QueryLimits
from alluvia.query.parameters import Values
from alluvia.query.permitted import permitted
from alluvia.sql.binding import bound, expression
from alluvia.sql.grammar import nodes
from alluvia.sql.grammar.cursor import Sql

if TYPE_CHECKING:
    from alluvia.api.lake import Lake
    from alluvia.api.lake_transaction import LakeTransaction
    from alluvia.api.table_rows import TableRows


def check_statement(rights: Rights, kind: str, node: nodes.Node) -> None:
    """Raise `Forbidden`, naming the scope that is missing, for a statement of some kind that is not granted.

    What changes rows, or tells of them otherwise than as rows, needs a table that may be read in full: its conditions,
    counts and errors would tell of rows and columns that may not be read.
    """
    if isinstance(node, nodes.Query | nodes.Control | nodes.RestoreLake):
        return  # which asks about each table that it finds
    if isinstance(node, nodes.CreateBranch | nodes.DropBranch | nodes.PublishBranch) or (
        isinstance(node, nodes.CreateTag | nodes.DropTag) and node.table is None
    ):
        rights.check_all(ADMIN, kind.upper())
        return
    if isinstance(node, nodes.CreateSchema | nodes.DropSchema):
        rights.check_schema(ADMIN, node.name)
        return
    if isinstance(node, nodes.Insert):
        rights.check(APPEND, node.table)
        return
    if isinstance(node, nodes.CreateStream):
        rights.check(READ, node.source)
        rights.check_sees_all(kind.upper(), (node.source,))
    named = nodes.CreateView | nodes.DropView | nodes.CreateStream | nodes.DropStream | nodes.Comment | nodes.Show
    name = node.name if isinstance(node, named) else node.table
    assert name is not None  # noqa: S101 - what concerns the whole lake is above
    if isinstance(node, nodes.Show):
        if not name or node.what == "show tables":
            return  # it shows what may be read
        rights.check(READ, name)
    elif isinstance(node, nodes.Update | nodes.Delete | nodes.Merge):
        rights.check(WRITE, name)
        rights.check(READ, name)
    else:
        rights.check(ADMIN, name)
        if isinstance(node, nodes.Clone):
            rights.check(READ, node.source)
            rights.check_sees_all(kind.upper(), (node.source,))
    rights.check_sees_all(kind.upper(), (name,))


Done = dict[str, Any]
"""What a statement did, by the names of the columns that say so."""


@dataclass(frozen=True, slots=True)
class SqlScope:
    """Where statements run, with the parameters' values, the limits of each query and the rights of the caller."""

    lake: Lake
    transaction: LakeTransaction | None = None
    values: Values = field(default_factory=dict)
    limits: QueryLimits | None = None
    rights: Rights | None = None

    @property
    def catalog(self) -> WritableCatalog:
        """Return the tables as they are seen here."""
        return self.creator.catalog

    @property
    def creator(self) -> Lake | LakeTransaction:
        """Return what creates and drops tables here."""
        return self.transaction or self.lake

    @property
    def memory_bytes(self) -> int | None:
        """Return how much memory the rows of a query may take here."""
        return None if self.limits is None else self.limits.memory_bytes

    def table(self, name: str) -> TableRows:
        """Return a table to change."""
        return self.creator.table(name)

    def newest(self, name: str) -> Snapshot:
        """Return a table as it is now, without noting that its rows were read. Raises `TableNotFound`."""
        return self.catalog.handle(name).newest()

    def has(self, name: str) -> bool:
        """Whether there is a table of that name here."""
        try:
            self.newest(name)
        except TableNotFound:
            return False
        return True

    def columns(self, name: str, wanted: Iterable[str] = ()) -> pa.Schema:
        """Return a table's columns, without a request if they are known and have those that are wanted."""
        return version_with(self.catalog.handle(name), wanted).schema

    def query(self, sql: Sql) -> Result:
        """Run a SELECT."""
        return run(permitted(self.catalog, self.rights), sql.text, self.limits, bound(sql, self.values))

    def located(self, text: str, places: RowPlaces) -> Result:
        """Run a SELECT of our own making, over a table named first that also says where its rows are."""
        return run(permitted(self.catalog, self.rights), text, self.limits, places=places)

    def expression(self, sql: Sql, alias: str = "", columns: Sequence[str] = ()) -> str:
        """Return a condition or a value as the operations on tables take it."""
        return expression(sql, self.values, alias, columns)


def row(done: Done) -> pa.Table:
    """Return what a statement did as a table of one row."""
    columns = {
        name: pa.array([value], pa.int64() if not isinstance(value, str) else pa.string())
        for name, value in done.items()
    }
    return pa.table(columns)
