"""An example of a pipeline over the tables that a lake has, for `alluvia pipeline init`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from alluvia.engine.duck.literals import quote_name
from alluvia.errors import Invalid
from alluvia.operations.catalog.catalog import Catalog
from alluvia.pipelines.project import read_project
from alluvia.pipelines.unit_tests import FOLDER

_SQL = """-- Rows of {source} that can be counted; the others go to {clean}_quarantine.
CREATE OR REFRESH TABLE {clean} (
  CONSTRAINT has_{time} EXPECT ({quoted} IS NOT NULL) ON VIOLATION QUARANTINE
)
AS SELECT * FROM {source};

-- One row for each day: a run computes only the days again that have changed.
CREATE OR REFRESH TABLE {daily} AS
SELECT CAST({quoted} AS DATE) AS day, count(*) AS rows FROM {clean} GROUP BY ALL;
"""
_TEST = """TEST {daily} 'rows are counted by day'
GIVEN {clean} AS (SELECT unnest([{kind} '2026-01-01', {kind} '2026-01-01', {kind} '2026-01-02']) AS {quoted})
EXPECT (SELECT * FROM (VALUES (DATE '2026-01-01', 2), (DATE '2026-01-02', 1)) AS t(day, rows));
"""


def write_example(catalog: Catalog, folder: Path) -> list[Path]:
    """Write a pipeline over the lake's first table with times, and a test of it; return the files.

    Raises `Invalid` if there is no such table, or the folder has files already.
    """
    if folder.exists() and any(folder.iterdir()):
        raise Invalid(f"{folder} has files already: add declarations to them, or name another folder with --path")
    source, time = _source(catalog)
    clean, daily = _free(f"{source}_clean", catalog), _free(f"{source}_daily", catalog)
    kind = "DATE" if pa.types.is_date(catalog.handle(source).newest().schema.field(time).type) else "TIMESTAMP"
    named = {"source": source, "time": time.lower(), "quoted": quote_name(time), "clean": clean, "daily": daily}
    files = {folder / "example.sql": _SQL, folder / FOLDER / "example.sql": _TEST}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(**named, kind=kind), encoding="utf-8")
    read_project(folder)
    return list(files)


def _source(catalog: Catalog) -> tuple[str, str]:
    """Return a table, and its column with times."""
    for name in _plain(catalog.tables()):
        for field in catalog.handle(name).newest().schema:
            if (pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)) and field.name.isidentifier():
                return name, field.name
    raise Invalid("the lake has no table with a column of times to make an example of: ingest events first")


def _plain(names: Sequence[str]) -> Iterator[str]:
    """Yield the names that need no quotes, those of events first."""
    return iter(sorted((name for name in names if name.isidentifier()), key=lambda name: ("events" not in name, name)))


def _free(name: str, catalog: Catalog) -> str:
    if name in catalog:
        raise Invalid(f"the lake has a table {name} already, which the example would make: write declarations yourself")
    return name
