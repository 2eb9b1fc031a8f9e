"""Tests of declarations: the rows of a pipeline's table that given rows of its sources make, in `tests/*.sql`.

```sql
TEST sessions 'a visit ends after half an hour'
GIVEN views AS (SELECT 'ada' AS visitor, unnest([TIMESTAMPTZ '2026-01-01 09:00:00Z', '2026-01-01 10:00:00Z']) AS ts)
EXPECT (SELECT 'ada' AS visitor, unnest([1, 2]) AS session);
```

The table is run on a lake in memory. A source has the columns of the lake's table, null where the given rows lack them;
of the table, the columns are compared that the expected rows have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.engine.duck.literals import quote_table
from alluvia.engine.queries.tokens import tokens_of
from alluvia.errors import AlluviaError, Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import hint
from alluvia.operations.append.append import append
from alluvia.operations.catalog.catalog import NewTable, WritableCatalog
from alluvia.operations.catalog.schemas import create_schema
from alluvia.operations.reading.relations import Evaluate
from alluvia.pipelines.declarations.declaration import QUARANTINE_SUFFIX, Declaration
from alluvia.pipelines.execution import LocalExecution
from alluvia.pipelines.project import read_text
from alluvia.pipelines.queries.query import read_query
from alluvia.pipelines.running import run_table
from alluvia.query.engine import run
from alluvia.sql.grammar.cursor import Cursor
from alluvia.sql.grammar.script import script_parts
from alluvia.table_names import schema_of

FOLDER = "tests"
_EXAMPLE = "TEST t 'what it shows' GIVEN source AS (SELECT …) EXPECT (SELECT …)"
_ROWS_SHOWN = 5
Scratch = Callable[[], tuple[WritableCatalog, Evaluate]]
"""Makes an empty catalog in memory, and what computes over it."""


@dataclass(frozen=True, slots=True)
class DeclarationTest:
    """A test of one table: queries that give rows of its sources, and those that the table is to have.

    `quarantined` gives the rows that are to be set aside; None if it does not matter.
    """

    target: str
    name: str
    given: Mapping[str, str]
    expected: str | None
    quarantined: str | None
    place: str


@dataclass(frozen=True, slots=True)
class DeclarationTestResult:
    """The outcome of a test: `missing` rows were expected, `unexpected` ones came, and an `error` stopped it."""

    table: str
    name: str
    place: str
    missing: Sequence[Mapping[str, object]] = field(default_factory=list)
    unexpected: Sequence[Mapping[str, object]] = field(default_factory=list)
    error: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the table had the expected rows."""
        return not (self.missing or self.unexpected or self.error)


def read_tests(folder: Path) -> list[DeclarationTest]:
    """Return the tests in the files `tests/*.sql` of a folder. Raises `Invalid`, with the file and the line."""
    files = sorted((folder / FOLDER).glob("*.sql")) if folder.is_dir() else []
    return [test for file in files for test in _in_file(file, f"{folder.name}/{FOLDER}/{file.name}")]


def run_test(
    test: DeclarationTest,
    declarations: Sequence[Declaration],
    lake: WritableCatalog,
    scratch: WritableCatalog,
    evaluate: Evaluate,
) -> DeclarationTestResult:
    """Run a test on an empty catalog. `lake` has the columns of tables."""
    try:
        declaration = _declaration(test, declarations)
        sources = read_query(declaration.query).sources
        for name in {schema_of(each) for each in (declaration.target, *sources)}:
            create_schema(scratch.store, scratch.clock, name, exist_ok=True)
        for source in sources:
            _fill(source, test.given.get(source), lake, scratch)
        run_table(scratch, LocalExecution(evaluate), declaration)
        missing, unexpected = _compared(scratch, declaration.target, test.expected)
        if test.quarantined is not None:
            differences = _compared(scratch, declaration.target + QUARANTINE_SUFFIX, test.quarantined)
            missing, unexpected = missing + differences[0], unexpected + differences[1]
    except AlluviaError as error:
        return DeclarationTestResult(test.target, test.name, test.place, error=str(error))
    return DeclarationTestResult(test.target, test.name, test.place, missing[:_ROWS_SHOWN], unexpected[:_ROWS_SHOWN])


def _declaration(test: DeclarationTest, declarations: Sequence[Declaration]) -> Declaration:
    by_name = {each.target: each for each in declarations}
    if test.target not in by_name:
        raise Invalid(f"the pipeline declares no table {test.target!r}{hint(test.target, by_name)}")
    declaration = by_name[test.target]
    sources = read_query(declaration.query).sources
    for name in test.given:
        if name not in sources:
            raise Invalid(f"GIVEN {name}: table {test.target} does not read it, but {', '.join(sources)}")
    return declaration


def _fill(source: str, given: str | None, lake: WritableCatalog, scratch: WritableCatalog) -> None:
    """Make a source with the given rows."""
    rows = None if given is None else run(scratch, given).read_all()
    try:
        schema = lake.handle(source).newest().schema
    except AlluviaError as error:
        if rows is None:
            raise Invalid(f"the columns of {source} are not known, so give rows of it ({error})") from error
        schema = rows.schema
    nullable = pa.schema([each.with_nullable(True) for each in schema])
    handle = scratch.create(source, NewTable(nullable), exist_ok=False)
    if rows is not None:
        unknown = [name for name in rows.column_names if name not in schema.names]
        if unknown:
            raise Invalid(f"GIVEN {source}: it has no column {unknown[0]}{hint(unknown[0], schema.names)}")
        append(handle, _cast(rows, nullable, f"GIVEN {source}"))


def _compared(
    scratch: WritableCatalog, table: str, expected: str | None
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the expected rows that a table lacks, and the rows that it has besides."""
    if expected is None:
        return [], []
    found = run(scratch, f"FROM {quote_table(table)}").read_all()
    wanted = run(scratch, expected).read_all()
    by_name = {fold(name): name for name in found.column_names}
    for name in wanted.column_names:
        if fold(name) not in by_name:
            raise Invalid(f"EXPECT: table {table} has no column {name}{hint(name, found.column_names)}")
    names = [by_name[fold(name)] for name in wanted.column_names]
    found = found.select(names)
    wanted = _cast(wanted.rename_columns(names), found.schema, "EXPECT")
    return _rest(wanted, found), _rest(found, wanted)


def _rest(rows: pa.Table, others: pa.Table) -> list[dict[str, object]]:
    left = Counter(map(repr, others.to_pylist()))
    rest: list[dict[str, object]] = []
    for row in rows.to_pylist():
        if left[repr(row)]:
            left[repr(row)] -= 1
        else:
            rest.append(row)
    return rest


def _cast(rows: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    """Return rows with the columns and types of a schema, null where they lack one."""
    columns = []
    for each in schema:
        given = rows.column(each.name) if each.name in rows.column_names else pa.nulls(len(rows), each.type)
        try:
            columns.append(given.cast(each.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise Invalid(f"{what}: column {each.name} is {each.type}: {error}") from error
    return pa.table(columns, schema=schema)


def _in_file(file: Path, shown: str) -> Iterator[DeclarationTest]:
    for part in script_parts(read_text(file, shown).splitlines(keepends=True)):
        place = f"{shown}:{part.line}"
        try:
            yield _read(part.text, place)
        except Invalid as error:
            raise Invalid(f"{place}: {error}") from None


def _read(text: str, place: str) -> DeclarationTest:
    cursor = Cursor(text, tokens_of(text))
    if not cursor.accept("test"):
        raise Invalid(f"expected TEST, got {text.split(maxsplit=1)[0]:.50}; for example {_EXAMPLE}")
    target, name = cursor.table(), cursor.string("what the test shows")
    given: dict[str, str] = {}
    while cursor.accept("given"):
        source = cursor.table()
        if source in given:
            raise Invalid(f"GIVEN {source} occurs twice: join the rows with UNION ALL")
        cursor.expect("as")
        given[source] = cursor.brackets("SELECT").text
    expected: dict[str, str] = {}
    while cursor.accept("expect"):
        what = "quarantine" if cursor.accept("quarantine") else "rows"
        expected[what] = cursor.brackets("SELECT").text
    cursor.end()
    if not expected:
        raise cursor.wrong("EXPECT (SELECT …)")
    return DeclarationTest(target, name, given, expected.get("rows"), expected.get("quarantine"), place)
