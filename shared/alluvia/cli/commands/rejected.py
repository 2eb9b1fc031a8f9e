"""Commands about rejected events: list, show, replay."""

from __future__ import annotations

from typing import Any

import click

from alluvia.cli.options import TABLE, Common, command
from alluvia.cli.terminal.output import show, show_one
from alluvia.cli.terminal.terminal import tell
from alluvia.table_names import REJECTS

_REASONS = 20
_WHERE = click.option("--where", metavar="CONDITION", help="Only those, such as \"reason LIKE 'status:%'\".")


@click.group()
def rejects() -> None:
    """Events that could not become rows, with the reasons."""


@command
@click.argument("tables", nargs=-1, type=TABLE)
def list_rejects(common: Common, tables: tuple[str, ...]) -> None:
    """Count the rejected events of TABLES (all by default) by reason, the 20 most frequent of each."""
    from alluvia.engine.duck.literals import quote_name

    lake = common.lake()
    names = tables or [name.partition("/")[0] for name in lake.tables(rejects=True) if name.endswith(f"/{REJECTS}")]
    found: list[dict[str, Any]] = []
    for name in names:
        lake.table(name).snapshot()  # refuses a name without a table; one that has rejected nothing has no rejects
        if f"{name}/{REJECTS}" in lake:
            counted = lake.sql(
                f"SELECT '{name}' AS \"table\", reason, count(*) AS rejects, min(received_at) AS first, "  # noqa: S608 - a checked name
                f"max(received_at) AS last FROM {quote_name(name)}.{REJECTS} "
                f"GROUP BY reason ORDER BY rejects DESC, reason LIMIT {_REASONS}"
            )
            found += counted.to_pylist()
    show(found, as_json=common.as_json)


@command
@click.argument("table", type=TABLE)
@_WHERE
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Show so many at most.")
def show_rejects(common: Common, table: str, where: str | None, limit: int) -> None:
    """Show the rejected events of TABLE as they were sent, with the reasons."""
    import pyarrow as pa

    from alluvia.operations.reading.scan import scan

    lake = common.lake()
    lake.table(table).snapshot()
    if f"{table}/{REJECTS}" not in lake:
        return
    kept = lake.table(f"{table}/{REJECTS}")
    rows: list[dict[str, Any]] = []
    more = False
    for batch in scan(kept.snapshot(), lake.store, ["received_at", "reason", "raw"], where):
        left = limit - len(rows)
        more = more or len(batch) > left
        rows += map(_readable, pa.Table.from_batches([batch.slice(0, left)]).to_pylist())
        if more:
            break
    show(rows, as_json=common.as_json)
    if more:
        tell(f"there are more than {limit}: --limit shows more, --where others")


@command
@click.argument("table", type=TABLE)
@_WHERE
def replay(common: Common, table: str, where: str | None) -> None:
    """Ingest the rejected events of TABLE again, each once, after its columns, constraints or source were changed.

    What still does not fit stays a reject.
    """
    with common.progress(f"replaying the rejects of {table}"):
        done = common.lake().table(table).replay_rejects(where)
    show_one({"table": table, **{name: getattr(done, name) for name in done.__slots__}}, as_json=common.as_json)


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "raw": (row["raw"] or b"").decode("utf-8", "replace")}


for _name, _command in (("list", list_rejects), ("show", show_rejects), ("replay", replay)):
    rejects.add_command(_command, _name)
