"""Flight SQL as the ADBC driver of Apache Arrow speaks it, unchanged, to `alluvia serve`."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal

import adbc_driver_manager
import pyarrow as pa
import pytest

import alluvia
from alluvia.server.guards import QUERIES
from tests.flight.serving import Served, serving_flight

EVERY_TYPE = {
    "long": 1, "text": "é", "amount": Decimal("1.50"), "flag": True, "ratio": 0.5, "data": b"\x00\xff",
    "moment": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "tags": ["a", None],
}  # fmt: skip
COLUMNS = {
    "long": pa.int64(), "text": pa.string(), "amount": pa.decimal128(10, 2), "flag": pa.bool_(), "ratio": pa.float64(),
    "data": pa.binary(), "moment": pa.timestamp("us", "UTC"), "tags": pa.list_(pa.string()),
}  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("flight") / "lake"
    lake = alluvia.connect(place)
    lake.create_table("types", pa.schema(list(COLUMNS.items()))).append([EVERY_TYPE])
    lake.create_table("people", {"id": "long", "name": "string"}).append(
        [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    )
    lake.sql("CREATE VIEW names AS SELECT name FROM people; COMMENT ON COLUMN names.name IS 'in full'")
    lake.create_schema("bronze")
    lake.create_table("bronze.people", {"id": "long", "day": "date"}).append([{"id": 3}])
    lake.sql("CREATE VIEW bronze.days AS SELECT day FROM bronze.people")
    lake.create_schema("empty")
    lake.create_table("old", {"id": "long"}).append([{"id": 1}])
    lake.sql("CREATE VIEW broken AS SELECT id FROM old")
    lake.drop_table("old")
    with serving_flight(place, "--allow-writes") as found:
        yield found


def test_rows_keep_their_types(served: Served) -> None:
    with served.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM types")
        found = cursor.fetch_arrow_table()
    assert found.to_pylist() == [EVERY_TYPE]
    assert found.schema.field("moment").type == pa.timestamp("us", "UTC")


def test_columns_of_one_name_stay_as_they_are(served: Served) -> None:
    with served.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT a.id, b.id FROM people a JOIN people b ON a.id < b.id")
        found = cursor.fetch_arrow_table()
    assert found.column_names == ["id", "id"]
    assert [column.to_pylist() for column in found.columns] == [[1], [2]]


def test_values_are_bound_and_never_text(served: Served) -> None:
    hostile = "a' OR '1'='1"
    assert served.rows("SELECT id FROM people WHERE name = ?", [hostile]) == []
    assert served.rows("SELECT ? AS x, ? AS y", [hostile, 7]) == [(hostile, 7)]
    assert served.rows("SELECT id FROM people WHERE name = $who OR id = $id ORDER BY id", ["a", 2]) == [(1,), (2,)]
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    assert served.rows("SELECT count(*) FROM types WHERE moment > ?", [moment]) == [(1,)]


def test_statements_change_rows_once(served: Served) -> None:
    served.rows("CREATE TABLE once (id BIGINT)")
    assert served.rows("INSERT INTO once VALUES (1)") == [(1, 1)]
    assert served.rows("UPDATE once SET id = ? WHERE id = ?", [5, 1]) == [(1, 2)]
    assert served.rows("SELECT * FROM once") == [(5,)]


def test_rows_of_values_are_one_commit(served: Served) -> None:
    served.rows("CREATE TABLE many (id BIGINT NOT NULL, name STRING)")
    with served.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO many VALUES (?, ?)", [(1, "a"), (2, "b'; --")])
        assert cursor.rowcount == 2
        with pytest.raises(adbc_driver_manager.Error, match="id"):
            cursor.executemany("INSERT INTO many VALUES (?, ?)", [(3, "c"), (None, "d")])
    assert served.rows("SELECT * FROM many ORDER BY id") == [(1, "a"), (2, "b'; --")]
    assert len(served.rows("DESCRIBE HISTORY many")) == 2


def test_many_rows_of_values_are_one_file(served: Served) -> None:
    served.rows("CREATE TABLE batch (id BIGINT, name STRING, day DATE, amount DOUBLE)")
    rows = [(n, f"n{n}", date(2026, 1, 1), None if n % 2 else n / 2) for n in range(3000)]
    with served.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO batch VALUES (?, ?, ?, ?)", rows)
        assert cursor.rowcount == 3000
        cursor.executemany("INSERT INTO batch (day, id) VALUES (?, ?)", [("2026-01-02", 1), ("2026-01-03", 2)])
        with pytest.raises(adbc_driver_manager.Error, match="day"):
            cursor.executemany("INSERT INTO batch (day, id) VALUES (?, ?)", [("2026-01-02", 1), ("no day", 2)])
    assert served.rows("SELECT count(*), sum(id), sum(amount), max(day) FROM batch") == [
        (3002, 4498503, 1124250.0, date(2026, 1, 3))
    ]
    assert served.rows("DESCRIBE DETAIL batch")[0][4] == 2


def test_rows_of_a_data_frame(served: Served) -> None:
    rows = pa.table({"id": range(5000), "name": ["x"] * 5000})
    with served.connect() as connection, connection.cursor() as cursor:
        modes: list[tuple[Literal["create", "append", "create_append", "replace"], int]]
        modes = [("create", 5000), ("append", 10_000), ("create_append", 15_000), ("replace", 5000)]
        for mode, total in modes:
            schema = "main" if mode == "append" else None
            assert cursor.adbc_ingest("frames", rows.to_reader(1000), mode=mode, db_schema_name=schema) == 5000
            assert served.rows("SELECT count(*) FROM main.frames") == [(total,)]
        with pytest.raises(adbc_driver_manager.Error, match="already exists"):
            cursor.adbc_ingest("frames", rows, mode="create")
        with pytest.raises(adbc_driver_manager.Error, match="no table 'frames_none'"):
            cursor.adbc_ingest("frames_none", rows, mode="append")
        with pytest.raises(adbc_driver_manager.Error, match="column id is long in the table"):
            cursor.adbc_ingest("frames", pa.table({"id": ["x"]}), mode="append")
        assert cursor.adbc_ingest("frames", rows, mode="create", db_schema_name="bronze") == 5000
        assert served.rows("SELECT count(*), max(frames.id) FROM bronze.frames") == [(5000, 4999)]
        with pytest.raises(adbc_driver_manager.Error, match=r"no schema 'other'.*CREATE SCHEMA other"):
            cursor.adbc_ingest("frames", rows, mode="create", db_schema_name="other")
        with pytest.raises(adbc_driver_manager.Error, match="one catalog, memory"):
            cursor.adbc_ingest("frames", rows, mode="append", catalog_name="other")
        cursor.execute("SELECT id FROM bronze.frames WHERE id = ? AND bronze.frames.name = ?", (7, "x"))
        assert cursor.fetchall() == [(7,)]
        cursor.execute("DROP TABLE bronze.frames")
    assert served.rows("SELECT count(*) FROM frames") == [(5000,)]


def test_transactions(served: Served) -> None:
    served.rows("CREATE TABLE accounts (id BIGINT)")
    with served.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for end, seen in ((connection.rollback, 0), (connection.commit, 1), (connection.commit, 2)):
            cursor.execute("INSERT INTO accounts VALUES (1)")  # the driver prepares it once, in the first transaction
            cursor.fetchall()
            end()
            assert served.rows("SELECT count(*) FROM accounts") == [(seen,)]
        cursor.execute("INSERT INTO accounts VALUES (2)")
        cursor.execute("SELECT count(*) FROM accounts")
        assert cursor.fetchall() == [(3,)]
        assert served.rows("SELECT count(*) FROM accounts") == [(2,)]
        with pytest.raises(adbc_driver_manager.Error, match="nope"):
            cursor.execute("SELECT nope FROM accounts")
        with pytest.raises(adbc_driver_manager.Error, match="roll it back"):
            cursor.execute("SELECT id FROM accounts")
        with pytest.raises(adbc_driver_manager.Error, match="rolled back, since an earlier statement failed"):
            connection.commit()
    assert served.rows("SELECT count(*) FROM accounts") == [(2,)]


def test_what_tools_list(served: Served) -> None:
    with served.connect() as connection:
        assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]
        found = connection.adbc_get_objects(depth="all", table_name_filter="%e%").read_all().to_pylist()
        ours = connection.adbc_get_objects(depth="all", table_name_filter="%e%", db_schema_filter="main")
        assert ours.read_all().to_pylist()[0]["catalog_db_schemas"] == found[0]["catalog_db_schemas"][:1]
        within = connection.adbc_get_objects(depth="all", db_schema_filter="b%").read_all().to_pylist()
        days = connection.adbc_get_table_schema("people", db_schema_filter="bronze")
        (other,) = connection.adbc_get_objects(depth="all", db_schema_filter="other").read_all().to_pylist()
        assert not other["catalog_db_schemas"]
        schema = connection.adbc_get_table_schema("types")
        (name,) = connection.adbc_get_table_schema("names")
        info = connection.adbc_get_info()
    (catalog,) = found
    assert [each["db_schema_name"] for each in catalog["catalog_db_schemas"]] == ["main", "bronze", "empty"]
    db_schema = catalog["catalog_db_schemas"][0]
    ((bronze,),) = (each["catalog_db_schemas"] for each in within)
    assert bronze["db_schema_name"] == "bronze"
    assert {
        each["table_name"]: [column["column_name"] for column in each["table_columns"]]
        for each in bronze["db_schema_tables"]
    } == {"days": ["day"], "people": ["id", "day"]}
    assert days.names == ["id", "day"]
    listed = {each["table_name"]: each for each in db_schema["db_schema_tables"]}
    assert {"types", "people", "names", "broken"} <= listed.keys()
    assert listed["names"]["table_type"] == "VIEW"
    assert [each["column_name"] for each in listed["names"]["table_columns"]] == ["name"]
    assert not listed["broken"]["table_columns"]
    assert [each["column_name"] for each in listed["people"]["table_columns"]] == ["id", "name"]
    assert schema.names == list(COLUMNS)
    assert schema.field("amount").type == pa.decimal128(10, 2)
    assert (schema.field("amount").metadata or {})[b"ARROW:FLIGHT:SQL:TYPE_NAME"] == b"decimal(10,2)"
    assert (name.metadata or {})[b"ARROW:FLIGHT:SQL:REMARKS"] == b"in full"
    assert info["vendor_name"] == "Alluvia"


def test_columns_are_told_without_a_run(served: Served) -> None:
    served.rows("CREATE TABLE untouched (id BIGINT)")
    with served.connect() as connection, connection.cursor() as cursor:
        found = cursor.adbc_execute_schema("SELECT id, error('never') AS no FROM people")
        assert found.names == ["id", "no"]
        cursor.adbc_execute_schema("INSERT INTO untouched VALUES (1)")
        parameters = cursor.adbc_prepare("SELECT * FROM people WHERE id = ? AND name LIKE ? LIMIT ?")
    assert parameters is not None
    assert parameters.types == [pa.int64(), pa.string(), pa.int64()]
    assert served.rows("SELECT count(*) FROM untouched") == [(0,)]


@pytest.mark.parametrize(
    ("sql", "kind", "reason"),
    [
        ("SELECT nope FROM people", adbc_driver_manager.ProgrammingError, 'INVALID_ARGUMENT.*"nope" not found'),
        ("SELECT * FROM missing", adbc_driver_manager.ProgrammingError, "NOT_FOUND.*no table 'missing'"),
        ("SELECT * FROM read_csv('/etc/passwd')", adbc_driver_manager.ProgrammingError, "read_csv"),
        ("CREATE TABLE people (id BIGINT)", adbc_driver_manager.Error, "people"),
        ("VACUUM people", adbc_driver_manager.Error, "run `alluvia vacuum`"),
        ("SELECT error('später')", adbc_driver_manager.Error, "später"),
        ("SELECT 1 -- " + "x" * 300_000, adbc_driver_manager.ProgrammingError, "more than the limit of 262144"),
    ],
)
def test_errors_have_codes_and_our_texts(served: Served, sql: str, kind: type[Exception], reason: str) -> None:
    with pytest.raises(kind, match=f"(?s){reason}"):
        served.rows(sql)


def test_a_reader_that_leaves_frees_the_place_of_its_query(served: Served) -> None:
    """More readers leave a long answer than there are queries at once."""
    for _ in range(QUERIES.at_once + 1):
        with served.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT range AS n, repeat('x', 200) AS text FROM range(1000000000)")
            assert cursor.fetchone() is not None
    assert served.rows("SELECT count(*) FROM people") == [(2,)]
    body = json.dumps({"query": "SELECT count(*) AS n FROM people"}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{served.http_port}/q", body)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.loads(answer.read()) == {"n": 2}


def test_a_long_answer_is_not_held_in_memory(served: Served) -> None:
    before = peak_bytes(served)
    with served.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT range AS n, repeat('x', 1000) AS text FROM range(400000)")
        total = sum(batch.nbytes for batch in cursor.fetch_record_batch())
    assert total > 400_000_000
    assert peak_bytes(served) - before < 200_000_000


def peak_bytes(served: Served) -> int:
    status = Path(f"/proc/{served.process.pid}/status").read_text("ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024
