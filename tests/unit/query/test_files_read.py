"""The files that a query reads: what EXPLAIN, a dry run and an answer say about them."""

from __future__ import annotations

from pathlib import Path

import pytest

import alluvia
from alluvia.query.engine import run
from alluvia.query.limits import file_requests
from alluvia.query.scans import TableScan
from tests.unit.query.conftest import query, scans


def test_an_answer_says_what_it_read(lake: alluvia.Lake) -> None:
    files = lake.table("events").snapshot().files
    sizes = {file.path.split("/")[0]: file.size for file in files}
    users = sum(file.size for file in lake.table("users").snapshot().files)
    assert scans(lake, "SELECT count(*) FROM events e, users WHERE ts::DATE = '2024-01-02'") == [
        TableScan("events", 5, 5, 4, 1, sum(sizes.values()), sizes["ts_day=2024-01-02"], 1),
        TableScan("users", 2, 2, 2, 0, users, 0, 0),  # of which no column is needed
    ]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT count(*) FROM t", [(30,)]),
        ("SELECT count(*) + 1 AS n, 'x' FROM t AS a, t AS b HAVING count(*) > 1", [(901, "x")]),
        ("SELECT 1 FROM t LIMIT 2", [(1,), (1,)]),
        ("SELECT EXISTS (SELECT 1 FROM t) FROM t(version => 0) GROUP BY ALL", []),
    ],
)
def test_a_query_that_needs_no_column_opens_no_file(tmp_path: Path, text: str, rows: list[tuple[object, ...]]) -> None:
    lake = alluvia.connect(str(tmp_path))
    table = lake.create_table("t", {"x": "long"}, properties={"delta.enableDeletionVectors": "true"})
    for number in range(4):
        table.append([{"x": each} for each in range(10 * number, 10 * number + 10)])
    table.delete("x >= 5 AND x < 15")
    with run(lake.catalog, text) as result:
        assert [tuple(row.values()) for row in result.read_all().to_pylist()] == rows
        assert [scan.files_read for scan in result.tables] == [0] * len(result.tables)


def test_a_query_that_may_need_a_column_reads_files(tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path))
    table = lake.create_table("t", {"x": "long"})
    table.append([{"x": 1}, {"x": None}])
    assert query(lake, "SELECT count(x) FROM t") == [(1,)]
    assert query(lake, "SELECT count(*) FROM t WHERE x = 1") == [(1,)]
    assert query(lake, "SELECT count(t) FROM t") == [(2,)]
    assert query(lake, "SELECT count(COLUMNS(*)) FROM t") == [(1,)]


def test_explain_names_files_and_gives_duckdbs_plan(lake: alluvia.Lake) -> None:
    table = run(lake.catalog, "EXPLAIN SELECT sum(n) FROM events JOIN users USING (n) WHERE events.n < 20").read_all()
    first, second, last = table.to_pylist()
    assert first | {"bytes_read": 0, "bytes_total": 0, "dollars": 0} == {
        "table": "events", "version": 5, "files_total": 5, "files_pruned": 4, "files_read": 1,
        "bytes_total": 0, "bytes_read": 0, "requests": 1, "dollars": 0, "plan": None,
    }  # fmt: skip
    assert 0 < first["bytes_read"] < first["bytes_total"]
    assert (second["table"], second["files_pruned"]) == ("users", 0)
    assert last["table"] is None
    assert "HASH_JOIN" in last["plan"].upper().replace(" ", "_")
    assert "n<20" in last["plan"].replace(" ", "")


def test_a_dry_run_names_files_bytes_requests_and_dollars(lake: alluvia.Lake) -> None:
    text = "SELECT sum(n) FROM events JOIN users USING (n) WHERE events.n < $most"
    first, second, total = run(lake.catalog, text, parameters={"most": 20}, dry_run=True).read_all().to_pylist()
    files = lake.table("events").snapshot().files
    size = next(file.size for file in files if file.path.startswith("ts_day=2024-01-01"))
    price = 1 * 0.0000004 + size / 75e6 * 3.5 * 0.0000133334  # a GET, and a function of 3.5 GB meanwhile
    assert first == {
        "table": "events", "version": 5, "files_total": 5, "files_pruned": 4, "files_read": 1,
        "bytes_total": sum(file.size for file in files), "bytes_read": size,
        "requests": 1, "dollars": pytest.approx(price),
    }  # fmt: skip
    assert (second["table"], second["files_read"], second["requests"]) == ("users", 2, 2)
    for name in ("files_total", "files_pruned", "files_read", "bytes_total", "bytes_read", "requests"):
        assert total[name] == first[name] + second[name]
    assert (total["table"], total["dollars"]) == (None, pytest.approx(first["dollars"] + second["dollars"]))
    *_, explained = run(lake.catalog, f"EXPLAIN {text}", parameters={"most": 20}).read_all().to_pylist()
    assert explained | {"plan": None} == total | {"plan": None}
    [nothing] = run(lake.catalog, "SHOW TABLES", dry_run=True).read_all().to_pylist()
    assert (nothing["table"], nothing["files_read"], nothing["dollars"]) == (None, 0, 0)


def test_large_files_cost_more_requests() -> None:
    mib = 1 << 20
    assert [file_requests(size * mib) for size in (0, 4, 5, 8, 9, 128)] == [1, 1, 2, 2, 3, 17]
