"""What dbt's suite runs on: a lake of its own for each class, or one server for all, whose callers have tokens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import alluvia
from tests.access import grant, token
from tests.serving import serving

OVER_HTTP = os.environ.get("ALLUVIA_DBT_OVER") == "url"


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server, and a token that may read, append to, change and create every table."""
    folder = tmp_path_factory.mktemp("served")
    lake = alluvia.connect(folder / "lake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.delenv("PYTHONPATH")  # the server has the library's own packages, not dbt's
        rights = token(lake, *(grant(f"{operation}:*") for operation in ("read", "append", "write", "admin")))
        with serving(folder / "lake", "--auth", "tokens", "--allow-writes", quiet=True) as (_, port):
            yield {"url": f"http://127.0.0.1:{port}", "token": rights}


@pytest.fixture(scope="class")
def dbt_profile_target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    lake = request.getfixturevalue("served") if OVER_HTTP else {"path": str(tmp_path_factory.mktemp("lake"))}
    return {"type": "alluvia", "threads": 4, **lake}
