"""Tables as delta-spark made them, with the rows that it read of every version, in `made_by_spark.tar.gz`.

`python -m tests.reach.made_by_spark` makes the archive anew. It must be of the Spark and of the statements that the
tests name, and a test holds it to that. To make the tables takes Spark more than a minute, so only `make deep` has it
make them each time.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

import alluvia
from alluvia.api.lake import Table
from tests.golden.spark_tables import PLACE, pack
from tests.reach.delta_spark import DeltaSpark, named, running_delta_spark
from tests.reach.delta_spark_worker import DELTA
from tests.reach.spark_tables import FEEDS, GENERATED, TABLES, Made

ARCHIVE = Path(__file__).parent / "made_by_spark.tar.gz"
SOURCES = "sources.json"


@dataclass(frozen=True, slots=True)
class SparksTable:
    """A table that Spark made, with its rows by version; `feed` has its changes from version 1 on, if it has any."""

    table: Table
    rows: Sequence[pa.Table]
    feed: pa.Table | None


BySpark = Callable[[Made], SparksTable]


def sources() -> dict[str, Any]:
    """Return what the archive is made of: Spark's version, Delta's, and the tables."""
    made = {each.name: asdict(each) for each in [*TABLES, *FEEDS]}
    found = {"spark": pyspark.__version__, "delta": DELTA, "tables": made, "generated": GENERATED}
    read: dict[str, Any] = json.loads(json.dumps(found))
    return _spark_alone(read)


def archived_sources() -> dict[str, Any]:
    """Return what the archive was made of."""
    with tarfile.open(ARCHIVE) as tar, closing(tar.extractfile(SOURCES)) as file:  # type: ignore[type-var]
        read: dict[str, Any] = json.load(file)  # type: ignore[arg-type]
        return _spark_alone(read)


def _spark_alone(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is expected of this library, which does not change what Spark makes."""
    tables = {
        name: {key: each for key, each in made.items() if key not in ("unwritten", "no_rows")}
        for name, made in found["tables"].items()
    }
    return {**found, "tables": tables}


def make(made: Made, spark: DeltaSpark, folder: Path) -> None:
    """Have Spark make a table in a folder: `lake/made`, and the rows of its versions in `rows`."""
    lake = alluvia.connect(str(folder / "lake"))
    table, other = lake.table("made"), lake.table("other")
    if made.name in GENERATED:
        spark.create_generated(table, *GENERATED[made.name])
    spark.run(*(each.format(t=named(table), other=named(other)) for each in made.statements))
    (folder / "rows").mkdir()
    for version in range(len(made.rows)):
        _write(spark.read(table, version, shown=made.shown), folder / "rows" / f"{version}.arrow")
    if made in FEEDS:
        _write(spark.changes(table, 1, len(made.rows) - 1), folder / "feed.arrow")


def unpack(made: Made, folder: Path) -> None:
    """Unpack a table into a folder, as `make` would make it there, its files as new as if it did."""
    begins = f"{made.folder}/"
    with tarfile.open(ARCHIVE) as tar:
        for member in tar:
            if member.name.startswith(begins):
                name = member.name.removeprefix(begins)
                tar.extract(member.replace(name=name, mtime=int(time.time()), deep=False), folder, filter="data")
    for commit in folder.rglob("_delta_log/*.json"):
        text = commit.read_text()
        if PLACE in text:
            commit.write_text(text.replace(f"{PLACE}/{made.folder}", str(folder)))


def opened(folder: Path) -> SparksTable:
    """Return the table of a folder."""
    rows = [_read(folder / "rows" / f"{version}.arrow") for version in range(len(list((folder / "rows").iterdir())))]
    feed = _read(folder / "feed.arrow") if (folder / "feed.arrow").exists() else None
    return SparksTable(alluvia.open_table(folder / "lake" / "made"), rows, feed)


def _write(rows: pa.Table, path: Path) -> None:
    with path.open("wb") as file, pa.ipc.new_stream(file, rows.schema) as stream:
        stream.write_table(rows)


def _read(path: Path) -> pa.Table:
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        return stream.read_all()


if __name__ == "__main__":
    with running_delta_spark() as running, tempfile.TemporaryDirectory(prefix="alluvia-made-") as work:
        for each in [*TABLES, *FEEDS]:
            place = Path(work, each.folder)
            place.mkdir()
            make(each, running, place)
        Path(work, SOURCES).write_text(json.dumps(sources(), indent=1))
        pack(Path(work), ARCHIVE)
