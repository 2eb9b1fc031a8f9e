"""Clustering: what queries for each of several columns read afterwards, and what the rewrite takes, besides z_order."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import alluvia
from alluvia.delta.properties import names_text
from alluvia.delta.skipping.predicate import And, Comparison, Predicate
from benchmarks.measure import in_processes, megabytes, milliseconds
from benchmarks.reads import bytes_read
from benchmarks.report import Figure
from benchmarks.tables import OPEN
from tests.s3server import S3Server

FILES, FILE_ROWS = 60, 20_000
GROUP_ROWS = 8_192
MEMORY_MB = 128
QUERIES = 40
CASES = (
    (("ts", "amount"), 4 << 20),
    (("user", "page"), 4 << 20),
    (("user", "page"), 1 << 20),
    (("user", "page", "ts"), 4 << 20),
    (("user", "page", "ts", "amount"), 4 << 20),
)
"""Columns, and the target of files: numbers without skew, then a skewed one and texts that begin alike."""
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        *(("event_id", pa.string()), ("user", pa.int64()), ("page", pa.string())),
        *(("ts", pa.timestamp("us", tz="UTC")), ("amount", pa.int64()), ("properties", pa.string())),
    ]
)


def figures(_: S3Server, folder: Path) -> list[Figure]:
    """Cluster a table by two, three and four columns."""
    base = alluvia.connect(str(folder)).create_table("base", SCHEMA, properties=OPEN)
    chance = random.Random(11)
    for _number in range(FILES):
        base.append(_rows(chance, FILE_ROWS))
    return [figure for columns, target in CASES for figure in _clustered(folder, columns, target)]


def _rows(chance: random.Random, count: int) -> pa.Table:
    """Return rows whose users are skewed, and whose pages begin alike."""
    users = [int(chance.paretovariate(0.6)) % 1_000_000 for _ in range(count)]
    pages = [f"https://www.example.com/catalogue/products/{chance.randrange(50_000):05}" for _ in range(count)]
    times = [FIRST + timedelta(seconds=chance.randrange(90 * 86_400)) for _ in range(count)]
    columns: list[list[object]] = [
        [f"{chance.getrandbits(96):024x}" for _ in range(count)],
        [*users],
        [*pages],
        [*times],
        [chance.randrange(10_000_000) for _ in range(count)],
        [f'{{"ref":"{chance.randrange(1000)}"}}' for _ in range(count)],
    ]
    return pa.table(columns, schema=SCHEMA)


def _clustered(folder: Path, columns: tuple[str, ...], target: int) -> Iterator[Figure]:
    properties = {
        "alluvia.cluster_by": names_text(columns),
        "alluvia.target_file_size": str(target),
        "alluvia.row_group_rows": str(GROUP_ROWS),
    }
    sizes = {"target_size": target, "row_group_rows": GROUP_ROWS}
    actions: dict[str, tuple[str, dict[str, Any]]] = {
        "ours": ("cluster_ours", {}),
        "limited": ("cluster_ours", {"memory_mb": MEMORY_MB}),
        "theirs": ("cluster_deltalake", {"columns": columns, **sizes}),
    }
    runs = {}
    for name, (action, arguments) in actions.items():
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(folder / "base", folder / name)
        if name != "theirs":
            alluvia.open_table(str(folder / name)).evolve(properties=properties)
        runs[name] = in_processes({name: (action, {"uri": str(folder / name), **arguments})}, 1)[name]
    ours, limited, theirs = (runs[name] for name in actions)
    tables = {name: alluvia.open_table(str(folder / name)) for name in ("base", "ours", "theirs")}
    assert tables["ours"].count() == tables["theirs"].count() == FILES * FILE_ROWS
    what = f"Clustered by {', '.join(columns)}, target {megabytes(target)}"
    for kind, queries in {"points": _points(columns), "ranges of 1%": _ranges(columns)}.items():
        read = {name: sum(bytes_read(table, queries)) for name, table in tables.items()}
        found = f"{megabytes(read['ours'])} (before: {megabytes(read['base'])})"
        yield Figure(
            f"{what}: bytes of {len(queries)} queries for {kind}",
            *(found, megabytes(read["theirs"]), read["ours"] / read["theirs"]),
            *("at most z_order's", read["ours"] <= read["theirs"]),
        )
    files = {name: len(tables[name].files) for name in ("ours", "theirs")}
    again = tables["ours"].optimize().files_removed
    yield Figure(f"{what}: files", str(files["ours"]), str(files["theirs"]))
    yield Figure(f"{what}: files that a second call rewrites", str(again), "", None, "0", not again)
    for name, run in {"": ours, f", memory_mb={MEMORY_MB}": limited}.items():
        yield Figure(
            f"{what}{name}: time of the rewrite",
            *(milliseconds(run.seconds), milliseconds(theirs.seconds), run.seconds / theirs.seconds),
        )
        yield Figure(
            f"{what}{name}: CPU",
            *(milliseconds(run.cpu_seconds), milliseconds(theirs.cpu_seconds), run.cpu_seconds / theirs.cpu_seconds),
        )
        yield Figure(
            f"{what}{name}: peak memory",
            *(megabytes(run.peak_bytes), megabytes(theirs.peak_bytes), run.peak_bytes / theirs.peak_bytes),
        )


def _points(columns: tuple[str, ...]) -> list[Predicate]:
    """Return queries for a value of each column, taken from rows like those of the table."""
    rows = _rows(random.Random(5), QUERIES)
    return [Comparison((name,), "=", value) for name in columns for value in rows[name].to_pylist()]


def _ranges(columns: tuple[str, ...]) -> list[Predicate]:
    """Return queries for ranges of each column with 1% of the rows."""
    rows = _rows(random.Random(6), 10_000)
    found: list[Predicate] = []
    for name in columns:
        values = sorted(rows[name].to_pylist())
        bounds = [(values[at], values[at + 100]) for at in range(0, 9_900, 9_900 // QUERIES)]
        found += [And((Comparison((name,), ">=", low), Comparison((name,), "<", high))) for low, high in bounds]
    return found
