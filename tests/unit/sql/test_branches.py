"""CREATE BRANCH, DROP BRANCH, PUBLISH BRANCH and MERGE BRANCH, and who may send them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import alluvia
from alluvia.access.rights import Rights
from alluvia.api.lake import Lake
from alluvia.errors import BranchConflict, Forbidden, Invalid, VersionNotFound
from alluvia.sql.run import execute
from tests.access import grant

ALONE = "cannot be part of a transaction: send it in a text of its own"
MADE: dict[str, Any] = {"change": "changed", "how": "fast-forward", "files_added": 1, "files_removed": 0}


@pytest.fixture
def orders(lake: Lake) -> Lake:
    lake.sql("CREATE TABLE orders (id BIGINT)")
    lake.sql("INSERT INTO orders VALUES (1)")
    return lake


def ids(lake: Lake) -> list[int]:
    return sorted(lake["orders"].to_arrow(["id"])["id"].to_pylist())


def test_a_branch_is_cut_published_and_dropped(orders: Lake) -> None:
    assert orders.sql("CREATE BRANCH fix RETAIN 7 DAYS").to_pylist() == [{"branch": "fix"}]
    (info,) = orders.branches()
    assert info.expires_at is not None
    assert abs(info.expires_at - info.created_at - timedelta(days=7)) < timedelta(minutes=1)  # two looks at the clock
    fix = orders.on_branch("fix")
    fix.sql("INSERT INTO orders VALUES (2)")
    row = {"table": "orders", **MADE, "conflict": None}
    for text in ("PUBLISH BRANCH fix DRY RUN", "MERGE BRANCH DRY RUN fix INTO main"):
        assert orders.sql(text).to_pylist() == [{**row, "version": None}]
        assert ids(orders) == [1]
    assert orders.sql('PUBLISH BRANCH "fix" ISOLATION LEVEL SNAPSHOT').to_pylist() == [{**row, "version": 2}]
    assert ids(orders) == [1, 2]
    orders.sql("DROP BRANCH fix")
    orders.sql("DROP BRANCH IF EXISTS fix")
    with pytest.raises(Invalid, match="there is no branch 'fix'"):
        orders.sql("DROP BRANCH fix")
    assert orders.branches() == []


def test_a_branch_begins_with_a_tag_or_a_moment(orders: Lake) -> None:
    orders.sql("CREATE TAG '2026-q1'")
    orders.sql("INSERT INTO orders VALUES (2)")
    orders.sql("CREATE BRANCH old AT (TAG => '2026-q1')")
    orders.sql("CREATE BRANCH now AT (OFFSET => '0 seconds ago')")
    orders.sql("CREATE BRANCH 'pr-17' AT (TIMESTAMP => '2020-01-01')")
    assert (ids(orders.on_branch("old")), ids(orders.on_branch("now"))) == ([1], [1, 2])
    assert orders.on_branch("pr-17").tables() == []
    orders.sql("CREATE BRANCH IF NOT EXISTS old")
    assert ids(orders.on_branch("old")) == [1]
    with pytest.raises(VersionNotFound, match="the lake has no tag 'q2'"):
        orders.sql("CREATE BRANCH more AT (TAG => 'q2')")
    with pytest.raises(Invalid, match="there is a branch old already"):
        orders.sql("CREATE BRANCH old")


def test_a_conflict_names_the_table_and_the_rule(orders: Lake) -> None:
    orders.branch("late")["orders"].delete("id = 1")
    orders.sql("INSERT INTO orders VALUES (1)")
    (row,) = orders.sql("PUBLISH BRANCH late DRY RUN").to_pylist()
    assert (row["how"], "(ConcurrentAppend)" in row["conflict"]) == ("conflict", True)
    with pytest.raises(BranchConflict, match=r"branch late cannot be published: table orders: .*ConcurrentAppend"):
        orders.sql("PUBLISH BRANCH late")
    assert ids(orders) == [1, 1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CREATE OR REPLACE BRANCH x", "CREATE OR REPLACE BRANCH is not supported: DROP BRANCH IF EXISTS, and create"),
        ("CREATE BRANCH x AT (VERSION => 3)", "expected TIMESTAMP => '…', OFFSET => '1 hour ago' or TAG => 'release'"),
        ("CREATE BRANCH x AT (TIMESTAMP => 'soon')", "'soon' is not an ISO 8601 time"),
        ("CREATE BRANCH x RETAIN '0d'", "RETAIN: '0d' is not a duration; use for example 7d"),
        ("CREATE BRANCH main", "has another meaning in queries"),
        ("MERGE BRANCH x INTO prod", "write INTO main"),
        ("PUBLISH BRANCH x ISOLATION LEVEL NONE", "ISOLATION LEVEL NONE is not supported"),
        ("PUBLISH BRANCH x", "there is no branch 'x'"),
        ("USE BRANCH x", "USE is not supported: .* header X-Alluvia-Branch"),
        ("CREATE BRANCH x; SELECT 1", ALONE),
        ("BEGIN; PUBLISH BRANCH x; COMMIT", ALONE),
        ("BEGIN; OPTIMIZE orders; COMMIT", ALONE),
        ("BEGIN; DROP BRANCH x; ROLLBACK", ALONE),
    ],
)
def test_what_is_refused(orders: Lake, text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        orders.sql(text)
    assert orders.branches() == []


@pytest.mark.parametrize("text", ["CREATE BRANCH x", "DROP BRANCH fix", "PUBLISH BRANCH fix"])
def test_not_on_a_branch_and_not_in_a_transaction(lake: Lake, text: str) -> None:
    fix = lake.branch("fix")
    with pytest.raises(Invalid, match="concerns the lake and all its branches: do it on the lake itself"):
        fix.sql(text)
    with lake.transaction() as tx, pytest.raises(Invalid, match=ALONE):
        tx.sql(text)
    assert [each.name for each in lake.branches()] == ["fix"]


def test_what_concerns_the_whole_lake_takes_a_scope_for_all_of_it(orders: Lake) -> None:
    orders.tag("release")
    orders.branch("fix")
    admin, reader = grant("admin:*"), grant("read:*")
    listed = "SELECT (SELECT count(*) FROM branches()) + (SELECT count(*) FROM tags()) AS n"
    statements = ("CREATE BRANCH x", "PUBLISH BRANCH fix", "DROP BRANCH fix", "CREATE TAG x", "DROP TAG release")
    few = (grant("admin:orders read:orders"), grant("write:*"), grant("admin:o*"))
    for grants, reason in (
        ((reader,), r"needs the scope admin:\* for what concerns the whole lake"),
        (few, r"needs the scope admin:\* for what concerns the whole lake"),
        ((admin, grant("read:orders", where="id > 1")), "may read tables only in part"),
        ((admin, grant("read:orders", hide="id")), "may read tables only in part"),
    ):
        for text in statements:
            with pytest.raises(Forbidden, match=reason):
                execute(orders, text, rights=Rights(grants))
        seen = execute(orders, listed, rights=Rights(grants)).to_pylist()
        assert seen == [{"n": 2 if grants == (reader,) else 0}]
    for text in statements:
        execute(orders, text, rights=Rights((admin,)))
    assert ([each.name for each in orders.branches()], [each.name for each in orders.tags()]) == (["x"], ["x"])


def test_a_caller_that_reads_all_but_some_rows_is_told_of_no_branch(orders: Lake) -> None:
    orders.branch("fix")
    rights = Rights((grant("read:*"), grant("read:orders", where="id > 1")))
    assert execute(orders, "FROM branches()", rights=rights).num_rows == 0
    assert execute(orders, "FROM branches()", rights=Rights((grant("read:*"),))).num_rows == 1


def test_answers_have_the_same_columns_without_changes(lake: alluvia.Lake) -> None:
    lake.branch("fix")
    assert lake.sql("PUBLISH BRANCH fix").schema.names == [
        "table", "change", "how", "version", "files_added", "files_removed", "conflict",
    ]  # fmt: skip
