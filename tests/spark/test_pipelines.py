"""Pipelines on Spark: a declaration gives the rows that it gives without Spark, for every kind."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import alluvia
from alluvia.api.lake import Lake
from alluvia.cli.command_line import cli
from alluvia.pipelines.running import TableRun
from alluvia_spark import pipelines
from alluvia_spark.pipelines import spark_execution
from alluvia_spark.upkeep import job
from tests.spark import faults

SHARE_BYTES = 4000
DECLARED = {
    "kept": "(CONSTRAINT few EXPECT (n < 15) ON VIOLATION QUARANTINE) AS SELECT id, visitor, n, ts FROM events",
    "totals": "AS SELECT visitor, count(*) AS c, sum(n) AS s, max(ts) AS last FROM events GROUP BY visitor",
    "distinct_ids": """(CONSTRAINT some EXPECT (ids > 3) ON VIOLATION QUARANTINE)
        AS SELECT visitor, count(DISTINCT id % 7) AS ids FROM events GROUP BY visitor""",
    "sessions": """KEY (visitor, session) AS WITH marked AS (
          SELECT visitor, ts, id, CASE WHEN ts - lag(ts) OVER w < INTERVAL 30 MINUTE THEN 0 ELSE 1 END AS starts
          FROM events WINDOW w AS (PARTITION BY visitor ORDER BY ts, id)),
        numbered AS (SELECT *, sum(starts) OVER (PARTITION BY visitor ORDER BY ts, id) AS session FROM marked)
        SELECT visitor, session, min(ts) AS begins, count(*) AS views FROM numbered GROUP BY visitor, session""",
    "joined": """KEY (visitor) AS SELECT e.visitor, count(*) AS c, max(f.seq) AS seq
        FROM events e LEFT JOIN feed f ON f.visitor = e.visitor GROUP BY e.visitor""",
    "newest": "KEY (k) SEQUENCE BY seq DELETE WHEN op = 'd' AS SELECT * FROM feed",
    "past": "KEY (k) SEQUENCE BY seq DELETE WHEN op = 'd' SCD TYPE 2 AS SELECT k, seq, op FROM feed",
    "pairs": "AS SELECT DISTINCT visitor, n FROM events",
    "declared_full": "KIND FULL AS SELECT visitor, n FROM events WHERE n > 3",
    "busiest": "AS SELECT visitor, c FROM totals ORDER BY c DESC, visitor LIMIT 3",
}
"""A table of each kind, by the ways in which its rows are shared out."""


class Both:
    """Two lakes with the same rows: pipelines of one run on Spark, those of the other do not."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._chance = random.Random(7)
        self.lakes = [alluvia.connect(str(folder / name)) for name in ("spark", "duckdb")]
        self.path = folder / "pipelines"
        self.path.mkdir()
        texts = [f"CREATE TABLE {name} {text}" for name, text in DECLARED.items()]
        (self.path / "all.sql").write_text(";\n".join(texts))
        for lake in self.lakes:
            lake.sql("CREATE TABLE events (id BIGINT, visitor VARCHAR, n INT, ts TIMESTAMPTZ, price DECIMAL(9, 2))")
            lake.sql("CREATE TABLE feed (k BIGINT, seq BIGINT, op VARCHAR, visitor VARCHAR)")
        self.number = 0

    def append(self, rows: int = 150) -> None:
        events, feed = [], []
        for _ in range(rows):
            self.number += 1
            visitor = self._chance.choice(["a", "b", "c", "d", "Ünï", "", None])
            hour, minute = self._chance.randrange(24), self._chance.randrange(60)
            price = None if self._chance.random() < 0.1 else f"{self._chance.randrange(1000)}.25"
            events.append((self.number, visitor, self._chance.randrange(20), f"2026-01-01 {hour}:{minute}:00Z", price))
            late = self.number - self._chance.choice([0, 0, 0, 40])
            feed.append((self._chance.randrange(30), late, self._chance.choice("iuud"), visitor))
        self.sql(f"INSERT INTO events VALUES {', '.join(map(literals, events))}")
        self.sql(f"INSERT INTO feed VALUES {', '.join(map(literals, feed))}")

    def sql(self, text: str) -> None:
        for lake in self.lakes:
            lake.sql(text)

    def run(self, *select: str, full_refresh: bool = False) -> list[TableRun]:
        """Run both pipelines, and return the reports of Spark's, which are those of the other."""
        on_spark = pipelines.run(
            self._spark, str(self.lakes[0].uri), self.path, select, full_refresh=full_refresh, share_bytes=SHARE_BYTES
        )
        local = self.lakes[1].pipeline(self.path).run(select, full_refresh=full_refresh)
        for one, other in zip(on_spark, local, strict=True):
            assert one.error is None
            for name in ("table", "kind", "mode", "sources", "rows", "units", "failed", "quarantined"):
                assert getattr(one, name) == getattr(other, name), (one, other)
        for name in [each.table for each in on_spark]:
            aside = [f"{name}_quarantine"] if "QUARANTINE" in DECLARED[name] else []
            for written in (name, *aside):
                assert rows(self.lakes[0], written) == rows(self.lakes[1], written), written
        return on_spark


def literals(row: tuple[Any, ...]) -> str:
    return f"({', '.join('NULL' if each is None else repr(each) for each in row)})"


def rows(lake: Lake, name: str) -> Counter[str]:
    return Counter(map(repr, lake[name].to_arrow().to_pylist()))


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Both:
    made = Both(spark, tmp_path_factory.mktemp("both"))
    for _ in range(3):
        made.append()
    return made


def test_every_kind_has_the_same_rows(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = {each.table: each for each in both.run()}
    kinds = {name: each.kind for name, each in reports.items()}
    assert set(kinds.values()) == {"append", "aggregate", "keyed", "full"}
    assert {each.mode for each in reports.values()} == {"rebuilt"}
    assert reports["sessions"].files_added > 1  # several tasks have written
    both.append()
    both.sql("DELETE FROM events WHERE n = 4")
    both.sql("UPDATE feed SET op = 'u' WHERE k = 3")
    modes = {each.table: each.mode for each in both.run()}
    assert (modes["kept"], modes["totals"], modes["sessions"], modes["past"]) == ("appended", *["changed"] * 3)
    monkeypatch.setattr(spark_execution, "WITHIN_BYTES", 0)  # units that are too many to be sent to all tasks
    both.append()
    both.run("distinct_ids", "past")


def test_a_rollup_has_the_rows_that_its_query_gives(spark: SparkSession, both: Both) -> None:
    lake = both.lakes[0]
    query = """SELECT CASE WHEN n > 3 THEN 'many' END AS much, e.visitor, date_trunc('hour', e.ts) AS hour,
        count(*) AS c, count(DISTINCT n % 4) AS some FROM events AS e WHERE id <> 7 GROUP BY 1, 2, 3"""
    lake.create_rollup("hourly", query, fill=False)
    reports = [pipelines.run_declared(spark, lake.uri, "hourly", share_bytes=SHARE_BYTES)]
    assert rows(lake, "hourly") == Counter(map(repr, lake.sql(query).to_pylist()))
    both.sql("DELETE FROM events WHERE id % 50 = 3")
    reports.append(pipelines.run_declared(spark, lake.uri, "hourly", share_bytes=SHARE_BYTES))
    assert rows(lake, "hourly") == Counter(map(repr, lake.sql(query).to_pylist()))
    assert [each.mode for each in reports] == ["rebuilt", "recomputed"]
    assert all(each.files_added > 1 for each in reports)  # several tasks have written


def test_an_error_in_a_task_names_the_row_and_leaves_nothing(spark: SparkSession, both: Both, tmp_path: Path) -> None:
    lake = both.lakes[0]
    (tmp_path / "bad.sql").write_text("""
        CREATE TABLE strict (CONSTRAINT small EXPECT (n < 19) ON VIOLATION FAIL) AS SELECT id, n FROM events;
        CREATE TABLE doubled KEY (k) AS SELECT DISTINCT k, seq FROM feed""")
    before = {each.key for each in lake.store.list("") if each.key.endswith(".parquet")}
    strict, doubled = pipelines.run(spark, lake.uri, tmp_path, share_bytes=SHARE_BYTES)
    assert "a row does not meet the expectation small (n < 19): id=" in str(strict.error)
    assert 'two rows of table doubled have the same KEY ("k")' in str(doubled.error)
    assert {each.key for each in lake.store.list("") if each.key.endswith(".parquet")} == before
    assert "strict" not in lake.tables()


@pytest.mark.parametrize("name", ["kept", "sessions"])
def test_a_lost_executor_repeats_its_share(
    both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    function = "compute_pieces" if name == "kept" else "compute_share"
    dying = faults.DyingTask(getattr(spark_execution, function), str(tmp_path / "died"))
    monkeypatch.setattr(spark_execution, function, dying)
    (report,) = both.run(name, full_refresh=True)
    assert (tmp_path / "died").exists()
    lake = both.lakes[0]
    assert lake[name].version == report.version
    assert {each.kind for each in lake[name].verify(full=True).findings} <= {"orphan-files"}


def test_a_killed_driver_leaves_the_table_as_it_was(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = both.lakes[0]
    before = (lake["sessions"].version, rows(lake, "sessions"))
    plain = spark_execution.SparkExecution.written

    def killed(*arguments: Any) -> Any:
        plain(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(spark_execution.SparkExecution, "written", killed)
        with pytest.raises(KeyboardInterrupt):
            both.run("sessions", full_refresh=True)
    assert (lake["sessions"].version, rows(lake, "sessions")) == before
    assert both.run("sessions", full_refresh=True)[0].mode == "rebuilt"


def test_commands_and_jobs_run_pipelines(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark  # the session that they find
    monkeypatch.setattr(pipelines, "SHARE_BYTES", 500)
    lake = alluvia.connect(str(tmp_path / "lake"))
    lake.sql("CREATE TABLE events AS SELECT range AS id, range % 3 AS n FROM range(10)")
    (tmp_path / "all.sql").write_text("CREATE TABLE counted AS SELECT n, count(*) AS c FROM events GROUP BY n")
    words = ["--lake", str(tmp_path / "lake"), "--path", str(tmp_path / "all.sql"), "--json"]
    done = CliRunner().invoke(cli, ["pipeline", "run", *words, "--spark"])
    assert json.loads(done.stdout)["mode"] == "rebuilt", done.output
    lake.sql("INSERT INTO events VALUES (10, 5)")
    assert job.main(["pipeline", "--lake", str(tmp_path / "lake"), "--table", "counted"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["operation"], answer["report"]["mode"]) == ("pipeline", "changed")
    assert lake.sql("FROM counted ORDER BY n").to_pylist()[-1] == {"n": 5, "c": 1}
    assert job.main(["pipeline", "--lake", str(tmp_path / "lake"), "--table", "events"]) == 1
    assert "table events is made by no pipeline" in capsys.readouterr().err
    again = ["pipeline", "--lake", str(tmp_path / "lake"), "--table", "counted", "--how", '{"full_refresh": 1}']
    assert job.main(again) == 1
    lake.create_rollup("hits", "SELECT n, count(*) AS c FROM events GROUP BY n", fill=False)
    done = CliRunner().invoke(cli, ["rollup", "refresh", *words[:2], "--json", "--spark"])
    assert json.loads(done.stdout)["mode"] == "rebuilt", done.output
    assert job.main(["pipeline", *words[:2], "--table", "hits", "--how", '{"full_refresh": true}']) == 0
    assert json.loads(capsys.readouterr().out)["report"]["reason"] == "it was asked for"
    assert job.main(["verify", *words[:2], "--table", "hits"]) == 0
    next(file for file in (tmp_path / "lake" / "events").glob("**/*.parquet")).unlink()
    capsys.readouterr()
    assert job.main(["verify", *words[:2], "--table", "events"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["report"]["found"] == {"data-file-missing": 1}
    assert "table events is damaged" in said.err
    lake.branch("b")
    refused = CliRunner().invoke(cli, ["pipeline", "run", *words, "--spark", "--branch", "b"])
    assert "--spark works on the lake itself" in refused.output


def test_the_section_of_the_page_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, section = (Path(__file__).parents[2] / "docs" / "PIPELINES.md").read_text("utf-8").split("\n## On Spark\n")
    (block,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    exec(compile(block, "PIPELINES.md", "exec"), {"spark": spark})
