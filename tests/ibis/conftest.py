"""Connections of ibis to a lake of events: in this process, and through `alluvia serve`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ibis
import pytest

import alluvia
from tests.ibis.sample import fill
from tests.serving import serving


@pytest.fixture(scope="session")
def lake() -> alluvia.Lake:
    lake = alluvia.connect("memory://ibis")
    fill(lake)
    return lake


@pytest.fixture(scope="session")
def served_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ibis") / "lake"
    fill(alluvia.connect(folder))
    return folder


@pytest.fixture(scope="session")
def served_url(served_folder: Path) -> Iterator[str]:
    """The address of a server that allows writes, for all tests of this folder: each writes tables of its own."""
    with serving(served_folder, "--allow-writes", quiet=True) as (_, port):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session", params=["in this process", "served"])
def con(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A connection, in both ways: what works in one works in the other."""
    if request.param == "served":
        connection = ibis.connect(f"alluvia://{request.getfixturevalue('served_url')}")
    else:
        connection = ibis.alluvia.connect(request.getfixturevalue("lake"))
    yield connection
    connection.disconnect()
