"""Makes `spark_tables.tar.gz`: the tables of `spark_tables.sql`, with the rows of every version as Spark reads them.

`python -m tests.golden.spark_tables` (Spark and delta-spark are fetched as the tests in `tests/reach` do). The archive
is kept beside this file, so that the tests that read it need no Java. Absolute paths in it start with `PLACE`.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from tests.reach.delta_spark import DeltaSpark, running_delta_spark

ARCHIVE = Path(__file__).parent / "spark_tables.tar.gz"
PLACE = "/alluvia-golden-place"
UNREADABLE = ("variant",)


def tables() -> dict[str, list[str]]:
    """Return each table's statements."""
    found: dict[str, list[str]] = {}
    for section in ARCHIVE.with_name("spark_tables.sql").read_text().split("\n-- table: ")[1:]:
        name, _, body = section.partition("\n")
        found[name] = [statement.strip() for statement in body.split(";\n") if statement.strip()]
    return found


def make(spark: DeltaSpark, folder: Path) -> None:
    """Make all tables below a folder: `<name>/delta`, and `<name>/expected/v<version>/rows.parquet`."""
    source = f"delta.`{folder / 'clone_source' / 'delta'}`"
    for name, statements in tables().items():
        table = f"delta.`{folder / name / 'delta'}`"
        for statement in statements:
            spark.run(statement.replace("{t}", table).replace("{source}", source))
        versions = spark.query(f"DESCRIBE HISTORY {table}")["version"].to_pylist()
        for version in versions if name not in UNREADABLE else []:
            expected = folder / name / "expected" / f"v{version}"
            expected.mkdir(parents=True)
            pq.write_table(spark.load(folder / name / "delta", version), expected / "rows.parquet")


def pack(folder: Path, archive: Path) -> None:
    """Write an archive, without the checksums of Spark's file system; those of Delta's versions stay."""
    for log in folder.rglob("_delta_log"):
        _place(log, folder)
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not (path.name.startswith(".") and path.suffix == ".crc"):
                tar.add(path, path.relative_to(folder))


def _place(log: Path, folder: Path) -> None:
    """Write `PLACE` into absolute paths: in commits, which are text; checkpoints that repeat them are left out."""
    absolute = False
    for commit in log.glob("*.json"):
        text = commit.read_text()
        absolute = absolute or str(folder) in text or PLACE in text
        commit.write_text(text.replace(str(folder), PLACE))
    for path in log.iterdir() if absolute else ():
        if ".checkpoint." in path.name or path.name == "_last_checkpoint" or path.suffix == ".crc":
            path.unlink()


if __name__ == "__main__":
    with running_delta_spark() as running, tempfile.TemporaryDirectory(prefix="alluvia-golden-") as work:
        make(running, Path(work))
        pack(Path(work), ARCHIVE)
