"""One piece of work for the tables that a command names, or for all of a lake."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from alluvia.cli.failing import reason
from alluvia.cli.options import Common
from alluvia.cli.output import show
from alluvia.errors import TableNotFound
from alluvia.lake import Table

Row = Mapping[str, Any]


def show_each(
    common: Common,
    given: Sequence[str],
    work: Callable[[Table], Row],
    *,
    rejects: bool = True,
    columns: Sequence[str] | None = None,
) -> None:
    """Work on each table that is given, or on all, and show the rows that come of it.

    A table that fails stops no other: its error is told on standard error, and the command exits 1 at its end.
    """
    lake = common.lake()
    rows, failed = [], False
    # Dropped tables are among them, since telling them from the others would read logs, which may be damaged.
    for name in given or lake.tables(rejects=rejects, dropped=True):
        try:
            rows.append(work(lake.table(name)))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one table, the others get their turn
            if isinstance(error, TableNotFound) and not given:
                continue
            failed = True
            if common.debug:
                traceback.print_exception(error)
            click.echo(f"alluvia: {reason(error, name)}", err=True)
    show(rows, as_json=common.as_json, columns=columns)
    if failed:
        sys.exit(1)
