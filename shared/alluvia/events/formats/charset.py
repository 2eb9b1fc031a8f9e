"""The encoding of a text that is not UTF-8: its name, in an option or in Content-Type. Pure."""

from __future__ import annotations

import codecs
import re

from alluvia.errors import Invalid

NOT_UTF8 = (
    "not valid UTF-8: a file that Excel or Windows wrote may need --encoding windows-1252 (encoding), or "
    "charset=windows-1252 in Content-Type"
)
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9._:-]+)", re.ASCII | re.IGNORECASE)
_UTF8 = ("utf-8", "utf-8-sig", "ascii")
"""Encodings whose texts are UTF-8 as they are."""
_OTHERS = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7", "mbcs", "oem")
"""Codecs of Python that files are not written in."""


def codec_named(name: str) -> str:
    """Return Python's name of an encoding, in any spelling; "" for UTF-8. Raises `Invalid`."""
    try:
        "".encode(name.strip())  # a LookupError also for codecs of bytes, such as zlib
        codec = codecs.lookup(name.strip()).name
    except (LookupError, ValueError):
        codec = ""
    if not codec or codec.replace("_", "-") in _OTHERS:
        raise Invalid(
            f"encoding: {name!r:.50} is not known: use utf-8, windows-1252, iso-8859-15, utf-16 or another one that "
            "Python names"
        )
    return "" if codec in _UTF8 else codec


def charset_of(content_type: str | None) -> str:
    """Return the charset that a Content-Type names; "" without one."""
    match = _CHARSET.search(content_type or "")
    return match[1] if match else ""
