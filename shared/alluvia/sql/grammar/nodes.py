"""What statements say, once they are read. Pure.

`Sql` is a piece of the text that DuckDB reads: a SELECT, a condition or a value. Names of tables are the lake's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import pyarrow as pa

from alluvia.lazy_dataclasses import dataclass
from alluvia.sql.grammar.cursor import Sql, holds_query

Assignments = tuple[tuple[str, Sql], ...]


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT INTO. `columns` is None where all are meant, `source` None for DEFAULT VALUES."""

    table: str
    columns: tuple[str, ...] | None
    source: Sql | None
    is_values: bool


@dataclass(frozen=True, slots=True)
class Update:
    """UPDATE … SET. Without `where`, all rows are meant."""

    table: str
    alias: str
    assignments: Assignments
    where: Sql | None


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE FROM, or TRUNCATE."""

    table: str
    alias: str
    where: Sql | None


@dataclass(frozen=True, slots=True)
class WhenClause:
    """A WHEN clause: `when` is `matched`, `unmatched` or `unmatched by source`, `action` the first word after THEN.

    `assignments` is None for `*`; INSERT has its columns there, too. `values` are those of an INSERT without columns,
    in the order of the table's columns; none for DEFAULT VALUES.
    """

    when: str
    condition: Sql | None
    action: str
    assignments: Assignments | None = None
    values: tuple[Sql, ...] | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """MERGE INTO. `source` is what stands after USING, without its alias."""

    table: str
    alias: str
    source: Sql
    source_alias: str
    on: Sql
    clauses: tuple[WhenClause, ...]


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE, with a query for CREATE TABLE … AS, whose columns `names` may rename.

    `columns` have comments as the metadata of their fields. `or_replace` replaces a table of that name.
    """

    table: str
    if_not_exists: bool
    columns: pa.Schema | None = None
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    query: Sql | None = None
    or_replace: bool = False
    names: tuple[str, ...] = ()
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class AlterTable:
    """ALTER TABLE: columns to add, rename and drop, properties to set (None removes one), and constraints, by name.

    `if_exists` is of what is dropped or unset. `force`: also where SQL of the lake would fail or mean something else.
    """

    table: str
    add: pa.Schema | None = None
    if_not_exists: bool = False
    properties: Mapping[str, str | None] = field(default_factory=dict)
    constraint: tuple[str, Sql | None] | None = None
    if_exists: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    force: bool = False


@dataclass(frozen=True, slots=True)
class DropTable:
    """DROP TABLE."""

    table: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Attach:
    """ATTACH, and CREATE TABLE … USING DELTA LOCATION; DETACH without a `uri`. `lenient` is IF [NOT] EXISTS."""

    table: str
    uri: str | None
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class External:
    """CREATE EXTERNAL TABLE; REFRESH TABLE without a `location`."""

    table: str
    location: str | None = None
    kind: str | None = None
    columns: pa.Schema | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class Clone:
    """CREATE TABLE … SHALLOW CLONE, or DEEP CLONE, which copies the files: of the newest version or another."""

    table: str
    source: str
    deep: bool
    if_not_exists: bool = False
    version: int | None = None
    timestamp: str | None = None
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Maintain:
    """OPTIMIZE, VACUUM, UNDROP: `action` says which. `version` is UNDROP's; `hours` what VACUUM retains.

    `full` and `backfill` are OPTIMIZE's.
    """

    action: str
    table: str
    full: bool = False
    hours: int | None = None
    dry_run: bool = False
    version: int | None = None
    backfill: bool = False


@dataclass(frozen=True, slots=True)
class Restore:
    """RESTORE TABLE … TO VERSION, TIMESTAMP, OFFSET or TAG."""

    table: str
    version: int | None
    timestamp: str | None
    offset: str | None = None
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class RestoreLake:
    """RESTORE LAKE TO TIMESTAMP, OFFSET or TAG."""

    timestamp: str | None = None
    offset: str | None = None
    tag: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class CreateStream:
    """CREATE STREAM: at most one of `version`, `timestamp` and `offset` says after what it begins."""

    name: str
    source: str
    if_not_exists: bool = False
    version: int | None = None
    timestamp: str | None = None
    offset: str | None = None
    initial_rows: bool = False
    appends_only: bool = False


@dataclass(frozen=True, slots=True)
class DropStream:
    """DROP STREAM."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateTag:
    """CREATE TAG: of a version of a table, or without one of all of the lake. `retain` says how long it is kept."""

    name: str
    table: str | None
    version: int | None
    timestamp: str | None
    retain: str | None
    or_replace: bool


@dataclass(frozen=True, slots=True)
class DropTag:
    """DROP TAG."""

    name: str
    table: str | None
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateBranch:
    """CREATE BRANCH: at most one of `timestamp`, `offset` and `tag` says with what it begins."""

    name: str
    if_not_exists: bool = False
    timestamp: str | None = None
    offset: str | None = None
    tag: str | None = None
    retain: str | None = None


@dataclass(frozen=True, slots=True)
class DropBranch:
    """DROP BRANCH."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class PublishBranch:
    """PUBLISH BRANCH, or MERGE BRANCH … INTO main."""

    name: str
    isolation: str
    dry_run: bool


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """CREATE SCHEMA."""

    name: str
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropSchema:
    """DROP SCHEMA."""

    name: str
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE VIEW."""

    name: str
    query: Sql
    or_replace: bool
    if_not_exists: bool
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class DropView:
    """DROP VIEW."""

    name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Comment:
    """COMMENT ON: `kind` is `table`, `view` or `column`, of a table or of a view. Without `text`, it is removed."""

    kind: str
    name: str
    text: str | None
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW SCHEMAS, TABLES FROM, VIEWS, STREAMS and CREATE TABLE, DESCRIBE DETAIL and HISTORY: `what` says which.

    `name` is a table's or a view's, or the schema's of SHOW TABLES FROM.
    """

    what: str
    name: str = ""
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Control:
    """BEGIN, COMMIT or ROLLBACK: `action` is `begin`, `commit` or `rollback`."""

    action: str
    isolation: str = "serializable"


@dataclass(frozen=True, slots=True)
class Query:
    """A statement that DuckDB runs as it stands."""

    text: Sql


Node = (
    Insert | Update | Delete | Merge | CreateTable | AlterTable | DropTable | Attach | External | Clone | Maintain
    | Restore | CreateView | DropView | CreateStream | DropStream | CreateTag | DropTag | CreateBranch | DropBranch
    | PublishBranch | CreateSchema | DropSchema | RestoreLake | Comment | Show | Control | Query
)  # fmt: skip


def reads_more(node: Update | Delete | WhenClause) -> bool:
    """Whether a condition or a value has a subquery."""
    condition = node.condition if isinstance(node, WhenClause) else node.where
    values = [] if isinstance(node, Delete) else [value for _, value in node.assignments or ()]
    values += (isinstance(node, WhenClause) and node.values) or ()
    return any(map(holds_query, values if condition is None else [*values, condition]))
