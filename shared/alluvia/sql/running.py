"""Run statements one after another, in a transaction or on the lake itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alluvia.access.rights import Rights
from alluvia.engine.duck.evaluators import evaluating
from alluvia.errors import Invalid, TableExists, TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.schemas import has_schema, no_schema
from alluvia.operations.catalog.views import find_view
from alluvia.progress import listener, reporting_to
from alluvia.query.limits import QueryLimits
from alluvia.query.parameters import Values
from alluvia.query.process.evaluator import ProcessEvaluator
from alluvia.sql import changing, comments, definitions, merging, showing, tables, writing
from alluvia.sql.binding import check_used
from alluvia.sql.grammar import nodes
from alluvia.sql.grammar.cursor import TO_WRITE_ON_A_BRANCH
from alluvia.sql.grammar.statements import SqlStatement
from alluvia.sql.scope import Done, SqlScope, check_statement, row
from alluvia.table_names import SCHEMA, schema_of

if TYPE_CHECKING:
    from alluvia.api.lake import Lake
    from alluvia.api.lake_transaction import LakeTransaction

_WRITES: Mapping[type, Callable[[SqlScope, Any], Done | pa.Table]] = {
    nodes.Insert: writing.insert,
    nodes.Update: changing.update,
    nodes.Delete: changing.delete,
    nodes.Merge: merging.merge,
    nodes.CreateTable: writing.create_table,
    nodes.AlterTable: tables.alter_table,
    nodes.DropTable: tables.drop_table,
    nodes.Attach: tables.attach,
    nodes.Clone: tables.clone,
    nodes.External: tables.external,
    nodes.Restore: tables.restore,
    nodes.Maintain: tables.maintain,
    nodes.CreateSchema: definitions.create_schema,
    nodes.DropSchema: definitions.drop_schema,
    nodes.CreateView: definitions.create_view,
    nodes.DropView: definitions.drop_view,
    nodes.Comment: comments.comment,
    nodes.CreateStream: definitions.create_stream,
    nodes.DropStream: definitions.drop_stream,
    nodes.RestoreLake: tables.restore_lake,
    nodes.CreateTag: definitions.create_tag,
    nodes.DropTag: definitions.drop_tag,
    nodes.CreateBranch: definitions.create_branch,
    nodes.DropBranch: definitions.drop_branch,
    nodes.PublishBranch: definitions.publish_branch,
}


def check_parameters(text: str, values: Values) -> None:
    """Raise `Invalid`, naming it, for a parameter of a text without a value, or a value that is not used."""
    check_used(text, values)


@dataclass(frozen=True, slots=True)
class ScriptAnswer:
    """What statements answer: the rows of the last read or of a publish, or what the last write did, to which table."""

    rows: pa.Table | None
    done: Done
    table: str
    in_transaction: bool

    def shown(self, versions: Mapping[str, int] | None = None) -> pa.Table:
        """Return the rows, or one row that says what was done.

        Which version a transaction makes of each table that it changes is known once it has committed: `versions`.
        """
        if self.rows is not None:
            return self.rows
        if not self.in_transaction:
            return row(self.done)
        version = None if versions is None else versions.get(self.table, self.done.get("version"))
        return with_versions(row({**self.done, "version": version}), versions or {})


def with_versions(said: pa.Table, versions: Mapping[str, int]) -> pa.Table:
    """Add the versions that a commit made, by table, where they are several."""
    if len(versions) < 2:
        return said
    return said.append_column("versions", pa.array([versions], pa.struct([(name, pa.int64()) for name in versions])))


def answer(
    lake: Lake,
    transaction: LakeTransaction | None,
    statements: Sequence[SqlStatement],
    values: Values,
    limits: QueryLimits | None,
    rights: Rights | None = None,
) -> ScriptAnswer:
    """Run statements.

    Raises `Forbidden` before any of them runs, if the rights do not allow one.
    """
    if rights is not None:
        for statement in statements:
            check_statement(rights, statement.kind, statement.node)
    if transaction is not None or len(statements) > 1:
        check_together(statements)
    limits = None if limits is None else limits.begun()
    scope = SqlScope(lake, transaction, values, limits, rights)
    reads = [statement for statement in statements if not statement.writes]
    rows: pa.Table | None = None
    done: Done = {}
    written = ""
    with _stopping_in_time(limits):
        for statement in statements:
            if limits is not None:
                limits.check()
            if statement.writes:
                said = _write(scope, statement)
                if isinstance(said, pa.Table):
                    rows = said
                else:
                    done, written = said, table_of(statement.node)
            else:
                rows = _read(scope, statement, last=statement is reads[-1])
    return ScriptAnswer(rows, done, written, in_transaction=transaction is not None)


def insert_rows(
    lake: Lake,
    transaction: LakeTransaction,
    node: nodes.Insert,
    rows: pa.Table,
    limits: QueryLimits | None,
    rights: Rights | None = None,
) -> pa.Table:
    """Append rows as if they were the VALUES of an INSERT. Returns, and raises, what running that does."""
    if rights is not None:
        check_statement(rights, "insert", node)
    limits = None if limits is None else limits.begun()
    with _stopping_in_time(limits):
        return row(writing.insert_rows(SqlScope(lake, transaction, {}, limits, rights), node, rows))


def _write(scope: SqlScope, statement: SqlStatement) -> Done | pa.Table:
    if scope.transaction is not None:
        scope.transaction.note_written()
    try:
        return _WRITES[type(statement.node)](scope, statement.node)
    except TableExists as error:
        advice = f"write {statement.kind.upper()} IF NOT EXISTS"
        raise TableExists(str(error).replace("pass exist_ok=True", advice)) from error
    except TableNotFound as error:
        name = table_of(statement.node)
        if schema_of(name) != SCHEMA and not has_schema(scope.lake.store, schema_of(name)):
            raise TableNotFound(f"{no_schema(schema_of(name), name)}; {TO_WRITE_ON_A_BRANCH}") from error
        if find_view(scope.lake.store, name) is None:
            raise
        needs = f"{statement.kind.upper()} needs a table, such as one that it reads"
        fix = f"DROP VIEW {name} drops it" if isinstance(statement.node, nodes.DropTable) else needs
        raise TableNotFound(f"{name} is a view: {fix}") from error


def table_of(node: nodes.Node) -> str:
    """Return the table that a statement writes to; empty for none."""
    return (node.name if isinstance(node, nodes.Comment) else getattr(node, "table", None)) or ""


@contextmanager
def _stopping_in_time(limits: QueryLimits | None) -> Iterator[None]:
    """Bound the changes of rows: between files here, and what they compute in a process, which is killed."""
    if limits is None or (limits.until is None and limits.memory_bytes is None):
        yield
        return
    told = listener()

    def check(what: str, done: int, total: int, unit: str = "") -> None:
        limits.check()
        if told is not None:
            told(what, done, total, unit)

    with reporting_to(check), ProcessEvaluator(limits) as evaluator, evaluating(evaluator):
        yield


def check_together(statements: Sequence[SqlStatement]) -> None:
    """Raise `Invalid` for a statement that no transaction can hold."""
    for statement in statements:
        if statement.alone:
            others = ", or together with other definitions only, without BEGIN" if statement.defines else ""
            raise Invalid(
                f"{statement.kind.upper()} cannot be part of a transaction: send it in a text of its own{others}"
            )


def _read(scope: SqlScope, statement: SqlStatement, *, last: bool) -> pa.Table:
    if isinstance(statement.node, nodes.Show):
        return showing.show(scope, statement.node)
    assert isinstance(statement.node, nodes.Query)  # noqa: S101 - what neither writes nor shows is a query
    with scope.query(statement.node.text) as result:
        if last:
            return result.read_all(scope.memory_bytes)
        for _ in result:  # it may fail, and then undoes the writes before it
            pass
        return pa.table({})
