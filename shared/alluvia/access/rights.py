"""What a caller may do: operations on tables and published queries by name, with the rows and columns that it may see.

A `Rights` value goes with each request. Without one (None, in what takes it), a caller may do all. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field, replace

from alluvia.errors import Forbidden, Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.table_names import REJECTS, SCHEMA, name_in_schema, schema_of, split_branch

APPEND, READ, WRITE, ADMIN = "append", "read", "write", "admin"
OPERATIONS = (APPEND, READ, WRITE, ADMIN)
QUERY, PUBLISH = "query", "publish"
QUERY_OPERATIONS = (QUERY, PUBLISH)
"""On published queries: to run one with its publisher's rights, and to publish and withdraw one."""
LINK = "link"
"""To run one published query by a link, and nothing by a header: a link is known to all who see its address."""
GRANTS_MAX = 100
VALUES_MAX = 100
VALUE_CHARS_MAX = 1000
PATTERN_CHARS_MAX = 200
WHERE_CHARS_MAX = 2000
_PATTERN = re.compile(rf"([a-z*][a-z0-9_*]*\.)?[a-z*][a-z0-9_*]*(/{REJECTS})?")
_QUERY_PATTERN = re.compile(r"[a-z*][a-z0-9_*]*|[a-z][a-z0-9_]*@(0|[1-9][0-9]{0,17})")


@dataclass(frozen=True, slots=True)
class Grant:
    """Operations on the tables whose names match a pattern, or on the published queries.

    `*` alone means the tables of all schemas. Elsewhere it stands for any characters but a dot: `ev*` means tables in
    `main` alone, `bronze.*` all in `bronze`, and `*.events` one in each schema, also in `main`. A table of rejects is
    matched only by `<name>/_rejects`. A query means its current version, `<name>@<number>` that
    one alone. `where` is a condition that limits the rows that may be read, by the caller itself or through a published
    query; `hide` has columns that may not be, in lower case. `values` are the texts of parameters that are fixed.
    """

    operations: frozenset[str]
    tables: tuple[str, ...] = ()
    where: str | None = None
    hide: frozenset[str] = frozenset()
    queries: tuple[str, ...] = ()
    values: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Raise `Invalid`, naming the field, for a grant that makes no sense."""
        known = (*OPERATIONS, *QUERY_OPERATIONS, LINK)
        unknown = self.operations.difference(known)
        if unknown or not self.operations:
            raise Invalid(f"operations: {min(unknown, default='')!r} must be one of {', '.join(known)}")
        self._check_link()
        if self.operations.isdisjoint((*QUERY_OPERATIONS, LINK)):
            _check_names("tables", self.tables, self.queries, _PATTERN)
        elif self.operations.isdisjoint(OPERATIONS):
            _check_names("queries", self.queries, self.tables, _QUERY_PATTERN)
        else:
            raise Invalid("operations: grant those on tables and those on published queries apart")
        if PUBLISH in self.operations and any("@" in pattern for pattern in self.queries):
            raise Invalid("queries: publishing makes a new version, so it cannot be granted for one")
        if (self.where is not None or self.hide) and self.operations not in ({READ}, {QUERY}):
            raise Invalid("where and hide limit what may be read: grant other operations apart from them")
        if self.where is not None and not 0 < len(self.where) <= WHERE_CHARS_MAX:
            raise Invalid(f"where: give a condition of at most {WHERE_CHARS_MAX} characters")

    def _check_link(self) -> None:
        if LINK in self.operations and (len(self.operations) > 1 or len(self.queries) != 1 or "*" in self.queries[0]):
            raise Invalid("link: a link is for one published query, by its name, and for nothing else")
        if self.values and self.operations not in ({QUERY}, {LINK}):
            raise Invalid("values: only parameters of published queries are fixed")
        if len(self.values) > VALUES_MAX or any(len(text) > VALUE_CHARS_MAX for _, text in self.values):
            raise Invalid(f"values: fix at most {VALUES_MAX} parameters, each with {VALUE_CHARS_MAX} characters")

    def covers(self, table: str) -> bool:
        """Whether a table is one of those meant, on any branch."""
        table = split_branch(table)[1]
        return any(matches(pattern, table) for pattern in self.tables)

    def versions(self, query: str) -> set[int | None]:
        """Return the versions of a published query that are meant; None stands for the current one."""
        named = (pattern.partition("@") for pattern in self.queries)
        return {int(number) if number else None for name, _, number in named if matches(name, query)}


@dataclass(frozen=True, slots=True)
class Restriction:
    """A caller's restriction on a table: conditions that visible rows meet, and hidden columns (lower case)."""

    where: tuple[str, ...] = ()
    hide: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.where or self.hide)


@dataclass(frozen=True, slots=True)
class Rights:
    """What one caller may do. `subject` names it in logs; `key` is what its requests are counted by.

    `requests_per_minute` and `query_bytes` are limits: requests in a minute, and bytes of files that a query reads.
    Of rights that a token of the lake carries, `key` is the token's id, and `expires_s` when it expires.
    """

    grants: tuple[Grant, ...]
    subject: str = ""
    key: str = ""
    requests_per_minute: int | None = None
    query_bytes: int | None = field(default=None)
    expires_s: int | None = None

    @property
    def caller(self) -> str:
        """Return what stands for the caller where limits count what each one holds."""
        return self.key or self.subject

    def as_link(self) -> Rights | None:
        """Return the rights to run the one query of a link, if these are the rights of a link."""
        if len(self.grants) != 1 or self.grants[0].operations != {LINK}:
            return None
        grant = Grant(frozenset({QUERY}), queries=self.grants[0].queries, values=self.grants[0].values)
        return replace(self, grants=(grant,))

    def may(self, operation: str, table: str) -> bool:
        """Whether an operation on a table is granted. The right to write includes appending."""
        wanted = {operation, WRITE} if operation == APPEND else {operation}
        return any(wanted & grant.operations and grant.covers(table) for grant in self.grants)

    def check(self, operation: str, table: str) -> None:
        """Raise `Forbidden`, naming the scope that is missing, if an operation on a table is not granted."""
        if not self.may(operation, table):
            raise _lacking(operation, split_branch(table)[1].replace("/", "."))

    def reads_all(self) -> bool:
        """Whether the caller may read all tables, whatever they are called, with all their rows and columns.

        Only such a caller sees what belongs to the lake as a whole: its branches and its own tags.
        """
        return self._may_all(READ) and not self._sees_in_part()

    def check_all(self, operation: str, what: str) -> None:
        """Raise `Forbidden` for an operation on the whole lake, unless it is granted on all tables.

        A caller with any partial right to read may not do it either.
        """
        if not self._may_all(operation):
            raise _lacking(operation, "*", f" for what concerns the whole lake ({what})")
        if self._sees_in_part():
            raise Forbidden(f"this caller may read tables only in part, and {what} concerns all of the lake")

    def _may_all(self, operation: str) -> bool:
        return any(operation in grant.operations and "*" in grant.tables for grant in self.grants)

    def _sees_in_part(self) -> bool:
        return any(READ in grant.operations and (grant.where or grant.hide) for grant in self.grants)

    def may_publish(self, query: str) -> bool:
        """Whether the caller may publish and withdraw a query of some name."""
        return any(PUBLISH in grant.operations and grant.versions(query) for grant in self.grants)

    def check_publish(self, query: str) -> None:
        """Raise `Forbidden`, naming the scope that is missing, if a query of some name may not be published."""
        if not self.may_publish(query):
            raise _lacking(PUBLISH, query)

    def versions(self, query: str) -> set[int | None]:
        """Return the versions of a published query that were granted; None stands for the current one."""
        granted = (grant.versions(query) for grant in self.grants if QUERY in grant.operations)
        return set[int | None]().union(*granted)

    def limits(self, query: str, version: int, *, current: bool) -> list[Grant]:
        """Return the grants of a version of a published query, whose limits all hold; none where it is not granted."""
        means = {version, None} if current else {version}
        return [grant for grant in self.grants if QUERY in grant.operations and means & grant.versions(query)]

    def reaches(self, schema: str) -> bool:
        """Whether the caller may do something with a table in a schema, or with one that it could have."""
        return any(_schema_matches(pattern, schema) for grant in self.grants for pattern in grant.tables)

    def check_schema(self, operation: str, schema: str) -> None:
        """Raise `Forbidden`, naming the scope that is missing, unless an operation is granted on all of a schema."""
        granted = (pattern for grant in self.grants if operation in grant.operations for pattern in grant.tables)
        if not any(pattern.rpartition(".")[2] == "*" and _schema_matches(pattern, schema) for pattern in granted):
            raise _lacking(operation, f"{schema}.*")

    def check_any_table(self) -> None:
        """Raise `Forbidden` for a caller that may do nothing with any table, and so has no business with SQL."""
        if not any(grant.tables for grant in self.grants):
            raise Forbidden("this caller has no scope for any table: all that it may use are published queries")

    def restriction(self, table: str) -> Restriction:
        """Return the caller's restriction on a table. Where several grants cover it, the limits of all of them hold."""
        grants = [grant for grant in self.grants if READ in grant.operations and grant.covers(table)]
        where = dict.fromkeys(grant.where for grant in grants if grant.where is not None)
        return Restriction(tuple(where), frozenset().union(*(grant.hide for grant in grants)))

    def check_sees_all(self, what: str, tables: Iterable[str]) -> None:
        """Raise `Forbidden` where something would reveal rows or columns of tables that may not be read."""
        for table in tables:
            if self.restriction(table):
                shown = table.replace("/", ".")
                raise Forbidden(f"this caller may read {shown} only in part, and {what} would reveal the rest")


def lacks_query(query: str) -> Forbidden:
    """Return the error for a published query that a caller may not run, which is the same if there is none."""
    return _lacking(QUERY, query, " (or to read all tables of such a query)")


def _lacking(operation: str, name: str, otherwise: str = "") -> Forbidden:
    scope = f"{operation}:{name:.150}"
    return Forbidden(f"this needs the scope {scope}{otherwise}, which this caller lacks", scope=scope)


def _check_names(field: str, names: tuple[str, ...], others: tuple[str, ...], pattern: re.Pattern[str]) -> None:
    if not names or others:
        raise Invalid(f"{field}: name at least one, and nothing else")
    for name in names:
        if len(name) > PATTERN_CHARS_MAX or not pattern.fullmatch(name):
            raise Invalid(f"{field}: {name!r:.100} must be a name, in which * stands for any characters")


def matches(pattern: str, table: str) -> bool:
    """Whether a table's name, or a query's, matches a pattern of a grant."""
    rejects = f"/{REJECTS}"
    if pattern.endswith(rejects) != table.endswith(rejects):
        return False
    pattern = pattern.removesuffix(rejects)
    if pattern == "*":
        return True
    name = name_in_schema(table.removesuffix(rejects))
    return _schema_matches(pattern, schema_of(table)) and _matches(pattern.rpartition(".")[2], name)


def _schema_matches(pattern: str, schema: str) -> bool:
    """Whether a pattern means tables in a schema."""
    pattern = pattern.removesuffix(f"/{REJECTS}")
    return pattern == "*" or _matches(pattern.rpartition(".")[0] or SCHEMA, schema)


def _matches(pattern: str, name: str) -> bool:
    first, *others = pattern.split("*")
    if not others:
        return name == first
    *middle, last = others
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        place = name.find(part, at, end)
        if place < 0:
            return False
        at = place + len(part)
    return True


def table_pattern(text: str) -> str:
    """Return a pattern in the form of grants; rejects may be written as in SQL, `clicks._rejects`."""
    suffix = f".{REJECTS}"
    return f"{text.removesuffix(suffix)}/{REJECTS}" if text.endswith(suffix) else text
