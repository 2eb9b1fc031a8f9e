"""Which requests a local server accepts, and how many of a kind at once.

A page can reach this machine under its own domain name (then Host is that name), and can post a form to it without
a preflight request (then Origin is that page's).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from ipaddress import ip_address
from threading import BoundedSemaphore
from urllib.parse import urlsplit

from alluvia.lazy_dataclasses import dataclass
from alluvia.serverless.cors import is_allowed
from alluvia.serverless.http import Response, TooManyRequests, failure
from alluvia.serverless.routes.ingest_routes import is_of_source
from alluvia.serverless.settings import number


@dataclass(frozen=True, slots=True)
class Slots:
    """How many requests of a kind may run at once, and how many may wait for that."""

    at_once: int
    waiting: int

    @property
    def total(self) -> int:
        """Return how many there may be."""
        return self.at_once + self.waiting


RETRY_SECONDS = 5
QUERIES = Slots(4, 16)
LARGE = Slots(8, 56)
UPLOADS = Slots(2, 30)
"""A file takes up to half a GB of memory while it is written."""
UPLOADS_AT_ONCE = "ALLUVIA_UPLOADS_AT_ONCE"


def uploads_of(environment: Mapping[str, str]) -> Slots:
    """Return how many uploads are processed at once, from the settings. Raises `Invalid`, naming the variable."""
    return Slots(number(environment, UPLOADS_AT_ONCE, "uploads", UPLOADS.at_once, most=32), UPLOADS.waiting)


class Admission:
    """Limits how many requests of a kind run at once, and how many wait for that."""

    def __init__(self, slots: Slots, kind: str) -> None:
        self._running = BoundedSemaphore(slots.at_once)
        self._taken = BoundedSemaphore(slots.total)
        self._kind = kind

    def through(self, call: Callable[[], Response]) -> Response:
        """Answer a request when its turn comes, or with 503 if too many wait."""
        try:
            with self.slot():
                return call()
        except TooManyRequests as error:
            return failure(503, str(error), **{"Retry-After": str(error.retry_after_seconds)})

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot, once one is free. Raises `TooManyRequests` if too many wait."""
        if not self._taken.acquire(blocking=False):
            raise TooManyRequests(f"too many {self._kind} are waiting: send this one again later", RETRY_SECONDS)
        try:
            with self._running:
                yield
        finally:
            self._taken.release()


ANY_HOST = "*"


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


@dataclass(frozen=True, slots=True)
class HostNames:
    """Names that a server may be called by, besides those of loopback. `addresses`: any address, or no name, will do.

    A page can give a name of its own this machine's address, so that browsers take the server for its own (DNS
    rebinding). It cannot do that with an address, and browsers always send a name.
    """

    names: frozenset[str] = frozenset()
    addresses: bool = False

    def have(self, authority: str) -> bool:
        """Whether a server may be called so, as the header Host says."""
        return ANY_HOST in self.names or (_allow(self, authority) if authority else self.addresses)


@lru_cache(maxsize=256)  # nearly all requests say the same
def _allow(hosts: HostNames, authority: str) -> bool:
    host = _host(f"//{authority}") if _is_authority(authority) else ""
    return is_loopback(host) or host in hosts.names or (hosts.addresses and _is_address(host))


def host_names(host: str, others: Collection[str]) -> HostNames:
    """Return the names of a server that listens on a host: on an address that others reach, any address is one."""
    return HostNames(frozenset(each.lower() for each in (host, *others)), addresses=not is_loopback(host))


_SIGNED = ("/v1/links/", "/v1/results/")
"""Paths whose addresses are proofs: people open them from mails and pages of other sites, which cannot guess them."""


def refusal(path: str, headers: Mapping[str, str], allowed: HostNames) -> str | None:
    """Return why a request is refused, by its path and headers (names in lower case); None if it is not."""
    authority = headers.get("host", "")
    if not allowed.have(authority):
        return f"Host: {authority[:100]!r} is not a name of this server; start it with --allow-host to add one"
    if is_of_source(path):
        return None
    origin = headers.get("origin")
    if origin is not None and is_allowed(origin, os.environ):
        return None
    if origin is not None and _authority(origin) != authority.lower():
        return "Origin: pages of other sites may not use this server"
    if path.startswith(_SIGNED):
        return None
    if origin is None and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return "Sec-Fetch-Site: pages of other sites may not use this server"
    referer = headers.get("referer")  # of browsers that send neither of the two
    if origin is None and referer is not None and _authority(referer) != authority.lower():
        return "Referer: pages of other sites may not use this server"
    return None


def _is_address(host: str) -> bool:
    with suppress(ValueError):
        return bool(ip_address(host))
    return False


def _host(url: str) -> str:
    with suppress(ValueError):  # an unmatched bracket, or one around something other than an address
        return urlsplit(url).hostname or ""
    return ""


def _authority(url: str) -> str | None:
    with suppress(ValueError):
        return urlsplit(url).netloc.lower()
    return None


def _is_authority(text: str) -> bool:
    return all(character.isalnum() or character in ".-_:[]" for character in text)
