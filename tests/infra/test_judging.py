"""The server of tests refuses what the policies of the stack deny, request by request: see `judging.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from alluvia.clock import SystemClock
from alluvia.errors import StoreRefused
from alluvia.store import Store, open_store
from tests.infra.policies import LakePolicies
from tests.s3server import S3Server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("layers")]
DATA, CHECKPOINT = "t/part-0.parquet", "t/_delta_log/00000000000000000010.checkpoint.parquet"
LARGE = [b"x" * (9 << 20)]


@pytest.fixture
def opened(s3_server: S3Server, policies: LakePolicies) -> Callable[[str], Store]:
    """The lake, as the role of a function or (`ada`) a person opens it."""
    s3_server.inject()
    bucket = s3_server.new_bucket()
    s3_server.judge(bucket, *policies)
    s3_server.denials()
    return lambda role: open_store(f"s3://{bucket}/lake", SystemClock(), **s3_server.options | {"access_key_id": role})


@pytest.mark.parametrize("role", ["Commit", "Merge", "Sql", "Upload", "Vacuum", "Job", "Upkeep"])
@pytest.mark.parametrize("key", [DATA, CHECKPOINT])
def test_no_role_writes_over_data(opened: Callable[[str], Store], s3_server: S3Server, role: str, key: str) -> None:
    store = opened(role)
    store.put_new(key, b"rows")
    blind: tuple[Callable[[], object], ...] = (
        lambda: store.put(key, b"other"),
        lambda: store.put_parts(key, LARGE, {}),
    )
    for write in blind:
        with pytest.raises(StoreRefused, match="AccessDenied"):
            write()
        assert s3_server.denials() == [f"{role} may not s3:PutObject lake/{key}"]
    assert store.get(key) == b"rows"
    data, tag = store.get_tagged(key)
    assert store.put_if_same(key, data + b" and more", tag)
    store.copy(key, "t/part-1.parquet")
    assert s3_server.denials() == []


def test_records_are_written_again_and_large_results_in_parts(opened: Callable[[str], Store]) -> None:
    for _ in range(2):
        opened("Merge").put("t/_delta_log/_last_checkpoint", b"{}")
        opened("Query").put_parts("_alluvia/results/large/x.csv", LARGE, {})


def test_a_role_deletes_and_reads_what_it_may(opened: Callable[[str], Store], s3_server: S3Server) -> None:
    opened("ada").put(DATA, b"rows")
    with pytest.raises(StoreRefused):
        opened("Merge").delete([DATA, "t/part-1.parquet"])
    assert s3_server.denials()[0] == f"Merge may not s3:DeleteObject lake/{DATA}"
    assert [info.key for info in opened("Merge").list("t/")] == [DATA]
    opened("Vacuum").delete([DATA])
    assert opened("Query").head(DATA) is None
    with pytest.raises(StoreRefused):
        opened("Backfill").get(DATA)
    assert s3_server.denials() == [f"Backfill may not s3:GetObject lake/{DATA}"]


def test_people_are_held_by_the_policy_of_the_bucket_alone(opened: Callable[[str], Store], s3_server: S3Server) -> None:
    store = opened("ada")
    store.put(DATA, b"rows")
    store.put("_alluvia/sources.toml", b"")
    with pytest.raises(StoreRefused):
        store.put("t/_delta_log/00000000000000000000.json", b"")
    assert s3_server.denials() == ["ada may not s3:PutObject lake/t/_delta_log/00000000000000000000.json"]
