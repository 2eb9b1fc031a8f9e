"""Types nested in one another: one limit for new columns, whoever makes them, and one for those of other writers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import alluvia
from alluvia.cli.command_line import cli
from alluvia.delta.schema.caller_rows import fitted_value
from alluvia.delta.schema.nesting import NESTING_MAX, READ_MAX
from alluvia.delta.schema.serialization import schema_string
from alluvia.errors import Invalid, Unsupported

TOO_DEEP = "is nested more than 16 levels deep: flatten it, or make it JSON text"
KINDS = {"lists": "l", "structs": "s", "maps": "m", "mixed": "lsm"}


def nested(kinds: str, levels: int) -> tuple[pa.DataType, Any]:
    """Return a type of so many levels, of these kinds in turn, and a value of it."""
    kind: pa.DataType = pa.int64()
    value: Any = 1
    for each in islice(cycle(kinds), levels):
        if each == "l":
            kind, value = pa.list_(pa.field("element", kind)), [value]
        elif each == "s":
            kind, value = pa.struct([("f", kind)]), {"f": value}
        else:
            kind, value = pa.map_(pa.string(), kind), [("k", value)]
    return kind, value


def deep(levels: int, kinds: str = "l") -> pa.Table:
    kind, value = nested(kinds, levels)
    return pa.table({"id": pa.array([1]), "a": pa.array([value], kind)})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> alluvia.Lake:
    """`t`, a table with the column `id`, and `parquet`, a folder with a file that is nested too deeply."""
    folder = tmp_path_factory.mktemp("lake")
    lake = alluvia.connect(str(folder))
    lake.create_table("t", {"id": "long"})
    (folder / "parquet").mkdir()
    pq.write_table(deep(17), folder / "parquet" / "a.parquet")
    return lake


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_a_table_as_deep_as_it_may_be(lake: alluvia.Lake, kinds: str) -> None:
    rows = deep(NESTING_MAX, kinds)
    table = lake.create_table(f"deep_{kinds}", rows.schema)
    table.append(rows)
    table.append(rows)
    table.optimize()
    table.update({"id": "2"}, "id = 1")
    table.evolve(rename={"id": "n"})
    assert lake.sql(f"FROM deep_{kinds}")["a"].to_pylist() == rows["a"].to_pylist() * 2
    assert lake.table(f"deep_{kinds}").verify().ok


@pytest.mark.parametrize("levels", [17, 240, 1000])
@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
def test_no_type_is_too_deep_to_be_refused(kinds: str, levels: int) -> None:
    with pytest.raises(Invalid) as found:
        schema_string(pa.schema([("fine", pa.int64()), ("a", nested(kinds, levels)[0])]))
    assert str(found.value) == f"column a {TOO_DEEP}"


MAKING: dict[str, Callable[[alluvia.Lake], object]] = {
    "create": lambda lake: lake.create_table("new", deep(17).schema),
    "evolve": lambda lake: lake.table("t").evolve(add=pa.schema([("a", nested("l", 17)[0])])),
    "convert": lambda lake: lake.convert("parquet", "parquet"),
    "CREATE TABLE": lambda lake: lake.sql(f"CREATE TABLE new (a BIGINT{'[]' * 17})"),
    "CREATE TABLE AS": lambda lake: lake.sql(f"CREATE TABLE new AS SELECT {'[' * 17}1{']' * 17} AS a"),
    "ADD COLUMN": lambda lake: lake.sql(f"ALTER TABLE t ADD COLUMN a BIGINT{'[]' * 17}"),
}


@pytest.mark.parametrize("make", MAKING.values(), ids=MAKING)
def test_new_columns_that_are_too_deep_are_refused(lake: alluvia.Lake, make: Callable[[alluvia.Lake], object]) -> None:
    with pytest.raises(Invalid) as found:
        make(lake)
    assert str(found.value).endswith(f"column a {TOO_DEEP}")
    assert "new" not in lake.tables()
    assert lake.table("t").schema.names == ["id"]


def delta_type(kinds: Iterable[str]) -> Any:
    """Return a type of Delta's JSON, the kinds from the inside out."""
    kind: Any = "long"
    for each in kinds:
        if each == "l":
            kind = {"type": "array", "elementType": kind, "containsNull": True}
        elif each == "s":
            kind = {"type": "struct", "fields": [{"name": "f", "type": kind, "nullable": True, "metadata": {}}]}
        else:
            kind = {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}
    return kind


def of_another_writer(folder: Path, kinds: str, levels: int) -> alluvia.Lake:
    """Return a lake with a table `t` as another writer makes it: the columns `id` and `a`, and one row."""
    log = folder / "t" / "_delta_log"
    log.mkdir(parents=True)
    columns = {"id": "long", "a": delta_type(islice(cycle(kinds), levels))}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    metadata = {
        "id": "1", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "configuration": {},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
    }  # fmt: skip
    actions: list[dict[str, Any]] = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}]
    actions.append({"metaData": metadata})
    if levels <= READ_MAX:
        file = folder / "t" / "a.parquet"
        pq.write_table(deep(levels, kinds), file)
        add = {"path": "a.parquet", "partitionValues": {}, "size": file.stat().st_size}
        actions.append({"add": {**add, "modificationTime": 0, "dataChange": True}})
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return alluvia.connect(str(folder))


@pytest.mark.parametrize("kinds", ["s", "sl", "sm"])
def test_structs_of_other_writers_may_be_deeper(tmp_path: Path, kinds: str) -> None:
    lake = of_another_writer(tmp_path, kinds, 32)
    assert lake.sql("FROM t")["a"].to_pylist() == deep(32, kinds)["a"].to_pylist()


NOT_FOR_SQL = (
    "column a has more than 20 lists and maps in one another, which SQL cannot read in a short time: "
    "read it with scan, or name the other columns"
)


@pytest.mark.parametrize("kinds", ["l", "m", "lsm"])
def test_lists_and_maps_of_other_writers_that_are_deeper_are_not_for_sql(tmp_path: Path, kinds: str) -> None:
    lake = of_another_writer(tmp_path, kinds, 32)
    table = lake.table("t")
    assert table.to_arrow()["a"].to_pylist() == deep(32, kinds)["a"].to_pylist()
    for query in ("FROM t", "SELECT id FROM t WHERE a IS NULL", "SELECT count(a) FROM t"):
        with pytest.raises(Unsupported) as found:
            lake.sql(query)
        assert str(found.value) == NOT_FOR_SQL
    assert lake.sql("DESCRIBE t")["column_name"].to_pylist() == ["id", "a"]
    assert lake.sql("SELECT id, (SELECT count(*) FROM t) AS n FROM t").to_pylist() == [{"id": 1, "n": 1}]


def test_rows_with_lists_that_are_not_for_sql_are_changed(tmp_path: Path) -> None:
    table = of_another_writer(tmp_path, "l", 32).table("t")
    table.update({"id": "abs(id) + 1"}, "abs(id) = 1")
    assert table.to_arrow().to_pylist() == [{"id": 2, "a": deep(32)["a"].to_pylist()[0]}]


def test_lists_that_sql_still_reads(tmp_path: Path) -> None:
    lake = of_another_writer(tmp_path, "l", 20)
    assert lake.sql("FROM t")["a"].to_pylist() == deep(20)["a"].to_pylist()


def test_optimize_leaves_what_sql_cannot_read(tmp_path: Path) -> None:
    lake = of_another_writer(tmp_path, "l", 21)
    lake.create_table("fine", {"id": "long"})
    for _ in range(2):
        lake.table("t").append(deep(21))
        lake.table("fine").append([{"id": 1}])
    report = lake.table("t").optimize()
    assert (report.refused, report.files_removed) == (NOT_FOR_SQL, 0)
    assert lake.table("t").optimize(dry_run=True).refused == NOT_FOR_SQL
    run = CliRunner().invoke(cli, ["optimize", "--lake", str(tmp_path)])
    assert run.exit_code == 0
    assert f"table t is left as it is: {NOT_FOR_SQL}" in run.stderr
    assert lake.table("fine").optimize().files_before == 1


TOO_DEEP_TO_READ = [("l", 33), ("s", 33), ("s", 60), ("s", 280), ("l", 900), ("m", 300)]


@pytest.mark.parametrize(("kinds", "levels"), TOO_DEEP_TO_READ)
def test_tables_of_other_writers_that_are_too_deep_to_read(tmp_path: Path, kinds: str, levels: int) -> None:
    lake = of_another_writer(tmp_path, kinds, levels)
    reads: list[Callable[[], object]] = [lake.table("t").to_arrow, lambda: lake.sql("FROM t")]
    for read in reads:
        with pytest.raises(
            Unsupported, match=r"^column a is nested more than 32 levels deep, which cannot be read: drop it$"
        ):
            read()
    assert lake.sql("SHOW TABLES").num_rows == 1


@pytest.mark.parametrize(("kinds", "levels"), TOO_DEEP_TO_READ)
def test_tables_that_are_too_deep_to_read_are_kept_and_dropped(tmp_path: Path, kinds: str, levels: int) -> None:
    lake = of_another_writer(tmp_path, kinds, levels)
    lake.create_table("fine", {"id": "long"})
    for command in ("checkpoint", "vacuum", "optimize"):
        assert CliRunner().invoke(cli, [command, "--lake", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "t" / "_delta_log" / f"{0:020}.checkpoint.parquet").exists()
    lake.sql("DROP TABLE t")
    assert lake.tables() == ["fine"]
    lake.undrop("t")
    lake.restore(offset="0 seconds ago")
    assert lake.tables() == ["fine", "t"]


@pytest.mark.parametrize(("kinds", "levels"), TOO_DEEP_TO_READ)
def test_a_column_that_is_too_deep_to_read_is_dropped(tmp_path: Path, kinds: str, levels: int) -> None:
    lake = of_another_writer(tmp_path, kinds, levels)
    table = lake.table("t")
    with pytest.raises(Unsupported, match=r"^column a is nested"):
        table.evolve(rename={"id": "n"})
    lake.sql("ALTER TABLE t DROP COLUMN A")
    table.append([{"id": 2}])
    assert lake.sql("FROM t ORDER BY id").to_pylist()[-1] == {"id": 2}
    assert table.verify().ok
    with pytest.raises(Unsupported, match=r"^column a is nested"):
        table.restore(version=0)


def test_a_value_that_is_too_deep_to_show() -> None:
    value = nested("l", 5000)[1]
    with pytest.raises(Invalid, match=r"^column id: a list that is nested too deeply to show is not a valid long$"):
        fitted_value(value, pa.int64(), "id")
