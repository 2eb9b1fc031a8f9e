"""The identities of a job's rows, as its tasks leave them for the commit: sorted by range of fingerprints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.table.event_window.id_runs import FINGERPRINT_BYTES, HEAD_BYTES
from alluvia.table.event_window.window import encode_event_ids
from alluvia_spark import scratch
from alluvia_spark.chunks import CONTENT, HEAD, PLAIN, TAIL, decode, encode
from alluvia_spark.job import Job
from alluvia_spark.repeats import divided


def put_ids(job: Job, number: int, ids: pa.Table) -> None:
    """Keep the identities and contents of the rows of one range."""
    scratch.put(job, _name(number), encode(ids, PLAIN))


def holds_any(job: Job, ranges: int, prints: bytes) -> bool:
    """Whether one of some joined fingerprints is that of a row of the job. Reads one range at a time."""
    wanted = split_prints(prints)
    for number, part in divided(wanted, ranges):
        ids = decode(scratch.get(job, _name(number)))
        near = ids.filter(pc.is_in(ids[HEAD], part[HEAD].combine_chunks()))
        if not set(_pairs(near)).isdisjoint(_pairs(part)):
            return True
    return False


def commit_info(job: Job, ranges: int) -> dict[str, str]:
    """Return the identities of all of a job's rows as a commit carries them."""
    parts = [decode(scratch.get(job, _name(number))) for number in range(ranges)]
    found = [each for part in parts for each in zip(*_texts(part), strict=True)]
    return encode_event_ids([each for each, _ in found], [each for _, each in found]) if found else {}


def split_prints(prints: bytes) -> pa.Table:
    """Return joined fingerprints as the columns `HEAD` and `TAIL`."""
    count = len(prints) // FINGERPRINT_BYTES
    found = pa.Array.from_buffers(pa.binary(FINGERPRINT_BYTES), count, [None, pa.py_buffer(prints)])
    heads = pc.binary_slice(found, 0, HEAD_BYTES).view(pa.uint64())
    return pa.table({HEAD: heads, TAIL: pc.binary_slice(found, HEAD_BYTES, FINGERPRINT_BYTES).view(pa.uint32())})


def _pairs(ids: pa.Table) -> Iterator[tuple[int, int]]:
    return zip(ids[HEAD].to_pylist(), ids[TAIL].to_pylist(), strict=True)


def _texts(ids: pa.Table) -> tuple[list[bytes], list[bytes]]:
    order: Literal["little"] = "little"
    prints = [head.to_bytes(HEAD_BYTES, order) + tail.to_bytes(4, order) for head, tail in _pairs(ids)]
    return prints, [content.to_bytes(4, order) for content in ids[CONTENT].to_pylist()]


def _name(number: int) -> str:
    return f"ids/{number}.arrow"
