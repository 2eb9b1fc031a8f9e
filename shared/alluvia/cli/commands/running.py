"""Commands that run the functions: serve, invoke, demo."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from alluvia.cli.common import Common
from alluvia.cli.options import Decorator, lake_command, names, unless
from alluvia.cli.terminal.terminal import say, say_json, tell
from alluvia.errors import Invalid

AUTH = "ALLUVIA_AUTH"


def _seconds(option: str, name: str, default: float, about: str) -> Decorator:
    kind = click.FloatRange(0, 366 * 86400)
    return click.option(option, name, type=kind, default=default, show_default=True, metavar="SECONDS", help=about)


@lake_command
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0 chooses a free one.")
@click.option("--allow-host", "allow_hosts", multiple=True, metavar="NAME", envvar="ALLUVIA_ALLOW_HOST",
              help="A host name that requests may use, besides localhost and addresses; * for any.")  # fmt: skip
@_seconds("--merge-every", "merge_seconds", 3600.0,
          "Merge all tables this often, and due files after every ten commits of a table. 0: neither.")  # fmt: skip
@_seconds("--vacuum-every", "vacuum_seconds", 86400.0, "Vacuum all tables this often. 0: never.")
@_seconds("--pipeline-every", "pipeline_seconds", 60.0,
          "Run tables of pipelines and rollups that are due this often, and after commits. 0: neither.")  # fmt: skip
@click.option("--create-tables-max", type=click.IntRange(1), help="Events create no more tables than this.  [1000]")
@click.option("--allow-writes", is_flag=True, help="Let SQL over HTTP write, too.")
@names("--outside", "outside", "Attach tables from below here only; else $ALLUVIA_OUTSIDE.", "URI")
@click.option("--allow-publish", is_flag=True, help="Let queries be published over HTTP, too.")
@click.option(
    "--auth", type=click.Choice(["open", "tokens", "jwt"]), envvar=AUTH,
    help="Authentication: none, this lake's tokens, or an identity provider's.  [open, on loopback]",
)  # fmt: skip
@click.option("--metrics-address", metavar="HOST:PORT",
              help="Serve /metrics here, without tokens.  [with the rest, unless callers need tokens]")  # fmt: skip
@click.option("--flight-port", type=click.IntRange(0, 65535), help="Serve Flight SQL there, too. 0: a free port.")
@_seconds("--drain-seconds", "drain_seconds", 30.0, "How long running requests may take after SIGTERM.")
@click.option("--quiet", "log_requests", is_flag=True, callback=unless, help="Do not log requests.")
def serve(
    common: Common,
    *,
    create_tables_max: int | None,
    allow_writes: bool,
    outside: tuple[str, ...],
    allow_publish: bool,
    auth: str | None,
    metrics_address: str | None,
    drain_seconds: float,
    **given: Any,
) -> None:
    """Put the functions behind a local HTTP server; merge and vacuum run in the background."""
    import signal

    from alluvia.server.announcing import RunningServer, announced, new_key
    from alluvia.server.guards import is_loopback
    from alluvia.server.listening import drain_at_sigterm
    from alluvia.server.metrics import Metrics
    from alluvia.server.serve import Options, running, telling
    from alluvia.server.setting_names import check_settings
    from alluvia.serverless.settings import environment
    from alluvia.serverless.warm_lake import outside_of

    check_settings(os.environ)
    auth = _auth(auth, given["host"], loopback=is_loopback(given["host"]))
    key = new_key()
    options = Options(tells_metrics=auth == "open" and metrics_address is None, operator_key=key, **given)
    metrics_place = None if metrics_address is None else _place(metrics_address)
    chosen = (
        {AUTH: auth} if create_tables_max is None else {AUTH: auth, "ALLUVIA_CREATE_TABLES_MAX": f"{create_tables_max}"}
    )
    chosen |= {"ALLUVIA_ALLOW_WRITES": "true"} if allow_writes else {}
    chosen |= {"ALLUVIA_ALLOW_PUBLISH": "true"} if allow_publish else {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # until there is something to drain
    metrics = Metrics()
    with ExitStack() as held:
        held.enter_context(environment(chosen))
        if auth == "jwt":
            _check_jwt()
        lake = common.lake(new=True, outside=outside or outside_of(os.environ))
        served = held.enter_context(running(lake, options, metrics))
        try:
            server = RunningServer(f"http://{_own_name(options.host)}:{served.http.effective_port}", key)
            held.enter_context(announced(common.uri, common.endpoint_url, server))
        except (OSError, RuntimeError) as error:
            tell(f"Note: other commands do not find this server: {error}")
        say(f"alluvia serves {common.uri} at http://{options.host}:{served.http.effective_port}")
        if metrics_place is not None:
            port = held.enter_context(telling(metrics, *metrics_place, options.allow_hosts))
            say(f"Metrics are at http://{metrics_place[0]}:{port}/metrics, without tokens.")
        _say_access(auth, options.host, allow_writes=allow_writes, loopback=is_loopback(options.host))
        if served.flight_port is not None:
            place = f"{options.host}:{served.flight_port}"
            say(f"Flight SQL: grpc://{place} for ADBC, jdbc:arrow-flight-sql://{place}?useEncryption=false for JDBC.")
        drain_at_sigterm(served.http, served.gateway.begin_to_drain, drain_seconds)
        served.http.run()


def _say_access(auth: str, host: str, *, allow_writes: bool, loopback: bool) -> None:
    may = "read, change and drop all tables of" if allow_writes else "read and write"
    if auth != "open":
        say("Requests need a token" + (": `alluvia token create` makes one." if auth == "tokens" else "."))
    elif loopback:
        say(f"Everyone on this machine can {may} this lake; --auth tokens asks for tokens.")
    else:
        tell(f"Warning: anyone who can reach {host} can {may} this lake, without a token. Put a proxy that "
             "authenticates in front.")  # fmt: skip


def _own_name(host: str) -> str:
    """Return the name by which this machine reaches a server that listens on an address."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not listened on
    return f"[{name}]" if ":" in name else name


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
    """Send 10,254 real events over HTTP, optimize, query and vacuum them, and show the cost of each step."""
    from alluvia.cli.commands.demo import run

    run(common)
