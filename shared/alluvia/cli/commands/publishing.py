"""Commands about published queries: publish, published, unpublish."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.commands.maintaining import Duration
from alluvia.cli.options import Common, command, pair
from alluvia.cli.terminal.output import show, show_one

if TYPE_CHECKING:
    from alluvia.query.published import PublishedQuery


@command
@click.argument("name")
@click.argument("sql")
@click.option("--param", "parameters", multiple=True, metavar="NAME:TYPE[=DEFAULT]", help="A parameter, $NAME in SQL.")
@click.option("--token", "with_token", is_flag=True, help="Make a token that may run it, and nothing else.")
@click.option("--expires", type=Duration(), default="30d", show_default=True, metavar="TIME", help="How long it lives.")
def publish(
    common: Common, name: str, sql: str, parameters: tuple[str, ...], expires: timedelta, *, with_token: bool
) -> None:
    """Publish SQL, one SELECT, as GET /v1/queries/NAME.json, for callers who may read its tables or have a token."""
    declared = dict(pair(text, "--param", ":") for text in parameters)
    lake = common.lake()
    made = lake.publish(name, sql, declared)
    if not with_token:
        show_one(_facts(made), as_json=common.as_json)
        return
    from alluvia.access.rights import QUERY, Grant, Rights
    from alluvia.cli.commands.tokens import make_token, tell_kept_nowhere

    rights = Rights((Grant(frozenset({QUERY}), queries=(name,)),), name)
    token, claims = make_token(lake, rights, name, expires)
    show_one(_facts(made) | {"token": token}, as_json=common.as_json)
    tell_kept_nowhere(claims)


@command
def published(common: Common) -> None:
    """List the published queries, with their parameters."""
    from alluvia.query.published import list_published

    found, _ = list_published(common.lake().store)
    show([_facts(each) for each in found], as_json=common.as_json)


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
        "publisher": found.publisher,
        "query": found.query,
    }
