"""A hidden column stays hidden, whatever it was or will be called, in every version, on branches and in clones."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import alluvia
from alluvia.access.rights import Grant, Rights
from alluvia.delta.schema.column_mapping import fresh_names, identified, mapped, renamed, without
from alluvia.delta.schema.former_names import FORMER_NAMES, former_names
from alluvia.errors import AlluviaError, Corrupt, Forbidden
from alluvia.query.permitted import permitted, visible_schema
from alluvia.sql.run import execute
from tests.examples import examples

SECRET = "hunter2"
SEEDS = examples(25)
NEVER = "never"
"""The name of no column."""


def reader(*hide: str) -> Rights:
    return Rights((Grant(frozenset({"read"}), ("*",), None, frozenset(hide)),))


def ask(lake: alluvia.Lake, sql: str, *hide: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = execute(lake, sql, rights=reader(*hide)).to_pylist()
    return rows


@pytest.fixture
def lake() -> alluvia.Lake:
    return alluvia.connect(f"memory://{uuid.uuid4()}")


def with_mail(lake: alluvia.Lake, name: str = "t") -> alluvia.Table:
    """Make a table whose version 1 has the secret in `mail`, which version 2 calls `email`."""
    table = lake.create_table(name, {"a": "string", "mail": "string", "old": "string"})
    table.append([{"a": "1", "mail": SECRET, "old": "x"}])
    table.evolve(rename={"mail": "email"})
    return table


SEEN = [{"a": "1", "old": "x"}]


def test_a_column_added_under_column_mapping_stays_hidden_by_each_of_its_names(lake: alluvia.Lake) -> None:
    table = lake.create_table("t", {"a": "string", "b": "string"})
    table.evolve(rename={"b": "c"})
    table.evolve(add={"ssn": "string"})
    table.append([{"a": "1", "ssn": SECRET}])
    table.evolve(rename={"ssn": "Social"})
    table.evolve(rename={"Social": "number"})
    for hidden in ("ssn", "social", "number"):
        for version in range(3, table.version + 1):
            assert ask(lake, f"FROM t(version => {version})", hidden) == [{"a": "1", "c": None}]
        assert [row["column_name"] for row in ask(lake, "DESCRIBE t", hidden)] == ["a", "c"]
    assert ask(lake, "SELECT number FROM t", NEVER) == [{"number": SECRET}]
    assert ask(lake, "FROM t(version => 1)", "ssn") == []  # only lacks what came later


@pytest.mark.parametrize(
    "end",
    [
        lambda table, lake: table.evolve(drop=["email"]),
        lambda table, lake: table.evolve(drop=["email", "old"], add={"mail": "string"}),
        lambda table, lake: lake.sql("CREATE OR REPLACE TABLE t (a STRING, email STRING)"),
        lambda table, lake: lake.sql("CREATE OR REPLACE TABLE t AS SELECT 1 AS mail"),
        lambda table, lake: lake.sql("DROP TABLE t; CREATE TABLE t (z STRING)"),
        lambda table, lake: table.evolve(rename={"email": "address"}),
    ],
)
def test_earlier_versions_hide_what_is_no_longer_there(
    lake: alluvia.Lake, end: Callable[[alluvia.Table, alluvia.Lake], object]
) -> None:
    table = with_mail(lake)
    table.tag("before")
    end(table, lake)
    moment = datetime.fromtimestamp(table.snapshot(version=1).timestamp_ms / 1000, UTC).isoformat()
    for at in ("version => 1", "version => 2", "tag => 'before'", f"'{moment}'"):
        assert ask(lake, f"FROM t({at})", "email") == SEEN
    assert ask(lake, "FROM t VERSION AS OF 1", "mail") == SEEN
    assert ask(lake, "SELECT mail FROM t(version => 1)", NEVER) == [{"mail": SECRET}]
    lake["t"].restore(version=1)  # as it was before it was called email
    assert ask(lake, "FROM t", "email") == SEEN
    assert ask(lake, "SELECT mail FROM t", NEVER) == [{"mail": SECRET}]
    lake["t"].evolve(rename={"mail": "again"})
    for hidden in ("mail", "email", "again"):
        assert ask(lake, "FROM t", hidden) == SEEN


def test_a_table_that_comes_back_hides_what_it_hid(lake: alluvia.Lake) -> None:
    with_mail(lake).evolve(drop=["email"])
    lake.drop_table("t")
    lake.undrop("t")
    assert ask(lake, "FROM t(version => 1)", "email") == SEEN
    lake.drop_table("t")
    lake.create_table("t", {"a": "string", "mail": "string"})
    assert ask(lake, "FROM t", "email") == []
    assert ask(lake, "DESCRIBE t", "email") == ask(lake, "DESCRIBE t", "mail")


@pytest.mark.parametrize(
    "end",
    [
        lambda lake: lake["t"].evolve(drop=["email"]),
        lambda lake: lake.sql("CREATE OR REPLACE TABLE t (a STRING)"),
        lambda lake: lake.drop_table("t"),
        lambda lake: (lake.drop_table("t"), lake.create_table("t", {"a": "string"})),
    ],
)
def test_branches_hide_by_what_the_lake_has_called_a_column(
    lake: alluvia.Lake, end: Callable[[alluvia.Lake], object]
) -> None:
    lake.create_table("t", {"a": "string", "mail": "string", "old": "string"})
    lake["t"].append([{"a": "1", "mail": SECRET, "old": "x"}])
    branch = lake.branch("fix")
    branch["t"].evolve(add={"new": "string"})
    branch.create_table("own", {"n": "long"})
    lake["t"].evolve(rename={"mail": "email"})
    end(lake)
    assert ask(branch, "FROM t", "email") == [{**SEEN[0], "new": None}]
    assert ask(branch, "FROM t(version => 1)", "email") == SEEN
    assert ask(branch, "FROM own", "email") == []


def test_a_branch_of_a_table_in_whose_place_another_came_back(lake: alluvia.Lake) -> None:
    lake.create_table("t", {"z": "string"})
    lake.drop_table("t")
    lake.create_table("t", {"a": "string", "mail": "string", "old": "string"})
    lake["t"].append([{"a": "1", "mail": SECRET, "old": "x"}])
    branch = lake.branch("fix")
    lake["t"].evolve(rename={"mail": "email"})
    lake.drop_table("t")
    lake.undrop("t", version=1)
    assert lake["t"].snapshot().schema.names == ["z"]
    assert ask(branch, "FROM t", "email") == SEEN


def test_a_row_filter_fits_a_branchs_table_whatever_the_lake_has_dropped(lake: alluvia.Lake) -> None:
    lake.create_table("t", {"z": "string"})
    lake.drop_table("t")
    branch = lake.branch("fix")
    branch.create_table("t", {"tenant": "string", "n": "long"}).append(
        [{"tenant": "a", "n": 1}, {"tenant": "b", "n": 2}]
    )
    rights = Rights((Grant(frozenset({"read"}), ("*",), "tenant = 'a'", frozenset({"tenant"})),))
    assert execute(branch, "FROM t", rights=rights).to_pylist() == [{"n": 1}]


def test_what_a_branch_has_called_a_column_is_on_record_once_it_is_published(lake: alluvia.Lake) -> None:
    lake.create_table("t", {"a": "string", "mail": "string"}).append([{"a": "1", "mail": SECRET}])
    branch = lake.branch("fix")
    branch["t"].evolve(rename={"mail": "email"})
    branch["t"].evolve(rename={"email": "address"})
    assert set(branch.diff()[0].properties) == {"delta.columnMapping.mode", "delta.columnMapping.maxColumnId"}
    branch.publish()
    assert ask(lake, "FROM t", "email") == ask(lake, "FROM t(version => 1)", "email") == [{"a": "1"}]


def test_a_table_that_a_branch_has_created_inherits_nothing_from_itself(lake: alluvia.Lake) -> None:
    branch = lake.branch("fix")
    own = branch.create_table("own", {"a": "string", "b": "string"})
    own.evolve(rename={"a": "c"})
    own.evolve(add={"a": "string"})
    own.append([{"a": "1", "b": "2", "c": SECRET}])
    branch.publish()
    assert ask(lake, "FROM own", "c") == [{"b": "2", "a": "1"}]


@pytest.mark.parametrize("deep", [True, False])
def test_clones_hide_what_their_source_hides(tmp_path: Path, deep: bool) -> None:
    lake = alluvia.connect(tmp_path)
    with_mail(lake)
    lake.clone("t", "copy", version=1, deep=deep)
    assert ask(lake, "FROM copy", "email") == SEEN
    assert lake["copy"].snapshot().schema.names == ["a", "mail", "old"]


@pytest.mark.parametrize("publish", [False, True])
def test_clones_made_on_a_branch_hide_by_what_the_lake_has_called_a_column(lake: alluvia.Lake, publish: bool) -> None:
    lake.create_table("t", {"a": "string", "mail": "string", "old": "string"})
    lake["t"].append([{"a": "1", "mail": SECRET, "old": "x"}])
    branch = lake.branch("fix")
    lake["t"].evolve(rename={"mail": "email"})
    lake["t"].evolve(rename={"email": "address"})
    of_others(lake, lambda metadata: renamed(metadata, {"address": "place"}))
    branch.clone("t", "copy", deep=True)
    branch.create_table("own", {"n": "long"})
    branch.clone("own", "copied", deep=True)
    if publish:
        branch.publish()
    for hidden in ("mail", "email", "address", "place"):
        assert ask(lake if publish else branch, "FROM copy", hidden) == SEEN
    assert FORMER_NAMES not in branch["copied"].snapshot().properties


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE OR REPLACE TABLE t AS SELECT a, old, address FROM t",
        "CREATE OR REPLACE TABLE t AS SELECT a, old, ADDRESS AS ADDRESS FROM t",
        "CREATE OR REPLACE TABLE t AS SELECT * FROM t(version => 2)",
        "BEGIN; CREATE OR REPLACE TABLE t AS SELECT a, old, address FROM t; COMMIT",
        "BEGIN; ALTER TABLE t RENAME COLUMN address TO place; CREATE OR REPLACE TABLE t AS SELECT * FROM t; COMMIT",
        "CREATE TABLE u AS SELECT a, old, address FROM t; DROP TABLE t; CREATE TABLE t AS SELECT * FROM u",
    ],
)
def test_a_table_that_is_rewritten_from_itself_hides_what_it_hid(lake: alluvia.Lake, sql: str) -> None:
    with_mail(lake).evolve(rename={"email": "address"})
    lake.sql(sql)
    for hidden in ("mail", "email", "address"):
        assert ask(lake, "FROM t", hidden) == SEEN
    assert SECRET in ask(lake, "FROM t", NEVER)[0].values()
    lake.sql("CREATE OR REPLACE TABLE t AS SELECT * FROM t")  # what it inherited is passed on
    assert ask(lake, "FROM t", "mail") == SEEN


def test_a_table_that_is_dropped_and_created_again_hides_what_it_hid(lake: alluvia.Lake) -> None:
    with_mail(lake).evolve(rename={"email": "address"})
    lake.drop_table("t")
    lake.create_table("t", {"a": "string", "address": "string", "old": "string"}).append(
        [{"a": "1", "address": SECRET, "old": "x"}]
    )
    for hidden in ("mail", "email", "address"):
        assert ask(lake, "FROM t", hidden) == SEEN


def test_views_and_what_tells_of_changes_show_no_hidden_column(lake: alluvia.Lake) -> None:
    with_mail(lake).evolve(rename={"email": "address"})
    lake.sql("CREATE VIEW v AS SELECT * FROM t")
    lake.sql("CREATE VIEW w AS SELECT address AS harmless FROM t")
    lake.create_stream("s", "t")
    lake.create_rollup("daily", "SELECT a, count(*) AS n FROM t GROUP BY a")
    assert ask(lake, "FROM v", "email") == SEEN
    assert len(ask(lake, "FROM daily", "email")) == 1
    for sql in ("FROM w", "FROM changes('t', 0)", "FROM s", "FROM daily_live", "FROM history('t')", "FROM files('t')"):
        with pytest.raises(AlluviaError) as error:
            ask(lake, sql, "email")
        assert SECRET not in str(error.value)
    assert [row["name"] for row in ask(lake, "FROM columns('t')", "email")] == ["a", "old"]


def of_others(lake: alluvia.Lake, change: Callable[[Any], Any]) -> None:
    """Commit a change of t's metadata as a writer does that keeps no record of names."""
    snapshot = lake["t"].snapshot()
    action = {"metaData": change(snapshot.state.metadata).to_json()}
    key = f"t/_delta_log/{snapshot.version + 1:020d}.json"
    info = {"commitInfo": {"operation": "RENAME COLUMN", "inCommitTimestamp": snapshot.timestamp_ms + 1}}
    lake.store.put(key, b"\n".join(map(orjson.dumps, (info, action))))


def test_columns_that_other_writers_rename_and_drop(lake: alluvia.Lake) -> None:
    table = lake.create_table("t", {"a": "string", "b": "string"})
    table.evolve(rename={"b": "c"})
    table.evolve(add={"ssn": "string"})
    table.append([{"a": "1", "ssn": SECRET}])
    of_others(lake, lambda metadata: renamed(metadata, {"ssn": "social"}))
    for hidden in ("ssn", "social"):  # we know its first name, and its present one
        assert ask(lake, "FROM t", hidden) == [{"a": "1", "c": None}]
    of_others(lake, lambda metadata: without(metadata, ["a", "social"]))
    assert ask(lake, "FROM t(version => 4)", "ssn") == [{"c": None}]  # a may have had any name before it went
    assert ask(lake, "SELECT a, social FROM t(version => 4)") == [{"a": "1", "social": SECRET}]


def test_a_table_that_others_made_with_column_mapping(lake: alluvia.Lake) -> None:
    lake.create_table("t", {"a": "string"}).evolve(rename={"a": "b"})
    seed = "00000000-0000-4000-8000-000000000001"

    def as_others_make_it(metadata: Any) -> Any:
        plain = type(metadata).from_json({**metadata.to_json(), "configuration": {}, "schemaString": SCHEMA})
        made = identified(mapped(plain), fresh_names(seed))
        return type(metadata).from_json({**made.to_json(), "schemaString": made.schema_string})

    of_others(lake, as_others_make_it)
    table = lake["t"]
    table.append([{"id": "1", "mail": SECRET}])
    table.evolve(rename={"mail": "email"})
    table.evolve(rename={"email": "address"})
    for hidden in ("mail", "email", "address"):
        assert ask(lake, "FROM t", hidden) == [{"id": "1"}]


SCHEMA = orjson.dumps(
    {
        "type": "struct",
        "fields": [
            {
                "name": name,
                "type": "string",
                "nullable": True,
                "metadata": {"delta.columnMapping.id": at, "delta.columnMapping.physicalName": f"col-{at}"},
            }
            for at, name in enumerate(("id", "mail"), 10)
        ],
    }
).decode()


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1}', '{"a": [1]}', '"x"'])
def test_a_record_that_cannot_be_read_is_damage(text: str) -> None:
    with pytest.raises(Corrupt, match=r"alluvia\.former_names cannot be read"):
        former_names({FORMER_NAMES: text})


def test_nobody_sets_the_record(lake: alluvia.Lake) -> None:
    table = with_mail(lake)
    for value, said in (("{}", "is unknown"), (None, "cannot be changed$")):
        with pytest.raises(AlluviaError, match=rf"^property alluvia\.former_names {said}"):
            table.evolve(properties={FORMER_NAMES: value})
    assert former_names(table.snapshot().properties) == {"mail": ("email",)}


class Model:
    """A table whose columns are known by the values that they would have, and all names that each has ever had."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lake = alluvia.connect(f"memory://{uuid.uuid4()}")
        self.table = self.lake.create_table("t", {"key": "string", "a": "string", "b": "string"})
        self.names = ["a", "b", "c", "d", "e"]
        self.now = {"key": 0, "a": 1, "b": 2}
        self.had = {0: {"key"}, 1: {"a"}, 2: {"b"}}
        self.versions = {0: dict(self.now)}

    def step(self) -> None:
        free = [name for name in self.names if name not in self.now]
        taken = [name for name in self.now if name != "key"]
        kind = self.random.choice(["rename", "rename", "add", "drop", "restore", "replace", "rewrite", "undrop"])
        if kind == "rename" and free and taken:
            old, new = self.random.choice(taken), self.random.choice(free)
            self.table.evolve(rename={old: new})
            self.now = {new if name == old else name: value for name, value in self.now.items()}
        elif kind == "add" and free:
            self.table.evolve(add={free[0]: "string"})
            self.now[free[0]] = len(self.had)
        elif kind == "drop" and taken:
            self.table.evolve(drop=[taken[0]])
            del self.now[taken[0]]
        elif kind == "restore":
            version = self.random.choice(sorted(self.versions))
            self.table.restore(version=version)
            self.now = dict(self.versions[version])
        elif kind == "replace":
            self.now = {name: len(self.had) + at for at, name in enumerate(["key", *free[:2]])}
            with self.lake.transaction() as tx:
                tx.create_table("t", dict.fromkeys(self.now, "string"), replace=True)
        elif kind == "rewrite":
            version = self.random.choice(sorted(self.versions))
            self.lake.sql(f"CREATE OR REPLACE TABLE t AS SELECT * FROM t(version => {version})")
            before = self.versions[version]
            self.now = {name: len(self.had) + at for at, name in enumerate(before)}
            self.had |= {self.now[name]: set(self.had[value]) for name, value in before.items()}
        elif kind == "undrop":
            self.lake.drop_table("t")
            self.lake.undrop("t")
        for name, value in self.now.items():
            self.had.setdefault(value, set()).add(name)
        self.versions[self.table.version] = dict(self.now)

    def check(self) -> None:
        for version, columns in self.versions.items():
            snapshot = self.table.snapshot(version=version)
            assert snapshot.schema.names == list(columns)
            for hidden in (*self.names, NEVER):
                seen = visible_schema(permitted(self.lake.catalog, reader(hidden)), snapshot).names
                leaked = [name for name in seen if hidden in self.had[columns[name]]]
                assert not leaked, f"version {version} shows {leaked}, which had the name {hidden}"
                assert hidden != NEVER or seen == list(columns)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_change_of_columns_shows_what_ever_had_a_hidden_name(seed: int) -> None:
    model = Model(seed)
    for _ in range(12):
        model.step()
    model.check()


def test_no_column_left_is_a_refusal(lake: alluvia.Lake) -> None:
    lake.create_table("t", pa.schema([("mail", pa.string())])).evolve(rename={"mail": "email"})
    lake["t"].evolve(add={"a": "string"})
    with pytest.raises(Forbidden, match="may see no column"):
        ask(lake, "FROM t(version => 0)", "email")
