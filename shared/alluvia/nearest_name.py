"""The known names that are nearest to one that is unknown, for the error about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

NAME_CHARS_MAX = 100
KNOWN_MAX = 2000
"""A search takes time with the number of known names and the square of their length, and callers may repeat it."""
_LIKENESS_MIN = 0.66
_PREFIX_CHARS_MIN = 3


def nearest(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return up to `most` names that are like one, in any case: of nearly the same letters, or longer by some."""
    from difflib import get_close_matches  # only errors need it, and no cold start

    spelled = {each.lower(): each for each in islice(known, KNOWN_MAX)}
    asked = name[:NAME_CHARS_MAX].lower()
    found = get_close_matches(asked, spelled, most, _LIKENESS_MIN)
    if not found and len(asked) >= _PREFIX_CHARS_MIN:
        found = [each for each in spelled if each.startswith(asked)][:most]
    return [spelled[each] for each in found]


def likeness(name: str, known: str) -> float:
    """Return how like two names are, in any case, up to 1; 0 for names that are too different to suggest one."""
    from difflib import SequenceMatcher  # only errors need it, and no cold start

    ratio = SequenceMatcher(None, name[:NAME_CHARS_MAX].lower(), known.lower()).ratio()
    return ratio if ratio >= _LIKENESS_MIN else 0.0


def did_you_mean(name: str, known: Iterable[str], most: int = 1) -> str:
    """Return the question `did you mean x?`, or "" if no known name is near."""
    near = nearest(name, known, most)
    if near and not name.isascii() and _composed(name) == _composed(near[0]):
        return f"{near[0]!r} looks the same, but has other code points (Unicode NFC or NFD): rename one of them"
    return f"did you mean {' or '.join(near)}?" if near else ""


def _composed(name: str) -> str:
    from unicodedata import normalize

    return normalize("NFC", name)


def hint(name: str, known: Iterable[str]) -> str:
    """Return `: did you mean x?`, to end an error about an unknown name, or "" if no known name is near."""
    near = did_you_mean(name, known)
    return f": {near}" if near else ""
