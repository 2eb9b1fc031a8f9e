"""Tokens for tests: made with a key of the test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import alluvia
from alluvia.access.issuing import issue, key_folder, new_key, signing_key
from alluvia.access.rights import QUERY_OPERATIONS, Grant, Rights, table_pattern
from alluvia.serverless.authorization import Authorization
from alluvia.serverless.settings import environment


def grant(scopes: str, where: str | None = None, hide: str = "") -> Grant:
    """Return a grant from scopes of one operation, such as `read:a read:b`."""
    operations, names = zip(*(scope.split(":") for scope in scopes.split()), strict=True)
    if set(operations) <= {*QUERY_OPERATIONS}:
        return Grant(frozenset(operations), (), where, frozenset(hide.split()), names)
    return Grant(frozenset(operations), tuple(map(table_pattern, names)), where, frozenset(hide.split()))


def token(lake: alluvia.Lake, *grants: Grant, requests: int | None = None, query_bytes: int | None = None) -> str:
    """Return a token for a lake, which gets a key with its first. `XDG_CONFIG_HOME` must be the test's own."""
    key = signing_key(lake.store, os.environ)
    if key is None:
        new_key(lake.store, lake.clock, key_folder(os.environ))
        key = signing_key(lake.store, os.environ)
    assert key is not None
    rights = Rights(grants, "test", requests_per_minute=requests, query_bytes=query_bytes)
    return issue(lake.store, lake.clock, key, rights, "test", 3600)[0]


def known(rights: Rights | None) -> Authorization:
    """Return an authorization by which every request comes from a caller with some rights."""
    return cast("Authorization", SimpleNamespace(rights=lambda request, lake: rights))


@contextmanager
def asking_for_tokens(place: Path, allowed: str) -> Iterator[alluvia.Lake]:
    """A lake in a folder, and the settings of functions on it that ask for tokens and keep results.

    `allowed` is the setting of what they may do besides, such as `ALLUVIA_ALLOW_WRITES`.
    """
    chosen = {
        "ALLUVIA_LAKE": str(place),
        "ALLUVIA_AUTH": "tokens",
        allowed: "true",
        "ALLUVIA_RESULT_CACHE": "on",
        "XDG_CONFIG_HOME": str(place / "config"),
    }
    with environment(chosen):
        yield alluvia.connect(str(place))
