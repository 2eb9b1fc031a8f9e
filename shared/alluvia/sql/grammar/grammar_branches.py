"""CREATE, DROP, PUBLISH and MERGE BRANCH, from their tokens. Pure."""

from __future__ import annotations

from alluvia.errors import Invalid
from alluvia.operations.transactions.lake_commit import ISOLATION, SERIALIZABLE
from alluvia.sql.grammar import nodes
from alluvia.sql.grammar.grammar_tags import read_keeper_name, read_retain
from alluvia.sql.grammar.tokens import Cursor

_NAME = "the name of a branch"
_INTO = ("main", "lake")


def read_branch(cursor: Cursor) -> nodes.CreateBranch:
    """Read CREATE BRANCH [IF NOT EXISTS] x [AT (TAG => 'release')] [RETAIN 7 DAYS], from BRANCH on."""
    cursor.expect("branch")
    if_not_exists = cursor.accept("if", "not", "exists")
    name = read_keeper_name(cursor, _NAME)
    begin: dict[str, str] = {}
    if cursor.accept("at"):
        cursor.expect("(")
        unit = cursor.word()
        if unit not in ("timestamp", "offset", "tag"):
            raise cursor.wrong("TIMESTAMP => '…', OFFSET => '1 hour ago' or TAG => 'release'")
        cursor.expect(unit, "=>")
        begin[unit] = cursor.string("the name of a tag" if unit == "tag" else "a time")
        cursor.expect(")")
    retain = read_retain(cursor, "branch") if cursor.accept("retain") else None
    return nodes.CreateBranch(name, if_not_exists, **begin, retain=retain)


def read_drop_branch(cursor: Cursor) -> nodes.DropBranch:
    """Read DROP BRANCH [IF EXISTS] x, from BRANCH on."""
    cursor.expect("branch")
    if_exists = cursor.accept("if", "exists")
    return nodes.DropBranch(read_keeper_name(cursor, _NAME), if_exists)


def read_publish(cursor: Cursor) -> nodes.PublishBranch:
    """Read PUBLISH BRANCH x [ISOLATION LEVEL SNAPSHOT] [DRY RUN].

    MERGE BRANCH [DRY RUN] x [INTO main], as Nessie and Dremio have it, is the same.
    """
    is_merge = cursor.accept("merge")
    if not is_merge:
        cursor.expect("publish")
    cursor.expect("branch")
    dry_run = is_merge and cursor.accept("dry", "run")
    name = read_keeper_name(cursor, _NAME)
    if is_merge and cursor.accept("into") and read_keeper_name(cursor, "main") not in _INTO:
        raise Invalid("MERGE BRANCH … INTO: a branch is published to the lake that it was cut from: write INTO main")
    isolation = read_isolation(cursor)
    return nodes.PublishBranch(name, isolation, dry_run or cursor.accept("dry", "run"))


def read_isolation(cursor: Cursor) -> str:
    """Read [ISOLATION LEVEL …]."""
    if not cursor.accept("isolation"):
        return SERIALIZABLE
    cursor.expect("level")
    isolation = cursor.identifier("SERIALIZABLE, WRITE_SERIALIZABLE or SNAPSHOT").lower()
    if isolation not in ISOLATION:
        known = ", ".join(ISOLATION).upper()
        raise Invalid(f"ISOLATION LEVEL {isolation.upper()} is not supported: use one of {known}")
    return isolation
