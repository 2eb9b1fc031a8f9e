"""Sites whose pages may call, as settings name them and as browsers do. Pure."""

from __future__ import annotations

import re

ANY = "*"
_ORIGIN = re.compile(r"(https?)://([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}


def normal_origin(text: str) -> str | None:
    """Return a site in the form that browsers send (RFC 6454, section 6.2); None for a text that is not an origin.

    That form has the scheme and the host in lower case, and no port where it is the scheme's own.
    """
    match = _ORIGIN.fullmatch(text.lower())
    if match is None:
        return None
    scheme, host, port = match[1], match[2], int(match[3] or _DEFAULT_PORTS[match[1]])
    if not 0 < port < 65536:
        return None
    return f"{scheme}://{host}" + ("" if port == _DEFAULT_PORTS[scheme] else f":{port}")
