"""Packages that only a part of the library needs, and what to install where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from alluvia.errors import NotInstalled


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Raise `NotInstalled`, naming the extra, where the block imports a package that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "alluvia", "alluvia_ibis", "alluvia_spark", "functions"):
            raise
        raise NotInstalled(f"{what} needs the package {package}: pip install 'alluvia[{extra}]'") from error
