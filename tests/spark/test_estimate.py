from __future__ import annotations

import gzip
from array import array
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia_spark.backfill_job import estimate as estimates
from alluvia_spark.backfill_job.estimate import FileSample, estimate, estimated
from alluvia_spark.sources.files import SourceOptions
from alluvia_spark.sources.manifest import Manifest

COLUMNS = pa.schema([("text", pa.string())])


def _event(number: int, day: int) -> dict[str, object]:
    return {"event_id": f"e{number}", "ts": f"2026-01-{day:02}T00:00:00Z", "text": f"{number * 7919 % 10_007:x}" * 20}


def _fill(folder: Path, files: int) -> int:
    """Write files of 2,000 events and a broken line each, a day a file, in three formats, and return their bytes."""
    folder.mkdir()
    for at in range(files):
        events = [_event(at * 2000 + n, 1 + at) for n in range(2000)]
        lines = b"".join(orjson.dumps(event) + b"\n" for event in events) + b"{broken\n"
        if at % 3 == 0:
            (folder / f"{at:02}.ndjson").write_bytes(lines)
        elif at % 3 == 1:
            (folder / f"{at:02}.ndjson.gz").write_bytes(gzip.compress(lines))
        else:
            pq.write_table(pa.Table.from_pylist(events), folder / f"{at:02}.parquet", row_group_size=200)
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("sample_bytes", [1 << 20, 60_000])
def test_an_estimate_is_near_what_is_there(tmp_path: Path, sample_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "SAMPLE_BYTES", sample_bytes)
    size = _fill(tmp_path / "in", 6)
    lake = alluvia.connect(str(tmp_path / "lake"))
    table = lake.create_events("t", COLUMNS)
    found = estimate(lake.uri, "t", str(tmp_path / "in"), reading=SourceOptions())
    assert (found.source_files, found.source_bytes, found.sampled_files) == (6, size, 6)
    assert abs(found.rows - 12_000) <= (0 if sample_bytes > 60_000 else 1000)
    assert found.rejects == (4 if sample_bytes > 60_000 else 2)  # those at the ends of the gzip files
    assert found.partitions >= 6
    assert found.executors == 1
    assert found.dollars < 0.01
    assert table.version == 0
    assert {path.name for path in (tmp_path / "lake" / "t").iterdir()} == {"_delta_log"}


def test_a_table_that_does_not_exist_is_estimated_and_not_created(tmp_path: Path) -> None:
    _fill(tmp_path / "in", 1)
    assert estimate(str(tmp_path / "lake"), "t", str(tmp_path / "in"), reading=SourceOptions()).rows == 2000
    assert not (tmp_path / "lake").exists()


def _terabyte(samples: list[FileSample], target: int = 128 << 20) -> estimates.Estimate:
    files = Manifest("m", array("q", [10**9] * 1000), bytes(1000))
    return estimated(files, samples, target)


def test_events_without_an_id(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_bytes(b'{"no":"id"}\n{"event_id":"a"}\n{"no":"id"}\n')
    found = estimate(str(tmp_path / "lake"), "t", str(tmp_path / "in.ndjson"), reading=SourceOptions())
    assert (found.rows, found.rejects) == (3, 0)


def test_a_terabyte() -> None:
    """A billion events of a kilobyte: figures by hand."""
    days = [frozenset({day}) for day in range(32)]
    found = _terabyte([FileSample(10**9, 1e6, 2_000_000, 2000, 2, 200_000.0, day) for day in days])
    assert (found.text_bytes, found.rows, found.rejects, found.bytes) == (2 * 10**12, 2 * 10**9, 2_000_000, 2 * 10**11)
    assert found.partitions == 32 + 32 * 31 // 2  # each day was seen once, so there are many more
    assert found.files == 528 * 3  # 379 MB a day
    assert found.vcpu_hours == 27.778  # 2e12 / 20e6 / 3600
    assert (found.executors, found.disk_gb) == (15, 40)
    assert found.spark["spark.emr-serverless.executor.disk"] == "40g"
    # 27.778 * 0.052624 * 64/60 + 27.778 / 60 * (15 * 14 + 16) * 0.0057785 + 120,000 GET + 1,584 PUT
    assert found.dollars == pytest.approx(1.559 + 0.605 + 0.048 + 0.008, abs=0.006)


@pytest.mark.parametrize(
    ("text_bytes", "source_files", "expected"),
    [
        (2e12, 1000, (15, 40, 1)),
        (4.2e12, 1000, (15, 84, 1)),  # 1,260 GB, and 20 of the driver
        (4.3e12, 1000, (15, 84, 2)),
        (6e12, 1000, (15, 84, 2)),
        (1e12, 1, (4, 75, 1)),  # a small file that inflates
        (0.6e12, 1, (4, 45, 1)),
        (2e12, 1, (4, 150, 1)),
        (4e12, 1, (6, 200, 1)),
    ],
)
def test_disks_are_no_larger_than_a_worker_and_the_application_may_have(
    text_bytes: float, source_files: int, expected: tuple[int, int, int]
) -> None:
    files = Manifest("m", array("q", [10**9] * source_files), bytes(source_files))
    inflated = text_bytes / files.bytes
    found = estimated(files, [FileSample(10**9, 1e6, round(inflated * 1e6), 1, 0, 1.0, frozenset())], 128 << 20)
    assert (found.executors, found.disk_gb, found.jobs) == expected
    assert found.executors * found.disk_gb + estimates.DISK_GB_MIN <= estimates.APPLICATION_DISK_GB


def test_days_that_all_samples_have_are_all_there_are() -> None:
    both = frozenset({"a", "b"})
    found = _terabyte([FileSample(10**6, 1e6, 10**6, 1000, 0, 100.0, both)] * 4)
    assert (found.partitions, found.files) == (2, 2)


def test_many_small_days_share_files() -> None:
    found = _terabyte([FileSample(10**6, 1e6, 10**6, 1000, 0, 100.0, frozenset(range(400)))] * 2)
    assert (found.partitions, found.bytes, found.files) == (400, 10**8, 1)
