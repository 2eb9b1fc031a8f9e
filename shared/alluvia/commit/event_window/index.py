"""The window of event ids as a file for a checkpoint, `_alluvia/window/<version>.arrow`. Pure.

It is an Arrow file with a record batch for each run, of one row: the commits' versions and times in ms, and the run's
columns as they are searched, each a list. So opening it touches no id. Its metadata name the id files of commits that
do not carry their ids. Earlier versions of this library wrote a row for each commit: version, time and joined
fingerprints, without contents.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.event_window.id_files import decode_entries, encode_entries
from alluvia.commit.event_window.id_runs import COLUMNS, FINGERPRINT_BYTES, CommitIds, IdRun
from alluvia.commit.event_window.window import UNKNOWN, DedupWindow, WindowRules
from alluvia.errors import Corrupt

WINDOW_FOLDER = "_alluvia/window/"
_FILES = b"alluvia.files"
_NAME = re.compile(rf"^{WINDOW_FOLDER}(\d{{20}})\.arrow$")
_COMMITS = {"version": pa.list_(pa.int64()), "timestamp_ms": pa.list_(pa.int64())}
_SCHEMA = pa.schema(_COMMITS | {field.name: pa.list_(field.type) for field in COLUMNS})
_OLD_SCHEMA = pa.schema({"version": pa.int64(), "timestamp_ms": pa.int64(), "fingerprints": pa.binary()})


def index_name(version: int) -> str:
    """Path of the window's index at a checkpoint's version, below the table's root."""
    return f"{WINDOW_FOLDER}{version:020d}.arrow"


def index_version(path: str) -> int | None:
    """Return the version of an index by its path; None for another file."""
    match = _NAME.match(path)
    return int(match[1]) if match else None


def write_index(window: DedupWindow) -> bytes:
    """Return the window as an Arrow file, for opening the table from its checkpoint."""
    sink = pa.BufferOutputStream()
    files = encode_entries(window.files(()))
    schema = _SCHEMA.with_metadata({_FILES: orjson.dumps(files)}) if files else _SCHEMA
    with pa.ipc.new_file(sink, schema) as writer:
        for run in window.runs():
            commits = [pa.array(each, pa.int64()) for each in (run.versions, run.times_ms)]
            rows = [pa.ListArray.from_arrays([0, len(each)], each) for each in (*commits, *run.ids.columns)]
            writer.write_batch(pa.RecordBatch.from_arrays(rows, schema=schema))
    return sink.getvalue().to_pybytes()


def read_index(data: bytes, name: str, rules: WindowRules, version: int) -> DedupWindow:
    """Read the window at a version. Raises `Corrupt`, naming the file."""
    try:
        with pa.ipc.open_file(pa.BufferReader(data)) as file:
            batches = [file.get_batch(at) for at in range(file.num_record_batches)]
            schema = file.schema
        files = decode_entries(orjson.loads((schema.metadata or {}).get(_FILES, b"[]")))
        for batch in batches:
            batch.validate(full=True)  # reading checks no offsets: a value beyond its buffer would end the process
    except (pa.ArrowException, ValueError, KeyError, TypeError, OSError) as error:
        raise Corrupt(f"{name} cannot be read: {error}") from error
    if schema not in (_SCHEMA, _OLD_SCHEMA) or any(column.null_count for batch in batches for column in batch.columns):
        raise Corrupt(f"{name} cannot be read: its columns are not those of an index")
    if schema == _OLD_SCHEMA:
        window = DedupWindow(rules)
        for ids in (ids for batch in batches for ids in _old_entries(batch, name)):
            window.add(ids)
        window.version = version
        return window
    return DedupWindow(rules, version, [run for batch in batches for run in _runs(batch, name)], files)


def _runs(batch: pa.RecordBatch, name: str) -> Iterator[IdRun]:
    for at in range(batch.num_rows):
        versions, times_ms, *columns = (pc.list_flatten(column.slice(at, 1)) for column in batch.columns)
        lengths = {len(column) for column in columns}
        nulls = any(column.null_count for column in (versions, times_ms, *columns))
        if len(versions) != len(times_ms) or len(lengths) != 1 or nulls:
            raise Corrupt(f"{name} cannot be read: its columns are not of one length")
        ids = pa.RecordBatch.from_arrays(columns, schema=COLUMNS)
        if not len(ids) or pc.max(ids["commit"]).as_py() >= len(versions):
            raise Corrupt(f"{name} cannot be read: a run without ids, or an id without a commit")
        if pc.any(pc.less(ids["head"][1:], ids["head"][:-1])).as_py():
            raise Corrupt(f"{name} cannot be read: its ids are not sorted")
        yield IdRun(array("q", versions.to_pylist()), array("q", times_ms.to_pylist()), ids, borrowed=True)


def _old_entries(batch: pa.RecordBatch, name: str) -> Iterator[CommitIds]:
    for version, timestamp_ms, prints in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        count, rest = divmod(len(prints), FINGERPRINT_BYTES)
        if rest:
            raise Corrupt(f"{name} cannot be read: version {version} has {len(prints)} bytes of ids")
        yield CommitIds(version, timestamp_ms, prints, UNKNOWN * count)
