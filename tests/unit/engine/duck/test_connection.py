"""What cursors on the databases that a process shares can see: nothing of one another, of files or of settings."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from alluvia.engine.duck.database import evaluator


def test_rows_registered_with_a_cursor_are_its_own() -> None:
    first, second = evaluator(), evaluator()
    for connection, value in ((first, 1), (second, 2)):
        connection.execute("BEGIN")
        connection.register("rows", pa.table({"n": [value]}))
    assert first.execute("SELECT n FROM rows").fetchall() == [(1,)]
    assert second.execute("SELECT n FROM rows").fetchall() == [(2,)]
    with pytest.raises(duckdb.CatalogException):
        evaluator().execute("SELECT n FROM rows")


def test_the_evaluator_opens_no_file_and_changes_no_setting(tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("n\n1\n")
    for statement in (f"FROM read_csv('{file}')", f"ATTACH '{tmp_path}/x.duckdb'", "SET threads = 2"):
        with pytest.raises(duckdb.Error):
            evaluator().execute(statement)
