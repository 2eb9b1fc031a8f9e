"""Commands about published queries: publish, published, link."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.commands.sharing import lake_key, make_token, rate, size, tell_kept_nowhere
from alluvia.cli.common import Common
from alluvia.cli.options import csv_options, expires, lake_command, pairs
from alluvia.cli.terminal.terminal import say, tell

if TYPE_CHECKING:
    from alluvia.query.published import PublishedQuery


@lake_command
@click.argument("name")
@click.argument("sql")
@pairs("--param", "parameters", "NAME:TYPE[=DEFAULT]", "A parameter, $NAME in SQL.")
@click.option("--token", "with_token", is_flag=True, help="Make a token that may run it, and nothing else.")
@expires("How long the token is valid.", "30d")
def publish(
    common: Common, name: str, sql: str, parameters: dict[str, str], expires: timedelta, *, with_token: bool
) -> dict[str, Any] | None:
    """Publish SQL, one SELECT, at a URL, for callers who may read its tables, or have a token or a link."""
    lake = common.lake()
    address = _address(common)
    facts = _query_facts(lake.publish_query(name, sql, parameters), address)
    if with_token:
        from alluvia.access.rights import QUERY, Grant, Rights

        rights = Rights((Grant(frozenset({QUERY}), queries=(name,)),), name)
        token, claims = make_token(lake, rights, name, expires)
        common.show(facts | {"token": token})
        tell_kept_nowhere(claims)
    else:
        common.show(facts)
    _tell_address(address, common)
    return None


@lake_command
def published(common: Common) -> list[dict[str, Any]]:
    """List the published queries, with their URLs and parameters."""
    from alluvia.query.published import list_published

    queries, _ = list_published(common.lake().store)
    address = _address(common)
    return [_query_facts(query, address) for query in queries]


@lake_command
@click.argument("name")
@expires("How long it is valid.", "7d")
@pairs("--param", "values", "NAME=VALUE", "Fix a parameter. Others can be chosen in the URL.")
@click.option("--format", "form", default="csv", show_default=True, help="Such as safecsv, json or parquet.")
@csv_options
@click.option("--pin", "pinned", is_flag=True, help="Keep to the version that is published now.")
@click.option("--limit-requests", metavar="N/m", help="Requests a minute, such as 60/m.")
@click.option("--limit-bytes", metavar="SIZE", help="Bytes of files that the query may read, such as 1GB.")
def link(
    common: Common,
    name: str,
    expires: timedelta,
    values: Mapping[str, str],
    form: str,
    writing: Mapping[str, Any],
    limit_requests: str | None,
    limit_bytes: str | None,
    *,
    pinned: bool,
) -> dict[str, Any] | None:
    """Make a signed link to the rows of the published query NAME, for browsers and spreadsheets.

    It needs no token, and shows its holder nothing else. `alluvia token revoke` ends it.
    """
    from alluvia.query.formats import csv_written, format_named
    from alluvia.query.published import published_query
    from alluvia.query.query_links import link_rights, make_link

    written = csv_written(format_named(form), **writing)
    lake, address = common.lake(), _address(common)
    rights = link_rights(
        published_query(lake.store, name),
        values,
        pinned=pinned,
        requests_per_minute=None if limit_requests is None else rate(limit_requests),
        query_bytes=None if limit_bytes is None else size(limit_bytes),
    )
    path, claims = make_link(
        lake.store, lake.clock, lambda: lake_key(lake), rights, written, int(expires.total_seconds())
    )
    url = f"{address or ''}{path}"
    if common.as_json:
        return {"link": url, "id": claims.id, "expires": claims.expires_s}
    say(url)
    tell_kept_nowhere(claims, "Link")
    _tell_address(address, common)
    return None


def _query_facts(query: PublishedQuery, address: str | None) -> dict[str, Any]:
    return {
        "name": query.name,
        "version": query.version,
        "url": f"{address or ''}{query.path}",
        "parameters": ", ".join(map(str, query.parameters)),
        "publisher": query.publisher,
        "query": query.query,
    }


def _address(common: Common) -> str | None:
    """Return the address of the lake's server: that of the settings, or else of one that this user runs here."""
    from alluvia.query.published import address_in
    from alluvia.server.announcing import running_servers

    address = address_in(os.environ)
    if address is not None:
        return address
    return next((server.url for server in running_servers(common.uri, common.endpoint_url)), None)


def _tell_address(address: str | None, common: Common) -> None:
    if address is None and not common.as_json:
        tell(
            "The path is below the address of the lake's server. None runs here: start one with `alluvia serve`, or "
            "set ALLUVIA_URL to the address. A stack in AWS has it as the output ApiUrl."
        )
