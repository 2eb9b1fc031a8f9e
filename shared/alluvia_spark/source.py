"""What a job reads: the files that a source names, and the pieces of them that its tasks take.

The files are read through Alluvia's own stores and not through Hadoop's s3a, which the Spark wheel does not hold: so no
jars are downloaded, the lake's credentials and endpoint serve for the source too, and a line's place in its file, on
which the identity of an event without an id rests, is known exactly.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from alluvia.clock import Clock
from alluvia.errors import Invalid
from alluvia.store import Store, open_store

_LOCAL = "file:///"
OPEN_COST_BYTES = 256 * 1024
GZIP_SUFFIXES = (".gz", ".gzip")
_OTHER_FORMATS = (".bz2", ".zst", ".xz", ".zip", ".lz4", ".snappy", ".parquet", ".avro", ".orc", ".csv", ".tar", ".tgz")
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the source: where it is, and its size in bytes (compressed, if it is)."""

    root: str
    key: str
    size: int

    @property
    def name(self) -> str:
        """The file's URI, for messages and as its identity."""
        return f"{self.root}{self.key}" if self.root.endswith("/") else f"{self.root}/{self.key}"

    @property
    def is_gzip(self) -> bool:
        """Whether the file is gzip: by its name."""
        return self.key.endswith(GZIP_SUFFIXES)


@dataclass(frozen=True, slots=True)
class FileSplit:
    """The lines that begin in bytes [start, end) of a file. A gzip file is one split, entered at its start."""

    file: SourceFile
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SourceUri:
    """Where to look: a store's URI, and in it a key, a folder, or a pattern of keys."""

    root: str
    path: str

    @property
    def fixed(self) -> str:
        """The part of the path before its first wildcard, cut after a slash: what a listing can start from."""
        found = _GLOB.search(self.path)
        return self.path if found is None else self.path[: self.path.rfind("/", 0, found.start()) + 1]


def parse(source: str) -> SourceUri:
    """Understand `s3://bucket/key`, `s3a://…`, `file:///path` or a path; raise `Invalid` for anything else."""
    scheme, separator, _ = source.partition("://")
    if not separator:
        return _local(source)
    if scheme == "file":
        return _local(unquote(urlsplit(source).path))
    bucket, _, path = source[len(scheme) + 3 :].partition("/")
    if scheme not in ("s3", "s3a", "s3n") or not bucket or not path:
        raise Invalid(f"source {source!r} must be s3://bucket/path, s3a://bucket/path, file:///path, or a path")
    return SourceUri(f"s3://{bucket}", path)


def _local(path: str) -> SourceUri:
    if not path:
        raise Invalid("source is empty: give a file, a directory, a glob or an s3 URI")
    absolute = Path(path).expanduser().resolve()
    return SourceUri(_LOCAL, absolute.as_posix().lstrip("/"))


def expand(source: str, clock: Clock, **options: str) -> list[SourceFile]:
    """List the files of a source, in key order; raise `Invalid` if there is none, or one in a format that is not read.

    In a directory, files are taken at any depth; a wildcard stays within one level. Names that start with `.` or `_`
    below the fixed part are left out, as Hadoop does. Empty files are left out.
    """
    where = parse(source)
    store = open_store(where.root, clock, **(options if where.root.startswith("s3:") else {}))
    found = [SourceFile(where.root, key, size) for key, size in _listing(store, where) if size]
    for file in found:
        if file.key.lower().endswith(_OTHER_FORMATS):
            raise Invalid(f"source file {file.name} is not NDJSON (plain or .gz)")
    if not found:
        raise Invalid(f"source {source!r} matches no file, or only empty ones")
    return found


def _listing(store: Store, where: SourceUri) -> Iterable[tuple[str, int]]:
    exact = None if where.path.endswith("/") or _is_folder(where) else store.head(where.path)
    if exact is not None:
        return [(where.path, exact.size)]
    if where.fixed == where.path:
        folder = where.path.rstrip("/") + "/"
        return [(info.key, info.size) for info in store.list(folder) if not _hidden(info.key[len(folder) :])]
    return [(info.key, info.size) for info in store.list(where.fixed) if matches(where.path, info.key, where.fixed)]


def _is_folder(where: SourceUri) -> bool:
    return where.root == _LOCAL and Path("/", where.path).is_dir()


def matches(pattern: str, key: str, fixed: str) -> bool:
    """Tell whether a key fits a pattern, level by level, or is in a folder that does."""
    wanted, have = pattern.rstrip("/").split("/"), key.split("/")
    if len(have) < len(wanted) or _hidden(key[len(fixed) :]):
        return False
    return all(fnmatch.fnmatchcase(part, form) for part, form in zip(have, wanted, strict=False))


def _hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in PurePosixPath(path).parts)


def plan_splits(files: Sequence[SourceFile], split_bytes: int) -> list[tuple[FileSplit, ...]]:
    """Divide files among tasks of about `split_bytes`: big plain files are cut, small files go together, order kept."""
    tasks: list[tuple[FileSplit, ...]] = []
    pending: list[FileSplit] = []
    pending_bytes = 0
    for split in _cut(files, split_bytes):
        cost = split.end - split.start + OPEN_COST_BYTES
        if pending and pending_bytes + cost > split_bytes + OPEN_COST_BYTES:
            tasks.append(tuple(pending))
            pending, pending_bytes = [], 0
        pending.append(split)
        pending_bytes += cost
    if pending:
        tasks.append(tuple(pending))
    return tasks


def _cut(files: Sequence[SourceFile], split_bytes: int) -> Iterable[FileSplit]:
    for file in files:
        if file.is_gzip or file.size <= split_bytes:
            yield FileSplit(file, 0, file.size)
            continue
        parts = -(-file.size // split_bytes)
        bounds = [file.size * part // parts for part in range(parts + 1)]
        yield from (FileSplit(file, start, end) for start, end in pairwise(bounds))
