"""Commands about published queries: publish, published, unpublish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.options import Common, command, pair
from alluvia.cli.output import show, show_one

if TYPE_CHECKING:
    from alluvia.query.published import PublishedQuery


@command
@click.argument("name")
@click.argument("sql")
@click.option("--param", "parameters", multiple=True, metavar="NAME:TYPE[=DEFAULT]", help="A parameter, $NAME in SQL.")
def publish(common: Common, name: str, sql: str, parameters: tuple[str, ...]) -> None:
    """Publish SQL, one SELECT, as GET /v1/queries/NAME, for callers who may read its tables."""
    declared = dict(pair(text, "--param", ":") for text in parameters)
    show_one(_facts(common.lake().publish(name, sql, declared)), as_json=common.as_json)


@command
def published(common: Common) -> None:
    """List the published queries, with their parameters."""
    from alluvia.query.published import list_published

    show([_facts(each) for each in list_published(common.lake().store)], as_json=common.as_json)


@command
@click.argument("name")
def unpublish(common: Common, name: str) -> None:
    """Withdraw the published query NAME."""
    made = common.lake().unpublish(name)
    show_one({"unpublished": name, "version": made.version}, as_json=common.as_json)


def _facts(found: PublishedQuery) -> dict[str, Any]:
    return {
        "name": found.name,
        "version": found.version,
        "parameters": ", ".join(map(str, found.parameters)),
        "query": found.query,
    }
