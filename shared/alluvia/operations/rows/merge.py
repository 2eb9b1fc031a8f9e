"""MERGE as one edit: rows of a table pair with rows of a source, and the first clause that applies says what follows.

Upsert, MERGE INTO, and UPDATE and DELETE with subqueries are such edits. They differ in their clauses, and in what
pairs the rows: keys in memory (`keyed_merge.py`), or a query (`located_merge.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.promoted_fields import columns_settled, settled
from alluvia.delta.schema.caller_rows import conform
from alluvia.delta.schema.names import fold
from alluvia.delta.schema.types import type_name
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.condition import expression_of
from alluvia.engine.conditions.pairs import Columns, Pairs, PairTest, PairValues, Rows, Side
from alluvia.engine.duck.literals import quote_name
from alluvia.engine.queries.parse import Node
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.reading.datafile import DataFile
from alluvia.operations.rows.edits import Edit, Hits, interleaved, moves_rows

MATCHED, UNMATCHED, BY_SOURCE = "matched", "unmatched", "unmatched by source"
CLAUSE = pa.int16()
"""The type of clauses' numbers."""
VERDICTS = {"update": True, "delete": False}


@dataclass(frozen=True, slots=True)
class MergeClause:
    """A WHEN clause: `action` is `update`, `delete`, `insert` or `nothing`.

    `values` has an expression for each column that is set. The `copied` columns get instead what the source's of the
    same names have, whose types are the table's. With neither, all that the source has are set, as `*` does.
    """

    when: str
    action: str
    condition: str | None = None
    values: Mapping[str, str] | None = None
    copied: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class MergeRules:
    """A merge: the names of the table and the source in its expressions, ON, and its clauses, in order.

    Without an `alias`, expressions have the table's columns by their own names, and the source's only as
    `source_alias.column`.
    """

    alias: str
    source_alias: str
    on: str
    clauses: Sequence[MergeClause]

    def sides(self, schema: pa.Schema, source: pa.Schema) -> tuple[Side, Side]:
        """Return what expressions can name of the table and of the source."""
        return Side(self.alias, schema), Side(self.source_alias, source)


class CopiedValues:
    """Values of columns that are those of the source's columns with the same names, which have the table's types."""

    def __init__(self, names: Sequence[str], source: Side) -> None:
        self.names: Columns = tuple(names)
        self.used: Mapping[str, Columns] = {source.alias: self.names}
        self._alias = source.alias

    def compute(self, rows: Rows, count: int) -> pa.Table:  # noqa: ARG002
        """Return the values for some pairs."""
        return rows[self._alias].select(self.names)


class ReadClause:
    """A clause, read for the columns of a table and a source."""

    def __init__(self, clause: MergeClause, pairs: Pairs, table: Side, source: Side) -> None:
        self.when = clause.when
        self.action = clause.action
        self.test = None if clause.condition is None else PairTest(clause.condition, pairs)
        self.values: PairValues | CopiedValues | None = None
        if clause.action in ("update", "insert"):
            if clause.copied is not None:
                self.values = CopiedValues(clause.copied, source)
            else:
                given = _of_source(table.schema, source) if clause.values is None else clause.values
                self.values = PairValues(given, pairs, table.schema)

    @property
    def columns(self) -> Columns:
        """Return the columns that it sets."""
        return () if self.values is None else self.values.names

    def used(self, alias: str) -> set[str]:
        """Return the columns of a side that it looks at."""
        parts = [part.used for part in (self.test, self.values) if part is not None]
        return {name for used in parts for name in used.get(alias, ())}


def read_clauses(rules: MergeRules, schema: pa.Schema, source: pa.Schema) -> list[ReadClause]:
    """Read the clauses of a merge, in order. Raises `Invalid`."""
    table, given = rules.sides(schema, source)
    bare: dict[str, Sequence[Side]] = {} if rules.alias else {MATCHED: [table], BY_SOURCE: [table], UNMATCHED: []}
    sides = {MATCHED: [table, given], BY_SOURCE: [table], UNMATCHED: [given]}
    pairs = {when: Pairs(shown, bare.get(when)) for when, shown in sides.items()}
    return [ReadClause(each, pairs[each.when], table, given) for each in rules.clauses]


def _of_source(schema: pa.Schema, source: Side) -> dict[str, str]:
    """Return what `*` means: each column of the source for that of its name."""
    known = {fold(name): name for name in schema.names}
    columns = {}
    for name in source.schema.names:
        if fold(name) not in known:
            raise Invalid(f"column {name} of the source is not in the table: name the columns, or add it to the table")
        columns[known[fold(name)]] = f"{quote_name(source.alias)}.{quote_name(name)}"
    return columns


@dataclass(frozen=True, slots=True)
class MergeKeys:
    """The columns of the table that ON equates, with those of the source; `alone` if ON says nothing else."""

    columns: Mapping[str, str]
    alone: bool


def keys_of(rules: MergeRules, schema: pa.Schema, source: pa.Schema) -> MergeKeys:
    """Return the keys of a merge, none if ON equates no columns. Raises `Invalid` for columns that cannot be equal."""
    table, given = rules.sides(schema, source)
    keys = _equated(rules.on, Pairs([table, given]), table, given)
    key_rows(source.empty_table(), keys.columns, schema)
    return keys


def key_rows(source: pa.Table, keys: Mapping[str, str], schema: pa.Schema) -> pa.Table:
    """Return the keys of a source's rows, as the table's columns are. Raises `Invalid`, naming the column."""
    for name in keys:
        if pa.types.is_nested(schema.field(name).type):
            raise Invalid(f"ON: {name} is {type_name(schema.field(name).type)}, which cannot be compared")
    given = pa.Table.from_arrays([source[theirs] for theirs in keys.values()], names=list(keys))
    return conform(given, pa.schema([schema.field(name).with_nullable(True) for name in keys]))


def _equated(text: str, pairs: Pairs, table: Side, source: Side) -> MergeKeys:
    try:
        expression = expression_of(text)
    except Invalid as error:
        raise Invalid(f"ON: {error}") from error
    parts: list[Node] = expression["children"] if expression["type"] == "CONJUNCTION_AND" else [expression]
    source_columns: dict[str, str] = {}
    others = 0
    for part in parts:
        sides = [part[side] for side in ("left", "right")] if part["type"] == "COMPARE_EQUAL" else []
        names = [pairs.resolve(side["column_names"]) for side in sides if side["class"] == "COLUMN_REF"]
        columns = {name[0].alias: name[1] for name in names if name is not None}
        if len(columns) < 2 or columns[table.alias] in source_columns:
            others += 1
            continue
        source_columns[columns[table.alias]] = columns[source.alias]
    return MergeKeys(source_columns, alone=not others)


class Clause(Protocol):
    """A clause as an edit sees it: its action, and the columns that it sets."""

    @property
    def action(self) -> str:
        """Return `update`, `delete`, `insert` or `nothing`."""

    @property
    def columns(self) -> Sequence[str]:
        """Return the names of the columns that get values."""


@dataclass(frozen=True, slots=True)
class FilePairs:
    """The rows of a file that pair: `mask` has a value for each row of the file, the others one for each that pairs.

    `clauses` are the numbers of the clauses that apply, null where none does; `sources` those of the source's rows.
    """

    mask: pa.BooleanArray
    clauses: pa.Array
    sources: pa.Int64Array


class MergeEdit(Edit):
    """Each row of the table that pairs gets what its clause says. Subclasses pair the rows, and compute values."""

    operation = "MERGE"

    def __init__(self, snapshot: Snapshot, clauses: Sequence[Clause]) -> None:
        self._schema = snapshot.schema
        self._clauses = clauses
        self._promoted = snapshot.promoted
        updated = {
            name
            for clause in clauses
            if clause.action == "update"
            for name in columns_settled(clause.columns, self._promoted)
        }
        self.columns_set = [name for name in snapshot.schema.names if name in updated]
        self.in_place = not moves_rows(snapshot, self.columns_set)
        self._updated = pa.array([VERDICTS.get(clause.action) for clause in clauses], pa.bool_())

    @abstractmethod
    def pairs(self, data: DataFile) -> FilePairs:
        """Return the rows of a file that pair, of those that are not deleted yet."""

    @abstractmethod
    def values(self, clause: int, rows: pa.Table, sources: pa.Int64Array) -> pa.Table:
        """Return the new values of a clause's columns, for rows of a file and the source's rows that they pair with."""

    def _settled(self, old: pa.Table, values: pa.Table) -> pa.Table:
        """Return new values of some columns of rows, with those of others that follow from promoted fields."""
        names = columns_settled(values.column_names, self._promoted)
        if not self._promoted:
            return values
        for name in values.column_names:
            at = old.schema.get_field_index(name)
            old = old.set_column(at, old.schema.field(at), values[name])
        return settled(old, values.column_names, self._promoted).select(names)

    def find(self, data: DataFile) -> Hits | None:
        pairs = self.pairs(data)
        if not len(pairs.clauses):
            return None
        return Hits(pairs.mask, self._updated.take(pairs.clauses), pairs.sources, pairs.clauses)

    def renew(self, rows: pa.Table, hits: Hits) -> pa.Table:
        assert hits.clauses is not None  # noqa: S101 - `find` has given them
        assert hits.sources is not None  # noqa: S101
        for number, clause in enumerate(self._clauses):
            here = pc.equal(hits.clauses, pa.scalar(number, CLAUSE))
            if clause.action == "update" and here.true_count:
                old = rows.filter(here)
                values = self.values(number, old, hits.sources.filter(here))
                rows = interleaved(rows, here, self._settled(old, values))
        return rows
