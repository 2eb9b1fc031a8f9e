"""Tags as Python, SQL and the command line have them."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import alluvia
from alluvia.access.rights import Grant, Rights
from alluvia.api.lake import Lake, Table
from alluvia.cli.command_line import cli
from alluvia.clock import ManualClock
from alluvia.errors import Forbidden, Invalid, TableNotFound, VersionExpired, VersionNotFound
from alluvia.sql.run import execute
from tests.rejects import create_rejects
from tests.unit.operations.vacuuming import DAY, SCHEMA, values


@pytest.fixture
def table(lake: Lake) -> Table:
    table = lake.create_table("t", SCHEMA)
    for number in range(3):
        table.append([{"x": number}])
    return table


def tagged(table: Table, name: str) -> list[int]:
    return sorted(table.to_arrow(tag=name)["x"].to_pylist())


def test_a_tag_reads_its_version_in_every_way(table: Table) -> None:
    table.tag("two", version=2)
    table.optimize()
    table.vacuum(timedelta(0))
    assert tagged(table, "two") == [0, 1]
    assert (table.count(tag="two"), table.snapshot(tag="two").version) == (2, 2)
    for form in ("t(tag => 'two')", "t AT (TAG => 'two')", "t AT (TAG => 'two') AS e", "t e AT (TAG => 'two')",
                 "t VERSION AS OF 'two'"):  # fmt: skip
        assert table.lake.sql(f"SELECT sum(x) AS s FROM {form}").to_pylist() == [{"s": 1}], form
    assert table.lake.sql("SELECT count(*) AS n FROM files('t', tag => 'two')").to_pylist() == [{"n": 2}]
    with table.lake.transaction() as tx:
        assert tx.table("t").to_arrow(tag="two").num_rows == 2
        assert tx.sql("SELECT count(*) AS n FROM t(tag => 'two')").to_pylist() == [{"n": 2}]
    assert table.lake.sql("RESTORE TABLE t TO TAG 'two'").to_pylist()[0]["restored_version"] == 2
    assert values(table) == [0, 1]


def test_a_tag_means_the_same_until_it_is_replaced(table: Table) -> None:
    first = table.tag("x")
    table.append([{"x": 3}])
    with pytest.raises(Invalid, match="there is a tag x of t already"):
        table.tag("x")
    assert tagged(table, "x") == [0, 1, 2]
    assert table.tag("x", replace=True).version == 4
    assert first.version == 3
    assert [(each.name, each.version, each.table) for each in table.tags()] == [("x", 4, "t")]
    table.drop_tag("x")
    assert table.tags() == []
    with pytest.raises(VersionNotFound, match="table t has no tag 'x'"):
        table.drop_tag("x")


@pytest.mark.parametrize("name", ["", "X", "a/b", "../a", ".a", "a.", "a" * 65, "é", 3])
def test_names_are_checked(table: Table, name: Any) -> None:
    for place in (table, table.lake):
        with pytest.raises(Invalid, match=r"tag name .*: use up to 64 lower-case letters"):
            place.tag(name)


@pytest.mark.parametrize("expires", ["soon", "0", "-1d", timedelta(0), "1 parsec"])
def test_how_long_a_tag_lasts_is_checked(table: Table, expires: Any) -> None:
    with pytest.raises(Invalid, match=r"expires: .* use for example 30d"):
        table.tag("x", expires=expires)
    assert table.tags() == []


@pytest.mark.parametrize("expires", ["2d", "48 hours", timedelta(days=2)])
def test_a_tag_ends_when_it_expires(table: Table, clock: ManualClock, expires: Any) -> None:
    table.tag("x", expires=expires)
    clock.advance(2 * DAY - 1)
    assert tagged(table, "x") == [0, 1, 2]
    assert not table.tags()[0].expired
    clock.advance(1)
    assert table.tags()[0].expired
    with pytest.raises(VersionExpired, match="tag x of t expired at 20"):
        tagged(table, "x")
    assert table.tag("x").version == 3, "its name is free"


def test_a_tag_of_the_lake_counts_for_each_of_its_tables(lake: Lake, table: Table, clock: ManualClock) -> None:
    other = lake.create_table("other", SCHEMA)
    clock.advance(1)
    made = lake.tag("release")
    assert made.moment is not None
    clock.advance(1)
    table.delete("true")
    other.append([{"x": 9}])
    lake.create_table("late", SCHEMA)
    table.tag("mine")
    assert (tagged(table, "release"), tagged(other, "release")) == ([0, 1, 2], [])
    with pytest.raises(TableNotFound, match="there was no table 'late' yet at the moment of tag release"):
        tagged(lake.table("late"), "release")
    assert [each.name for each in lake.tags()] == ["release"]
    assert [(each.table, each.name) for each in lake.tags(tables=True)] == [(None, "release"), ("t", "mine")]
    table.tag("release")
    assert tagged(table, "release") == [], "its own tag comes first"
    lake.drop_tag("release")
    with pytest.raises(VersionNotFound, match="table other has no tag 'release'"):
        tagged(other, "release")


def test_a_tag_of_the_lake_at_a_time(lake: Lake, table: Table, clock: ManualClock) -> None:
    moment = table.history()[0].timestamp
    clock.advance(5)
    table.append([{"x": 3}])
    with pytest.raises(Invalid, match="the moment is in the future"):
        lake.tag("x", "2999-01-01")
    assert lake.tag("x", timestamp=moment.isoformat()).moment == moment
    assert tagged(table, "x") == [0, 1, 2]


def test_a_tag_does_not_mean_a_later_table_of_the_name(lake: Lake, table: Table) -> None:
    table.tag("x")
    lake.drop_table("t")
    lake.create_table("t", {"y": "long"}).append([{"y": 1}])
    with pytest.raises(VersionNotFound, match="tag x of t: version 3 belongs to an earlier table t, which was dropped"):
        lake.table("t").to_arrow(tag="x")
    lake.drop_table("t")
    lake.undrop("t", version=4)
    assert tagged(lake.table("t"), "x") == [0, 1, 2]


def test_what_is_missing_is_named(lake: Lake, table: Table) -> None:
    table.tag("release-1")
    with pytest.raises(VersionNotFound, match="table t has no tag 'release-2': did you mean release-1"):
        lake.sql("SELECT * FROM t(tag => 'release-2')")
    with pytest.raises(Invalid, match=r"the tag of a version must be text, as in t\(tag => 'release'\)"):
        lake.sql("SELECT * FROM t(tag => 3)")
    with pytest.raises(TableNotFound, match="the lake has no table 'nope'"):
        lake.sql("SELECT * FROM nope(tag => 'x')")
    with pytest.raises(Invalid, match="version, timestamp, tag: give one of them"):
        table.scan(version=1, tag="release-1")
    with pytest.raises(Invalid, match="tag cannot be part of a transaction"), lake.transaction() as tx:
        tx.table("t").tag("x")  # type: ignore[attr-defined]


def test_tags_show_a_caller_no_more_than_the_table_does(lake: Lake) -> None:
    table = lake.create_table("secrets", {"tenant": "string", "email": "string"})
    table.append([{"tenant": "a", "email": "a@x"}, {"tenant": "b", "email": "b@x"}])
    table.tag("x")
    lake.tag("all")
    read = frozenset({"read"})
    rights = Rights((Grant(read, tables=("secrets",), where="tenant = 'a'", hide=frozenset({"email"})),), "reader")
    for name in ("x", "all"):
        found = execute(lake, f"SELECT * FROM secrets(tag => '{name}')", rights=rights)
        assert found.to_pylist() == [{"tenant": "a"}]
        with pytest.raises(Forbidden):
            execute(lake, f"SELECT * FROM secrets(tag => '{name}')", rights=Rights((Grant(read, tables=("t",)),), "r"))


def test_tags_in_sql_are_those_of_the_tables_that_a_caller_may_read(lake: Lake, table: Table) -> None:
    table.tag("two", version=2, expires="30d")
    lake.create_table("hidden", SCHEMA).tag("x")
    lake.tag("release")
    text = 'SELECT name, "table", version, moment IS NULL AS one, expires_at > created_at AS ends FROM tags()'
    release = {"name": "release", "table": None, "version": None, "one": False, "ends": None}
    hidden = {"name": "x", "table": "hidden", "version": 0, "one": True, "ends": None}
    two = {"name": "two", "table": "t", "version": 2, "one": True, "ends": True}
    assert lake.sql(f"{text} ORDER BY name").to_pylist() == [release, two, hidden]
    rights = Rights((Grant(frozenset({"read"}), tables=("t",)),), "reader")
    assert execute(lake, f"{text} ORDER BY name", rights=rights).to_pylist() == [two]
    all_tables = Rights((Grant(frozenset({"read"}), tables=("*",)),), "reader")
    assert execute(lake, f"{text} ORDER BY name", rights=all_tables).to_pylist() == [release, two, hidden]


def test_tags_are_made_and_deleted_in_sql(lake: Lake, table: Table) -> None:
    made = lake.sql('CREATE TAG "before-fix" ON TABLE t VERSION AS OF 2 RETAIN 30 DAYS').to_pylist()
    assert made == [{"tag": "before-fix", "table": "t", "version": 2}]
    assert (tagged(table, "before-fix"), table.tags()[0].expires is not None) == ([0, 1], True)
    with pytest.raises(Invalid, match="there is a tag before-fix of t already"):
        lake.sql("CREATE TAG 'before-fix' ON t")
    lake.sql("CREATE OR REPLACE TAG 'before-fix' ON t")
    assert tagged(table, "before-fix") == [0, 1, 2]
    lake.sql("CREATE TAG release")
    assert [tag.name for tag in lake.tags()] == ["release"]
    lake.sql("DROP TAG release")
    lake.sql("DROP TAG IF EXISTS release")
    with pytest.raises(VersionNotFound, match="the lake has no tag 'release'"):
        lake.sql("DROP TAG release")
    with pytest.raises(Invalid, match="expected MINUTES, HOURS, DAYS or WEEKS"):
        lake.sql("CREATE TAG x ON t RETAIN 1 FORTNIGHT")
    writer = Rights((Grant(frozenset({"read", "write"}), tables=("t",)),), "writer")
    admin = Rights((Grant(frozenset({"read", "write", "admin"}), tables=("t",)),), "admin")
    with pytest.raises(Forbidden):
        execute(lake, "CREATE TAG x ON TABLE t", rights=writer)
    with pytest.raises(Forbidden, match=r"needs the scope admin:\* for what concerns the whole lake \(CREATE TAG\)"):
        execute(lake, "CREATE TAG x", rights=admin)
    execute(lake, "CREATE TAG x ON TABLE t", rights=admin)
    execute(lake, "DROP TAG x ON TABLE t", rights=admin)
    assert [tag.name for tag in table.tags()] == ["before-fix"]


def run(lake: Path, *words: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, [*words, "--lake", str(lake), "--json"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_tags_on_the_command_line(tmp_path: Path) -> None:
    table = alluvia.connect(tmp_path).create_table("t", SCHEMA)
    table.append([{"x": 1}])
    (made,) = run(tmp_path, "tag", "create", "one", "t", "--version", "1", "--expires", "30d")
    assert (made["name"], made["table"], made["version"]) == ("one", "t", 1)
    run(tmp_path, "tag", "create", "release")
    table.append([{"x": 2}])
    table.optimize()
    assert [(each["table"], each["name"]) for each in run(tmp_path, "tag", "list")] == [(None, "release"), ("t", "one")]
    vacuumed = CliRunner().invoke(cli, ["vacuum", "t", "--retention", "0", "--dry-run", "--lake", str(tmp_path)])
    assert vacuumed.exit_code == 0, vacuumed.output
    assert "needed by tags, clones or branches" in vacuumed.output
    alluvia.connect(tmp_path).table("t").vacuum(timedelta(0))
    assert run(tmp_path, "restore", "t", "--tag", "one")[0]["restored_version"] == 1
    run(tmp_path, "tag", "drop", "one", "t")
    assert run(tmp_path, "tag", "list", "t") == []
    failed = CliRunner().invoke(cli, ["tag", "drop", "one", "t", "--lake", str(tmp_path)])
    assert (failed.exit_code, failed.stderr) == (1, "alluvia: table t has no tag 'one'\n")


def test_rejects_that_are_opened_alone_have_the_keepers_of_their_lake(tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path)
    rejects = create_rejects(lake, "events", {"id": "long"})
    rejects.append([{"id": 1}])
    rejects.tag("kept")
    rejects.delete("id = 1")
    alluvia.open_table(tmp_path / "events" / "_rejects").vacuum(timedelta(0))
    assert rejects.to_arrow(tag="kept").num_rows == 1
