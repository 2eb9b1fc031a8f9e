"""How the text in a `--set` is quoted, for the error about one that is not. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from alluvia.errors import Invalid

_WORDS = re.compile(r"[^\W\d][\w .@-]*")
_MAY_BE_QUOTES = ("Parser Error", "not found in FROM clause")


@contextmanager
def explaining_quotes(values: Mapping[str, str]) -> Iterator[None]:
    """Have the error for the expression of a `--set` say how text is quoted, if that may be what is wrong."""
    try:
        yield
    except Invalid as error:
        whole = str(error)
        said = whole.partition("\nLINE ")[0].rstrip()
        hints = (quotes_of(name, text) for name, text in values.items() if f" {name}:" in said)
        hint = next(filter(None, hints), "") if any(each in said for each in _MAY_BE_QUOTES) else ""
        if not hint:
            raise
        raise type(error)(f"{said}; {hint}{whole[len(said) :]}") from error


def quotes_of(name: str, text: str) -> str:
    """Return how to quote what an expression without the right quotes seems to be; "" for anything else."""
    if _WORDS.fullmatch(text):
        return f"text stands in single quotes: --set \"{name}='{text}'\""
    return f"a single quote within text is written twice: --set \"{name}='it''s'\"" if "'" in text else ""
