"""Which requests a local server accepts: not those that a web page from elsewhere makes a browser send. Pure.

A page can reach this machine under its own domain name (then Host is that name), and can post a form to it without
a preflight request (then Origin is that page's).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from alluvia.formats.segment_format import PATHS


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


SOURCES = "/v1/webhooks/"
"""Below it, and at the paths of Segment's API, each source says which sites' pages may use it: the function checks."""


def refusal(path: str, headers: Mapping[str, str], allowed: Collection[str] | None) -> str | None:
    """Return why a request is refused, by its path and headers (names in lower case); None if it is not.

    `allowed` are the names besides those of loopback that the server may be called by; None allows any.
    """
    authority = headers.get("host", "")
    host = _host(f"//{authority}") if _is_authority(authority) else ""
    if allowed is not None and not is_loopback(host) and host not in allowed:
        return f"Host: {authority[:100]!r} is not a name of this server; start it with --allow-host to add one"
    if path.startswith(SOURCES) or path.removeprefix("/v1/") in PATHS:
        return None
    origin = headers.get("origin")
    if origin is not None and _authority(origin) != authority.lower():
        return "Origin: pages of other sites may not use this server"
    if origin is None and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return "Sec-Fetch-Site: pages of other sites may not use this server"
    referer = headers.get("referer")  # of browsers that send neither of the two
    if origin is None and referer is not None and _authority(referer) != authority.lower():
        return "Referer: pages of other sites may not use this server"
    return None


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
