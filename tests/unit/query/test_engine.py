from __future__ import annotations

import gc
import tempfile
import threading
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.commit.handle import TableHandle
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.errors import Corrupt, Invalid, TableNotFound, VersionNotFound
from alluvia.processes.pool import Worker
from alluvia.query.engine import run
from alluvia.query.identity import identify
from alluvia.query.limits import QueryLimits
from tests.rejects import create_rejects
from tests.unit.query.conftest import SCHEMA, fill, query, rows_of_day, scans


def test_rows_come_with_the_tables_names_and_types(lake: alluvia.Lake) -> None:
    with run(lake.catalog, "FROM events WHERE n = 21") as result:
        table = result.read_all()
    assert table.schema.names == SCHEMA.names
    assert table.schema.field("ts").type == pa.timestamp("us", tz="UTC")
    assert table.to_pylist() == [rows_of_day(2)[1]]


def test_a_repeated_query_waits_for_its_process_once(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "SELECT kind, sum(n) FROM events e JOIN users u USING (n) GROUP BY kind ORDER BY kind"
    asked: list[str] = []
    send = Worker.send

    def sent(worker: Worker, name: str, rows: pa.Buffer | None = None, /, **request: Any) -> None:
        asked.append(name)
        send(worker, name, rows, **request)

    first = query(lake, text)
    gc.collect()  # which ends queries of other tests, whose rows were not read to the end
    monkeypatch.setattr(Worker, "send", sent)
    assert query(lake, text) == first
    assert asked == ["open", "stream", "close"]  # it waits for `stream` alone: `open` runs while the query is planned
    asked.clear()
    identify(lake.catalog, text)
    assert asked == []
    identify(lake.catalog, f"{text} LIMIT 9")
    assert asked == ["analyse", "close"]  # no database opens for a query that may not run


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT 1 AS one", [(1,)]),
        ("VALUES (1, 'a'), (2, 'b')", [(1, "a"), (2, "b")]),
        ("SELECT count(*) FROM events", [(50,)]),
        ('SELECT count(*) FROM "Events" AS "E e" WHERE "E e".n < 12', [(2,)]),
        ("SELECT name FROM users JOIN events USING (n) ORDER BY name", [("Ada",), ("Grace",)]),
        ("SELECT count(*) FROM events(version => 1)", [(10,)]),
        ("SELECT count(*) FROM events AT (VERSION => 2)", [(20,)]),
        ("SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM events(version => 3))", [(50, 30)]),
        ("SHOW TABLES", [("events",), ("users",)]),
        ("SELECT column_name FROM (DESCRIBE users)", [("n",), ("name",)]),
        ("SELECT column_name, count FROM (SUMMARIZE users) ORDER BY ALL", [("n", 3), ("name", 3)]),
        ("SELECT typeof(ts) FROM events LIMIT 1", [("TIMESTAMP WITH TIME ZONE",)]),
        ("SELECT current_setting_is_a_column FROM (SELECT 1 AS current_setting_is_a_column)", [(1,)]),
        ("SELECT date_trunc('day', ts)::VARCHAR FROM events WHERE n = 15", [("2024-01-01 00:00:00+00",)]),
        ("SELECT i FROM range(3) t(i) WHERE i > 0", [(1,), (2,)]),
        ("PIVOT users ON name IN ('Ada') USING count(*) GROUP BY n ORDER BY n", [(10, 1), (21, 0), (99, 0)]),
    ],
)
def test_queries(lake: alluvia.Lake, text: str, rows: list[tuple[object, ...]]) -> None:
    assert query(lake, text) == rows


def test_a_moment_finds_the_version_of_then(own_lake: alluvia.Lake, tmp_path: Path) -> None:
    clock = ManualClock(start_us=int(datetime(2024, 6, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000)
    timed = alluvia.connect(str(tmp_path / "timed"), clock=clock)
    table = timed.create_table("t", {"n": "long"})
    for n in (1, 2, 3):
        clock.advance(3600)
        table.append([{"n": n}])
    for moment in ("'2024-06-01 14:30:00'", "'2024-06-01T16:30:00+02:00'", "TIMESTAMP '2024-06-01 14:30:00'"):
        assert query(timed, f"SELECT max(n) FROM t({moment})") == [(2,)]
        assert query(timed, f"SELECT max(n) FROM t AT (TIMESTAMP => {moment})") == [(2,)]
    assert query(timed, "SELECT max(n) FROM t(now() - INTERVAL 1 MINUTE)") == [(3,)]
    assert query(timed, "SELECT n FROM t EXCEPT ALL SELECT n FROM t('2024-06-01 14:30:00')") == [(3,)]
    with pytest.raises(VersionNotFound):
        run(timed.catalog, "FROM t('2020-01-01')")
    with pytest.raises(TableNotFound, match="the lake has no table 'nothing'"):
        run(timed.catalog, "FROM nothing AT (OFFSET => '1 hour ago')")
    with pytest.raises(VersionNotFound):
        run(timed.catalog, "FROM t(version => 9)")


def test_an_offset_finds_the_version_of_so_long_ago() -> None:
    hour_us = 3_600_000_000
    clock = ManualClock(start_us=int(datetime.now(UTC).timestamp()) * 1_000_000 - 4 * hour_us)
    timed = alluvia.connect(f"memory://{uuid.uuid4()}", clock=clock)
    table = timed.create_table("t", {"n": "long"})
    for n in (1, 2, 3):
        clock.advance(3600)
        table.append([{"n": n}])  # three, two and one hours ago
    for ago, n in (("150 minutes ago", 1), ("1 hour 30 minutes ago", 2), ("1 minute ago", 3)):
        assert query(timed, f"SELECT max(n) FROM t AS old AT (OFFSET => '{ago}')") == [(n,)]
    assert query(timed, "SELECT max(n) FROM t(offset => -5400)") == [(2,)]
    with pytest.raises(VersionNotFound, match="did not exist yet"):
        run(timed.catalog, "FROM t AT (OFFSET => '5 hours ago')")
    assert identify(timed.catalog, "FROM t AT (OFFSET => '5 hours ago')") is None  # which soon means another version


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("FROM t AT (OFFSET => 'soon')", "'soon' is not a time ago: use for example '1 hour ago'"),
        ("FROM t AT (OFFSET => now())", "OFFSET: write how long ago as text"),
        ("FROM events('yesterday')", "must be a timestamp, as in events"),
        ("FROM events(n)", "must be a timestamp"),
        ("FROM events('x' || 'y')", "must be a timestamp"),
        ("FROM nothing('2024-01-01')", r"neither a table of the lake \(the tables are: events, users\) nor"),
        ("FROM read_text('/etc/passwd')", r"read_text\(\) is neither a table of the lake"),
    ],
)
def test_an_invalid_moment_is_refused(lake: alluvia.Lake, text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        run(lake.catalog, text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("FROM nothing", "; the tables are: events, users"),
        ("FROM 'x.parquet'", "; the tables are: events, users"),
        ("FROM events.other", r": did you mean events\?"),
        ("FROM a.main.events", "; the tables are: events, users"),
        ("FROM a.b.events", r": did you mean events\?"),
        ("FROM eventz", r": did you mean events\?"),
    ],
)
def test_an_unknown_table_is_answered_with_the_nearest_or_with_all(lake: alluvia.Lake, text: str, told: str) -> None:
    with pytest.raises(TableNotFound, match=f"has no table '[^']*'{told}$"):
        run(lake.catalog, text)


def test_the_error_says_that_a_lake_is_empty(own_lake: alluvia.Lake, tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match=f"there is no folder {tmp_path / 'lake'}"):
        run(own_lake.catalog, "FROM events")
    (tmp_path / "lake").mkdir()
    with pytest.raises(TableNotFound, match="it holds no tables yet"):
        run(own_lake.catalog, "FROM events")


def test_a_table_named_twice_is_read_at_one_version(own_lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer's commit between the two snapshots must not show in one of them."""
    table = own_lake.create_table("t", {"n": "long"})
    table.append([{"n": 1}])
    asked = 0

    catalog = Lake(own_lake.store, own_lake.clock).catalog
    find = catalog.handle

    def racing(name: str) -> TableHandle:
        nonlocal asked
        asked += 1
        own_lake.table(name).append([{"n": asked}])
        return find(name)

    monkeypatch.setattr(catalog, "handle", racing)
    with run(catalog, "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM t)") as result:
        (row,) = result.read_all().to_pylist()
    assert len(set(row.values())) == 1
    assert asked == 1


def test_a_memory_lake_is_queried_like_any_other() -> None:
    lake = alluvia.connect(f"memory://{uuid.uuid4()}")
    fill(lake)
    assert query(lake, "SELECT count(*), min(n) FROM events WHERE n >= 40") == [(20, 40)]
    assert [scan.files_read for scan in scans(lake, "FROM events WHERE n >= 40")] == [2]


@pytest.mark.slow
def test_partition_values_may_hold_any_character(own_lake: alluvia.Lake) -> None:
    names = ["a*b", "a?b", "[ab]", "it's", "50%", "a/b", "ü ß", "a=b", "..", "{x}", "a\nb", '"q"', "z"]
    table = own_lake.create_table("t", {"name": "string", "n": "long"}, partition_by=["name"])
    table.append([{"name": name, "n": n} for n, name in enumerate(names)])
    assert query(own_lake, "SELECT count(*) FROM t") == [(len(names),)]
    for n, name in enumerate(names):
        quoted = name.replace("'", "''")
        text = f"SELECT n, name FROM t WHERE name = '{quoted}'"
        assert query(own_lake, text) == [(n, name)]
        assert [scan.files_read for scan in scans(own_lake, text)] == [1]


def test_a_partition_value_may_hold_a_nul(own_lake: alluvia.Lake) -> None:
    table = own_lake.create_table("t", {"name": "string", "n": "long"}, partition_by=["name"])
    table.append([{"name": "x\0y", "n": 1}, {"name": "\0", "n": 2}, {"name": "x", "n": 3}])
    assert query(own_lake, "SELECT n, name FROM t ORDER BY n") == [(1, "x\0y"), (2, "\0"), (3, "x")]
    assert query(own_lake, "SELECT n FROM t WHERE name = 'x'") == [(3,)]
    assert query(own_lake, "SELECT n FROM t WHERE name = 'x' || chr(0) || 'y'") == [(1,)]
    table.append([{"name": "x\0y", "n": 4}])
    table.optimize()
    assert table.delete("name = 'x'").rows_deleted == 1
    assert query(own_lake, "SELECT n, name FROM t ORDER BY n") == [(1, "x\0y"), (2, "\0"), (4, "x\0y")]


@pytest.mark.parametrize("schema", [{"a\0b": "long"}, {"a": "struct<x\0y: long>"}])
def test_a_column_name_may_not_hold_a_nul(own_lake: alluvia.Lake, schema: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        own_lake.create_table("t", schema)


def test_nothing_is_left_behind(lake: alluvia.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run(lake.catalog, "SELECT count(*) FROM events").read_all()
    run(lake.catalog, "FROM events").close()
    with pytest.raises(Invalid):
        run(lake.catalog, "SELECT bad FROM events")
    assert [left for own in tmp_path.iterdir() for left in own.iterdir()] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "SELECT n,\n  wrong\nFROM events WHERE n < 20",
            'Binder Error: Referenced column "wrong" not found in FROM clause!|LINE 2:   wrong|          ^',
        ),
        (
            "SELECT e.n FROM events e WHERE nope(e.n)",
            "Scalar Function with name nope does not exist!|\n                                       ^",
        ),
        (
            "SELECT CAST(kind AS INT) FROM events",
            "Conversion Error: Could not convert string 'kind-|LINE 1: SELECT CAST(kind AS INT)|\n               ^",
        ),
        ("SELECT error('own ' || 'words')", "Invalid Input Error: own words"),
    ],
)
def test_duckdbs_messages_speak_of_the_users_text(lake: alluvia.Lake, text: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        run(lake.catalog, text).read_all()
    for part in message.split("|"):
        assert part in str(caught.value)
    assert "alluvia." not in str(caught.value)


def test_a_query_that_fails_on_its_last_row_fails(lake: alluvia.Lake) -> None:
    with pytest.raises(Invalid, match=r"^Invalid Input Error: late$|DuckDB does not say why"):
        run(
            lake.catalog, "SELECT CASE WHEN i = 9999999 THEN error('late') ELSE i END FROM range(10000000) t(i)"
        ).read_all()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM range(100000000000) t(i) WHERE hash(i) = 3",
        "SELECT i FROM range(100000000000) t(i)",
        "SELECT count(*) FROM events a, events b, events c, events d, events e, events f, events g, events h",
    ],
)
def test_a_query_beyond_its_time_is_stopped(lake: alluvia.Lake, text: str) -> None:
    with (
        pytest.raises(QueryTooCostly, match=r"longer than the 0.2 seconds allowed"),
        run(lake.catalog, text, QueryLimits(timeout_seconds=0.2)) as result,
    ):
        for _ in result:
            pass


def test_a_query_beyond_its_memory_is_refused(lake: alluvia.Lake) -> None:
    text = "SELECT len(list(hash(i))) FROM range(20000000) t(i)"
    with pytest.raises(QueryTooCostly, match="more memory than the 50 MB allowed"):
        run(lake.catalog, text, QueryLimits(memory_bytes=50_000_000, spill_bytes=1_000_000)).read_all()


def test_a_query_may_spill_to_its_own_folder(lake: alluvia.Lake) -> None:
    limits = QueryLimits(memory_bytes=60_000_000, spill_bytes=1_000_000_000, threads=1)
    rows = "SELECT i, repeat('x', 30) || i AS s FROM range(1500000) t(i) ORDER BY hash(i)"
    text = f"SELECT i FROM ({rows}) LIMIT 1 OFFSET 1499998"
    assert len(query_with(lake, text, limits)) == 1


def query_with(lake: alluvia.Lake, text: str, limits: QueryLimits) -> list[object]:
    return list(run(lake.catalog, text, limits).read_all().to_pylist())


def test_a_damaged_or_missing_file_is_the_lakes_fault(own_lake: alluvia.Lake, tmp_path: Path) -> None:
    fill(own_lake, days=2)
    paths = sorted((tmp_path / "lake").rglob("*.parquet"))
    paths[0].write_bytes(b"garbage" * 100)
    with pytest.raises(Corrupt, match=r"data file .* cannot be read: Parquet magic bytes") as caught:
        run(own_lake.catalog, "SELECT sum(n) FROM events").read_all()
    assert str(tmp_path) not in str(caught.value)
    assert query(own_lake, "SELECT count(*) FROM events WHERE n >= 20") == [(10,)]
    paths[0].unlink()
    with pytest.raises(Corrupt, match=r"data file .*parquet is missing") as missing:
        run(own_lake.catalog, "SELECT sum(n) FROM events").read_all()
    assert str(tmp_path) not in str(missing.value)


def test_tables_of_rejects_are_named_with_a_dot(own_lake: alluvia.Lake) -> None:
    fill(own_lake, days=1)
    rejects = create_rejects(own_lake, "events", {"reason": "string"})
    rejects.append([{"reason": "not JSON"}])
    assert query(own_lake, "SELECT reason FROM events._rejects") == [("not JSON",)]
    assert query(own_lake, "SELECT r.reason FROM events._rejects(version => 1) r, events LIMIT 1") == [("not JSON",)]
    assert query(own_lake, "SHOW TABLES") == [("events",)]


def test_queries_run_side_by_side(lake: alluvia.Lake) -> None:
    answers: dict[int, list[tuple[object, ...]]] = {}

    def ask(day: int) -> None:
        answers[day] = query(lake, f"SELECT count(*), min(n) FROM events WHERE day = '2024-01-0{day}'")

    threads = [threading.Thread(target=ask, args=(day,)) for day in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {day: [(10, day * 10)] for day in range(1, 6)}


def test_lake_sql_gives_a_table(lake: alluvia.Lake) -> None:
    assert lake.sql("SELECT count(*) AS c FROM events").to_pylist() == [{"c": 50}]
