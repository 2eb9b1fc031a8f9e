"""A view's name is taken for tables, in whichever way they come, and a table's or a stream's for views."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import alluvia
from alluvia.api.lake import Lake
from alluvia.cli.command_line import cli
from alluvia.errors import Conflict, TableExists
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent

ROWS = [{"n": 1}, {"n": 2}]
OF_VIEW = [{"rows": 2}]
TAKEN = "there is a view v: DROP VIEW v first, or choose another name"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with a table `t` and a view `v`; outside are a table and a file."""
    lake = alluvia.connect(tmp_path / "lake")
    lake.create_table("t", {"n": "long"}).append(ROWS)
    lake.sql("CREATE VIEW v AS SELECT count(*) AS rows FROM t")
    alluvia.connect(tmp_path / "outside").create_table("o", {"n": "long"}).append(ROWS)
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "outside" / "f.parquet")
    return lake


def folder(lake: Lake) -> Path:
    return Path(lake.uri.removeprefix("file://"))


def outside(lake: Lake, name: str) -> str:
    return str(folder(lake).parent / "outside" / name)


def convert(lake: Lake) -> None:
    (folder(lake) / "v").mkdir(exist_ok=True)
    pq.write_table(pa.table({"n": [1, 2]}), folder(lake) / "v" / "f.parquet")
    lake.convert("v", "v")


def in_a_transaction(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("v", {"n": "long"}).append(ROWS)


def replaced(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("v", {"n": "long"}, replace=True)


WAYS: dict[str, Callable[[Lake], object]] = {
    "create_table": lambda lake: lake.create_table("v", {"n": "long"}),
    "create_table exist_ok": lambda lake: lake.create_table("v", {"n": "long"}, exist_ok=True),
    "create_events": lambda lake: lake.create_events("v"),
    "transaction": in_a_transaction,
    "transaction replace": replaced,
    "clone": lambda lake: lake.clone("t", "v"),
    "deep clone": lambda lake: lake.clone("t", "v", deep=True),
    "rollup": lambda lake: lake.create_rollup("v", "SELECT n, count(*) AS c FROM t GROUP BY n"),
    "convert": convert,
    "attach": lambda lake: lake.attach("v", outside(lake, "o")),
    "external": lambda lake: lake.create_external("v", outside(lake, "f.parquet")),
    "events": lambda lake: ingest_batch(
        lake.catalog, "v", [RawEvent(0, {"event": "x"}, b"{}")], arrival_us=lake.clock.now_us(), create=True
    ),
    "sql": lambda lake: lake.sql("CREATE TABLE v (n BIGINT)"),
    "sql if not exists": lambda lake: lake.sql("CREATE TABLE IF NOT EXISTS v (n BIGINT)"),
    "sql replace": lambda lake: lake.sql("CREATE OR REPLACE TABLE v AS SELECT 1 AS n"),
    "sql clone": lambda lake: lake.sql("CREATE TABLE IF NOT EXISTS v SHALLOW CLONE t"),
    "sql attach": lambda lake: lake.sql(f"ATTACH IF NOT EXISTS '{outside(lake, 'o')}' AS v"),
    "sql external": lambda lake: lake.sql(
        f"CREATE EXTERNAL TABLE IF NOT EXISTS v STORED AS PARQUET LOCATION '{outside(lake, 'f.parquet')}'"
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_table_comes_over_a_view(lake: Lake, way: str) -> None:
    with pytest.raises(TableExists, match=TAKEN):
        WAYS[way](lake)
    assert lake.tables() == ["t"]
    assert lake.sql("FROM v").to_pylist() == OF_VIEW
    lake.sql("DROP VIEW v")
    WAYS[way](lake)
    assert "v" in lake


@pytest.mark.parametrize(
    "words",
    [
        ["create", "v"],
        ["ingest", "v", "events.json", "--create"],
        ["upload", "v", "rows.csv"],
    ],
    ids=lambda words: words[0],
)
def test_no_command_creates_a_table_over_a_view(lake: Lake, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "events.json").write_text('{"event": "x"}\n')
    (tmp_path / "rows.csv").write_text("n\n1\n")
    place = [str(tmp_path / word) if "." in word else word for word in words]
    result = CliRunner().invoke(cli, [*place, "--lake", str(folder(lake))])
    assert (result.exit_code, TAKEN in result.output) == (1, True), result.output
    assert lake.sql("FROM v").to_pylist() == OF_VIEW


def test_a_dropped_table_does_not_come_back_over_a_view(lake: Lake) -> None:
    lake.create_table("gone", {"n": "long"}).append(ROWS)
    tag = lake.tag("before")
    lake.drop_table("gone")
    lake.sql("CREATE VIEW gone AS SELECT count(*) AS rows FROM t")
    for come in (
        lambda: lake.undrop("gone"),
        lambda: lake.sql("UNDROP TABLE gone"),
        lambda: lake.create_table("gone", {"n": "long"}),
        lambda: lake.restore(tag=tag.name),
        lambda: lake.restore(tag=tag.name, dry_run=True),
    ):
        with pytest.raises(TableExists, match="there is a view gone"):
            come()
        assert lake.sql("FROM gone").to_pylist() == OF_VIEW
    lake.sql("DROP VIEW gone")
    lake.restore(tag=tag.name)
    assert lake.sql("FROM gone ORDER BY n").to_pylist() == ROWS


def test_a_branch_publishes_no_table_over_a_view(lake: Lake) -> None:
    branch = lake.branch("b")
    with pytest.raises(TableExists, match=TAKEN):
        branch.create_table("v", {"n": "long"})
    branch.create_table("w", {"n": "long"}).append(ROWS)
    lake.sql("CREATE VIEW w AS SELECT count(*) AS rows FROM t")
    with pytest.raises(Conflict, match="there is a view w: DROP VIEW w first"):
        branch.publish()
    assert lake.sql("FROM w").to_pylist() == OF_VIEW


def test_a_view_does_not_come_over_a_table_or_a_stream(lake: Lake) -> None:
    lake.create_stream("s", "t")
    for name, what in (("t", "table"), ("s", "stream")):
        with pytest.raises(TableExists, match=f"there is a {what} {name}: choose another name for the view"):
            lake.sql(f"CREATE OR REPLACE VIEW {name} AS SELECT 1 AS n")
    branch = lake.branch("b")
    branch.create_table("w", {"n": "long"})
    with pytest.raises(TableExists, match="there is a table w"):
        branch.sql("CREATE VIEW w AS SELECT 1 AS n")
