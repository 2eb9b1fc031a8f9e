"""A query's call of a function about the lake, and the function that answers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field

import pyarrow as pa

from alluvia.delta.skipping.predicate import And, Comparison, In, Or, Predicate, Unknown
from alluvia.delta.skipping.verdicts import within
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog

Rows = Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked: `numbers` and `flags` are arguments by name, `where` prunes the files of the table.

    `predicate` is what the query's conditions need of the answer's rows, `columns` which of its columns the query
    names; None for any. `seen` are the columns of a table that the caller may see, `view_columns` those of a view, by
    its name; that raises what a query of it raises. `check_time` raises when the query's time is up.
    """

    catalog: Catalog
    table: Snapshot | None = None
    where: Predicate = field(default_factory=Unknown)
    numbers: Mapping[str, int] = field(default_factory=dict)
    flags: Mapping[str, bool] = field(default_factory=dict)
    predicate: Predicate = field(default_factory=Unknown)
    columns: frozenset[str] | None = None
    seen: Callable[[Snapshot], pa.Schema] = lambda snapshot: snapshot.schema
    view_columns: Callable[[str], pa.Schema] = lambda _: pa.schema([])
    check_time: Callable[[], None] = lambda: None

    @property
    def snapshot(self) -> Snapshot:
        """Return the version of the table that is asked about."""
        if self.table is None:
            raise ValueError("this function takes no table")
        return self.table

    def names(self, *columns: str) -> bool:
        """Whether the query may name one of some columns of the answer."""
        return self.columns is None or not self.columns.isdisjoint(columns)

    def number(self, name: str) -> int | None:
        """Return a number that was given; None for none. Raises `Invalid` if it is negative."""
        number = self.numbers.get(name)
        if number is not None and number < 0:
            raise Invalid(f"{name}: expected a whole number, 0 or more, got {number}")
        return number


def may_match(predicate: Predicate, column: str, value: object) -> bool:
    """Whether a row with a value in a column can be one that a predicate holds for, as far as it looks at that."""
    if isinstance(predicate, And):
        return all(may_match(child, column, value) for child in predicate.children)
    if isinstance(predicate, Or):
        return any(may_match(child, column, value) for child in predicate.children)
    if isinstance(predicate, Unknown) or predicate.column != (column,):
        return True
    if isinstance(predicate, In):
        return value in predicate.values
    return not isinstance(predicate, Comparison) or _compares(predicate, value)


def _compares(comparison: Comparison, value: object) -> bool:

    return within(comparison.op, comparison.value, value, value)


def batches_of(
    rows: Iterable[Mapping[str, object]], schema: pa.Schema, at_once: int = 8192
) -> Iterator[pa.RecordBatch]:
    """Yield rows as batches of a schema; columns that a row lacks are null."""
    waiting: list[Mapping[str, object]] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == at_once:
            yield pa.RecordBatch.from_pylist(waiting, schema)
            waiting = []
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, schema)
