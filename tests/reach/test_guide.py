"""The tables of the guide on readers say what the tests of this folder show, no more and no less."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

import alluvia
from alluvia.cli.commands.files import ingest_files
from tests import judges, peer_duckdb
from tests.golden.spark_tables import tables as archived
from tests.golden.variant_tables import CASES
from tests.reach.delta_spark_worker import DELTA
from tests.reach.spark_tables import TABLES
from tests.reach.tables import FEATURES, Feature
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
        f"DuckDB delta {peer_duckdb.version('duckdb-extension-delta')}",
        f"delta-spark {spark}",
    ]
    readers = [*READERS, SPARK_NAME]

    def told(feature: Feature, reader: str) -> str:
        return "refuses" if reader in feature.refused else "nulls" if reader in feature.nulls else "reads"

    assert rows == [[feature.name, *(told(feature, reader) for reader in readers)] for feature in FEATURES]


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
    _, *rows = _table("Tests of these claims")
    assert len(named) >= len(rows)
    for path, name in named:
        assert f"\ndef {name}(" in (ROOT / path).read_text(), f"{path}::{name}"


def test_how_many_tables_are_archived() -> None:
    held = (
        f"`tests/golden` holds {len(archived())} more tables with the rows of every version as delta-spark saw them, "
    )
    assert f"{held}{len(CASES)} with variants" in GUIDE.read_text()


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """The path of a table of two events in one file, of two more files that were merged into it, and of a reject."""
    lake = alluvia.connect(str(tmp_path / "lake"))
    for number in range(2):
        lines = [{"event_id": str(number), "ts": "2026-01-01", "event": "e"}, {"event_id": f"bad{number}", "event": 5}]
        source = tmp_path / "events.ndjson"
        source.write_text("\n".join(map(json.dumps, lines[: 2 - number])))
        ingest_files(lake, "events", [str(source)], create=True)
    lake.table("events").optimize()
    return tmp_path / "lake" / "events"


def test_the_refusal_that_is_quoted(events: Path) -> None:
    quoted = re.search(r"^CommitFailedError: (Unsupported table features required: )\[(.*)\]$", GUIDE.read_text(), re.M)
    assert quoted is not None
    with pytest.raises(CommitFailedError) as refused:
        write_deltalake(str(events), DeltaTable(str(events)).to_pyarrow_table(), mode="append")
    said = str(refused.value).removeprefix(quoted[1])
    assert sorted(said.strip("[]").split(", ")) == sorted(quoted[2].split(", "))


def test_an_open_table_as_the_guide_makes_it(tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path))
    (code,) = re.findall(r"`(lake\.create_table\([^`]+)`", GUIDE.read_text())
    table = eval(code, {"lake": lake})
    write_deltalake(judges.uri_of(table), pa.table({"id": [1]}), mode="append")
    assert table.scan().read_all().to_pylist() == [{"id": 1}]


def test_the_calls_for_rows_and_rejects(events: Path) -> None:
    head, *rows = _table("Rejected events, and files that hold no rows")
    assert head == ["Reader", "The rows", "The rejects", "Not by files"]
    found = {reader: [_count(reader, call.strip("`"), events) for call in calls] for reader, *calls in rows}
    assert found == {
        "DuckDB": [2, 1, 2 + 2 + 1],
        "deltalake": [2, 1, None],
        "pyarrow": [2, 1, 2 + 2],
        "pandas": [None, None, None],
        "polars": [None, None, None],
        "Spark": [None, None, None],
    }


def _count(reader: str, call: str, events: Path) -> int | None:
    """Return how many rows a call of the guide gives; None for a reader that is not among the tests' packages."""
    there = call.replace("lake/events", str(events))
    if reader == "DuckDB":
        return int(judges.judge(alluvia.connect(str(events.parent)).store).execute(there).to_arrow_table().num_rows)
    if not call or reader not in {"deltalake", "pyarrow"}:
        return None
    names: dict[str, Any] = {"DeltaTable": DeltaTable, "pyarrow": pa}
    counted: int = eval(there, names).num_rows
    return counted
