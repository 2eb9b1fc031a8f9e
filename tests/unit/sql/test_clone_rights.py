"""What a caller needs to clone, attach and declare tables: no statement shows what a read would not."""

from __future__ import annotations

import pytest

from alluvia.access.rights import Grant, Rights
from alluvia.errors import Forbidden
from alluvia.sql.grammar.statements import parse
from alluvia.sql.scope import check_statement
from tests.access import grant

CLONE = "CREATE TABLE mine SHALLOW CLONE events"


def check(sql: str, *rights: Grant) -> None:
    (statement,) = parse(sql)
    check_statement(Rights(rights), statement.kind, statement.node)


def test_a_clone_needs_its_own_name_and_all_of_its_source() -> None:
    check(CLONE, grant("admin:mine"), grant("read:events"))
    check(CLONE.replace("SHALLOW", "DEEP"), grant("admin:mine"), grant("read:events"))
    for rights in (
        (grant("admin:mine"),),
        (grant("read:events"),),
        (grant("admin:mine"), grant("read:events", where="id = 1")),
        (grant("admin:mine"), grant("read:events", hide="name")),
        (grant("append:mine write:mine"), grant("read:events")),
    ):
        with pytest.raises(Forbidden):
            check(CLONE, *rights)


@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH 's3://x/y' AS mine",
        "DETACH mine",
        "CREATE TABLE mine USING DELTA LOCATION 's3://x/y'",
        "CREATE EXTERNAL TABLE mine USING parquet LOCATION 's3://x/*.parquet'",
        "REFRESH TABLE mine",
    ],
)
def test_a_name_for_what_is_elsewhere_needs_admin(sql: str) -> None:
    check(sql, grant("admin:mine"))
    for rights in (grant("admin:other"), grant("read:mine write:mine append:mine")):
        with pytest.raises(Forbidden, match="admin:mine"):
            check(sql, rights)
