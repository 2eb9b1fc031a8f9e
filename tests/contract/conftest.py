from __future__ import annotations

from pathlib import Path

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import SystemClock
from alluvia.store import CountingStore, open_store
from tests.s3server import S3Server

for module in ("keys_and_listings", "logs_of_others", "many_objects", "one_object"):
    pytest.register_assert_rewrite(f"tests.contract.{module}")  # their assertions explain themselves too

STORES = ["memory", "directory", "s3"]


@pytest.fixture(params=STORES)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A lake in each kind of store, with its requests counted."""
    return new_lake(request, str(request.param), tmp_path)


@pytest.fixture(params=["directory", "s3"])
def shared_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A lake that several processes can open."""
    return new_lake(request, str(request.param), tmp_path)


def new_lake(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Lake:
    clock = SystemClock()
    options: dict[str, str] = {}
    uri = str(tmp_path / "lake")
    if kind == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        server.inject()
        uri, options = f"s3://{server.new_bucket()}/lake", server.options
    elif kind == "memory":
        uri = f"memory://{tmp_path}"
    return Lake(CountingStore(open_store(uri, clock, **options)), clock)
