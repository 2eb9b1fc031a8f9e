"""Where secrets are: `env:NAME`, `file:PATH`, `secretsmanager:NAME-or-ARN` or `…#KEY`, `ssm:/name`. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from alluvia.errors import Invalid

FORMS = "env:NAME, file:PATH, secretsmanager:NAME, secretsmanager:NAME#KEY or ssm:/NAME"
_PLACES = {
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}"),
    "file": re.compile(r"[^\0\r\n]{1,1000}"),
    "secretsmanager": re.compile(r"[A-Za-z0-9/_+=.@:-]{1,600}(#[^\0\r\n]{1,255})?"),
    "ssm": re.compile(r"[A-Za-z0-9/_.:-]{1,1100}"),
}


class SecretReference(NamedTuple):
    """A place, and the name in it."""

    place: str
    name: str


def check_reference(setting: str, reference: str) -> None:
    """Raise Invalid for what is not a reference, or is empty. It never repeats it: it may be the secret itself."""
    if reference and _match(reference) is None:
        raise Invalid(f"{setting}: say where the secret is, with {FORMS}; the secret itself does not belong here")


def parse_reference(reference: str) -> SecretReference:
    """Return the parts of a reference that has been checked. Raises Invalid as `check_reference`."""
    found = _match(reference)
    if found is None:
        raise Invalid(f"a reference to a secret must be {FORMS}")
    return found


def _match(reference: str) -> SecretReference | None:
    place, separator, name = reference.partition(":")
    pattern = _PLACES.get(place) if separator else None
    return SecretReference(place, name) if pattern is not None and pattern.fullmatch(name) else None
