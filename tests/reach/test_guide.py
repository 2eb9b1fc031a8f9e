"""The tables of the guide on readers say what the tests of this folder show, no more and no less."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from tests.golden.spark_tables import tables as archived
from tests.golden.variant_tables import CASES
from tests.reach.delta_spark_worker import DELTA
from tests.reach.spark_tables import TABLES
from tests.reach.tables import FEATURES
from tests.reach.test_guarded_tables import DELTALAKE, SPARK
from tests.reach.test_readers import READERS, SPARK_NAME
from tests.reach.writers import Deltalake, Spark

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "READERS.md"


def _table(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without the line that parts its head from the rest."""
    section = GUIDE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in [lines[0], *lines[2:]]]


def test_who_reads_our_tables() -> None:
    head, *rows = _table("Tables that Alluvia writes")
    deltalake, spark = version("deltalake"), DELTA.rpartition(":")[2]
    assert head == [
        "Table",
        "Alluvia",
        f"deltalake {deltalake}",
        f"deltalake {deltalake}, SQL",
        f"DuckDB delta {version('duckdb-extension-delta')}",
        f"delta-spark {spark}",
    ]
    readers = [*READERS, SPARK_NAME]
    assert rows == [
        [feature.name, *("refuses" if reader in feature.refused else "reads" for reader in readers)]
        for feature in FEATURES
    ]


def test_what_we_do_with_tables_of_others() -> None:
    head, *rows = _table("Tables that delta-spark writes")
    assert head == ["Table", "Alluvia reads it", "Alluvia writes it"]
    assert rows == [[made.name, "reads", "refuses" if made.unwritten or made.no_rows else "writes"] for made in TABLES]


def test_who_may_write() -> None:
    def told(verb: str, names: Iterable[str]) -> str:
        return f"{verb}: {', '.join(names)}"

    def methods(writer: type) -> list[str]:
        return [name for name in vars(writer) if not name.startswith("_")]

    assert _table("Who may write") == [
        ["Table", "Alluvia", "deltalake", "delta-spark"],
        ["guarded: the default", "writes", told("refuses", DELTALAKE), told("refuses", SPARK)],
        [
            "`alluvia.writers = 'any'`",
            "writes",
            told("writes", methods(Deltalake)),
            told("writes", methods(Spark)),
        ],
    ]


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", GUIDE.read_text())
    _, *rows = _table("What shows it")
    assert len(named) >= len(rows)
    for path, name in named:
        assert f"\ndef {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


def test_how_many_tables_are_archived() -> None:
    held = (
        f"`tests/golden` holds {len(archived())} more tables with the rows of every version as delta-spark saw them, "
    )
    assert f"{held}{len(CASES)} with variants" in GUIDE.read_text()
