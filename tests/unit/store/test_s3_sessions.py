"""Connections to S3 share what is slow to read, and nothing else."""

from __future__ import annotations

from alluvia.clock import ManualClock
from alluvia.store.s3 import S3Store


def connect(number: int) -> S3Store:
    return S3Store(
        "bucket", "", ManualClock(), region="eu-central-1", access_key_id=f"key {number}", secret_access_key="s"
    )


def test_stores_share_the_models_of_services_but_no_credentials() -> None:
    stores = [connect(number) for number in range(4)]
    loaders = [store._session._session.get_component("data_loader") for store in stores]
    assert len({id(loader) for loader in loaders}) == 1
    assert len(loaders[0].search_paths) == len(set(loaders[0].search_paths)) + 1  # of the newest session, once more
    keys = [secret["key_id"] for store in stores if (secret := store.duckdb_secret()) is not None]
    assert keys == ["key 0", "key 1", "key 2", "key 3"]
