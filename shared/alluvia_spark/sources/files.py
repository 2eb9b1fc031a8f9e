"""Files of a source, and the bytes of them: every read is of the very content that the job's manifest names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from alluvia.backfill_jobs import FORMATS, ON_BAD_FILE
from alluvia.errors import Invalid, ObjectNotFound
from alluvia.store import Store
from alluvia.store.base import check_key
from alluvia_spark.sources.places import fixed_part

FETCH_BYTES = 8 << 20
MISSING_ETAG = '"missing"'
"""The ETag of a listed file that was missing when the job began. If it comes later, it has another ETag."""


class BadFile(Invalid):
    """A source file that cannot be read to its end. `position` is where what could be read of its text ends."""

    def __init__(self, name: str, why: str, position: int = 0) -> None:
        super().__init__(f"source file {name} {why}")
        self.name = name
        self.why = why
        self.position = position

    def __reduce__(self) -> tuple[type[BadFile], tuple[str, str, int]]:
        return BadFile, (self.name, self.why, self.position)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How a job's source is read.

    is_list: the source is a list of files (`file_lists`). format: of all files ("json", "csv", "parquet"); None if each
    tells. hive: whether the names of folders are fields of the events. on_bad_file: whether a file that is missing or
    damaged fails the job, or is a reject ("fail", "reject").
    """

    is_list: bool = False
    format: str | None = None
    hive: bool = False
    on_bad_file: str = "fail"

    def __post_init__(self) -> None:
        if self.format not in (None, *FORMATS):
            raise Invalid(f"format must be one of {', '.join(FORMATS)}, not {self.format!r}")
        if self.on_bad_file not in ON_BAD_FILE:
            raise Invalid(f"on_bad_file must be one of {', '.join(ON_BAD_FILE)}, not {self.on_bad_file!r}")

    @property
    def rows_depend_on(self) -> dict[str, object]:
        """Return what must be the same in every run of a job."""
        return {"is_list": self.is_list, "format": self.format, "hive": self.hive}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the source: where it is, its size in bytes (compressed, if it is), and its etag; "" if unknown."""

    root: str
    key: str
    size: int
    etag: str = ""

    @property
    def name(self) -> str:
        """The file's URI, for messages and as its identity."""
        return f"{self.root}{self.key}" if self.root.endswith("/") else f"{self.root}/{self.key}"


@dataclass(frozen=True, slots=True)
class FileSplit:
    """The lines that begin in bytes [start, end) of a file; or all of a file, of whatever format."""

    file: SourceFile
    start: int
    end: int

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its file."""
        return self.start == 0 and self.end >= self.file.size


def fetch(store: Store, file: SourceFile, start: int, end: int, beyond: int = 0) -> Iterator[bytes]:
    """Yield the bytes [start, end) of a file in pieces; the next one is requested while one is used.

    The last piece goes `beyond` the end by some bytes, if there are more. A file of up to `FETCH_BYTES` is one request.
    Raises `BadFile` if it is gone, `Invalid` if it has changed.
    """
    ranges = [(at, min(at + FETCH_BYTES, end)) for at in range(start, end, FETCH_BYTES)]
    if ranges:
        ranges[-1] = (ranges[-1][0], min(end + beyond, file.size))
    if len(ranges) > 1 and not file.etag:
        file = _tagged(store, file)
    return store.map_ahead(partial(_read, store, file), ranges)


def is_readable(key: str) -> bool:
    """Whether stores read objects of such a key: not of one with an empty part, `.` or `..`."""
    try:
        check_key(key)
    except Invalid:
        return False
    return True


def read_range(store: Store, file: SourceFile, start: int, end: int) -> bytes:
    """Return the bytes [start, end) of a file by one request. Raises as `fetch` does."""
    return _read(store, file, (start, end))


def _read(store: Store, file: SourceFile, bounds: tuple[int, int]) -> bytes:
    if not is_readable(file.key):
        odd = "has a key with an empty part, '.' or '..', which is not read"
        raise BadFile(file.name, "is a folder" if file.key.endswith("/") else odd)
    try:
        data = store.get_same(file.key, file.etag, *bounds) if file.etag else store.get(file.key, *bounds)
    except ObjectNotFound as error:
        is_pattern = file.etag == MISSING_ETAG and fixed_part(file.key) != file.key
        why = "is missing (a list names files; it takes no patterns)" if is_pattern else "is missing"
        raise BadFile(file.name, why) from error
    if data is None or len(data) != bounds[1] - bounds[0]:
        raise _changed(file)
    return data


def _tagged(store: Store, file: SourceFile) -> SourceFile:
    """Return a file of which no etag is known with that of now, so that its pieces are of one content."""
    info = store.head(file.key)
    if info is None:
        raise BadFile(file.name, "is missing")
    if info.size < file.size:
        raise _changed(file)
    return SourceFile(file.root, file.key, file.size, info.etag)


def _changed(file: SourceFile) -> Invalid:
    return Invalid(f"source file {file.name} has changed since the job began: start a job with another job_id")
