"""Do one piece of work for the tables that a command names, or for all tables of a lake."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from alluvia.cli.failing import reason
from alluvia.cli.options import Common
from alluvia.cli.place import how_to_begin
from alluvia.cli.terminal.output import show
from alluvia.cli.terminal.terminal import tell
from alluvia.errors import ReadOnly, TableNotFound
from alluvia.progress import report

if TYPE_CHECKING:
    from alluvia.api.lake import Lake, Table

Row = Mapping[str, Any]


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
                found = work(lake.table(name))
                rows += [found] if isinstance(found, Mapping) else found
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one table, the others get their turn
                if given or not isinstance(error, TableNotFound | ReadOnly):
                    failed.append((name, error))
    for name, failure in failed:
        if common.debug:
            tell("".join(traceback.format_exception(failure)).rstrip("\n"))
        tell(f"alluvia: {reason(failure, name)}")
    show(rows, as_json=common.as_json, columns=columns)
    if failed:
        sys.exit(1)
    if not rows:
        tell(_nothing_in(common, "; `alluvia undrop` lists what was dropped" if lake.dropped() else ""))


def _nothing_in(common: Common, more: str = "") -> str:
    return f"the lake at {common.uri} holds no tables{more}: {how_to_begin(common.uri)}"
