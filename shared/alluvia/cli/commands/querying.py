"""Commands that print rows: query, sql, changes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common
from alluvia.cli.options import TABLE, TIMEOUT, command, pair
from alluvia.errors import Invalid

if TYPE_CHECKING:
    from alluvia.query.limits import QueryLimits


_SQL_FILE = re.compile(r"\S+\.sql", re.IGNORECASE)
"""A file, since no statement is one word that ends so."""


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
    help="Run the statements of a file.",
)
@click.option("-p", "--param", "given", multiple=True, metavar="NAME=VALUE", help="A value for $NAME: JSON, else text.")
@TIMEOUT
@click.option("--max-bytes", type=click.IntRange(1), metavar="BYTES", help="Refuse one SELECT that would read more.")
@click.option("-1", "--single-transaction", "single", is_flag=True, help="Run a file or a pipe as one transaction.")
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
    single: bool,
) -> None:
    """Run SQL that may write: a text, a script, or what is typed at a prompt.

    TEXT is one transaction, and the answer is that of its last read. A file (--file, or TEXT that is the name of an
    .sql file) and standard input (no TEXT, or "-") are scripts: each statement is a transaction of its own, unless the
    script has BEGIN and COMMIT, and the first error ends it. Without TEXT, a terminal gets a prompt.
    """
    if text is not None and file is not None:
        raise click.UsageError("give TEXT or --file, not both")
    if text is not None and _SQL_FILE.fullmatch(text):
        file, text = Path(text), None
        if not file.is_file():
            raise click.UsageError(f"there is no file {str(file)!r}")
    parameters = dict(_parameter(each) for each in given) or None
    one_select = dry_run or max_bytes is not None
    if text is None and file is None and not one_select and sys.stdin.isatty() and sys.stdout.isatty():
        from alluvia.cli.prompt import run_prompt

        run_prompt(common, timeout)
        return
    from alluvia.query.limits import QueryLimits

    limits = QueryLimits(timeout_seconds=timeout, asked_bytes=max_bytes)
    is_script = text is None or text == "-"
    if single and not is_script:
        raise click.UsageError("--single-transaction is for a file or standard input: TEXT is one transaction")
    if is_script and not one_select:
        from alluvia.cli.sql_script import run_script

        run_script(common, str(file or "<stdin>"), _lines(file), parameters, limits, single=single)
        return
    if is_script:
        text = "".join(_lines(file))
    assert text is not None  # noqa: S101 - a script's is read
    if dry_run:
        from alluvia.cli.shown_rows import show_rows
        from alluvia.query.engine import run

        plan = run(common.lake().catalog, text, limits, parameters, dry_run=True)
        show_rows(common, plan.schema, plan)
        return
    _run(common, text, parameters, limits)


def _lines(file: Path | None) -> Iterator[str]:
    """Yield the lines of a script, or of standard input. Raises `Invalid` for one that is not text in UTF-8."""
    try:
        with nullcontext(sys.stdin) if file is None else file.open(encoding="utf-8-sig") as opened:
            for line in opened:
                yield line.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise Invalid(f"not text in UTF-8 ({error.reason}): save the file as UTF-8") from error


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
