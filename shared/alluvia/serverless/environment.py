"""Set environment variables temporarily."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def environment(values: Mapping[str, str], without: Iterable[str] = ()) -> Iterator[None]:
    """Set variables, and unset those that are named; afterwards all are what they were."""
    before = {name: os.environ.pop(name, None) for name in (*values, *without)}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
