"""A large file in parts: the time and the memory that it takes to store it, by its format.

The parts lie in a directory; they are gathered into a file, its types are inferred, and it is committed. Parquet and
NDJSON are compared with a bare read of the file whose rows pyarrow writes as Parquet, and Parquet with deltalake too.
Figures include the processes that read files.
"""

from __future__ import annotations

import json
import random
import tempfile
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
REPEATS = 3
BARE_MAX = {"parquet": 2.2, "ndjson": 2.8}
"""Limit for a file of 100 MiB, as a multiple of the CPU of a bare read and write."""
FILE_PEAK_BYTES_MAX = 400_000_000
"""Memory that storing such a file may take."""
BARE_MEGABYTES = 100
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
    return found + [figure for kind in BARE_MAX for figure in _compared(folder / f"bare-{kind}", kind)]


def _compared(place: Path, kind: str) -> list[Figure]:
    """Compare storing a file with a bare read and write of it."""
    place.mkdir(parents=True)
    file = place / f"file.{kind}"
    rows = _written(file, kind, BARE_MEGABYTES << 20)
    named = {"path": str(file), "kind": kind}
    sides = {"ours": "store_file", "bare": "bare"} | ({"deltalake": "store_deltalake"} if kind == "parquet" else {})
    runs = in_processes({side: (f"benchmarks.uploads:{name}", named) for side, name in sides.items()}, REPEATS)
    assert {run.answer for run in runs.values()} == {rows}
    found = []
    for side in [side for side in sides if side != "ours"]:
        ratio = runs["ours"].cpu_seconds / runs[side].cpu_seconds
        is_bare = side == "bare"
        found.append(
            Figure(f"store {BARE_MEGABYTES} MiB of {kind}, {rows:,} rows: CPU, compared with {side}",
                   f"{runs['ours'].cpu_seconds:.2f} s, {megabytes(runs['ours'].peak_bytes)}",
                   f"{runs[side].cpu_seconds:.2f} s, {megabytes(runs[side].peak_bytes)}", ratio,
                   bar=f"at most {BARE_MAX[kind]:g}" if is_bare else "",
                   holds=ratio <= BARE_MAX[kind] if is_bare else None)
        )  # fmt: skip
    peak = runs["ours"].peak_bytes
    found.append(
        Figure(f"its memory, {BARE_MEGABYTES} MiB of {kind}", megabytes(peak), megabytes(runs["bare"].peak_bytes),
               bar=f"at most {megabytes(FILE_PEAK_BYTES_MAX)}", holds=peak <= FILE_PEAK_BYTES_MAX)
    )  # fmt: skip
    return found


def store_file(path: str, kind: str) -> Timed:
    """Store a file in a new lake beside it, and return how many rows the table has."""
    from alluvia.files.limits import UNLIMITED
    from alluvia.files.sent import SentFile
    from alluvia.files.uploads.storing import Upload
    from alluvia.files.uploads.storing import store as store_sent
    from alluvia.processes.reading import READERS

    lake = alluvia.connect(tempfile.mkdtemp(dir=Path(path).parent))
    started = SentFile(b'{"a":1}\n', "ndjson", UNLIMITED)
    store_sent(lake.catalog, Upload("loaded", started))  # loaded before the time is taken

    def timed() -> int:
        store_sent(lake.catalog, Upload("t", SentFile(Path(path), kind, UNLIMITED)))
        READERS.close()
        return lake.table("t").count()

    return timed


def bare(path: str, kind: str) -> Timed:
    """Read a file as it comes, write its rows as Parquet, and return how many there are."""
    import pyarrow.json

    def timed() -> int:
        if kind == "ndjson":
            table = pyarrow.json.read_json(pa.BufferReader(Path(path).read_bytes()))
            pq.write_table(table, f"{path}.out", compression="zstd")
            return len(table)
        file = pq.ParquetFile(path)
        with pq.ParquetWriter(f"{path}.out", file.schema_arrow, compression="zstd") as writer:
            for batch in file.iter_batches():
                writer.write_batch(batch)
        return file.metadata.num_rows

    return timed


def store_deltalake(path: str, kind: str) -> Timed:  # noqa: ARG001 - all sides are called alike
    """Write the rows of a Parquet file into a new table of deltalake's, and return how many it has."""
    from deltalake import DeltaTable, write_deltalake

    place = tempfile.mkdtemp(dir=Path(path).parent)

    def timed() -> int:
        file = pq.ParquetFile(path)
        rows: Any = pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
        write_deltalake(place, rows)
        return sum(pa.table(DeltaTable(place).get_add_actions())["num_records"].to_pylist())

    return timed


def store(place: str) -> Timed:
    """Store the one upload of a lake, and return how many rows its table has."""
    from alluvia.files.limits import FileLimits
    from alluvia.files.sent import SentFile
    from alluvia.files.uploads import parts
    from alluvia.files.uploads.storing import Upload
    from alluvia.files.uploads.storing import store as store_file
    from alluvia.operations.results.upload_parts import UPLOADS
    from alluvia.processes.reading import READERS

    lake = alluvia.connect(place)
    [upload_id] = lake.store.list_folders(f"{UPLOADS}t/")
    upload = parts.find(lake.store, lake.clock, "t", upload_id)

    def timed() -> Any:
        with parts.gathered(lake.store, parts.complete_parts(lake.store, upload)) as (path, _):
            store_file(lake.catalog, Upload("t", SentFile(path, upload.asked["format"], FileLimits(bytes_max=4 << 30))))
        READERS.close()
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
