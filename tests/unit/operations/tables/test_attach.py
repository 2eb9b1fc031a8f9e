"""Tables of other lakes under a name of this one: read as they are, and never written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.errors import Corrupt, Forbidden, Invalid, ReadOnly, TableExists, TableNotFound, Unsupported
from alluvia.query.identity import identify
from alluvia.store import CountingStore
from tests.judges import canonical

ROWS = [{"id": number, "name": "a"} for number in range(3)]
WRITES: dict[str, Callable[[Table], object]] = {
    "append": lambda table: table.append(ROWS),
    "delete": lambda table: table.delete("id = 1"),
    "update": lambda table: table.update({"name": "'b'"}),
    "upsert": lambda table: table.upsert(ROWS, ["id"]),
    "evolve": lambda table: table.evolve({"more": "long"}),
    "optimize": lambda table: table.optimize(full=True),
    "vacuum": lambda table: table.vacuum(),
    "checkpoint": lambda table: table.checkpoint(),
    "erase": lambda table: table.erase("id = 1"),
    "restore": lambda table: table.restore(0),
}


class Two:
    """A lake with the table `orders`, and another that has it attached, with a table `mine` of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = str(folder / "other" / "orders")
        self.orders = alluvia.connect(folder / "other").create_table("orders", {"id": "long", "name": "string"})
        self.orders.append(ROWS)
        self.lake = alluvia.connect(folder / "lake")
        self.mine = self.lake.create_table("mine", {"id": "long", "name": "string"})
        self.attached = self.lake.attach("orders", self.place)

    def again(self, *outside: str) -> Lake:
        """The lake with the table in another process, which may look at some places."""
        return alluvia.connect(self.folder / "lake", outside=outside or None)


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


CLAIM = {"table": "orders", "tables": ["orders"], "startedMs": 0, "onlyAppends": True, "commit": "{}"}


@pytest.mark.parametrize(
    "changed",
    [
        {"tables": []},
        {"tables": None},
        {"tables": ["orders", 7]},
        {"tables": [".."]},
        {"tables": ["../lake/mine"]},
        {"table": ".."},
        {"startedMs": 1e300},
        {"commit": 7},
        {"id": "../../../lake/mine/_alluvia/transactions/x"},
    ],
)
def test_a_claim_in_a_log_of_others_names_no_key_but_a_decision_of_its_lake(two: Two, changed: dict[str, Any]) -> None:
    body = {**CLAIM, **changed}
    claim = {"domain": f"alluvia.claim.{body.pop('id', 'x')}", "configuration": json.dumps(body), "removed": False}
    commit = json.dumps({"domainMetadata": claim})
    Path(two.place, "_delta_log", f"{two.orders.version + 1:020d}.json").write_text(commit)
    for read in (two.attached.to_arrow, lambda: two.lake.sql("SELECT * FROM orders"), two.attached.verify):
        try:
            assert "cannot be read: only this library may set it" in repr(read())
        except Corrupt as error:
            assert "cannot be read: only this library may set it" in str(error)  # noqa: PT017 - verify reports it


def test_an_attached_table_is_read_as_it_is_now(two: Two) -> None:
    assert two.lake.tables() == ["mine", "orders"]
    assert canonical(two.attached.to_arrow()) == canonical(two.orders.to_arrow())
    two.orders.append([{"id": 9, "name": "z"}])
    assert two.attached.version == two.orders.version == 2
    assert [two.attached.count(), two.attached.count(version=1)] == [4, 3]
    assert [each.operation for each in two.attached.history()] == ["WRITE", "WRITE", "CREATE TABLE"]
    assert two.attached.verify().findings == ()
    two.mine.append([{"id": 9, "name": "mine"}])
    joined = two.again().sql("SELECT o.name, m.name AS mine FROM orders o JOIN mine m USING (id)")
    assert joined.to_pylist() == [{"name": "z", "mine": "mine"}]
    assert two.lake.sql("SELECT count(*) AS n FROM orders(version => 1)").to_pylist() == [{"n": 3}]
    assert two.lake.sql("DESCRIBE DETAIL orders")["location"].to_pylist() == [two.place]


def test_rows_of_an_attached_table_go_into_own_tables(two: Two) -> None:
    two.lake.sql("INSERT INTO mine SELECT * FROM orders WHERE id > 0")
    two.lake.sql("BEGIN; INSERT INTO mine SELECT o.* FROM orders o ANTI JOIN mine USING (id); COMMIT")
    assert canonical(two.mine.to_arrow()) == canonical(two.orders.to_arrow())


@pytest.mark.parametrize("write", WRITES)
def test_every_write_is_refused_by_name(two: Two, write: str) -> None:
    before = sorted(path for path in (two.folder / "other").rglob("*") if path.is_file())
    with pytest.raises(ReadOnly, match=f"'orders' is attached from {two.place}"):
        WRITES[write](two.again()["orders"])
    with pytest.raises(ReadOnly, match="'orders' is attached"):
        WRITES[write](two.attached)
    assert sorted(path for path in (two.folder / "other").rglob("*") if path.is_file()) == before


def test_sql_that_writes_is_refused_by_name(two: Two) -> None:
    for text in (
        "INSERT INTO orders VALUES (1, 'x')",
        "DELETE FROM orders",
        "BEGIN; INSERT INTO mine VALUES (1, 'x'); UPDATE orders SET name = 'x'; COMMIT",
        "MERGE INTO orders USING mine ON orders.id = mine.id WHEN NOT MATCHED THEN INSERT *",
        "CREATE OR REPLACE TABLE orders (id BIGINT)",
    ):
        with pytest.raises(ReadOnly, match="'orders' is attached"):
            two.again().sql(text)
    assert two.mine.count() == 0


def test_names_exclude_each_other(two: Two) -> None:
    with pytest.raises(TableExists):
        two.again().create_table("orders", {"id": "long"})
    with pytest.raises(TableExists):
        two.again().attach("orders", two.place)
    with pytest.raises(TableExists):
        two.again().attach("mine", two.place)
    two.lake.sql(f"ATTACH IF NOT EXISTS '{two.place}' AS orders (TYPE delta, READ_ONLY)")


def test_a_detached_table_is_gone_for_everybody_and_stays_where_it_is(two: Two) -> None:
    warm = two.again()
    assert warm["orders"].count() == 3
    two.lake.sql("DETACH orders")
    for lake in (two.lake, warm):
        assert lake.tables() == ["mine"]
        with pytest.raises(TableNotFound):
            lake["orders"].count()
        with pytest.raises(TableNotFound):
            lake.sql("SELECT * FROM orders JOIN mine USING (id)")
    assert two.orders.count() == 3
    two.lake.undrop("orders")
    assert warm["orders"].count() == 3
    two.lake.detach("orders")
    two.lake.create_table("orders", {"other": "long"}).append([{"other": 1}])
    assert warm["orders"].to_arrow().to_pylist() == [{"other": 1}]
    assert DeltaTable(str(two.folder / "lake" / "orders")).to_pyarrow_table().to_pylist() == [{"other": 1}]


def test_answers_of_one_copy_are_none_of_another(two: Two) -> None:
    shutil.copytree(two.place, two.folder / "other" / "copy")
    copy = alluvia.connect(two.folder / "other")["copy"]
    two.orders.append([{"id": 3, "name": "here"}])
    copy.append([{"id": 4, "name": "there"}])
    before = identify(two.lake.catalog, "FROM orders")
    two.lake.detach("orders")
    two.lake.attach("orders", two.folder / "other" / "copy")
    assert sorted(two.lake["orders"].to_arrow()["id"].to_pylist()) == [0, 1, 2, 4]
    assert None is not before != identify(two.lake.catalog, "FROM orders")


def test_what_cannot_be_attached_or_detached_is_refused(two: Two) -> None:
    with pytest.raises(TableNotFound, match="there is no Delta table at"):
        two.lake.attach("nothing", two.folder / "nothing")
    with pytest.raises(Invalid, match="is in this lake"):
        two.lake.attach("again", two.folder / "lake" / "mine")
    with pytest.raises(Invalid, match="contains the lake"):
        two.lake.attach("all", two.folder)
    with pytest.raises(Invalid, match="is itself attached"):
        alluvia.connect(two.folder / "third").attach("orders", two.folder / "lake" / "orders")
    with pytest.raises(Invalid, match="cannot refer to"):
        two.lake.attach("orders_2", "https://example.com/orders")
    with pytest.raises(Invalid, match="is not attached"):
        two.lake.detach("mine")
    with pytest.raises(TableNotFound):
        two.lake.detach("nothing")
    assert two.lake.tables() == ["mine", "orders"]


def test_a_server_reads_only_below_the_places_that_it_may(two: Two) -> None:
    other = f"{two.folder}/other"
    for outside in ([], [f"{other}/ord"], [f"{two.place}/ts_day=1"]):
        lake = alluvia.connect(two.folder / "lake", outside=outside)
        with pytest.raises(Forbidden, match="not below a place that this server may read"):
            lake.sql("SELECT * FROM orders")
        with pytest.raises(Forbidden):
            lake.attach("more", f"{other}/ord/../orders")
        assert lake.sql("SELECT count(*) AS n FROM mine").to_pylist() == [{"n": 0}]
        told = lake.sql("SELECT name, version, error LIKE '%server may read%' AS closed FROM tables() ORDER BY name")
        assert told.to_pylist()[0] == {"name": "mine", "version": 0, "closed": None}
        assert told.to_pylist()[1:] == [{"name": "orders", "version": None, "closed": True}]
        columns = lake.sql("SELECT DISTINCT table_name AS t FROM information_schema.columns")
        assert columns.to_pylist() == [{"t": "mine"}]
    assert two.again(other)["orders"].count() == two.again(f"file://{other}")["orders"].count() == 3


def test_a_log_elsewhere_leads_to_no_file_outside_its_folder(two: Two) -> None:
    """Its authors are others, and files of this lake may be hidden from who reads the attached table."""
    two.mine.append(ROWS)
    secret = next((two.folder / "lake" / "mine").rglob("*.parquet"))
    log = two.folder / "other" / "orders" / "_delta_log"
    text = (log / f"{1:020d}.json").read_text()
    name = next(iter(two.orders.files)).path
    hidden = alluvia.connect(two.folder / "other").create_table("hidden", {"id": "long", "name": "string"})
    hidden.append(ROWS)
    two.lake.attach("hidden", two.folder / "other" / "hidden")
    theirs = next((two.folder / "other" / "hidden").rglob("*.parquet"))
    for path in (str(secret), secret.as_uri(), "../../lake/mine/" + secret.name, str(theirs)):
        (log / f"{1:020d}.json").write_text(text.replace(f'"{name}"', f'"{path}"'))
        lake = two.again()
        assert lake["hidden"].count() == 3
        with pytest.raises(Unsupported, match="outside the table's folder"):
            lake["orders"].to_arrow()
        with pytest.raises(Unsupported, match="outside the table's folder"):
            lake.sql("SELECT * FROM orders")


def test_other_readers_do_not_take_it_for_an_empty_table(two: Two) -> None:
    with pytest.raises(DeltaError, match="alluviaAttached"):
        DeltaTable(str(two.folder / "lake" / "orders")).to_pyarrow_table()


def test_branches_and_tags_of_the_lake_have_it_as_it_is_now(two: Two) -> None:
    two.lake.create_external("files", str(next((two.folder / "other").rglob("*.parquet"))))
    branch = two.lake.branch("fix")
    two.orders.append([{"id": 9, "name": "z"}])
    for lake in (branch, alluvia.connect(two.folder / "lake").on_branch("fix")):
        assert lake["orders"].count() == 4
        found = lake.sql("SELECT o.id FROM orders o ANTI JOIN files USING (id)")
        assert found.to_pylist() == [{"id": 9}]
        with pytest.raises(ReadOnly):
            lake["orders"].append(ROWS)
        with pytest.raises(ReadOnly):
            lake.sql("DELETE FROM files")
    for change in (
        lambda: branch.attach("more", two.place),
        lambda: branch.detach("orders"),
        lambda: branch.drop_table("orders"),
    ):
        with pytest.raises(Invalid, match="concerns the lake and all its branches"):
            change()
    branch["mine"].append(ROWS)
    branch.publish()
    assert two.mine.count() == 3


def test_a_read_looks_at_two_logs_and_a_table_that_is_none_costs_nothing_more(two: Two) -> None:
    lake = Lake(CountingStore(two.again().store), two.lake.clock)
    lake["orders"].count()
    lake["mine"].count()
    assert isinstance(lake.store, CountingStore)
    lake.store.reset()
    lake["orders"].snapshot()
    assert lake.store.requests == {"get": 2}
    lake.store.reset()
    lake["mine"].snapshot()
    assert lake.store.requests == {"get": 1}
