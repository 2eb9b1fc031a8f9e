"""The files `*.test` beside this one, in the manner of sqllogictest, on a lake and on a plain DuckDB database.

A record is `statement ok`, `statement error`, or `query`, with `rowsort` where the order does not matter; then the SQL,
and after `----` the rows, or a part of the lake's message. `onlyif lake` before it keeps it from DuckDB: what stands
there means something else in DuckDB, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import alluvia
from alluvia.errors import AlluviaError

FILES = sorted(Path(__file__).parent.glob("*.test"))


@dataclass(frozen=True)
class Record:
    line: int
    kind: list[str]
    sql: str
    expected: list[str]
    only_lake: bool


def records(text: str) -> Iterator[Record]:
    line = 1
    for block in text.split("\n\n"):
        lines = [each for each in block.splitlines() if not each.startswith("#")]
        only_lake = bool(lines) and lines[0] == "onlyif lake"
        if lines := lines[only_lake:]:
            sql, _, expected = "\n".join(lines[1:]).partition("\n----")
            yield Record(line, lines[0].split(), sql, expected.strip("\n").splitlines(), only_lake)
        line += block.count("\n") + 2


def shown(table: pa.Table) -> list[str]:
    columns = [column.to_pylist() for column in table.columns]  # two of them may have one name
    return ["\t".join(map(cell, row)) for row in zip(*columns, strict=True)]


def cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_statements_of_a_file(path: Path) -> None:
    lake = alluvia.connect(f"memory://logic-{path.stem}")
    plain = duckdb.connect(":memory:")
    plain.execute("SET TimeZone = 'UTC'")
    found = list(records(path.read_text()))
    assert found
    for record in found:
        for engine in ("lake",) if record.only_lake else ("lake", "duckdb"):
            where = f"{path.name}:{record.line} on {engine}"
            run = lake.sql if engine == "lake" else lambda sql: plain.execute(sql).to_arrow_table()
            if record.kind[:2] == ["statement", "error"]:
                with pytest.raises((AlluviaError, duckdb.Error)) as raised:
                    run(record.sql)
                assert engine == "duckdb" or "\n".join(record.expected) in str(raised.value), where
                continue
            rows = shown(run(record.sql))
            if record.kind[0] == "query":
                order = sorted if "rowsort" in record.kind else list
                assert order(rows) == order(record.expected), where
            else:
                assert record.kind == ["statement", "ok"], where
