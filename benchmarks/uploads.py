"""A large file in parts: the time and the memory that it takes to store it, by its format.

The parts lie in a directory; they are gathered into a file, its types are inferred, and it is committed.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import alluvia
from benchmarks.measure import in_processes, megabytes
from benchmarks.report import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.child import Timed
    from tests.s3server import S3Server

MEGABYTES = {"csv": 1024, "ndjson": 256, "parquet": 256}
PART_BYTES = 32 << 20
ROWS = 20_000
PEAK_BYTES_MAX = 1_500_000_000
SECONDS_MAX = 450
"""Half of the time of a function, for 1 GiB."""


def figures(server: S3Server, folder: Path) -> list[Figure]:  # noqa: ARG001 - all parts are called alike
    """Measure a file of each format."""
    found = []
    for kind, size in MEGABYTES.items():
        place = folder / kind
        rows = _begun(place, kind, size << 20)
        run = in_processes({kind: ("benchmarks.uploads:store", {"place": str(place)})}, 1)[kind]
        assert run.answer == rows
        per_gib = run.cpu_seconds * 1024 / size
        found += [
            Figure(f"store {size} MiB of {kind} in parts, {rows:,} rows", f"{run.seconds:.0f} s",
                   f"CPU seconds for 1 GiB: {per_gib:.0f}", bar=f"at most {SECONDS_MAX} CPU seconds for 1 GiB",
                   holds=per_gib <= SECONDS_MAX),
            Figure(f"its memory, {kind}", megabytes(run.peak_bytes), bar=f"at most {megabytes(PEAK_BYTES_MAX)}",
                   holds=run.peak_bytes <= PEAK_BYTES_MAX),
        ]  # fmt: skip
    return found


def store(place: str) -> Timed:
    """Store the one upload of a lake, and return how many rows its table has."""
    from alluvia.files.limits import FileLimits
    from alluvia.files.sent import SentFile
    from alluvia.files.uploads import parts
    from alluvia.files.uploads.storing import Upload
    from alluvia.files.uploads.storing import store as store_file
    from alluvia.operations.results.upload_parts import UPLOADS

    lake = alluvia.connect(place)
    [upload_id] = lake.store.list_folders(f"{UPLOADS}t/")
    upload = parts.find(lake.store, lake.clock, "t", upload_id)

    def timed() -> Any:
        with parts.gathered(lake.store, parts.complete_parts(lake.store, upload)) as (path, _):
            store_file(lake.catalog, Upload("t", SentFile(path, upload.asked["format"], FileLimits(bytes_max=4 << 30))))
        return lake.table("t").count()

    return timed


def _begun(place: Path, kind: str, size: int) -> int:
    """Put the parts of a file of about that size into a lake, and return how many rows it has."""
    from alluvia.files.uploads import parts

    file = place / "file"
    place.mkdir(parents=True)
    rows = _written(file, kind, size)
    lake = alluvia.connect(str(place))
    upload = parts.begin(lake.store, lake.clock, "t", -(-file.stat().st_size // PART_BYTES), None, {"format": kind})
    with file.open("rb") as source:
        for part in range(1, upload.parts + 1):
            lake.store.put(upload.part_key(part), source.read(PART_BYTES))
    file.unlink()
    return rows


def _written(file: Path, kind: str, size: int) -> int:
    rows = 0
    if kind == "parquet":
        batches = _batches()
        first = next(batches)
        with pq.ParquetWriter(file, first.schema) as writer:
            while file.stat().st_size < size:
                writer.write_batch(first)
                rows, first = rows + len(first), next(batches)
        return rows
    with file.open("w") as text:
        for batch in _batches():
            if kind == "csv" and not rows:
                text.write(",".join(batch.schema.names) + "\n")
            values = [column.to_pylist() for column in batch.columns]
            for row in zip(*values, strict=True):
                record = json.dumps(dict(zip(batch.schema.names, row, strict=True)))
                text.write(record if kind == "ndjson" else ",".join(map(str, row)))
                text.write("\n")
            rows += len(batch)
            if text.tell() >= size:
                return rows
    raise AssertionError("batches never end")


def _batches() -> Iterator[pa.RecordBatch]:
    chance = random.Random(40)
    words = [f"w{chance.getrandbits(24):06x}" for _ in range(5000)]
    start = 0
    while True:
        numbers = range(start, start + ROWS)
        yield pa.RecordBatch.from_pydict(
            {
                "id": list(numbers),
                "at": [f"2026-11-{1 + at % 28:02}T{at % 24:02}:{at % 60:02}:00Z" for at in numbers],
                "page": [words[at * 7 % 5000] for at in numbers],
                "price": [round(chance.random() * 100, 2) for _ in numbers],
                "session": [f"{chance.getrandbits(40):x}" for _ in numbers],
            }
        )
        start += ROWS
