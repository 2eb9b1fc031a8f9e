"""Queries over S3 fetch small files with one GET each, and read copies of them afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import alluvia
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.errors import Corrupt, Unavailable
from alluvia.query.engine import run
from alluvia.query.limits import QueryLimits
from alluvia.query.process import fetching
from alluvia.scratch import scratch_root
from alluvia.store.caches.file_cache import FILES
from tests.s3server import S3Server

OFF = QueryLimits(file_cache_bytes=0)
ROWS = [{"n": number, "name": f"{number:03}"} for number in range(30)]
VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture
def lake(s3_server: S3Server) -> Iterator[alluvia.Lake]:
    """A table of 30 files with a row each, of which nothing is in the cache."""
    lake = alluvia.connect(f"s3://{s3_server.new_bucket()}/lake", clock=None, **s3_server.options)
    table = lake.create_table("t", {"n": "long", "name": "string"}, properties=VECTORS)
    with lake.transaction() as tx:
        for row in ROWS:
            tx.table("t").append([row])
    table.snapshot()
    s3_server.requests()
    yield lake
    s3_server.inject()


def ask(lake: alluvia.Lake, text: str, limits: QueryLimits | None = None) -> list[dict[str, object]]:
    return run(lake.catalog, text, limits).read_all().to_pylist()


def test_ten_of_thirty_files_cost_ten_requests_once(lake: alluvia.Lake, s3_server: S3Server) -> None:
    text = "SELECT count(*) AS c, sum(n) AS s, min(name) AS a FROM t WHERE n BETWEEN 5 AND 14"
    expected = [{"c": 10, "s": 95, "a": "005"}]
    assert ask(lake, text) == expected
    assert s3_server.requests() == {"GET": 10 + 1}  # and a look for a newer commit
    assert ask(lake, text) == expected
    assert s3_server.requests() == {"GET": 1}
    for requests in (10, 0):
        assert ask(lake, text, OFF) == expected
        assert s3_server.requests() == {"GET": requests + 1}  # a small file is all that is read for its footer


def test_a_dry_run_foresees_the_requests_and_makes_none(lake: alluvia.Lake, s3_server: S3Server) -> None:
    lake.table("t").append([{"n": number % 10, "name": "x"} for number in range(20)])
    lake.table("t").delete("n = 3 AND name = 'x'")
    s3_server.requests()
    text = "SELECT sum(n) AS s FROM t WHERE n BETWEEN 5 AND 14"
    *_, total = run(lake.catalog, text, dry_run=True).read_all().to_pylist()
    assert s3_server.requests() == {"GET": 1}  # a look for a newer commit
    assert (total["files_read"], total["requests"]) == (11, 12)  # and the file of the deletion vector
    assert ask(lake, text) == [{"s": 95 + 2 * (5 + 6 + 7 + 8 + 9)}]
    assert s3_server.requests() == {"GET": total["requests"] + 1}


def test_deleted_rows_and_files_that_are_left_to_duckdb(
    lake: alluvia.Lake, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.table("t")
    table.append([{"n": number, "name": "late" * 100} for number in range(100, 400)])
    table.delete("n % 100 IN (7, 50)")
    text = "SELECT count(*) AS c, sum(n) AS s, max(length(name)) AS m FROM t"
    left = [n for n in [*range(30), *range(100, 400)] if n % 100 not in (7, 50)]
    expected = [{"c": 29 + 294, "s": sum(left), "m": 400}]
    assert ask(lake, text, OFF) == expected
    s3_server.requests()
    monkeypatch.setattr(fetching, "SMALL_BYTES", max(file.size for file in table.snapshot().files) - 1)
    assert ask(lake, text) == expected
    assert s3_server.requests() == {"GET": 30 + 1}  # one has no room, and its footer is known
    monkeypatch.undo()
    assert ask(lake, text) == expected
    assert s3_server.requests() == {"GET": 1 + 1}
    assert ask(lake, text) == expected
    assert s3_server.requests() == {"GET": 1}


def test_deletion_vectors_of_one_file_are_one_request_once(lake: alluvia.Lake, s3_server: S3Server) -> None:
    lake.table("t").append([{"n": number % 10, "name": "x"} for number in range(20)])
    lake.table("t").append([{"n": number % 10, "name": "y"} for number in range(20)])
    lake.table("t").delete("n = 3")
    s3_server.requests()
    assert ask(lake, "SELECT count(*) AS c FROM t") == [{"c": 29 + 36}]
    assert s3_server.requests() == {"GET": 1}  # the log says how many rows there are
    for data_files, vector_files in ((29 + 2, 1), (0, 0)):
        assert ask(lake, "SELECT count(n) AS c FROM t") == [{"c": 29 + 36}]
        assert s3_server.requests() == {"GET": 1 + data_files + vector_files}


@pytest.mark.parametrize(
    ("text", "at_most"),
    [
        ("SELECT n FROM t LIMIT 1", 2),
        ("SELECT n FROM (SELECT * FROM t LIMIT 1) ORDER BY n LIMIT 1", 2),
        ("SELECT n FROM t ORDER BY n LIMIT 1", 30),
        ("EXPLAIN SELECT n FROM t", 0),
        ("DESCRIBE t", 0),
        ("SELECT n FROM t ORDER BY n LIMIT 0", 0),
        ("SUMMARIZE t", 30),
    ],
)
def test_a_query_that_need_not_read_all_files_does_not_fetch_them(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, text: str, at_most: int
) -> None:
    monkeypatch.setattr("alluvia.query.opening.EARLY_FILES", 2)
    before = FILES.held_bytes
    run(lake.catalog, text).read_all()
    size = max(file.size for file in lake.table("t").snapshot().files)
    assert round((FILES.held_bytes - before) / size) == at_most


def test_errors_name_the_file_and_no_path(lake: alluvia.Lake, s3_server: S3Server) -> None:
    snapshot = lake.table("t").snapshot()
    file = [*snapshot.files][3]
    lake.store.delete([snapshot.key(file)])
    with pytest.raises(Corrupt, match=f"^data file {file.path} is missing$"):
        ask(lake, "SELECT sum(n) FROM t")
    lake.store.put(snapshot.key(file), b"no Parquet".ljust(file.size))
    with pytest.raises(Corrupt, match=file.path) as damaged:
        ask(lake, "SELECT sum(n) FROM t")
    assert str(FILES.folder) not in str(damaged.value)
    s3_server.inject({"method": "GET", "match": "part-", "fault": "status:403", "times": 1000},
                     {"method": "HEAD", "match": "part-", "fault": "status:403", "times": 1000})  # fmt: skip
    fresh = alluvia.connect(lake.store.uri, clock=None, **s3_server.options)
    with pytest.raises(Unavailable, match="could not be read from the store"):
        ask(fresh, "SELECT sum(n) FROM t WHERE n > 3")
    s3_server.inject()
    lake.table("t").delete("n = 3")
    assert ask(lake, "SELECT count(*) AS c FROM t") == [{"c": 29}]


def test_copies_are_not_those_of_another_lake(lake: alluvia.Lake, s3_server: S3Server) -> None:
    """Two lakes, at servers that differ, whose tables have files of the same names and sizes."""
    assert ask(lake, "SELECT sum(n) AS s FROM t") == [{"s": sum(range(30))}]
    snapshot = lake.table("t").snapshot()
    same = alluvia.connect(lake.store.uri, clock=None, **s3_server.options)
    file, other, *_ = snapshot.files
    lake.store.put(snapshot.key(file), lake.store.get(snapshot.key(other)).ljust(file.size))
    assert ask(same, "SELECT count(DISTINCT n) AS c FROM t") == [{"c": 29}]
    assert ask(lake, "SELECT count(DISTINCT n) AS c FROM t") == [{"c": 30}]


def test_a_query_that_is_killed_holds_no_copies_and_leaves_no_files(lake: alluvia.Lake) -> None:
    before = set(scratch_root().iterdir())
    slow = "SELECT max(levenshtein(repeat('ab', 10000000 + n), repeat('ba', 10000000))) FROM t"
    with pytest.raises(QueryTooCostly, match="longer than"):
        ask(lake, slow, QueryLimits(timeout_seconds=1))
    assert len(FILES._copies) >= 30
    assert all(copy.is_idle for copy in FILES._copies.values())
    assert set(scratch_root().iterdir()) - before <= {FILES.folder}
