from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import alluvia
from alluvia.api.lake import Lake
from alluvia.store import PutResult, Store, Wrapper
from alluvia_spark.backfill_job import data_files
from alluvia_spark.backfill_job.data_files import Rows, write_rows
from alluvia_spark.backfill_job.job import ROWS, Written
from alluvia_spark.backfill_job.plan import Group
from alluvia_spark.chunks import encode
from tests.contract.workers import events
from tests.spark.jobs import job_of


class Interrupted(Wrapper):
    """Does something once, before a mark is put."""

    def __init__(self, inner: Store, act: Callable[[], None]) -> None:
        super().__init__(inner)
        self.act: Callable[[], None] | None = act

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        act, self.act = self.act, None
        if act is not None:
            act()
        return super().put_if_absent(key, data)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = alluvia.connect(str(tmp_path / "lake"))
    lake.create_events("t", partition_by=())
    return lake


def _rows(lake: Lake) -> list[Rows]:
    rows = events(lake.table("t").snapshot().schema, ["a", "b"])
    return [Rows(0, 0, ((Group(ROWS, ""), len(rows)),), encode(rows))]


def _files(lake: Lake) -> list[str]:
    return [info.key for info in lake.store.list("t/") if info.key.endswith(".parquet")]


def _named(written: list[Written]) -> list[str]:
    return [f"t/{file.path}" for each in written for file in each.files]


def test_of_two_tasks_at_once_with_the_same_rows_both_go_by_the_first_mark(lake: Lake) -> None:
    """As a speculative task and the one that it was started for, or two runs of a job."""
    first: list[Written] = []
    store = Interrupted(lake.store, lambda: first.extend(write_rows(job_of(lake, "t"), _rows(lake))))
    later = write_rows(job_of(lake, "t", stores=lambda *_, **__: store), _rows(lake))
    assert _named(later) == _named(first)
    assert len(_files(lake)) == 2
    assert write_rows(job_of(lake, "t"), _rows(lake)) == first


def test_files_that_vacuum_may_take_soon_are_written_again_and_marked(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write_rows(job_of(lake, "t"), _rows(lake))
    with monkeypatch.context() as patch:
        patch.setattr(data_files, "REUSE_AGE_MS_MAX", -1_000)
        again = write_rows(job_of(lake, "t"), _rows(lake))
    assert not set(_named(again)) & set(_named(old))
    assert write_rows(job_of(lake, "t"), _rows(lake)) == again
