"""Run SQL texts: a lake's `sql`, a transaction's `sql`, and a session, which remembers BEGIN between texts.

The statements of a text are one transaction. A text that is one SELECT goes straight to the query engine. A text of
definitions alone, some of which no transaction can hold, is a transaction for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.errors import AlluviaError, Conflict, Invalid
from alluvia.query.engine import run
from alluvia.query.parameters import named_values
from alluvia.query.permitted import permitted
from alluvia.sql.grammar.nodes import Control, Query
from alluvia.sql.grammar.statements import SqlStatement, parse

if TYPE_CHECKING:
    from alluvia.access.rights import Rights
    from alluvia.api.lake import Lake
    from alluvia.api.lake_transaction import LakeTransaction
    from alluvia.query.limits import QueryLimits
    from alluvia.query.parameters import Parameters, Values

TRIES_MAX = 20
"""So often a text runs, where what it read has changed before it could commit."""


def execute(
    lake: Lake,
    text: str,
    parameters: Parameters | None = None,
    *,
    limits: QueryLimits | None = None,
    ready: Callable[[pa.Table], object] | None = None,
    rights: Rights | None = None,
) -> pa.Table:
    """Run a text on a lake. Returns the rows of its last read, or one row that says what its last write did.

    Of writes that end with ROLLBACK, it says that they were rolled back.

    The statements share the time that the limits give. `ready` gets what will be returned, apart from versions, before
    a transaction commits: if it raises, nothing is committed. Raises `Forbidden` for what the `rights` of the caller do
    not allow.
    """
    statements = parse(text)
    values = named_values(parameters)
    if _is_query(statements):
        return run(permitted(lake.catalog, rights), text, limits, values).read_all()
    from alluvia.sql.running import check_parameters, check_together  # loads what writes

    check_parameters(text, values)
    begin, body, end = _bracketed(statements)
    if begin is not None:
        check_together(body)
    discard = end is not None and end.action == "rollback"
    return _committed(lake, body, values, limits, begin, discard=discard, ready=ready, rights=rights)


def execute_in(
    lake: Lake,
    transaction: LakeTransaction,
    text: str,
    parameters: Parameters | None = None,
    *,
    limits: QueryLimits | None = None,
    rights: Rights | None = None,
) -> pa.Table:
    """Run a text in a transaction that its caller commits. Returns, and raises, what `execute` does."""
    statements = parse(text)
    values = named_values(parameters)
    if _is_query(statements):
        return run(permitted(transaction.catalog, rights), text, limits, values).read_all()
    control = next((each for each in statements if each.controls), None)
    if control is not None:
        raise Invalid(f"{control.kind.upper()} is not possible here: the transaction is the caller's")
    from alluvia.sql.running import answer, check_parameters  # loads what writes

    check_parameters(text, values)
    return answer(lake, transaction, statements, values, limits, rights).shown()


class SqlSession:
    """Runs texts one after another: between BEGIN and COMMIT or ROLLBACK, they are one transaction.

    After an error, the transaction takes nothing but ROLLBACK. Not for use by several threads.
    """

    def __init__(self, lake: Lake, *, limits: QueryLimits | None = None) -> None:
        self._lake = lake
        self._limits = limits
        self._transaction: LakeTransaction | None = None
        self._failed = False

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._transaction is not None

    def execute(self, text: str, parameters: Parameters | None = None) -> pa.Table:
        """Run a text. Returns the rows of its last read, or one row that says what its last statement did."""
        statements = parse(text)
        if not any(each.controls for each in statements):
            return self._run(text, parameters)
        from alluvia.sql.running import check_parameters

        values = named_values(parameters)
        check_parameters(text, values)
        answered = pa.table({})
        for controls, group in groupby(statements, lambda each: each.controls):
            for part in [[each] for each in group] if controls else [list(group)]:
                answered = self._control(part[0]) if controls else self._part(part, values)
        return answered

    def close(self) -> None:
        """Roll back what is open."""
        if self._transaction is not None:
            self._transaction.rollback()
        self._transaction, self._failed = None, False

    def _run(self, text: str, parameters: Parameters | None) -> pa.Table:
        if self._transaction is None:
            return execute(self._lake, text, parameters, limits=self._limits)
        self._check_sound()
        try:
            return execute_in(self._lake, self._transaction, text, parameters, limits=self._limits)
        except BaseException:
            self._failed = True
            raise

    def _part(self, statements: Sequence[SqlStatement], values: Values) -> pa.Table:
        from alluvia.sql.running import answer

        if self._transaction is None:
            return _committed(self._lake, statements, values, self._limits)
        self._check_sound()
        try:
            return answer(self._lake, self._transaction, statements, values, self._limits).shown()
        except BaseException:
            self._failed = True
            raise

    def _check_sound(self) -> None:
        if self._failed:
            raise Invalid("the transaction failed with an earlier error: ROLLBACK, and begin again")

    def _control(self, statement: SqlStatement) -> pa.Table:
        control = statement.node
        assert isinstance(control, Control)  # noqa: S101 - `controls` says so
        if control.action == "begin":
            if self._transaction is not None:
                raise Invalid("a transaction is open already: COMMIT or ROLLBACK it first")
            self._transaction = self._lake.transaction(isolation=control.isolation)
            return _said("begun")
        if self._transaction is None:
            raise Invalid(f"{statement.kind.upper()}: no transaction is open: BEGIN one first")
        transaction, failed = self._transaction, self._failed
        self._transaction, self._failed = None, False
        if control.action == "rollback" or failed:
            transaction.rollback()
        if control.action == "rollback":
            return _said("rolled back")
        if failed:
            raise Invalid("the transaction was rolled back, since an earlier statement failed: begin again")
        transaction.commit()
        from alluvia.sql.running import with_versions

        return with_versions(_said("committed"), transaction.versions)


def _is_query(statements: Sequence[SqlStatement]) -> bool:
    return len(statements) == 1 and isinstance(statements[0].node, Query)


def _bracketed(statements: Sequence[SqlStatement]) -> tuple[Control | None, Sequence[SqlStatement], Control | None]:
    """Return what a text does, apart from BEGIN in front and COMMIT or ROLLBACK at the end. Raises `Invalid`."""
    begin, end = None, None
    if statements and isinstance(statements[0].node, Control) and statements[0].node.action == "begin":
        begin = statements[0].node
        last = statements[-1].node
        if not isinstance(last, Control) or last.action == "begin":
            raise Invalid(
                "BEGIN without COMMIT: end the text with COMMIT, or leave both out: a text is one transaction"
            )
        end = last
        statements = statements[1:-1]
    control = next((each for each in statements if each.controls), None)
    if control is not None:
        raise Invalid(
            f"{control.kind.upper()} is not possible here: a text is one transaction: send what follows in another text"
        )
    return begin, statements, end


def _committed(
    lake: Lake,
    statements: Sequence[SqlStatement],
    values: Values,
    limits: QueryLimits | None,
    begin: Control | None = None,
    *,
    discard: bool = False,
    ready: Callable[[pa.Table], object] | None = None,
    rights: Rights | None = None,
) -> pa.Table:
    """Run statements as a transaction of their own, again where what they read has changed meanwhile."""
    from alluvia.sql.running import answer  # loads what writes

    limits = None if limits is None else limits.begun()
    if begin is None and _is_one_by_one(lake, statements):
        return _one_by_one(lake, statements, values, limits, rights)
    if not statements:
        return _said("rolled back" if discard else "committed")
    if len(statements) == 1 and not statements[0].needs_transaction and not discard:
        return answer(lake, None, statements, values, limits, rights).shown()
    # One statement alone has read all at one moment. So it is one commit, and writes to no table that it only reads.
    isolation = begin.isolation if begin else "write_serializable" if len(statements) == 1 else "serializable"
    for tries in range(1, TRIES_MAX + 1):
        transaction = lake.transaction_as_used(isolation)
        try:
            outcome = answer(lake, transaction, statements, values, limits, rights)
            said = _said("rolled back") if discard and outcome.rows is None else outcome.shown()
            if ready is not None:
                ready(said)
            if not discard:
                if limits is not None:
                    limits.check()
                transaction.commit()
        except Conflict:
            if tries == TRIES_MAX:
                raise
        else:
            return said if discard else outcome.shown(transaction.versions)
    raise AssertionError("unreachable: the last try returns or raises")


def _is_one_by_one(lake: Lake, statements: Sequence[SqlStatement]) -> bool:
    if len(statements) < 2 or not all(each.defines for each in statements):
        return False
    from alluvia.sql.comments import comments_on_view

    return any(each.alone or comments_on_view(lake, each.node) for each in statements)


def _one_by_one(
    lake: Lake,
    statements: Sequence[SqlStatement],
    values: Values,
    limits: QueryLimits | None,
    rights: Rights | None,
) -> pa.Table:
    """Run statements as a transaction each, up to one that fails, and return the answer of the last one."""
    if rights is not None:
        from alluvia.sql.scope import check_statement

        for statement in statements:
            check_statement(rights, statement.kind, statement.node)
    answered = pa.table({})
    for number, statement in enumerate(statements, 1):
        try:
            answered = _committed(lake, [statement], values, limits, rights=rights)
        except AlluviaError as error:
            error.partly = number > 1
            before = " (those before it are committed)" if error.partly else ""
            place = f"statement {number} of {len(statements)} ({statement.kind.upper()})"
            error.args = (f"{place}: {error}{before}",)
            raise
    return answered


def _said(what: str) -> pa.Table:
    return pa.table({"transaction": pa.array([what], pa.string())})
