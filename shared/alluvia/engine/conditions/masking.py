"""SQL text without the values in it, for places that keep it longer than the rows it was about. Pure."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
    (?P<comment>--[^\n]*|/\*.*?\*/)
    | (?P<value>(?<!\w)[eE]'(?:[^'\\]|''|\\.)*'|(?:(?<!\w)[xXbB])?'(?:[^']|'')*'
        |\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|(?<!\w)\.?\d[\w.]*)
    | (?P<name>"(?:[^"]|"")*"|[^\W\d]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTED_NAME = re.compile(r'"(?:[^"]|"")*"')
_UNCLEAR = re.compile(r"""['"]|\$\w*\$|/\*|\*/""")


def masked(text: str) -> str:
    """Return an SQL expression with `?` for each text and number, and without comments.

    Where it cannot be told which part is a value, all of it is `?`.
    """
    shown = _TOKEN.sub(lambda found: found["name"] or ("?" if found["value"] else " "), text)
    return "?" if _UNCLEAR.search(_QUOTED_NAME.sub("", shown)) else " ".join(shown.split())
