"""What every command is given: the lake, and how to answer; and work on the tables that a command names."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

from alluvia.cli.errors import check_folder, check_place, folder_of, how_to_begin, is_empty, reason
from alluvia.cli.terminal.output import show
from alluvia.cli.terminal.progress import progress
from alluvia.cli.terminal.terminal import tell
from alluvia.errors import AlluviaError, Invalid, ReadOnly, TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import hint
from alluvia.progress import report

if TYPE_CHECKING:
    from alluvia.api.lake import Lake, Table

Row = Mapping[str, Any]
NO_TABLE = re.compile(r"there is no table '([^']+)'")
_PLACE = re.compile(r"^line \d+, column \d+: ")
"""Where in its own text a statement is wrong."""


@dataclass(frozen=True, slots=True)
class Common:
    """The options that every command takes."""

    uri: str
    endpoint_url: str | None
    as_json: bool
    debug: bool
    branch: str | None = None

    def is_empty(self) -> bool:
        """Whether this is a local lake that holds no table. Raises `Invalid` where there is no lake."""
        check_place(self.uri)
        folder = folder_of(self.uri)
        if folder is None:
            return False
        check_folder(folder, self.uri, new=False)
        return is_empty(folder)

    def lake(self, *, new: bool = False, outside: Sequence[str] | None = None) -> Lake:
        """Open the lake, or a branch of it. Raises `Invalid` where there is none, unless the lake may be new.

        `outside` are the places below which tables may be attached from; None for any.
        """
        return self.branch_of(self.whole_lake(new=new, outside=outside))

    def whole_lake(self, *, new: bool = False, outside: Sequence[str] | None = None) -> Lake:
        """Open the lake itself."""
        check_place(self.uri)
        folder = folder_of(self.uri)
        if folder is not None:
            check_folder(folder, self.uri, new=new)
        from alluvia.api.lake import connect

        return connect(self.uri, outside=outside, **self.store_options)

    @property
    def store_options(self) -> dict[str, Any]:
        """The options of the store."""
        return {"endpoint_url": self.endpoint_url} if self.endpoint_url else {}

    def branch_of(self, lake: Lake) -> Lake:
        """Return the branch of a lake that is asked for, or the lake itself."""
        if self.branch is None:
            return lake
        try:
            return lake.on_branch(self.branch)
        except Invalid as error:
            near = hint(self.branch, names := [each.name for each in lake.branches()])
            if self.branch in names or not near:
                raise
            raise Invalid(f"there is no branch {self.branch!r}{near}") from error

    def table_at(self, uri: str) -> Table:
        """Open a table at its path or URI, which may be outside the lake."""
        from alluvia.api.lake import open_table

        return open_table(uri, **(self.store_options if uri.startswith("s3://") else {}))

    def progress(self, what: str) -> AbstractContextManager[None]:
        """Show on a terminal how far the work within has come, once it takes over a second."""
        return progress(what, as_json=self.as_json)

    def show(self, answer: Any, columns: Sequence[str] | None = None) -> None:
        """Print a report, or rows as a table of these columns; as JSON if asked to."""
        show(answer, as_json=self.as_json, columns=columns)

    def tell_error(self, error: BaseException, table: str | None = None, *, place: str = "") -> None:
        """Print an error to standard error, after the traceback with `--debug`.

        It is one line that names the table or the place, and an excerpt of SQL with a caret, if the error is in SQL.
        """
        if self.debug:
            tell("".join(traceback.format_exception(error)).rstrip("\n"))
        text = reason(error, table) + self._near_table(error)
        tell(f"alluvia: {place}: {_PLACE.sub('', text)}" if place else f"alluvia: {text}")

    def _near_table(self, error: BaseException) -> str:
        """Return the fix for the name of a view where a table is needed, or the question for the nearest table."""
        unknown = NO_TABLE.fullmatch(str(error)) if isinstance(error, TableNotFound) else None
        if unknown is None:
            return ""
        from alluvia.operations.catalog.views import IsView, find_view

        name = unknown[1]
        with suppress(AlluviaError):
            lake = self.lake()
            if find_view(lake.store, name) is None:
                return hint(name, lake.tables())
            return str(IsView(name)).removeprefix(str(error))
        return ""


def show_each(
    common: Common,
    given: Sequence[str],
    work: Callable[[Table], Row | Sequence[Row]],
    *,
    rejects: bool = True,
    columns: Sequence[str] | None = None,
    lake: Lake | None = None,
) -> None:
    """Work on each table that is given, or on all, and show the row or rows that come of it.

    A table that fails does not stop the others: its error goes to standard error, and the command exits 1 at its end.
    """
    if not given and common.is_empty():
        tell(_nothing_in(common))
        return
    lake = lake or common.lake()
    # Dropped tables are among them, since telling them from the others would read logs, which may be damaged.
    names = given or lake.tables(rejects=rejects, dropped=True)
    rows: list[Row] = []
    failed = []
    with common.progress("opening the lake"):
        for at, name in enumerate(names):
            report(f"working on {name}, table {at + 1} of {len(names)}", 0, 0)
            try:
                answer = work(lake.table(name))
                rows += [answer] if isinstance(answer, Mapping) else answer
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one table, the others get their turn
                if given or not isinstance(error, TableNotFound | ReadOnly):
                    failed.append((name, error))
    for name, failure in failed:
        common.tell_error(failure, name)
    common.show(rows, columns)
    if failed:
        sys.exit(1)
    if not rows:
        tell(_nothing_in(common, "; `alluvia undrop` lists what was dropped" if lake.dropped() else ""))


def _nothing_in(common: Common, more: str = "") -> str:
    return f"the lake at {common.uri} holds no tables{more}: {how_to_begin(common.uri)}"
