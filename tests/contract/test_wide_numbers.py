"""Numbers of more than 64 bits in tables, statistics, results and parameters: each keeps its value, or is refused."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.errors import Invalid
from tests.judges import deltalake_rows, duckdb_rows, ours

WHOLE = pa.decimal128(38, 0)
MOST, LEAST = Decimal(10**38 - 1), Decimal(1 - 10**38)
HUGE, UNSIGNED = 2**127 - 1, 2**128 - 1
BEYOND = r"has a value of the type U?HUGEINT beyond the 38 digits of DECIMAL\(38, 0\)"
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (WHOLE, [MOST, Decimal(2**64)]),
    "negative": (WHOLE, [LEAST, Decimal(-(2**63) - 1)]),
    "fraction": (pa.decimal128(38, 18), [Decimal(10**19), Decimal("12345678901234567890.000000000000000001")]),
    "double": (pa.float64(), [1e30, -1.7976931348623157e308]),
    "tiny": (pa.float64(), [5e-324, 1e-30]),
    "float": (pa.float32(), [2.0**100, -(2.0**127)]),
}


@pytest.fixture
def lake(tmp_path: Path) -> alluvia.Lake:
    """A lake in a directory: what is tested here is the same in every store."""
    return alluvia.connect(str(tmp_path))


@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_a_table_with_wide_numbers_can_be_changed(tmp_path: Path, name: str, partitioned: bool, vectors: str) -> None:
    kind, (one, other) = KINDS[name]
    if partitioned and not pa.types.is_decimal(kind):
        return  # which no partition may have
    place = str(tmp_path)
    alluvia.connect(place).create_table(
        "t",
        pa.schema([("k", pa.int64()), ("v", kind)]),
        partition_by=["v"] if partitioned else [],
        properties={"delta.enableDeletionVectors": vectors},
    )

    def table() -> alluvia.Table:
        """Open the table as another process would, which knows its statistics only from the log."""
        return alluvia.connect(place).table("t")

    for numbers in (range(6), range(6, 12)):
        table().append([{"k": number, "v": one if number % 2 else other} for number in numbers])
    assert table().delete("k = 1").rows_deleted == 1
    assert table().update({"k": "k + 100"}, where="k = 2").rows_updated == 1
    table().upsert([{"k": 3, "v": other}], on=["k"])
    table().optimize()
    table().checkpoint()
    assert table().erase("k = 4").rows == 1
    assert table().delete(f"v = '{one}'").rows_deleted == 4
    table().checkpoint()
    wanted = dict.fromkeys((0, 3, 6, 8, 10, 102), other)
    assert {row["k"]: row["v"] for row in table().to_arrow().to_pylist()} == wanted
    report = table().verify(full=True)
    assert (report.ok, report.found) == (True, {})
    assert duckdb_rows(table()) == ours(table())
    if vectors == "false":  # which deltalake does not read
        assert deltalake_rows(table()) == ours(table())


@pytest.mark.parametrize(
    "value",
    [
        f"{UNSIGNED}::UHUGEINT", f"{HUGE}::UHUGEINT", f"{HUGE}::HUGEINT", f"-{HUGE}::HUGEINT", f"{10**38}",
        f"[1, {HUGE}::HUGEINT]", f"[{UNSIGNED}::UHUGEINT]::UHUGEINT[1]", f"{{'a': {{'b': {HUGE}::HUGEINT}}}}",
        f"MAP {{{HUGE}::HUGEINT: 1}}", f"MAP {{1: {UNSIGNED}::UHUGEINT}}", f"union_value(a := {UNSIGNED}::UHUGEINT)",
        f"(SELECT sum(x) FROM (VALUES ({10**38 - 1}::HUGEINT), (1)) AS t(x))",
    ],
)  # fmt: skip
def test_integers_that_arrow_would_change_are_refused(lake: alluvia.Lake, value: str) -> None:
    with pytest.raises(Invalid, match=BEYOND):
        lake.sql(f"SELECT {value} AS v")
    with pytest.raises(Invalid, match=BEYOND):
        lake.sql(f"CREATE TABLE c AS SELECT {value} AS v")
    assert lake.sql(f"SELECT CAST({value} AS VARCHAR) AS v").num_rows == 1


@pytest.mark.parametrize("value", [f"{UNSIGNED}::UHUGEINT", f"{HUGE}::HUGEINT", str(10**38)])
def test_no_statement_stores_an_integer_of_39_digits(lake: alluvia.Lake, value: str) -> None:
    lake.create_table("t", pa.schema([("k", pa.int64()), ("v", WHOLE)])).append([{"k": 1, "v": Decimal(5)}])
    for statement in (
        f"INSERT INTO t VALUES (2, {value})",
        f"INSERT INTO t SELECT 2, {value}",
        f"UPDATE t SET v = {value}",
        f"UPDATE t SET v = {value} WHERE k IN (SELECT 1)",
        f"MERGE INTO t USING (SELECT 1 AS k) AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = {value}",
        f"MERGE INTO t USING (SELECT 2 AS k, {value} AS v) AS s ON t.k = s.k WHEN NOT MATCHED THEN INSERT *",
    ):
        with pytest.raises(Invalid, match=BEYOND):
            lake.sql(statement)
    assert lake.sql("SELECT * FROM t").to_pylist() == [{"k": 1, "v": Decimal(5)}]


def test_pruning_by_an_integer_beyond_decimals(lake: alluvia.Lake) -> None:
    table = lake.create_table("t", {"k": "long"})
    for value in (0, 1, 2**63 - 1):
        table.append([{"k": value}])
    for bound in (f"{HUGE}", f"{HUGE}::HUGEINT", f"{10**38}", "1e39"):
        assert lake.sql(f"SELECT count(*) AS n FROM t WHERE k < {bound}").to_pylist() == [{"n": 3}]
        assert lake.sql(f"SELECT count(*) AS n FROM t WHERE k >= {bound}").to_pylist() == [{"n": 0}]


@pytest.mark.parametrize("value", ["'12:34:56+05'::TIMETZ", "['12:34:56+05'::TIMETZ]", "{'t': '12:34:56+05'::TIMETZ}"])
def test_times_of_day_with_a_zone_are_refused(lake: alluvia.Lake, value: str) -> None:
    with pytest.raises(
        Invalid, match=r"^the column v has values of the type TIME WITH TIME ZONE, which an answer cannot contain"
    ):
        lake.sql(f"SELECT {value} AS v")
    assert lake.sql("SELECT CAST('12:34:56+05'::TIMETZ AS VARCHAR) AS v").to_pylist() == [{"v": "12:34:56+05"}]


def longer() -> pa.Array:
    """Return a value of 39 digits in a type of 38, as Arrow's buffers can hold it."""
    return pa.Array.from_buffers(WHOLE, 1, [None, pa.py_buffer(HUGE.to_bytes(16, "little"))])


def test_rows_with_more_digits_than_their_type_are_refused(lake: alluvia.Lake) -> None:
    nested = pa.schema([("k", pa.int64()), ("v", WHOLE), ("l", pa.list_(WHOLE)), ("s", pa.struct([("v", WHOLE)]))])
    table = lake.create_table("t", nested)
    table.append([{"k": 1}])
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), longer())
    structs = pa.StructArray.from_arrays([longer()], ["v"])
    for column, values in {"v": longer(), "l": lists, "s": structs}.items():
        rows = pa.table({"k": pa.array([1], pa.int64()), column: values})
        refused = rf"^column {column}: a value does not fit .*{HUGE} has more digits than its type"
        for write in (table.append, lambda rows: table.upsert(rows, on=["k"])):
            with pytest.raises(Invalid, match=refused):
                write(rows)
    for value in (Decimal(10**38), 10**38):
        with pytest.raises(Invalid, match=r"^column v: a value does not fit decimal\(38,0\)"):
            table.append([{"v": value}])


@pytest.mark.parametrize("value", [2**63, 2**64, -(2**70), 10**38 - 1, [1, 2**70], {"a": [2**64]}])
def test_a_parameter_keeps_its_digits(lake: alluvia.Lake, value: Any) -> None:
    found = lake.sql("SELECT $v AS v", {"v": value}).to_pylist()
    assert found == [{"v": value}]


@pytest.mark.parametrize("value", [10**38, -(2**128), Decimal(10) ** 38, [Decimal("1E+400")], [1, 2**130]])
def test_a_parameter_with_too_many_digits_is_refused(lake: alluvia.Lake, value: Any) -> None:
    with pytest.raises(Invalid, match=r"^parameter \$v "):
        lake.sql("SELECT $v AS v", {"v": value})
