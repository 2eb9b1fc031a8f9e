"""The command that suggests columns."""

from __future__ import annotations

import dataclasses

import click

from alluvia.cli.options import TABLE, Common, command
from alluvia.cli.terminal.output import show
from alluvia.cli.terminal.terminal import tell
from alluvia.errors import Invalid


@command
@click.argument("table", type=TABLE)
@click.option("--apply", "applies", is_flag=True, help="Add the columns that are shown.")
@click.option("--field", "fields", multiple=True, metavar="NAME", help="Only this field.")
@click.option("--coverage", type=click.FloatRange(0, 1), default=0.05, show_default=True,
              help="Only fields that at least this share of the events have.")  # fmt: skip
@click.option(
    "--sample",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    help="Look at so many events, of at most 64 files.",
)
def suggest(
    common: Common, table: str, fields: tuple[str, ...], coverage: float, sample: int, *, applies: bool
) -> None:
    """Suggest columns of TABLE for fields that its newest events have, rejected ones too, in `properties`.

    `events` says how many were looked at: fewer than --sample where their newest files hold fewer. New events fill a
    column. Those before keep the field in `properties`.
    """
    found = common.lake().table(table)
    every = found.suggest(sample)
    unknown = sorted(set(fields) - {each.field for each in every})
    if unknown:
        raise Invalid(f"--field {unknown[0]!r}: no sampled event has such a field without a column")
    chosen = [each for each in every if each.field in fields or (not fields and each.coverage >= coverage)]
    show(map(dataclasses.asdict, chosen), as_json=common.as_json)
    if every:
        tell(f"looked at {every[0].events} event{'s' if every[0].events > 1 else ''}")
    new = {each.field: each.type for each in chosen if each.type is not None}
    if not applies:
        if new:
            tell(f"alluvia suggest {table} --apply adds the columns that have a type")
    elif new:
        version = found.evolve(new).version
        tell(f"added {', '.join(new)} in version {version}: new events fill them, those before keep them in properties")
    else:
        raise Invalid(f"{table}: no field has a type that a column could have, so nothing was added")
