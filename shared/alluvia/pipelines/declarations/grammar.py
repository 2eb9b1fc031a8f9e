"""CREATE OR REFRESH TABLE: a declaration as SQL. Pure.

The words are those of Databricks' pipelines (CONSTRAINT … EXPECT, SEQUENCE BY, STORED AS SCD TYPE) and of our own
CREATE TABLE. Words of other products are taken if they mean the same, and else refused with the words to write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from alluvia.engine.queries.tokens import tokens_of
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.pipelines.declarations.declaration import (
    APPEND,
    DROP,
    FAIL,
    KINDS,
    QUARANTINE,
    WARN,
    Declaration,
    Expectation,
    Sequencing,
)
from alluvia.sql.grammar.cursor import Cursor
from alluvia.sql.grammar.grammar_options import read_partitioning, read_properties
from alluvia.sql.grammar.grammar_tables import check_no_parameters
from alluvia.sql.grammar.script import script_parts

EXAMPLE = "CREATE OR REFRESH TABLE daily AS SELECT day, count(*) AS hits FROM events GROUP BY day"
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_STATEMENT_INSTEAD = {
    "view": "a view has no rows of its own: declare a table, or create the view with `alluvia sql`",
    "temporary": "write the SELECT as a WITH clause of the query that reads it",
    "private": "write the SELECT as a WITH clause of the query that reads it",
    "dynamic": "write CREATE OR REFRESH TABLE, and SCHEDULE EVERY 1 HOUR instead of TARGET_LAG",
    "flow": "write the query into CREATE OR REFRESH TABLE … AS, with KEY and SEQUENCE BY for a feed of changes",
    "external": "create it once with `alluvia sql`: a pipeline declares tables that queries make",
}
_OPTION_INSTEAD = {
    "target_lag": "write SCHEDULE EVERY 1 HOUR",
    "warehouse": "leave it out: a run takes place where it is started",
    "refresh_mode": "write KIND FULL, or leave it out: the kind follows from the query",
    "lag": "write SCHEDULE EVERY 1 HOUR",
    "refresh": "write SCHEDULE EVERY 1 HOUR",
    "ignore": "leave it out: rows in which a column is null keep it",
    "columns": "name the columns in the SELECT",
    "using": "leave it out: tables have one format, Delta",
    "location": "leave it out: a table is in the folder of its name",
    "order": "write SORT BY (…)",
    "comment": "write TBLPROPERTIES ('comment' = '…')",
    "primary": "write KEY (…)",
}
_AFTER_CONDITION = (
    "sequence",
    *("as", "stored", "scd", "kind", "partitioned", "partition", "sort", "sorted", "cluster", "clustered"),
    *("schedule", "trigger", "tblproperties", "with"),
)
_OPTIONS = "KEY, SEQUENCE BY, KIND, PARTITIONED BY, SORT BY, CLUSTER BY, SCHEDULE, TBLPROPERTIES or AS SELECT"


def read_declarations(text: str, place: str) -> Iterator[Declaration]:
    """Yield the declarations in the text of a file. Raises `Invalid`, with the file, the line and the reason."""
    for part in script_parts(text.splitlines(keepends=True)):
        at = f"{place}:{part.line}"
        if part.is_dot_command:
            raise Invalid(f"{at}: {part.text:.50} is a command of the prompt: a file of a pipeline has declarations")
        try:
            yield read_declaration(part.text, at)
        except Invalid as error:
            raise error if str(error).startswith(at) else Invalid(f"{at}: {error}") from None


def read_declaration(text: str, place: str = "") -> Declaration:
    """Read one statement. Raises `Invalid` with the reason."""
    cursor = Cursor(text, tokens_of(text))
    if not cursor.accept("create"):
        raise Invalid(f"expected CREATE OR REFRESH TABLE, got {text.split(maxsplit=1)[0]:.50}; for example {EXAMPLE}")
    if cursor.accept("or") and not (cursor.accept("refresh") or cursor.accept("replace")):
        raise cursor.wrong("REFRESH")
    given = _Given(place=place)
    _what(cursor, given)
    cursor.accept("if", "not", "exists")
    given.target = cursor.table()
    if cursor.accept("("):
        _constraints(cursor, given)
    while not cursor.ended and not cursor.accept("as"):
        _option(cursor, given)
    query = cursor.rest("SELECT")
    check_no_parameters(query, "a pipeline's query", "write the value into the query")
    return given.declaration(query.text)


@dataclass(slots=True)
class _Given:
    """The clauses that are read so far."""

    place: str
    target: str = ""
    kind: str | None = None
    key: tuple[str, ...] = ()
    sequence_by: str | None = None
    delete_when: str | None = None
    scd: int | None = None
    layout: dict[str, tuple[str, ...]] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    expectations: list[Expectation] = field(default_factory=list)
    every_seconds: int | None = None
    on_change: bool = False

    def declaration(self, query: str) -> Declaration:
        sequencing = None
        if self.sequence_by is not None:
            sequencing = Sequencing(self.sequence_by, self.delete_when, self.scd or 1)
        elif self.delete_when is not None or self.scd is not None:
            what = "DELETE WHEN" if self.delete_when is not None else "SCD TYPE"
            raise Invalid(f"{what} needs SEQUENCE BY, the column that says which of two changes is the later one")
        return Declaration(
            self.target,
            query,
            self.key,
            sequencing,
            self.kind,
            self.layout.get("partition", ()),
            self.layout.get("sort", ()),
            self.layout.get("cluster", ()),
            self.properties,
            tuple(self.expectations),
            self.every_seconds,
            self.on_change,
            self.place,
        )


def _what(cursor: Cursor, given: _Given) -> None:
    """Read what is created: a table, in the words of several products."""
    cursor.accept("live")
    word = cursor.word()
    if word in _STATEMENT_INSTEAD:
        raise Invalid(f"CREATE {word.upper()} is not a declaration of a pipeline: {_STATEMENT_INSTEAD[word]}")
    if cursor.accept("materialized", "view"):
        return
    if cursor.accept("streaming"):
        given.kind = APPEND
    cursor.expect("table")


def _constraints(cursor: Cursor, given: _Given) -> None:
    """Read the expectations in the parentheses after the name."""
    first = True
    while first or cursor.accept(","):
        first = False
        if not cursor.accept("constraint"):
            raise Invalid(
                "the columns of a pipeline's table are those of its SELECT: CAST and name them there; in parentheses "
                "after the name stand expectations, as in CONSTRAINT ok EXPECT (status > 0) ON VIOLATION QUARANTINE"
            )
        name = cursor.identifier("the name of the expectation")
        if cursor.word() == "check":
            raise Invalid(f"CONSTRAINT {name}: write EXPECT (…) ON VIOLATION FAIL instead of CHECK (…)")
        cursor.expect("expect")
        condition = cursor.brackets("a condition")
        check_no_parameters(condition, "EXPECT", "write the value into the condition")
        given.expectations.append(Expectation(name, condition.text, _action(cursor)))
    cursor.expect(")")


def _action(cursor: Cursor) -> str:
    if not cursor.accept("on", "violation"):
        return WARN
    if cursor.accept("drop"):
        cursor.accept("row")
        return DROP
    if cursor.accept("fail"):
        cursor.accept("update")
        return FAIL
    for action in (QUARANTINE, WARN):
        if cursor.accept(action):
            return action
    raise cursor.wrong("QUARANTINE, DROP ROW, WARN or FAIL")


def _option(cursor: Cursor, given: _Given) -> None:
    if cursor.accept("key") or cursor.accept("keys"):
        given.key = cursor.names("the name of a column")
    elif cursor.accept("sequence", "by"):
        given.sequence_by = cursor.identifier("the name of a column")
    elif cursor.accept("apply", "as", "delete", "when") or cursor.accept("delete", "when"):
        given.delete_when = _condition(cursor)
    elif cursor.accept("stored", "as", "scd", "type") or cursor.accept("scd", "type"):
        given.scd = cursor.number("1 or 2")
    elif cursor.accept("kind"):
        given.kind = _kind(cursor)
    elif cursor.accept("partitioned", "by") or cursor.accept("partition", "by"):
        given.layout["partition"] = read_partitioning(cursor)
    elif cursor.accept("sort", "by") or cursor.accept("sorted", "by"):
        given.layout["sort"] = cursor.names("the name of a column")
    elif cursor.accept("cluster", "by") or cursor.accept("clustered", "by"):
        given.layout["cluster"] = cursor.names("the name of a column")
    elif cursor.accept("tblproperties"):
        given.properties.update(read_properties(cursor))
    elif cursor.accept("with"):
        given.properties.update(read_properties(cursor, own=False))
    elif cursor.accept("schedule"):
        _schedule(cursor, given)
    elif cursor.accept("trigger"):
        cursor.expect("on", "update")
        given.on_change = True
    elif (word := cursor.word()) in _OPTION_INSTEAD:
        raise Invalid(f"{word.upper()} is not an option of a pipeline's table: {_OPTION_INSTEAD[word]}")
    else:
        raise cursor.wrong(_OPTIONS)


def _condition(cursor: Cursor) -> str:
    """Read the condition of DELETE WHEN, in parentheses or up to the next option."""
    condition = cursor.until(*_AFTER_CONDITION, what="a condition")
    check_no_parameters(condition, "DELETE WHEN", "write the value into the condition")
    return condition.text


def _kind(cursor: Cursor) -> str:
    for kind in KINDS:
        if cursor.accept(kind):
            return kind
    raise cursor.wrong(", ".join(KINDS).upper())


def _schedule(cursor: Cursor, given: _Given) -> None:
    cursor.accept("refresh")
    if cursor.accept("on", "change"):
        given.on_change = True
        return
    if cursor.word() == "cron":
        raise Invalid("SCHEDULE CRON is not supported: write SCHEDULE EVERY 1 HOUR, or ON CHANGE")
    cursor.expect("every")
    number = 1 if cursor.word() else cursor.number("how many")
    unit = cursor.identifier("SECONDS, MINUTES, HOURS, DAYS or WEEKS").lower().removesuffix("s")
    if unit not in _SECONDS or number < 1:
        raise Invalid(f"SCHEDULE EVERY {number} {unit}: give a number of seconds, minutes, hours, days or weeks")
    given.every_seconds = number * _SECONDS[unit]
