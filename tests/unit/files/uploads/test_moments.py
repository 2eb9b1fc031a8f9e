"""Moments of Parquet files that no timestamp of a table can tell are refused with their number and the reason."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import alluvia
from alluvia.cli.command_line import cli
from alluvia.errors import Invalid

FAR = 1 << 62
NANOSECONDS = "1001 ns since 1970 has nanoseconds, and a timestamp microseconds: round it"
TOO_FAR = f"{FAR} ms since 1970 is further from 1970 than a timestamp reaches"
MOMENTS = [
    pytest.param(pa.array([1000, 1001], pa.timestamp("ns")), "t", "timestamp_ntz", NANOSECONDS, id="nanoseconds"),
    pytest.param(pa.array([0, FAR], pa.timestamp("ms", "UTC")), "t", "timestamp", TOO_FAR, id="far"),
    pytest.param(
        pa.array([0, -FAR], pa.timestamp("ms")), "t", "timestamp_ntz", TOO_FAR.replace("46", "-46", 1), id="past"
    ),
    pytest.param(
        pa.array([[0], [FAR]], pa.list_(pa.timestamp("ms"))), "t.element", "timestamp_ntz", TOO_FAR, id="list"
    ),
]


@pytest.mark.parametrize("command", ["upload", "upsert"])
@pytest.mark.parametrize(("moments", "path", "kind", "reason"), MOMENTS)
def test_a_moment_that_does_not_fit_is_refused_with_its_number(
    tmp_path: Path, command: str, moments: pa.Array, path: str, kind: str, reason: str
) -> None:
    rows = pa.table({"k": [1, 2], "t": moments})
    pq.write_table(rows, tmp_path / "x.parquet")
    lake = alluvia.connect(tmp_path / "lake")
    inner = f"array<{kind}>" if pa.types.is_list(moments.type) else kind
    table = lake.create_table("events", {"k": "long", "t": inner})
    keys = ["--on", "k"] if command == "upsert" else []
    words = [command, "events", str(tmp_path / "x.parquet"), *keys, "--lake", str(tmp_path / "lake")]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 1
    assert f"row 2, column {path}: a value does not fit {kind}: {reason}\n" in done.output
    with pytest.raises(Invalid, match=f"^column {path}: a value does not fit {kind}: {reason}$"):
        table.append(rows)
    assert table.count() == 0
