"""Commands that run the functions: serve, invoke, demo."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import click

from alluvia.cli.common import Common
from alluvia.cli.options import lake_command
from alluvia.cli.terminal.terminal import say, say_json, tell
from alluvia.errors import Invalid

AUTH = "ALLUVIA_AUTH"
_SECONDS = click.FloatRange(0, 366 * 86400)


@lake_command
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0 chooses a free one.")
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    envvar="ALLUVIA_ALLOW_HOST",
    help="A host name that requests may use, besides localhost and addresses; * for any.",
)
@click.option(
    "--merge-every",
    default=3600.0,
    type=_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Merge all tables so often, and each after ten commits. 0: never, neither.",
)
@click.option(
    "--vacuum-every",
    default=86400.0,
    type=_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Vacuum all tables so often. 0: never.",
)
@click.option("--refresh-rollups", is_flag=True, help="Refresh rollups after each post of events; else with merges.")
@click.option("--create-tables-max", type=click.IntRange(1), help="Events create no more tables than this.  [1000]")
@click.option("--allow-writes", is_flag=True, help="Let SQL that comes over HTTP write, too.")
@click.option(
    "--outside", multiple=True, metavar="URI", help="Attach tables from below here only; else $ALLUVIA_OUTSIDE."
)
@click.option("--allow-publish", is_flag=True, help="Let queries be published over HTTP, too.")
@click.option(
    "--auth",
    type=click.Choice(["open", "tokens", "jwt"]),
    envvar=AUTH,
    help="Whom to answer: everyone, or who has a token of this lake or of an issuer.  [open, on loopback]",
)
@click.option(
    "--metrics-address",
    metavar="HOST:PORT",
    help="Where to tell /metrics to everyone who reaches it.  [with the rest, unless callers need tokens]",
)
@click.option("--flight-port", type=click.IntRange(0, 65535), help="Serve Flight SQL there, too. 0: a free port.")
@click.option(
    "--drain-seconds",
    default=30.0,
    type=_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long running requests may take after SIGTERM.",
)
@click.option("--quiet", is_flag=True, help="Do not log requests.")
def serve(
    common: Common,
    host: str,
    port: int,
    allow_host: tuple[str, ...],
    merge_every: float,
    vacuum_every: float,
    create_tables_max: int | None,
    auth: str | None,
    metrics_address: str | None,
    flight_port: int | None,
    outside: tuple[str, ...],
    drain_seconds: float,
    *,
    refresh_rollups: bool,
    allow_writes: bool,
    allow_publish: bool,
    quiet: bool,
) -> None:
    """Put the functions behind a local HTTP server; merge and vacuum run in the background."""
    import signal

    from alluvia.server.guards import is_loopback
    from alluvia.server.listening import drain_at_sigterm
    from alluvia.server.metrics import Metrics
    from alluvia.server.serve import Options, running, telling
    from alluvia.serverless.settings import environment
    from alluvia.serverless.warm_lake import outside_of

    auth = _auth(auth, host, loopback=is_loopback(host))
    told_here = auth == "open" and metrics_address is None
    options = Options(
        host, port, allow_host, merge_every, vacuum_every, not quiet, refresh_rollups, told_here, flight_port
    )
    metrics_place = None if metrics_address is None else _place(metrics_address)
    chosen = {} if create_tables_max is None else {"ALLUVIA_CREATE_TABLES_MAX": str(create_tables_max)}
    if allow_writes:
        chosen["ALLUVIA_ALLOW_WRITES"] = "true"
    if allow_publish:
        chosen["ALLUVIA_ALLOW_PUBLISH"] = "true"
    chosen[AUTH] = auth
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # until there is something to drain
    metrics = Metrics()
    with ExitStack() as held:
        held.enter_context(environment(chosen))
        if auth == "jwt":
            _check_jwt()
        lake = common.lake(new=True, outside=outside or outside_of(os.environ))
        served = held.enter_context(running(lake, options, metrics))
        say(f"alluvia serves {common.uri} at http://{host}:{served.http.effective_port}")
        if metrics_place is not None:
            told_at = held.enter_context(telling(metrics, *metrics_place, allow_host))
            say(f"Metrics are at http://{metrics_place[0]}:{told_at}/metrics, for everyone who reaches it.")
        may = "read, change and drop all tables of" if allow_writes else "read and write"
        if auth != "open":
            say("Requests need a token" + (": `alluvia token create` makes one." if auth == "tokens" else "."))
        elif is_loopback(host):
            say(f"Everyone on this machine can {may} this lake; --auth tokens asks for tokens.")
        else:
            tell(f"Warning: anyone who reaches {host} can {may} this lake: nobody is asked for a token. Put a proxy "
                 "that authenticates in front.")  # fmt: skip
        if served.flight_port is not None:
            place = f"{host}:{served.flight_port}"
            say(f"Flight SQL: grpc://{place} for ADBC, jdbc:arrow-flight-sql://{place}?useEncryption=false for JDBC.")
        drain_at_sigterm(served.http, served.gateway.begin_to_drain, drain_seconds)
        served.http.run()


def _check_jwt() -> None:
    """Raise `Invalid`, naming the variable, for settings that would refuse everyone."""
    from alluvia.serverless.authorization import Authorization, check_row_filter

    row_filter = Authorization.read(os.environ).mapping.where
    if row_filter is not None:
        check_row_filter(row_filter)


def _place(address: str) -> tuple[str, int]:
    """Return a host and a port. Raises `Invalid`."""
    parts = urlsplit(f"//{address}")
    with suppress(ValueError):
        if parts.hostname and parts.port is not None and parts.netloc == address and "@" not in address:
            return parts.hostname, parts.port
    raise Invalid(f"--metrics-address {address!r:.100}: give a host and a port, such as 127.0.0.1:9464")


def _auth(asked: str | None, host: str, *, loopback: bool) -> str:
    """Return how callers are told apart. Raises `Invalid` where all would be let in from elsewhere, unless asked to."""
    if asked is None and not loopback:
        raise Invalid(
            f"--host {host} is open to other machines: --auth tokens asks callers for tokens, which `alluvia token "
            "create` makes; --auth open lets everyone in, for a server behind a proxy that authenticates"
        )
    return asked or "open"


@lake_command
@click.argument("function")
@click.argument("event", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def invoke(common: Common, function: str, event: Path) -> None:
    """Call a function's handler with an event from a file, such as events/ingest_api_gateway.json."""
    import orjson

    from alluvia.server.gateway import FUNCTIONS, LocalContext, load_handler
    from alluvia.serverless.settings import environment
    from alluvia.serverless.warm_lake import ENDPOINT_URL, LAKE, using

    if function not in FUNCTIONS:
        raise Invalid(f"there is no function {function!r}; choose one of {', '.join(FUNCTIONS)}")
    try:
        payload = orjson.loads(event.read_bytes())
    except orjson.JSONDecodeError as error:
        raise Invalid(f"{event} is not JSON: {error}") from error
    lake = common.lake(new=True)
    with environment({LAKE: common.uri, ENDPOINT_URL: common.endpoint_url or ""}), using(lake):
        answer = load_handler(function)(payload, LocalContext(function, lake.clock))
    say_json(orjson.dumps(answer, option=None if common.as_json else orjson.OPT_INDENT_2, default=str) + b"\n")


@lake_command
def demo(common: Common) -> None:
    """Take 10,254 real events in by HTTP, optimize, query and vacuum them, and show what each step cost."""
    from alluvia.cli.commands.demo import run

    run(common)
