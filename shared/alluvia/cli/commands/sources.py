"""Commands about sources: add, list, test, rotate, drop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common
from alluvia.cli.options import lake_command
from alluvia.cli.terminal.terminal import tell
from alluvia.errors import Invalid, TableNotFound
from alluvia.nearest_name import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from alluvia.api.lake import Lake
    from alluvia.events.sources.definition import Source

_SETTINGS = {
    "secret": "Where the secret is: env:NAME, file:PATH, secretsmanager:NAME[#KEY] or ssm:/NAME. Never the secret.",
    "format": "The format of request bodies, if requests do not name it.",
    "delimiter": "The delimiter of CSV.",
    "event_id": "Where the id of an event is: a path such as data.id, or header:NAME.",
    "ts": "Where its time is.",
    "event": "Where its name is.",
    "url": "The address given to the sender, if it signs that (twilio).",
    "handshake": "A GET request to answer: hub (hub.challenge) or challenge.",
    "verify_token": "Where the token is that a hub handshake must bring.",
    "header": "The header with the signature (hmac) or the token (token).",
    "algorithm": "sha256, sha1 or sha512 (hmac).",
    "encoding": "hex or base64 (hmac).",
    "prefix": "Text before the signature in its header (hmac).",
    "timestamp_header": "The header with the signed time (hmac).",
    "signed": "The signed text, such as {timestamp}.{body} (hmac).",
}


def _options(function: Callable[..., None]) -> Callable[..., None]:
    for name, text in reversed(_SETTINGS.items()):
        function = click.option(f"--{name.replace('_', '-')}", name, metavar="TEXT", help=text)(function)
    return function


@lake_command
@click.argument("name")
@click.option("--kind", required=True, help="How the sender signs: github, stripe, … `open` proves nothing.")
@click.option("--table", help="The table of its events, created if it does not exist; by default, the source's name.")
@_options
@click.option(
    "--origin", "origins", multiple=True, metavar="URL", help="A site whose pages may send events; * for all."
)
@click.option("--tolerance-seconds", type=int, help="The greatest age of a signed time.")
@click.option("--replace", is_flag=True, help="Replace the source of that name.")
def source_add(
    common: Common, name: str, table: str | None, origins: tuple[str, ...], *, replace: bool, **given: Any
) -> None:
    """Add the source NAME, and say what its server needs and what to enter at the sender.

    Comments in sources.toml are lost.
    """
    from alluvia.cli.commands.source_servers import absolute, facts_for_users, tell_servers
    from alluvia.events.sources.definition import HEADER, Source, check_no_proof
    from alluvia.events.sources.lake_sources import change_sources
    from alluvia.events.sources.receiving import unsigned_places

    settings = {
        key: absolute(value) if key in ("secret", "verify_token") else value
        for key, value in given.items()
        if value is not None
    }
    settings["table"] = name.replace("-", "_") if table is None else table
    made = Source.read(name, settings | ({"origins": origins} if origins else {}))
    check_no_proof(made)
    _check_secret(made)
    lake = common.lake(new=True)

    def put(sources: dict[str, Source]) -> None:
        if name in sources and not replace:
            raise Invalid(f"there is a source {name} already: remove it first, or use --replace")
        sources[name] = made

    _create_table(lake, made.table)
    change_sources(lake.store, put, heals=name if replace else "")
    common.show({**_facts(made), **facts_for_users(made, common)})
    tell_servers(common, name)
    for setting in unsigned_places(made):
        header, what = getattr(made, setting).removeprefix(HEADER), "event" if setting == "event_id" else setting
        tell(
            f"Note: {header} is not signed. Anyone who has captured a request can send it again with another value, "
            f"as a new {what}."
        )


@lake_command
def source_list(common: Common) -> list[dict[str, Any]]:
    """List the sources."""
    from alluvia.events.sources.lake_sources import read_sources

    known = read_sources(common.lake().store)
    rows = [_facts(each) for _, each in sorted(known.by_name.items())]
    faulty = [{"source": name, "fault": fault} for name, fault in sorted(known.faults.items())]
    return [*rows, *faulty]


@lake_command
@click.argument("name")
@click.option("--secret", required=True, metavar="TEXT", help="Where the new secret is, as for `add`.")
@click.option(
    "--keep-hours",
    type=click.IntRange(0, 87_600),
    default=24,
    show_default=True,
    help="How long the old secret stays valid.",
)
def source_rotate(common: Common, name: str, secret: str, keep_hours: int) -> dict[str, Any]:
    """Give the source NAME another secret. The old one stays valid for a time."""
    from dataclasses import replace
    from datetime import UTC, datetime, timedelta

    from alluvia.cli.commands.source_servers import absolute, needs_of, tell_servers
    from alluvia.events.sources.definition import Source
    from alluvia.events.sources.lake_sources import change_sources

    lake, secret = common.lake(), absolute(secret)
    until = datetime.fromtimestamp(lake.clock.now_ms() // 1000, UTC) + timedelta(hours=keep_hours)
    after: list[Source] = []

    def change(sources: dict[str, Source]) -> None:
        source = sources.get(name) or _missing(name, sources)
        if source.secret == secret:
            raise Invalid("--secret: the source has its secret from there already")
        rotated = replace(source, secret=secret, previous_secret=source.secret, previous_until=until)
        sources[name] = Source.read(name, rotated.settings())
        _check_secret(sources[name])
        after[:] = [sources[name]]

    change_sources(lake.store, change)
    tell_servers(common, name)
    return {**_facts(after[0]), "server_needs": "; ".join(needs_of(after[0]))}


@lake_command
@click.argument("name")
def source_drop(common: Common, name: str) -> dict[str, Any]:
    """Drop the source NAME. Its table stays. Functions that know it forget it within 30 seconds."""
    from alluvia.cli.commands.source_servers import tell_servers
    from alluvia.events.sources.lake_sources import change_sources

    def drop(sources: dict[str, Source]) -> None:
        if sources.pop(name, None) is None and name not in faulty:
            _missing(name, sources)

    lake = common.lake()
    faulty = _faults(lake)
    change_sources(lake.store, drop, heals=name)
    tell_servers(common, name, dropped=True)
    return {"dropped": name}


@lake_command
@click.argument("name")
@click.option(
    "--url", "base", metavar="URL",
    help="The server, such as http://localhost:8080.  [the one that runs here; without one, in this process]",
)  # fmt: skip
@click.option("--body", type=click.File("rb"), metavar="FILE", help="The body to send; a sample by default.")
@click.option("--content-type", metavar="TYPE", help="The content type of the file.")
def source_test(common: Common, name: str, base: str | None, body: Any, content_type: str | None) -> None:
    """Post a sample event, signed as by the sender of NAME, which is stored, and a forged one, which must get a 401.

    Exits 1, with the reason, if the first is not stored or the second is accepted.
    """
    from alluvia.cli.commands.source_servers import server_at
    from alluvia.cli.commands.trying_source import try_source
    from alluvia.events.sources.lake_sources import read_sources

    lake = common.lake()
    sources = read_sources(lake.store)
    source = sources.find(name) or _missing(name, sources.by_name)
    server = server_at(common, base)
    base = server.url if base is None and server is not None else base
    key = "" if server is None else server.key
    done, fault = try_source(lake, source, base, None if body is None else body.read(), content_type, key=key)
    common.show(done)
    if fault:
        raise Invalid(fault)


def _missing(name: str, known: Iterable[str]) -> Source:
    raise Invalid(f"there is no source {name!r:.100}: {did_you_mean(name, known) or 'see `alluvia source list`'}")


def _faults(lake: Lake) -> set[str]:
    from alluvia.events.sources.lake_sources import read_sources

    return set(read_sources(lake.store).faults)


def _check_secret(made: Source) -> None:
    """Raise Invalid for a secret that can be read here and can never prove anything.

    One that cannot be read may come later, or be for the server alone. Services of AWS are not asked.
    """
    from alluvia.events.sources.definition import parse_reference
    from alluvia.events.sources.kinds.registry import KINDS
    from alluvia.serverless.secrets import read_secret

    if not made.secret or parse_reference(made.secret).place not in ("env", "file"):
        return
    try:
        secret = read_secret(made.secret)
    except Invalid:
        return
    fault = KINDS[made.kind].secret_fault(secret)
    if fault is not None:
        raise Invalid(f"secret: {made.secret} cannot be that of a source of kind {made.kind}: {fault}")


def _create_table(lake: Lake, table: str) -> None:
    """Create a table of events if there is none. Raises Invalid for a table that can take none."""
    from alluvia.events.ingest.values import identifies_events
    from alluvia.operations.planning.optimistic_retry import check_not_derived

    try:
        snapshot = lake.table(table).snapshot()
    except TableNotFound:
        lake.create_events(table, exist_ok=True)
        return
    check_not_derived(snapshot, "ingest")
    if not identifies_events(snapshot.schema):
        raise Invalid(
            f"table: {table} is not a table of events, because it has no column event_id of type string: "
            "name another, which is created if it does not exist"
        )


def _facts(source: Source) -> dict[str, Any]:
    return {"source": source.name, "path": f"/v1/webhooks/{source.name}", **source.settings()}
