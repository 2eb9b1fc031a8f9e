"""The prompt of `alluvia sql`: statements of several lines, history, completion, and what Ctrl-C and Ctrl-D do."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.shortcuts import CompleteStyle

from alluvia.api.lake import Lake
from alluvia.cli.common import Common
from alluvia.cli.dot_commands import DotCommands
from alluvia.cli.errors import message
from alluvia.cli.shown_rows import show_rows
from alluvia.cli.terminal.output import note
from alluvia.cli.terminal.prompt_text import completions, dot_command, ends_prompt, is_complete
from alluvia.cli.terminal.terminal import say, tell
from alluvia.errors import AlluviaError
from alluvia.query.limits import QueryLimits
from alluvia.server.announcing import state_folder
from alluvia.sql.run import SqlSession
from alluvia.store import PutResult
from alluvia.store.wrapper import Wrapper

READY, IN_TRANSACTION, CONTINUED = "alluvia> ", "alluvia*> ", "    ...> "


def run_prompt(common: Common, timeout: float | None) -> None:
    """Read statements and run them until Ctrl-D or `.exit`. A transaction that is still open then is rolled back."""
    whole = common.whole_lake(new=True)
    store = CommitNote(whole.store)
    Prompt(common, common.branch_of(Lake(store, whole.clock)), store, QueryLimits(timeout_seconds=timeout)).run()


class CommitNote(Wrapper):
    """A store that notes whether a commit has been begun: all of them are put if absent."""

    begun = False

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        self.begun = True
        return super().put_if_absent(key, data)


class Prompt:
    """Reads from the terminal, runs what is complete, and prints answers and errors."""

    def __init__(self, common: Common, lake: Lake, commits: CommitNote, limits: QueryLimits) -> None:
        self._common = common
        self._uri = lake.uri
        self._session = SqlSession(lake, limits=limits)
        self._commits = commits
        self._commands = DotCommands()
        self._names = Names(lake)
        self._reader: PromptSession[str] = PromptSession(
            history=history(),
            multiline=True,
            prompt_continuation=CONTINUED,
            key_bindings=_keys(),
            completer=ThreadedCompleter(SqlCompleter(self._names)),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
        )

    def run(self) -> None:
        """Read and run until the user leaves."""
        say(f"{self._uri}: end statements with a semicolon; .help shows more")
        while (text := self._read()) is not None:
            if text:
                self._attempt(text)
        if self._session.in_transaction:
            self._session.close()
            note("The open transaction was rolled back.")

    def _read(self) -> str | None:
        """Return what is typed next; nothing after Ctrl-C, None at the end."""
        try:
            text = self._reader.prompt(IN_TRANSACTION if self._session.in_transaction else READY).strip()
        except KeyboardInterrupt:
            return ""
        except EOFError:
            return None
        return None if ends_prompt(text) else text

    def _attempt(self, text: str) -> None:
        """Run a text; an error is printed, and the prompt goes on."""
        began = time.monotonic()
        self._commits.begun = False
        try:
            command = dot_command(text)
            sql = text if command is None else self._commands.run(command)
            if sql is not None:
                self._run(sql)
        except KeyboardInterrupt:
            tell(
                "Cancelled, but a commit was on its way: check whether it took effect."
                if self._commits.begun
                else "Cancelled: nothing was committed."
            )
        except Exception as error:  # noqa: BLE001 - the user reads it and goes on
            tell("".join(traceback.format_exception(error)).rstrip("\n") if self._common.debug else message(error))
        if self._commands.timing:
            note(f"Time: {time.monotonic() - began:.3f} s")

    def _run(self, sql: str) -> None:
        try:
            with self._common.progress("running"):
                answer = self._session.execute(sql)
        finally:
            self._names.forget()
        show_rows(self._common, answer.schema, answer.to_batches())


class Names:
    """The tables and columns of a lake, asked for once and again after each statement."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._tables: list[str] | None = None
        self._columns: dict[str, list[str]] = {}

    def forget(self) -> None:
        """Ask again."""
        self._tables, self._columns = None, {}

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        names = self._tables
        if names is None:
            names = self._tables = self._lake.tables()
        return names

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns."""
        if table not in self._columns:
            self._columns[table] = self._lake.table(table).schema.names
        return self._columns[table]


class SqlCompleter(Completer):
    """Completes keywords, and the names of tables and of the columns of tables that a statement names."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        """Return what the word before the cursor may become; nothing where the lake does not say."""
        try:
            word, words = completions(document.text_before_cursor, self._names.tables(), self._names.columns)
        except AlluviaError:  # the statement itself will say what is wrong
            return []
        return [Completion(each, start_position=-len(word)) for each in words]


def history() -> History:
    """Return what was typed before, from the user's state directory; this session's alone where that cannot be used."""
    path = history_path(os.environ)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600))  # values are for nobody else to read
    except OSError as error:
        tell(f"alluvia: the history is not kept: {error}")
        return InMemoryHistory()
    return FileHistory(path)


def history_path(environment: Mapping[str, str]) -> Path:
    """Return where the history is kept, by the XDG base directory specification, which ignores relative paths."""
    return state_folder(environment) / "sql_history"


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> Any:
        """Run what is complete; else begin another line."""
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline()

    return keys
