from __future__ import annotations

import pytest

from alluvia.backfill_jobs import check_job_id
from alluvia.clock import ManualClock
from alluvia.errors import AnswerLost, CommitUnknown, Corrupt, Invalid
from alluvia.store import MemoryStore, PutResult
from alluvia_spark.backfill import DEFAULT
from alluvia_spark.backfill_job.record import Record, obtain
from alluvia_spark.sources.files import SourceOptions
from alluvia_spark.sources.manifest import Manifest, file_page, write_manifest
from alluvia_spark.sources.places import Found

FILES = [file_page(Found(["s3://bucket"] * 2, ["a.gz", "b"], [5, 7], ["x", "y"]), [False, True])]
OPTIONS = SourceOptions().rows_depend_on
KEY = "events/_alluvia/backfill/job.json"


def _obtain(
    store: MemoryStore,
    source: str = "s3://bucket/",
    clock: int = 1,
    schema: str = "s",
    reading: SourceOptions = DEFAULT,
) -> tuple[Record, Manifest]:
    return obtain(
        store,
        ManualClock(clock),
        "events/",
        "job",
        source=source,
        schema=schema,
        table_id="i",
        reading=reading,
        list_files=lambda: FILES,
    )


def test_a_later_run_gets_the_first_runs_record() -> None:
    store = MemoryStore()
    first, files = _obtain(store)
    assert _obtain(store, clock=2, schema="t") == (first, files)
    assert first == Record("s3://bucket/", 1, "s", files.key, "i", OPTIONS)
    assert (files.key.startswith("events/_alluvia/backfill/job/"), list(files.sizes)) == (True, [5, 7])
    assert {info.key for info in store.list("")} == {KEY, files.key}


def test_the_loser_of_a_race_goes_by_the_winners_record() -> None:
    class Late(MemoryStore):
        def put_if_absent(self, key: str, data: bytes) -> PutResult:
            write_manifest(self, "theirs", [FILES[0].slice(1)])
            super().put_if_absent(key, Record("s3://bucket/", 9, "u", "theirs", "i", OPTIONS).to_json())
            return super().put_if_absent(key, data)

    record, files = _obtain(Late())
    assert record == Record("s3://bucket/", 9, "u", "theirs", "i", OPTIONS)
    assert (files.key, list(files.sizes), files.cut) == ("theirs", [7], b"\1")


def test_a_lost_answer_is_settled_by_reading_back() -> None:
    class Lossy(MemoryStore):
        def put_if_absent(self, key: str, data: bytes) -> PutResult:
            super().put_if_absent(key, data)
            raise AnswerLost("lost")

    record, files = _obtain(Lossy())
    assert record == Record("s3://bucket/", 1, "s", files.key, "i", OPTIONS)


def test_a_write_of_which_nothing_is_heard_is_reported() -> None:
    class Down(MemoryStore):
        def put_if_absent(self, key: str, data: bytes) -> PutResult:
            raise AnswerLost("lost")

    with pytest.raises(CommitUnknown, match="the record of job job"):
        _obtain(Down())


def test_a_write_that_did_not_happen_at_first_is_sent_again() -> None:
    class Slow(MemoryStore):
        tries = 0

        def put_if_absent(self, key: str, data: bytes) -> PutResult:
            self.tries += 1
            if self.tries < 3:
                raise AnswerLost("lost")
            return super().put_if_absent(key, data)

    store = Slow()
    assert _obtain(store) == _obtain(store, clock=2)
    assert store.tries == 3


def test_a_job_id_belongs_to_one_source() -> None:
    store = MemoryStore()
    _obtain(store)
    with pytest.raises(Invalid, match="belongs to the source 's3://bucket/'"):
        _obtain(store, "s3://other/")


def test_a_job_id_belongs_to_one_way_of_reading() -> None:
    store = MemoryStore()
    _obtain(store)
    _obtain(store, reading=SourceOptions(on_bad_file="reject"))  # after a run that a bad file failed
    with pytest.raises(Invalid, match="choose another job id"):
        _obtain(store, reading=SourceOptions(hive=True))


def test_a_damaged_record_is_named() -> None:
    store = MemoryStore()
    store.put(KEY, b"{}")
    with pytest.raises(Corrupt, match=KEY):
        _obtain(store)


@pytest.mark.parametrize("job_id", ["", "a/b", "..", ".a", "a b", "x" * 129])
def test_job_ids_that_cannot_be_part_of_a_key(job_id: str) -> None:
    with pytest.raises(Invalid, match="job_id"):
        check_job_id(job_id)
