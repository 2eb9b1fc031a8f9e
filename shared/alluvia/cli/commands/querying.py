"""Commands that print rows: query, sql, changes."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common
from alluvia.cli.options import PARAMETERS, TABLE, TIMEOUT, command, rows_options
from alluvia.errors import Invalid

if TYPE_CHECKING:
    from alluvia.cli.shown_rows import RowsAsked
    from alluvia.query.limits import QueryLimits


_SQL_FILE = re.compile(r"\S+\.sql", re.IGNORECASE)
"""A file, since no statement is one word that ends so."""


_FILE = click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help='Read the SQL from a file; "-" is standard input.',
)
_MAX_BYTES = click.option(
    "--max-bytes", type=click.IntRange(1), metavar="BYTES", help="Refuse one SELECT that would read more."
)
_DRY_RUN = click.option(
    "--dry-run", is_flag=True, help="Show what one SELECT would read, and its price on AWS; read no data."
)


def _sql_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument and the options of SQL and of its run: `text` or `file`, `parameters`, `asked`, `limits` and
    `dry_run`.
    """

    @functools.wraps(function)
    def wrapper(
        *arguments: Any, text: str | None, file: Path | None, timeout: float | None, max_bytes: int | None, **rest: Any
    ) -> Any:
        from alluvia.query.limits import QueryLimits

        if text is not None and file is not None:
            raise click.UsageError("give SQL or --file, not both")
        if text is not None and _SQL_FILE.fullmatch(text):
            file, text = Path(text), None
            if not file.is_file():
                raise click.UsageError(f"there is no file {str(file)!r}")
        if file == Path("-"):
            file, text = None, "-"
        limits = QueryLimits(timeout_seconds=timeout, asked_bytes=max_bytes)
        return function(*arguments, text=text, file=file, limits=limits, **rest)

    options = (click.argument("text", required=False, metavar="[SQL]"), _FILE, PARAMETERS, rows_options, TIMEOUT)
    given: Callable[..., Any] = wrapper
    for option in reversed((*options, _MAX_BYTES, _DRY_RUN)):
        given = option(given)
    return given


@command
@_sql_options
def query(
    common: Common,
    text: str | None,
    file: Path | None,
    parameters: dict[str, str] | None,
    asked: RowsAsked,
    limits: QueryLimits,
    *,
    dry_run: bool,
) -> None:
    """Run one SELECT, given as SQL, in a file (--file, or the name of an .sql file) or on standard input."""
    from alluvia.sql.grammar.first_word import QUERIES, first_word

    if text is None and file is None and sys.stdin.isatty():
        raise click.UsageError("give SQL, or --file")
    text = "".join(_lines(file)) if text is None or text == "-" else text
    if (word := first_word(text)) not in QUERIES:
        from alluvia.sql.grammar.grammar import READERS

        if word in READERS:
            raise Invalid(f"query runs one SELECT: run {word.upper()} with `alluvia sql`")
    run_query(common, text, parameters, asked, limits, dry_run=dry_run)


def run_query(
    common: Common,
    text: str,
    parameters: dict[str, str] | None,
    asked: RowsAsked,
    limits: QueryLimits,
    *,
    dry_run: bool,
) -> int:
    """Run one SELECT and show its rows, or with `dry_run` what it would read. Return how many rows there are."""
    from alluvia.cli.shown_rows import showing
    from alluvia.query.engine import run
    from alluvia.query.process.processes import POOL

    with POOL.keeping_none(), showing(common, asked) as show:
        with common.progress("running the query"):
            result = run(common.lake().catalog, text, limits, parameters, dry_run=dry_run)
        with result:
            return show(result.schema, result)


@command
@click.argument("table", type=TABLE)
@click.option("--from", "first", type=int, required=True, metavar="VERSION", help="The first version.")
@click.option("--to", "last", type=int, metavar="VERSION", help="The last version; the newest by default.")
@click.option("--expired", is_flag=True, help="Also the rows that expired by alluvia.ttl, as `expire`.")
@rows_options
def changes(common: Common, table: str, first: int, last: int | None, asked: RowsAsked, *, expired: bool) -> None:
    """Show the rows that versions inserted and deleted, both ends included, with `_change_type`."""
    from alluvia.cli.shown_rows import showing

    with showing(common, asked) as show:
        feed = common.lake().table(table).changes(first, last, expired=expired)
        show(feed.schema, feed)


@command
@_sql_options
@click.option("-1", "--single-transaction", "single", is_flag=True, help="Run a file or a pipe as one transaction.")
def sql(
    common: Common,
    text: str | None,
    file: Path | None,
    parameters: dict[str, str] | None,
    asked: RowsAsked,
    limits: QueryLimits,
    *,
    dry_run: bool,
    single: bool,
) -> None:
    """Run SQL that may write: a text, a script, or statements at a prompt.

    SQL is one transaction, and the answer is that of its last read. A file (--file, or SQL that is the name of an
    .sql file) and standard input (no SQL, or "-") are scripts: each statement is a transaction of its own, unless the
    script has BEGIN and COMMIT, and the first error ends it. Without SQL, a terminal gets a prompt.
    """
    one_select = dry_run or limits.asked_bytes is not None
    if text is None and file is None and not one_select and sys.stdin.isatty() and sys.stdout.isatty():
        if parameters or asked.is_given:
            raise click.UsageError("give SQL or --file: --param, --format and --output have no meaning at the prompt")
        from alluvia.cli.prompt import run_prompt

        run_prompt(common, limits.timeout_seconds)
        return
    is_script = text is None or text == "-"
    if single and not is_script:
        raise click.UsageError("--single-transaction is for a file or standard input: SQL is one transaction")
    if is_script and not one_select:
        from alluvia.cli.sql_script import run_script

        run_script(common, str(file or "<stdin>"), _lines(file), parameters, limits, asked, single=single)
        return
    if is_script:
        text = "".join(_lines(file))
    assert text is not None  # noqa: S101 - a script's is read
    if dry_run:
        run_query(common, text, parameters, asked, limits, dry_run=True)
    else:
        _run(common, text, parameters, asked, limits)


def _lines(file: Path | None) -> Iterator[str]:
    """Yield the lines of a script, or of standard input. Raises `Invalid` for one that is not text in UTF-8."""
    try:
        with nullcontext(sys.stdin) if file is None else file.open(encoding="utf-8-sig") as opened:
            for line in opened:
                yield line.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise Invalid(f"not text in UTF-8 ({error.reason}): save the file as UTF-8") from error


def _run(common: Common, text: str, parameters: dict[str, str] | None, asked: RowsAsked, limits: QueryLimits) -> None:
    from alluvia.cli.shown_rows import showing
    from alluvia.sql.grammar.nodes import Query
    from alluvia.sql.grammar.statements import parse
    from alluvia.sql.run import execute

    statements = parse(text)
    if limits.asked_bytes is not None and not (len(statements) == 1 and isinstance(statements[0].node, Query)):
        raise click.UsageError("--max-bytes is for one SELECT, and not several statements or one that writes")
    with showing(common, asked) as show:
        lake = common.lake(new=any(statement.writes for statement in statements))
        with common.progress("running the statements"):
            answer = execute(lake, text, parameters, limits=limits)
        show(answer.schema, answer.to_batches())
