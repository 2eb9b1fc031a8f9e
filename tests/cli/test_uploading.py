"""`alluvia upload`: files of rows into tables, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_commands import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "lake")


@pytest.fixture
def prices(tmp_path: Path) -> str:
    file = tmp_path / "prices.csv"
    file.write_text("sku,price\n007,9.5\n008,1\n")
    return str(file)


def test_a_file_is_stored_once_by_key_and_fits_or_is_refused(shell: Shell, prices: str) -> None:
    columns = {"sku": "string", "price": "double"}
    first = shell.rows("upload", "prices", prices, "--key", "k")
    assert first == [{"file": prices, "rows": 2, "version": 1, "repeated": False, "columns": columns}]
    assert shell.rows("upload", "prices", prices, "--key", "k") == [first[0] | {"repeated": True}]
    refused = shell.run("upload", "prices", "-", "--format", "csv", stdin=b"sku,price\n9,x\n")
    assert (refused.exit_code, "row 1, column price: expected a number" in refused.output) == (1, True)
    assert shell.run("upload", "prices", prices, prices, "--key", "k").exit_code == 2
    assert shell.run("upload", "new", prices, "--no-create").exit_code == 1
    assert shell.rows("query", "SELECT count(*) AS n FROM prices") == [{"n": 2}]
    more = shell.rows("upload", "prices", "-", "--evolve", stdin=b'{"sku": "9", "stock": 1}\n')
    assert more[0]["columns"] == {"stock": "long"}
    declared = shell.rows("upload", "other", prices, "--schema", "sku:string,price:decimal(9,2)")
    assert declared[0]["columns"]["price"] == "decimal(9,2)"
