"""The needs of a source's server, and the answers of servers that run here when asked about the source."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from alluvia.cli.terminal.terminal import tell
from alluvia.errors import Unavailable
from alluvia.events.sources.definition import SecretReference, parse_reference
from alluvia.events.sources.kinds.registry import KINDS
from alluvia.server.announcing import running_servers
from alluvia.serverless.http import OPERATOR_HEADER

if TYPE_CHECKING:
    from alluvia.cli.common import Common
    from alluvia.events.sources.definition import Source
    from alluvia.server.announcing import RunningServer

ELSEWHERE = "https://<your API>"
"""Stands for the address of a server that is not known here."""
_NEEDS = {
    "env": "the environment variable {name}, set when the server starts",
    "file": "the file {name}, which its user can read",
    "secretsmanager": "the right to read the secret {name} of Secrets Manager; in the CDK app, "
    "alluvia:webhook_secrets names it",
    "ssm": "the right to read the parameter {name} of SSM; in the CDK app, alluvia:webhook_secrets names it",
}
_LOCAL = ("localhost", "127.0.0.1", "::1")


def absolute(reference: str) -> str:
    """Return a reference to a secret, in a file by its absolute path: a server may run in another folder."""
    place, colon, name = reference.partition(":")
    return f"file:{Path(name).expanduser().absolute()}" if place == "file" and colon and name else reference


def needs_of(source: Source) -> list[str]:
    """Return what a server needs in order to verify requests to a source: one text for each secret."""
    references = map(parse_reference, filter(None, (source.secret, source.verify_token)))
    return [_need(each) for each in references]


def _need(reference: SecretReference) -> str:
    return _NEEDS[reference.place].format(name=reference.name.partition("#")[0])


def address_of(source: Source, common: Common) -> str:
    """Return the address to give to the sender: the source's own, that at a server here, or that of an unknown one."""
    servers = running_servers(common.uri, common.endpoint_url)
    return source.url or f"{servers[0].url if servers else ELSEWHERE}/v1/webhooks/{source.name}"


def facts_for_users(source: Source, common: Common) -> dict[str, str]:
    """Return what the server needs, the address of the source, and what to enter at the sender."""
    needs = needs_of(source)
    return {
        "address": address_of(source, common),
        "at_sender": KINDS[source.kind].at_sender,
        **({"server_needs": "; ".join(needs)} if needs else {}),
    }


def server_at(common: Common, base: str | None) -> RunningServer | None:
    """Return the server of the lake that runs here: the newest, or the one at an address; None if there is none."""
    servers = running_servers(common.uri, common.endpoint_url)
    return next((each for each in servers if base is None or _place(each.url) == _place(base)), None)


def _place(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url)
    return "localhost" if parts.hostname in _LOCAL else parts.hostname, parts.port


def tell_servers(common: Common, name: str, *, dropped: bool = False) -> None:
    """Have the servers here look at a source again, and tell on standard error why one cannot use it."""
    from alluvia.cli.commands.trying_source import ask_server

    for server in running_servers(common.uri, common.endpoint_url):
        try:
            request = urllib.request.Request(  # noqa: S310 - the address is that of our own server
                f"{server.url}/v1/webhooks/{name}", headers={OPERATOR_HEADER: server.key}
            )
            reply = ask_server(request)
        except Unavailable as error:
            tell(f"Note: {error}")
            continue
        if reply.status >= 300 and not dropped:
            tell(f"Warning: the server at {server.url} cannot use this source now{reply.reason()}")
