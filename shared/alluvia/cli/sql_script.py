"""A script of `alluvia sql`, from a file or a pipe: its statements one after another, up to the first error.

Rows go to standard output, the results of writes to standard error.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import pyarrow as pa

from alluvia.api.lake import Lake
from alluvia.cli.common import Common
from alluvia.cli.dot_commands import DotCommands
from alluvia.cli.shown_rows import RowsAsked, Show, showing
from alluvia.cli.terminal.output import note
from alluvia.cli.terminal.prompt_text import ends_prompt
from alluvia.cli.terminal.terminal import say, tell
from alluvia.errors import Invalid
from alluvia.query.limits import QueryLimits
from alluvia.sql.grammar.nodes import Control, PublishBranch
from alluvia.sql.grammar.script import ScriptPart, script_parts
from alluvia.sql.grammar.statements import SqlStatement, parse
from alluvia.sql.run import SqlSession

_PLACE = re.compile(r"line (\d+), column (\d+): ")
_LINE = re.compile(r"^LINE (\d+):", re.MULTILINE)


def run_script(
    common: Common,
    name: str,
    lines: Iterable[str],
    parameters: Mapping[str, Any] | None,
    limits: QueryLimits,
    asked: RowsAsked,
    *,
    single: bool,
) -> None:
    """Run a script, as one transaction if `single`. Errors show its `name`.

    Each statement is a separate transaction, unless the script begins one. The first error ends the script and exits 1;
    earlier commits stay. Raises `Invalid` for a parameter that no statement has, and for rows to a file, unless the
    script has exactly one read.
    """
    parts: Iterable[ScriptPart] = script_parts(lines)
    if parameters:
        parts = list(parts)
        _check_used(parameters, parts)
    form = asked.format(as_json=common.as_json)
    if asked.output is not None or not (form is None or form.is_text):
        parts = list(parts)
        _check_one_read(parts)
    with showing(common, asked) as show:
        separator = "" if form is None else None
        _Script(common, name, parameters or {}, limits, show, separator, single=single).run(parts)


def _check_one_read(parts: Sequence[ScriptPart]) -> None:
    reads = sum(not part.is_dot_command and any(map(_is_shown, _parsed(part.text))) for part in parts)
    if reads != 1:
        raise Invalid(f"the script has {reads} statements that read, and a file takes the rows of one")


def _parsed(text: str) -> Sequence[SqlStatement]:
    try:
        return parse(text)
    except Invalid:  # the error comes with its line when the statement runs
        return ()


def _is_shown(statement: SqlStatement) -> bool:
    return not (statement.writes or statement.controls) or isinstance(statement.node, PublishBranch)


def _check_used(parameters: Mapping[str, Any], parts: Sequence[ScriptPart]) -> None:
    from alluvia.sql.binding import parameter_names

    used = {name for part in parts if not part.is_dot_command for name in parameter_names(part.text)}
    unused = next((name for name in parameters if name not in used), None)
    if unused is not None:
        raise Invalid(f"parameter {unused} is not used: no statement of the script has ${unused}")


def _goes_on(part: ScriptPart) -> bool:
    return not (part.is_dot_command and ends_prompt(part.text))


class _Script:
    def __init__(
        self,
        common: Common,
        name: str,
        parameters: Mapping[str, Any],
        limits: QueryLimits,
        show: Show,
        separator: str | None,
        *,
        single: bool,
    ) -> None:
        self._common, self._name, self._parameters, self._limits = common, name, parameters, limits
        self._single = single
        self._show_rows, self._separator = show, separator
        self._commands = DotCommands()
        self._shown = False
        self._opened: SqlSession | None = None
        self._begun: int | None = None
        self._writes: list[int] = []
        """The lines of the writes that are committed, and of those in the open transaction."""
        self._open_writes: list[int] = []

    def run(self, parts: Iterable[ScriptPart]) -> None:
        """Run the parts. Exits 1 at the first that fails."""
        try:
            ended = all(map(self._attempt, takewhile(_goes_on, parts))) and self._finish()
        except Invalid as error:  # what comes is not text
            self._fail(self._name, error)
            ended = False
        finally:
            if self._opened is not None:
                self._opened.close()
        if not ended:
            sys.exit(1)

    def _attempt(self, part: ScriptPart) -> bool:
        began = time.monotonic()
        try:
            sql = self._commands.run(part.text) if part.is_dot_command else part.text
            if sql is not None:
                self._execute(sql, part.line)
        except Exception as error:  # noqa: BLE001 - all of them end the script
            self._fail(f"{self._name}:{_place(part, str(error))}", error)
            return False
        if self._commands.timing and sql is not None:
            note(f"Time: {time.monotonic() - began:.3f} s")
        return True

    def _execute(self, sql: str, line: int) -> None:
        (statement,) = parse(sql) or (None,)
        if statement is None:
            return
        if self._single and isinstance(statement.node, Control):
            raise Invalid(f"{statement.kind.upper()} is not possible with --single-transaction: the script is one")
        session = self._session(statement)
        if self._single and not session.in_transaction:
            session.execute("BEGIN")
        with self._common.progress("running the statements"):
            answer = session.execute(sql, self._of(sql))
        self._note(statement, session, line)
        if _is_shown(statement):
            self._show(answer)
        elif not (isinstance(statement.node, Control) and statement.node.action == "begin"):
            tell(f"{self._name}:{line}: {statement.kind.upper()}: {_said(answer)}")

    def _show(self, answer: pa.Table) -> None:
        if self._shown and self._separator is not None:
            say(self._separator)
        self._shown = True
        self._show_rows(answer.schema, answer.to_batches())

    def _note(self, statement: SqlStatement, session: SqlSession, line: int) -> None:
        """Keep the lines of writes and of an open transaction's BEGIN, for errors to come."""
        if isinstance(statement.node, Control):
            if statement.node.action == "commit":
                self._writes += self._open_writes
            self._open_writes = []
            self._begun = line if session.in_transaction else None
        elif statement.writes:
            (self._open_writes if session.in_transaction else self._writes).append(line)

    def _session(self, statement: SqlStatement) -> SqlSession:
        """Return the session, begun with the first statement: only one that may write makes a lake."""
        if self._opened is None:
            lake: Lake = self._common.lake(new=statement.writes or statement.controls)
            self._opened = SqlSession(lake, limits=self._limits)
        return self._opened

    def _of(self, sql: str) -> Mapping[str, Any] | None:
        if not self._parameters:
            return None
        from alluvia.sql.binding import parameter_names

        return {name: self._parameters[name] for name in parameter_names(sql) if name in self._parameters} or None

    def _finish(self) -> bool:
        """Commit the transaction of a `single` script; a transaction that the script has left open is an error."""
        session = self._opened
        if session is None or not session.in_transaction:
            return True
        if not self._single:
            error = Invalid("BEGIN without COMMIT: the script ends within the transaction")
            self._fail(f"{self._name}:{self._begun}", error)
            return False
        try:
            answer = session.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - it ends the script
            self._fail(self._name, error)
            return False
        tell(f"{self._name}: COMMIT: {_said(answer)}")
        return True

    def _fail(self, place: str, error: Exception) -> None:
        """Report the error with its line, and which earlier statements stay committed."""
        self._common.tell_error(error, place=place)
        if self._single:
            tell("Nothing of the script is committed.")
            return
        if self._begun is not None:
            tell(f"The transaction that begins in line {self._begun} is rolled back.")
        if self._writes:
            first, last = self._writes[0], self._writes[-1]
            lines = f"line {first}" if first == last else f"lines {first} to {last}"
            count = len(self._writes)
            what = f"The statement in {lines} is" if count == 1 else f"The {count} statements that wrote in {lines} are"
            tell(f"{what} committed.")


def _place(part: ScriptPart, text: str) -> str:
    """Return where in its script an error is: its line, and its column if the message names it."""
    if match := _PLACE.match(text):
        line, column = int(match[1]), int(match[2])
        return f"{part.line + line - 1}:{column + part.column - 1 if line == 1 else column}"
    match = _LINE.search(text)
    return f"{part.line + int(match[1]) - 1 if match else part.line}"


def _said(answer: pa.Table) -> str:
    """Return what a statement did, as one line: `2 rows inserted, version 4`."""
    (row,) = answer.to_pylist() or ({},)
    said = []
    for name, value in row.items():
        if name == "transaction":
            said.append(str(value))
        elif name.startswith("rows_") and value is not None:
            said.append(f"{value} {'row' if value == 1 else 'rows'} {name.removeprefix('rows_').replace('_', ' ')}")
        elif isinstance(value, dict | list):
            pairs = value.items() if isinstance(value, dict) else value
            said += [f"{table} version {version}" for table, version in pairs if version is not None]
        elif value is not None:
            said.append(f"{name.replace('_', ' ')} {value}")
    return ", ".join(said)
