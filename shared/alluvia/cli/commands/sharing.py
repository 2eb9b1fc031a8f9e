"""Commands about tokens of callers: token create, list, show, revoke, rotate-key."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import click

from alluvia.cli.common import Common
from alluvia.cli.options import expires, lake_command, names
from alluvia.cli.terminal.terminal import say, tell
from alluvia.errors import Invalid, TableNotFound
from alluvia.nearest_name import did_you_mean
from alluvia.table_names import folder_name

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from alluvia.access.claims import TokenClaims
    from alluvia.access.registry import Issued
    from alluvia.access.rights import Grant, Rights
    from alluvia.api.lake import Lake

_RATE = re.compile(r"(\d+)(?:/(m|min|minute))?")
_SIZE = re.compile(r"(\d+)\s*(B|KB|MB|GB|TB)?", re.IGNORECASE)
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@lake_command
@names("--append", "append", "Send events to TABLE; * stands for any characters.", "TABLE")
@names("--read", "read", "Query TABLE.", "TABLE")
@names("--write", "write", "Run INSERT, UPDATE, DELETE and MERGE on TABLE.", "TABLE")
@names("--admin", "admin", "Run CREATE, ALTER, DROP and the like on TABLE.", "TABLE")
@names("--query", "query", "Run the published query NAME, or only version N.", "NAME[@N]")
@names("--publish", "publish", "Publish and withdraw the query NAME.")
@click.option("--where", metavar="CONDITION", help="The only rows that it can read.")
@names("--hide", "hide", "A column that it cannot read.", "COLUMN")
@expires("How long the token is valid.", "30d")
@click.option("--limit-requests", metavar="N/m", help="Requests a minute, such as 60/m.")
@click.option("--limit-bytes", metavar="SIZE", help="Bytes of files that a query may read, such as 1GB.")
@click.option("--name", default="", help="Its owner, shown in lists of tokens and in logs.")
def token_create(
    common: Common,
    where: str | None,
    hide: tuple[str, ...],
    expires: timedelta,
    limit_requests: str | None,
    limit_bytes: str | None,
    name: str,
    **allowed: tuple[str, ...],
) -> dict[str, Any] | None:
    """Make a token, and print it this once."""
    from alluvia.access.rights import Rights

    lake = common.lake(new=True)
    if (where is not None or hide) and not (allowed["read"] or allowed["query"]):
        raise click.UsageError("--where and --hide limit what --read and --query allow: name what may be read")
    limits = {"read": (where, hide), "query": (where, hide)}
    asked = ("append", "write", "admin", "publish", "read", "query")
    grants = [_grant(each, allowed[each], *limits.get(each, ())) for each in asked if allowed[each]]
    if not grants:
        raise click.UsageError(
            "name what it may do: --append, --read, --write or --admin with a table, --query or --publish with a query"
        )
    for grant in grants:
        _check_fits(lake, grant)
    _tell_missing(lake, grants)
    rights = Rights(
        tuple(grants),
        name,
        requests_per_minute=None if limit_requests is None else rate(limit_requests),
        query_bytes=None if limit_bytes is None else size(limit_bytes),
    )
    text, claims = make_token(lake, rights, name, expires)
    if common.as_json:
        return {"token": text, **_facts(claims)}
    say(text)
    tell_kept_nowhere(claims)
    return None


def make_token(lake: Lake, rights: Rights, name: str, expires: timedelta) -> tuple[str, TokenClaims]:
    """Make a token, with the newest key of this machine that the lake has; a lake without keys gets its first."""
    from alluvia.access.issuing import issue

    return issue(lake.store, lake.clock, lake_key(lake), rights, name, int(expires.total_seconds()))


def lake_key(lake: Lake) -> Ed25519PrivateKey:
    """Return the key to sign with, and say where it is if it is the lake's first."""
    from alluvia.access.issuing import ready_key

    key, made = ready_key(lake.store, lake.clock, os.environ)
    if made is not None:
        tell(f"The lake's first key for tokens: {made}. Keep it, and keep it secret.")
    return key


def tell_kept_nowhere(claims: TokenClaims, what: str = "Token") -> None:
    """Tell that a token is shown only once."""
    tell(f"{what} {claims.id}, valid until {_moment(claims.expires_s)}. It is shown only now, and kept nowhere.")


@lake_command
def token_list(common: Common) -> list[dict[str, Any]]:
    """List the tokens, and their states."""
    from alluvia.access.registry import issued

    lake = common.lake()
    now_s = lake.clock.now_ms() / 1000
    return [
        {"state": _state(each, now_s), **_facts(each.claims), "key": each.key}
        for each in issued(lake.store, lake.clock)
    ]


@lake_command
@click.argument("token")
def token_show(common: Common, token: str) -> dict[str, Any]:
    """Show the rights of TOKEN, or of the token with that id; TOKEN may be a link."""
    claims, state = _found(common.lake(), token)
    return {"state": state, **_facts(claims)}


@lake_command
@click.argument("token")
def token_revoke(common: Common, token: str) -> dict[str, Any]:
    """Revoke TOKEN, or the token with that id, within 30 seconds; TOKEN may be a link."""
    from alluvia.access import registry

    lake = common.lake()
    claims, _ = _found(lake, token)
    registry.revoke(lake.store, lake.clock, claims)
    return {"revoked": claims.id, "name": claims.name}


@lake_command
@click.option("--retire", metavar="KEY", help="Revoke all tokens signed by this key, instead of making one.")
def token_rotate_key(common: Common, retire: str | None) -> dict[str, Any]:
    """Make a new key for future tokens. Tokens signed by older keys stay valid."""
    from alluvia.access import registry
    from alluvia.access.issuing import key_folder, new_key

    lake = common.lake(new=True)
    if retire is not None:
        registry.remove_key(lake.store, retire)
        return {"retired": retire}
    made = new_key(lake.store, lake.clock, key_folder(os.environ))
    return {"key": made.id, "file": str(key_folder(os.environ) / f"{made.id}.pem")}


def _grant(operation: str, names: tuple[str, ...], where: str | None = None, hide: tuple[str, ...] = ()) -> Grant:
    from alluvia.access.rights import QUERY_OPERATIONS, Grant, table_pattern
    from alluvia.delta.schema.names import fold

    operations, hidden = frozenset({operation}), frozenset(map(fold, hide))
    if operation in QUERY_OPERATIONS:
        return Grant(operations, (), where, hidden, names)
    return Grant(operations, tuple(map(table_pattern, names)), where, hidden)


def _check_fits(lake: Lake, grant: Grant) -> None:
    """Raise `Invalid` for a condition that a table refuses, and for a column to hide that none of the tables has."""
    if grant.where is not None:
        from alluvia.engine.conditions.sql_condition import read_expression

        read_expression(grant.where)
    if grant.where is None and not grant.hide:
        return
    from alluvia.delta.schema.names import fold
    from alluvia.engine.conditions.condition import condition

    schemas: dict[str, list[str]] = {}
    for name in sorted({*grant.tables, *_tables_read(lake, grant)}):
        if "*" in name:
            continue
        try:
            schema = lake.table(name).schema
        except TableNotFound:  # it may come later, or it is a view
            continue
        if grant.where is not None:
            condition(grant.where, schema)
        schemas[name] = schema.names
        plain = grant.hide - {fold(field.column) for field in lake.table(name).snapshot().promoted}
        if plain and "properties" in set(schema.names) - grant.hide:
            tell(
                f"Table {name} shows its column properties, where events may have {', '.join(sorted(plain))} too: to "
                "hide that, add --hide properties."
            )
    every = [name for names in schemas.values() for name in names]
    unknown = sorted(grant.hide - set(map(fold, every))) if schemas else ()
    if unknown:
        of = f"table {next(iter(schemas))} has" if len(schemas) == 1 else f"tables {', '.join(schemas)} have"
        near = did_you_mean(unknown[0], every) or f"known are {', '.join(dict.fromkeys(every))}"
        raise Invalid(f"--hide: {of} no column {unknown[0]}: {near}")


def _tell_missing(lake: Lake, grants: list[Grant]) -> None:
    """Name the tables and queries of grants that the lake lacks: they may be misspelt. Events make tables."""
    from alluvia.access.rights import APPEND, PUBLISH
    from alluvia.operations.catalog.views import list_views
    from alluvia.query.published import list_published

    tables = {folder_name(name) for grant in grants for name in grant.tables if grant.operations != {APPEND}}
    queries = {
        pattern.partition("@")[0] for grant in grants for pattern in grant.queries if PUBLISH not in grant.operations
    }
    known: set[str] = set()
    if tables:
        known = {*lake.tables(rejects=True), *(view.name for view in list_views(lake.store))}
    _tell_each_missing("Table", tables, known)
    _tell_each_missing("Query", queries, {query.name for query in list_published(lake.store)[0]} if queries else set())


def _tell_each_missing(what: str, named: set[str], known: set[str]) -> None:
    for name in sorted(each for each in named - known if "*" not in each):
        near = did_you_mean(name, known)
        shown = name.replace("/", ".")
        tell(f"{what} {shown} does not exist{f': {near}' if near else '. The token allows it once it does.'}")


def _tables_read(lake: Lake, grant: Grant) -> set[str]:
    """Return the tables and views that published queries of a grant read now."""
    from alluvia.query.published import find_published

    named = (pattern.partition("@") for pattern in grant.queries if "*" not in pattern)
    queries = (find_published(lake.store, name, int(number) if number else None) for name, _, number in named)
    return {table for query in queries if query is not None for table in query.tables}


def _found(lake: Lake, token: str) -> tuple[TokenClaims, str]:
    """Return what a token, or an id of one, stands for, and whether it is valid."""
    from alluvia.access import registry
    from alluvia.access.claims import read_claims
    from alluvia.access.registry import TokenVerifier
    from alluvia.access.signing import unverified_claims

    token = _of_link(token)
    if "." not in token:
        token_record = registry.find_issued(lake.store, lake.clock, token)
        return token_record.claims, _state(token_record, lake.clock.now_ms() / 1000)
    claims = read_claims(unverified_claims(token))
    try:
        TokenVerifier(lake.store, lake.clock).verify(token)
    except Invalid as error:
        return claims, str(error)
    return claims, "valid"


def _of_link(text: str) -> str:
    """Return the token in a link, or the text as it is: a token, or the id of one."""
    from alluvia.query.parameters import LINK_TOKEN

    query = parse_qs(urlsplit(text).query) if "/" in text else {}
    return query.get(LINK_TOKEN, [text])[0]


def _state(token_record: Issued, now_s: float) -> str:
    return "revoked" if token_record.revoked else "expired" if now_s > token_record.claims.expires_s else "valid"


def _facts(claims: TokenClaims) -> dict[str, Any]:
    rights = claims.rights
    scopes = [
        f"{each}:{name}"
        for grant in rights.grants
        for each in sorted(grant.operations)
        for name in (*grant.tables, *grant.queries)
    ]
    return {
        "id": claims.id,
        "name": claims.name,
        "scopes": " ".join(scope.replace("/", ".") for scope in scopes),
        "values": " ".join(f"{name}={text}" for grant in rights.grants for name, text in grant.values) or None,
        "where": " AND ".join(grant.where for grant in rights.grants if grant.where is not None) or None,
        "hide": " ".join(sorted(name for grant in rights.grants for name in grant.hide)) or None,
        "requests_per_minute": rights.requests_per_minute,
        "query_bytes": rights.query_bytes,
        "created": _moment(claims.issued_s),
        "expires": _moment(claims.expires_s),
    }


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def rate(text: str) -> int:
    """Return requests a minute. Raises `UsageError`."""
    match = _RATE.fullmatch(text.strip())
    if match is None or not 0 < int(match[1]) < 10**9:
        raise click.UsageError(f"--limit-requests {text!r}: write it as a number of requests a minute, such as 60/m")
    return int(match[1])


def size(text: str) -> int:
    """Return a number of bytes. Raises `UsageError`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not 0 < int(match[1]) < 10**9:
        raise click.UsageError(f"--limit-bytes {text!r}: write it as a size, such as 100MB or 1GB")
    return int(match[1]) * _UNITS[(match[2] or "B").upper()]
