"""What a caller may do: operations on tables by name, with the rows and columns that it may see. Pure.

A `Rights` value goes with each request. Without one (None, in what takes it), a caller may do all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field

from alluvia.errors import Forbidden, Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.table_names import REJECTS

APPEND, READ, WRITE, ADMIN = "append", "read", "write", "admin"
OPERATIONS = (APPEND, READ, WRITE, ADMIN)
GRANTS_MAX = 100
PATTERN_CHARS_MAX = 200
WHERE_CHARS_MAX = 2000
_PATTERN = re.compile(rf"(\*|[a-z*][a-z0-9_*]*)(/{REJECTS})?")


@dataclass(frozen=True, slots=True)
class Grant:
    """Operations on the tables whose names match a pattern. A table of rejects is matched only by `<name>/_rejects`.

    `where` is a condition that limits the rows that may be read; `hide` has columns that may not be, in lower case.
    """

    operations: frozenset[str]
    tables: tuple[str, ...]
    where: str | None = None
    hide: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Raise `Invalid`, naming the field, for a grant that makes no sense."""
        unknown = self.operations - set(OPERATIONS)
        if unknown or not self.operations:
            raise Invalid(f"operations: {min(unknown, default='')!r} must be one of {', '.join(OPERATIONS)}")
        for pattern in self.tables:
            if len(pattern) > PATTERN_CHARS_MAX or not _PATTERN.fullmatch(pattern):
                raise Invalid(f"tables: {pattern!r:.100} must be a table's name, in which * stands for any characters")
        if not self.tables:
            raise Invalid("tables: name at least one table")
        if (self.where is not None or self.hide) and self.operations != {READ}:
            raise Invalid("where and hide limit what may be read: grant other operations apart from them")
        if self.where is not None and not 0 < len(self.where) <= WHERE_CHARS_MAX:
            raise Invalid(f"where: give a condition of at most {WHERE_CHARS_MAX} characters")

    def covers(self, table: str) -> bool:
        """Whether a table is one of those meant."""
        return any(matches(pattern, table) for pattern in self.tables)


@dataclass(frozen=True, slots=True)
class Restriction:
    """What of a table a caller may not see: rows for which a condition does not hold, and columns (lower case)."""

    where: tuple[str, ...] = ()
    hide: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.where or self.hide)


@dataclass(frozen=True, slots=True)
class Rights:
    """What one caller may do. `subject` names it in logs; `key` is what its requests are counted by.

    `requests_per_minute` and `query_bytes` are limits: requests in a minute, and bytes of files that a query reads.
    """

    grants: tuple[Grant, ...]
    subject: str = ""
    key: str = ""
    requests_per_minute: int | None = None
    query_bytes: int | None = field(default=None)

    def may(self, operation: str, table: str) -> bool:
        """Whether an operation on a table is granted. Whoever may write may also append."""
        wanted = {operation, WRITE} if operation == APPEND else {operation}
        return any(wanted & grant.operations and grant.covers(table) for grant in self.grants)

    def check(self, operation: str, table: str) -> None:
        """Raise `Forbidden`, naming the scope that is missing, if an operation on a table is not granted."""
        if not self.may(operation, table):
            shown = table.replace("/", ".")
            scope = f"{operation}:{shown:.150}"
            raise Forbidden(f"this needs the scope {scope}, which this caller lacks", scope=scope)

    def restriction(self, table: str) -> Restriction:
        """Return what of a table may not be read. Where several grants cover it, the limits of all of them hold."""
        found = [grant for grant in self.grants if READ in grant.operations and grant.covers(table)]
        where = dict.fromkeys(grant.where for grant in found if grant.where is not None)
        return Restriction(tuple(where), frozenset().union(*(grant.hide for grant in found)))

    def check_sees_all(self, what: str, tables: Iterable[str]) -> None:
        """Raise `Forbidden` where something would tell of rows or columns of tables that may not be read."""
        for table in tables:
            if self.restriction(table):
                shown = table.replace("/", ".")
                raise Forbidden(f"this caller may read {shown} only in part, and {what} would tell of the rest")


def matches(pattern: str, table: str) -> bool:
    """Whether a name matches a pattern, in which `*` stands for any characters but the slash."""
    rejects = f"/{REJECTS}"
    if pattern.endswith(rejects) != table.endswith(rejects):
        return False
    first, *others = pattern.removesuffix(rejects).split("*")
    name = table.removesuffix(rejects)
    if not others:
        return name == first
    *middle, last = others
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def table_pattern(text: str) -> str:
    """Return a pattern as grants have it; rejects may be written as SQL has them, `clicks._rejects`."""
    suffix = f".{REJECTS}"
    return f"{text.removesuffix(suffix)}/{REJECTS}" if text.endswith(suffix) else text
