"""Commands that print rows: query, sql, changes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common
from alluvia.cli.options import TABLE, TIMEOUT, command, pair
from alluvia.errors import Invalid

if TYPE_CHECKING:
    from alluvia.query.limits import QueryLimits


@command
@click.argument("sql")
@TIMEOUT
def query(common: Common, sql: str, timeout: float | None) -> None:
    """Run one SELECT; "-" reads it from standard input."""
    from alluvia.cli.shown_rows import show_rows
    from alluvia.query.engine import run
    from alluvia.query.limits import QueryLimits
    from alluvia.sql.grammar.first_word import first_word
    from alluvia.sql.grammar.grammar import READERS

    text = sys.stdin.read() if sql == "-" else sql
    if (word := first_word(text)) in READERS:
        raise Invalid(f"query runs one SELECT: run {word.upper()} with `alluvia sql`")
    with common.progress("running the query"):
        result = run(common.lake().catalog, text, QueryLimits(timeout_seconds=timeout))
    with result:
        show_rows(common, result.schema, result)


@command
@click.argument("table", type=TABLE)
@click.option("--from", "first", type=int, required=True, metavar="VERSION", help="The first version.")
@click.option("--to", "last", type=int, metavar="VERSION", help="The last version; the newest by default.")
@click.option("--expired", is_flag=True, help="Also the rows that expired by alluvia.ttl, as `expire`.")
def changes(common: Common, table: str, first: int, last: int | None, *, expired: bool) -> None:
    """Show the rows that versions inserted and deleted, both ends included, with `_change_type`."""
    from alluvia.cli.shown_rows import show_rows

    feed = common.lake().table(table).changes(first, last, expired=expired)
    show_rows(common, feed.schema, feed)


@command
@click.argument("text", required=False)
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read the statements from a file.",
)
@click.option("-p", "--param", "given", multiple=True, metavar="NAME=VALUE", help="A value for $NAME: JSON, else text.")
@TIMEOUT
@click.option("--max-bytes", type=click.IntRange(1), metavar="BYTES", help="Refuse one SELECT that would read more.")
@click.option("--dry-run", is_flag=True, help="Show what one SELECT would read, and its price on AWS; read no data.")
def sql(
    common: Common,
    text: str | None,
    file: Path | None,
    given: tuple[str, ...],
    timeout: float | None,
    max_bytes: int | None,
    *,
    dry_run: bool,
) -> None:
    """Run SQL that may write, and print the answer of its last read. Several statements are one transaction.

    Without TEXT: a prompt on a terminal, else standard input, as with "-". For one SELECT, `query` is enough.
    """
    if text is not None and file is not None:
        raise click.UsageError("give TEXT or --file, not both")
    parameters = dict(_parameter(each) for each in given) or None
    has_text = text is not None or file is not None
    if not (has_text or dry_run or max_bytes) and sys.stdin.isatty() and sys.stdout.isatty():
        from alluvia.cli.prompt import run_prompt

        run_prompt(common, timeout)
        return
    if file is not None:
        text = file.read_text("utf-8")
    elif text is None or text == "-":
        text = sys.stdin.read()
    from alluvia.query.limits import QueryLimits

    limits = QueryLimits(timeout_seconds=timeout, asked_bytes=max_bytes)
    if dry_run:
        from alluvia.cli.shown_rows import show_rows
        from alluvia.query.engine import run

        plan = run(common.lake().catalog, text, limits, parameters, dry_run=True)
        show_rows(common, plan.schema, plan)
        return
    _run(common, text, parameters, limits)


def _run(common: Common, text: str, parameters: dict[str, Any] | None, limits: QueryLimits) -> None:
    from alluvia.cli.shown_rows import show_rows
    from alluvia.sql.grammar.nodes import Query
    from alluvia.sql.grammar.statements import parse
    from alluvia.sql.run import execute

    statements = parse(text)
    if limits.asked_bytes is not None and not (len(statements) == 1 and isinstance(statements[0].node, Query)):
        raise click.UsageError("--max-bytes is for one SELECT, and not several statements or one that writes")
    lake = common.lake(new=any(statement.writes for statement in statements))
    with common.progress("running the statements"):
        answer = execute(lake, text, parameters, limits=limits)
    show_rows(common, answer.schema, answer.to_batches())


def _parameter(text: str) -> tuple[str, Any]:
    from alluvia.query.parameters import from_json

    name, value = pair(text, "--param", "NAME=VALUE")
    try:
        return name, from_json(value)
    except ValueError:
        return name, value
