"""The command rejects replay."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import click

from alluvia.cli.common import Common
from alluvia.cli.options import TABLE, command, pairs
from alluvia.cli.quoting import explaining_quotes, quotes_of
from alluvia.cli.terminal.terminal import say, tell


@command
@click.argument("table", type=TABLE)
@click.option("--where", metavar="CONDITION", help="Only these, such as \"reason LIKE 'status:%'\".")
@pairs("--set", "values", "FIELD=EXPRESSION", "Repair a field first; several times for several fields.")
@click.option("--dry-run", is_flag=True, help="Change nothing; show some of the rows that would be added.")
def rejects_replay(common: Common, table: str, where: str | None, values: Mapping[str, str], *, dry_run: bool) -> None:
    """Ingest the rejected events of TABLE again, each once, after a change of its columns, constraints or source.

    --set amount="replace(amount, ',', '.')::double" gives the events another value of a field first: an SQL expression
    over the event's own fields, each of which is text. Events that still do not fit stay rejects, as they were sent;
    the reasons are shown.
    """
    with common.progress(f"replaying the rejects of {table}"), explaining_quotes(values):
        done = common.lake().table(table).replay_rejects(where, values, dry_run=dry_run)
    counts = {"table": table, **done.counts(), **({"dry_run": True} if dry_run else {})}
    staying = [dataclasses.asdict(each) for each in done.staying]
    rows = [dict(row) for row in done.rows]
    if common.as_json:
        common.show({**counts, "staying": staying, **({"rows": rows} if dry_run else {})})
    else:
        common.show(counts)
        for part in (rows, staying):
            if part:
                say("")
                common.show(part)
    for name in done.unknown_fields:
        quotes = next((quotes_of(each, text) for each, text in values.items() if text.strip() == name), "")
        tell(f"--set: no rejected event has a field {name!r}{quotes and f'; {quotes}'}")
    for name in done.new_fields:
        tell(f"--set: {name!r} is neither a field of a rejected event nor a column, so its value goes to properties")
    if dry_run:
        tell("nothing was changed: leave out --dry-run to replay them")
