"""Whether a merge query may be run over some of a table's rows, at any time, without changing what it gives over all.

For a query q and any rows A and B: q(q(A)) = q(A) and q(q(A) with B) = q(A with B), in whatever order the rows come. It
is run on samples, since no reading of SQL could tell: on random rows, and on some that the table has. DuckDB does it in
a shut database of its own, in memory and in one thread, so that it takes rows in the order of the sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache
from threading import Timer

import pyarrow as pa

from alluvia.delta.log.actions import Metadata
from alluvia.delta.properties import APPEND_ONLY, CHANGE_DATA_FEED, MERGE_QUERY, TTL, is_derived, read_properties
from alluvia.delta.schema.names import fold
from alluvia.delta.schema.serialization import arrow_schema
from alluvia.delta.variant_properties import other_variants
from alluvia.engine.duck.arrow_values import result_of
from alluvia.engine.duck.database import confine, connect
from alluvia.engine.duck.failures import Context, details_of, translate
from alluvia.engine.duck.literals import quote_name
from alluvia.engine.duck.native import duckdb
from alluvia.engine.queries.merge_query import MergeQuery, read_merge_query
from alluvia.engine.queries.parse import walk
from alluvia.engine.queries.shown_names import VIEW_SCHEMA
from alluvia.errors import Invalid, cut
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.merge_query.fold_samples import Samples
from alluvia.operations.planning.layout import row_check, time_column

SMALL, LARGE = (2, 3, 4, 6), (120,) * 16
"""The numbers of rows of random samples: few for those that fail at once, then enough for many groups."""
OWN_TRIALS, OWN_ROWS = 10, 60
SECONDS_MAX = 20.0
_OPTIONS = {"threads": "1", "temp_directory": "", "memory_limit": "256MB"}
_SHOWN_MAX = 400
_FORBIDDEN = {
    APPEND_ONLY: "merges take rows away",
    CHANGE_DATA_FEED: "merges write no change files, and changes() works without them",
}
_AVERAGES = frozenset({"avg", "favg", "mean", "median", "quantile_cont", "quantile_disc", "stddev", "variance"})
_COUNTS = frozenset({"count", "count_star", "count_if", "countif"})
_SUMS = frozenset({"fsum", "kahan_sum", "sum", "sumkahan"})
_CHOICES = frozenset({"arg_max", "argmax", "max_by", "arg_min", "argmin", "min_by", "arg_max_null", "arg_min_null"})


def check_merge_query(metadata: Metadata, own: pa.Table | None = None) -> None:
    """Raise `Invalid`, with the reason and what to write instead, for a merge query that a table cannot have.

    `own` are some rows of the table, with its columns.
    """
    for name, why in _FORBIDDEN.items():
        if metadata.configuration.get(name, "").lower() == "true":
            raise _invalid(f"not possible with {name}: {why}")
    if is_derived(metadata.configuration):
        raise _invalid("a table that follows from others cannot have one: only its refresh, or its pipeline, writes it")
    if other_variants(metadata.schema_string):
        raise _invalid("not possible with a column of the type variant besides properties")
    if own is None:
        _check_random(metadata.schema_string, metadata.partition_columns, tuple(sorted(metadata.configuration.items())))
    else:
        _check(metadata, own)


@lru_cache(maxsize=64)
def _check_random(schema: str, partition_columns: tuple[str, ...], configuration: tuple[tuple[str, str], ...]) -> None:
    """Check a table that has no rows: once for all that are alike, since the samples are the same each time."""
    _check(Metadata("", schema, partition_columns, dict(configuration)), None)


def _check(metadata: Metadata, own: pa.Table | None) -> None:
    text = read_properties(metadata.configuration).merge_query
    laws = _Laws(read_merge_query(text), metadata)
    timer = Timer(SECONDS_MAX, laws.connection.interrupt)
    with closing(laws.connection):
        timer.start()
        try:
            laws.check_columns()
            laws.check_samples(own)
        except duckdb.InterruptException:
            raise _invalid(f"it takes longer than {SECONDS_MAX:g} seconds over a few rows: simplify it") from None
        except duckdb.Error as error:
            raise _invalid(f"it fails on sample rows: {translate(details_of(error), Context(text))}") from None
        finally:
            timer.cancel()


@dataclass(frozen=True, slots=True)
class _Law:
    """Two relations that must have the same rows; `when` says how the other one comes about, of the same `rows`."""

    rows: str
    one: str
    other: str
    reason: str
    when: str


_MERGED = "its result depends on what was merged before"
_ORDER = _Law(
    "every", "folded_every", "folded_backwards", "its result depends on the order of rows", "in another order"
)
_LAWS = (
    _ORDER,
    _Law("a", "merged", "folded_twice", _MERGED, "when it runs over its own result"),
    _Law("every", "folded_every", "folded_partly", _MERGED, "when the first {} were merged before the other {} came"),
)


class _Laws:
    """Runs one query over samples: `a` are rows that are merged first, `b` the others, `backwards` all reversed."""

    def __init__(self, query: MergeQuery, metadata: Metadata) -> None:
        settings = read_properties(metadata.configuration)
        self.connection = connect(_OPTIONS)
        self._query = query
        self._schema = arrow_schema(metadata.schema_string)
        self._fixed = metadata.partition_columns
        self._read: dict[str, list[str]] = {}
        self._constraints = row_check(settings.constraints, self._schema)
        self._expires = time_column(settings, self._schema, metadata.partition_columns) if settings.ttl_ms else None
        self.connection.execute(f"CREATE SCHEMA {VIEW_SCHEMA}")
        confine(self.connection)
        for name in ("a", "b", "backwards"):
            self._put(name, self._schema.empty_table())

    def check_columns(self) -> None:
        """Raise `Invalid`, naming the difference, unless the query gives the table's columns in their types."""
        given, wanted = self._types(self._query.over("a")), self._types(f"FROM {_at('a')}")
        for name in wanted:
            if name not in given:
                raise _invalid(f"it does not give the table's column {name}: select it, under that name")
        for name, kind in given.items():
            if name not in wanted:
                raise _invalid(f"it gives {name}, which is not a column of the table: leave it out, or name it with AS")
            if kind != wanted[name] and not _is_sum(kind, self._schema.field(name).type):
                raise _invalid(f"it gives {name} as {kind}, but the column is {wanted[name]}: cast it")

    def check_samples(self, own: pa.Table | None) -> None:
        """Raise `Invalid`, with an example, where merging some rows first changes the result."""
        self._view("every", f"FROM {_at('a')} UNION ALL FROM {_at('b')}")
        self._view("merged", self._query.folded("a", self._schema))
        self._view("partly", f"FROM {_at('merged')} UNION ALL FROM {_at('b')}")
        for name in ("every", "backwards", "partly"):
            self._view(f"folded_{name}", self._query.folded(name, self._schema))
        self._view("folded_twice", self._query.folded("merged", self._schema))
        samples = Samples(self._schema, self._query.root, self._query.keys(self._schema), own)
        for count in (*SMALL, *LARGE):
            self._try(samples.rows((count + 1) // 2, self._fixed), samples.rows(count // 2))
        for _ in range(OWN_TRIALS):
            rows = samples.own_rows(OWN_ROWS)
            first = 1 if self._fixed else len(rows) // 2 + 1
            self._try(rows.slice(0, first), rows.slice(first))

    def _try(self, a: pa.Table, b: pa.Table) -> None:
        a, b = self._allowed(a), self._allowed(b)
        if not len(a):
            return
        self._put_all(a, b)
        for law in _LAWS:
            if self._breaks(law):
                raise self._refused(law, *self._shrunk(law, a, b))
        self._check_partition()
        self._check_rows()
        self._check_expiry(a)

    def _put_all(self, a: pa.Table, b: pa.Table) -> None:
        every = pa.concat_tables([a, b])
        backwards = every.take(pa.array(range(len(every) - 1, -1, -1), pa.int64()))
        for name, rows in (("a", a), ("b", b), ("backwards", backwards)):
            self._put(name, rows)

    def _breaks(self, law: _Law) -> bool:
        return sorted(self._texts(law.one)) != sorted(self._texts(law.other))

    def _shrunk(self, law: _Law, a: pa.Table, b: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return as few of the rows as still break a law, for an example that a person can follow."""
        size = max(len(a), len(b))
        while size:
            before = len(a) + len(b)
            for at in range(0, max(len(a), len(b)), size):
                for fewer in ((_without(a, at, size), b), (a, _without(b, at, size))):
                    if len(fewer[0]) and len(fewer[0]) + len(fewer[1]) < len(a) + len(b):
                        self._put_all(*fewer)
                        a, b = fewer if self._breaks(law) else (a, b)
            size = size // 2 if len(a) + len(b) == before else size
        self._put_all(a, b)
        return a, b

    def _allowed(self, rows: pa.Table) -> pa.Table:
        """Return the rows that the table's constraints allow."""
        if self._constraints is None:
            return rows
        broken = self._constraints.broken(rows)
        return rows.take(pa.array([at for at in range(len(rows)) if at not in broken], pa.int64()))

    def _check_partition(self) -> None:
        for column in self._fixed:
            name = quote_name(column)
            moved = f"SELECT {name} FROM {_at('merged')} EXCEPT SELECT {name} FROM {_at('a')}"  # noqa: S608
            if self.connection.execute(moved).fetchall():
                raise _invalid(f"it changes {column}, by which the table is partitioned: group by it, and select it")

    def _check_rows(self) -> None:
        if self._constraints is None and all(field.nullable for field in self._schema):
            return
        rows = result_of(self.connection, f"FROM {_at('folded_every')}").to_arrow_table()
        for field in self._schema:
            if not field.nullable and rows[field.name].null_count:
                raise _invalid(f"it can give a null in {field.name}, which must not be null")
        if self._constraints is not None:
            try:
                self._constraints(rows.cast(pa.schema([field.with_nullable(True) for field in self._schema])))
            except Invalid as error:
                raise _invalid(f"rows that it gives can break a constraint: {error}") from error

    def _check_expiry(self, a: pa.Table) -> None:
        """Rows that expire must be the same, whether they were folded before or not."""
        if self._expires is None:
            return
        column = quote_name(self._expires)
        self._put("cut", a.select([self._expires]).slice(0, 1))
        young = f"coalesce({column} >= (FROM {_at('cut')}), true)"
        self._view("young", f"FROM {_at('every')} WHERE {young}")
        self._view("folded_young", self._query.folded("young", self._schema))
        self._view("young_folded", f"FROM {_at('folded_every')} WHERE {young}")
        if sorted(self._texts("folded_young")) != sorted(self._texts("young_folded")):
            raise _invalid(
                f"not possible with {TTL}, by which single rows of a group would expire or not, as they were merged or "
                f"not: group by {self._expires}, or keep the newest row of each group"
            )

    def _types(self, select: str) -> dict[str, str]:
        """Return DuckDB's types of a query's columns."""
        rows = self.connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE {select}\n)").fetchall()  # noqa: S608
        return dict(rows)

    def _put(self, name: str, rows: pa.Table) -> None:
        self.connection.register("given", rows.to_reader())
        self.connection.execute(f"CREATE OR REPLACE TABLE {_at(name)} AS FROM given")
        self.connection.unregister("given")
        self._read.clear()

    def _view(self, name: str, select: str) -> None:
        self.connection.execute(f"CREATE OR REPLACE VIEW {_at(name)} AS {select}")

    def _texts(self, name: str) -> list[str]:
        """Return rows as texts, which are read once of the same samples."""
        if name not in self._read:
            rows = self.connection.execute(f"SELECT CAST(r AS VARCHAR) FROM {_at(name)} r").fetchall()  # noqa: S608
            self._read[name] = [text for (text,) in rows]
        return self._read[name]

    def _refused(self, law: _Law, a: pa.Table, b: pa.Table) -> Invalid:
        given = [*self._texts("a"), *(self._texts("b") if law.rows == "every" else ())]
        one, other = self._texts(law.one), self._texts(law.other)
        first, then = [x for x in one if x not in other], [x for x in other if x not in one]
        when = law.when.format(len(a), len(b))
        return _invalid(
            f"{law.reason}. For example, {_short(given)} become {_short(first)}, but {_short(then)} {when}. "
            f"{_advice(self._query, self._schema, law)}"
        )


def _short(rows: Sequence[str]) -> str:
    return cut(", ".join(rows), _SHOWN_MAX) or "no rows"


def _without(rows: pa.Table, at: int, count: int) -> pa.Table:
    return pa.concat_tables([rows.slice(0, at), rows.slice(at + count)])


def _at(name: str) -> str:
    return f"{VIEW_SCHEMA}.{name}"


def _is_sum(given: str, kind: pa.DataType) -> bool:
    """Whether a type is what DuckDB gives a sum of values of a column, which is wider than the column."""
    if pa.types.is_decimal(kind):
        return given == f"DECIMAL(38,{kind.scale})"
    return pa.types.is_integer(kind) and given == "HUGEINT"


def _advice(query: MergeQuery, schema: pa.Schema, law: _Law) -> str:
    """Return what to write instead."""
    called = {fold(node["function_name"]) for node in walk(query.root) if node.get("class") == "FUNCTION"}
    if called & _AVERAGES:
        return "An average forgets of how many rows it is: keep a sum and a number of rows, and divide in queries."
    if called & _COUNTS:
        return "A merged row counts once: give rows a column n, which is 1 at first, and write sum(n) AS n."
    if called & _CHOICES or query.distinct_on is not None:
        return f"Keep whole rows, and name all columns in the order, so that no rows tie: {_newest(query, schema)}."
    if law is _ORDER and called & _SUMS and any(pa.types.is_floating(field.type) for field in schema):
        return "A sum of doubles depends on their order: make the column a decimal."
    return "Compute each column from itself alone, as in sum(hits) AS hits or max(ts) AS ts."


def _newest(query: MergeQuery, schema: pa.Schema) -> str:
    """Return a query that keeps the newest row of each group: all columns are in its order, so that none tie."""
    keys = list(query.keys(schema)) or schema.names[:1]
    others = [field for field in schema if field.name not in keys]
    others.sort(key=lambda field: not pa.types.is_timestamp(field.type))
    order = [*keys, *(f"{field.name} DESC" if at == 0 else field.name for at, field in enumerate(others))]
    return f"SELECT DISTINCT ON ({', '.join(keys)}) * FROM source ORDER BY {', '.join(order)}"  # noqa: S608


def _invalid(reason: str) -> Invalid:
    return Invalid(f"property {MERGE_QUERY}: {reason}")
