"""Times in Parquet's old form of 96 bits, as Spark and Impala wrote them, of any year."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

import alluvia
from alluvia.cli.command_line import cli

MOMENTS = [
    datetime(1500, 1, 1, tzinfo=UTC),
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    datetime(9999, 12, 31, tzinfo=UTC),
    None,
]


def test_times_of_any_year_are_read(tmp_path: Path) -> None:
    kind = pa.timestamp("us", "UTC")
    times = pa.array(MOMENTS, kind)
    nested = pa.array([{"at": moment} for moment in MOMENTS], pa.struct([("at", kind)]))
    rows = pa.table({"n": range(4), "ts": times, "s": nested, "l": [[moment] for moment in MOMENTS]})
    for folder in (tmp_path / "lake" / "converted", tmp_path / "share"):
        folder.mkdir(parents=True)
        pq.write_table(rows, folder / "x.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    lake = alluvia.connect(tmp_path / "lake")
    lake.convert("converted", "converted")
    lake.create_external("external", str(tmp_path / "share" / "x.parquet"))
    command = ["upload", "uploaded", str(tmp_path / "share" / "x.parquet")]
    done = CliRunner().invoke(cli, command, env={"ALLUVIA_LAKE": str(tmp_path / "lake")})
    assert done.exit_code == 0, done.output
    plain = [None if moment is None else moment.replace(tzinfo=None) for moment in MOMENTS]
    for name, expected in (("converted", MOMENTS), ("external", MOMENTS), ("uploaded", plain)):
        for found in (lake[name].to_arrow(), lake.sql(f"SELECT * FROM {name}")):
            ordered = found.sort_by("n")
            assert ordered["ts"].to_pylist() == expected, name
            assert [row["at"] for row in ordered["s"].to_pylist()] == expected, name
            assert [row[0] for row in ordered["l"].to_pylist()] == expected, name
        assert lake[name].to_arrow(where="n > 1 AND ts > '5000-01-01'").num_rows == 1
