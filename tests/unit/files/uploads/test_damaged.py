"""Damaged files are refused, whatever is wrong with them, and leave no table."""

from __future__ import annotations

import gzip
import io

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.files.limits import FileLimits
from alluvia.files.sent import SentFile
from alluvia.files.uploads.storing import Stored, Upload, store
from alluvia.store import MemoryStore

TABLE = pa.table({"a": [1, 2, None] * 9, "s": ["x", "yy", None] * 9, "l": [["p"], [], None] * 9, "t": [{"q": 1}] * 27})


def parquet(codec: str, version: str, *, dictionaries: bool) -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, compression=codec, data_page_version=version, use_dictionary=dictionaries)
    return sink.getvalue()


FILES = [
    ("parquet", parquet("snappy", "1.0", dictionaries=True)),
    ("parquet", parquet("gzip", "2.0", dictionaries=False)),
    ("csv", b'a,b,c\n1,"x,y",2026-01-01\n2,"a""b",\n'),
    ("csv", gzip.compress(b"a,b\n1,2\n" * 9, mtime=0)),
    ("ndjson", b'{"a":1,"b":{"c":[1,2]},"d":"x"}\n' * 5),
    ("ndjson", b'[{"a":1.5},{"a":null}]'),
]
DAMAGE = st.lists(st.tuples(st.floats(0, 0.999), st.sampled_from((0, 1, 9)), st.binary(max_size=4)), max_size=4)


@settings(max_examples=150)
@given(st.sampled_from(FILES), DAMAGE)
def test_a_damaged_file(file: tuple[str, bytes], damage: list[tuple[float, int, bytes]]) -> None:
    """It is stored, if it still is a file, or refused; nothing else, and not halfway."""
    kind, data = file
    for place, length, put in damage:
        at = int(place * len(data))
        data = data[:at] + put + data[at + length :]
    clock = ManualClock()
    lake = Lake(MemoryStore("damaged", clock), clock)
    try:
        done = store(lake.catalog, Upload("t", SentFile(data, kind, FileLimits(bytes_max=1 << 20))))
    except Invalid:
        assert lake.tables() == []
    else:
        assert isinstance(done, Stored)
        assert lake.table("t").count() == done.rows
