"""What a source names: a file, a folder or a pattern, in a directory or on S3.

The files are read through Alluvia's own stores and not through Hadoop's s3a, which the Spark wheel does not hold: so no
jars are downloaded, the lake's credentials and endpoint serve for the source too, and a line's place in its file, on
which the identity of an event without an id rests, is known exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from alluvia.clock import Clock
from alluvia.errors import Invalid
from alluvia.store import ListedPage, Store, open_store
from alluvia_spark.files import SourceFile
from alluvia_spark.globs import compiled, fixed_part
from alluvia_spark.manifest import file_page

_LOCAL = "file:///"
_GZIP_SUFFIXES = (".gz", ".gzip")
_OTHER_FORMATS = (".bz2", ".zst", ".xz", ".zip", ".lz4", ".snappy", ".parquet", ".avro", ".orc", ".csv", ".tar", ".tgz")
_HIDDEN = re.compile(r"(?:^|(?<=/))[._]")


@dataclass(frozen=True, slots=True)
class SourceUri:
    """Where to look: a store's URI, and in it a key, a folder, or a pattern of keys."""

    root: str
    path: str


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


def list_files(source: str, clock: Clock, **options: str) -> Iterator[pa.RecordBatch]:
    """List the files of a source, in key order, page by page, as `manifest.file_page`.

    In a directory, files are taken at any depth. Names that start with `.` or `_` below the fixed part are left out, as
    Hadoop does. Empty files are left out. Raises `Invalid` for a file in a format that is not read, and at the end if
    there was no file.
    """
    where = parse(source)
    store = open_source(where.root, clock, options)
    exact = None if where.path.endswith("/") or _is_folder(where) else store.head(where.path)
    number = 0
    one = exact and ListedPage([exact.key], [exact.size], [exact.modified_ms], [exact.etag])
    for page in [one] if one else _listed(store, where.path):
        number += sum(map(bool, page.sizes))
        yield _files(where.root, page)
    if not number:
        raise Invalid(f"source {source!r} matches no file, or only empty ones")


def open_source(root: str, clock: Clock, options: Mapping[str, str]) -> Store:
    """Return the store of a source; `options` are those of a store on S3."""
    return open_store(root, clock, **(options if root.startswith("s3:") else {}))


def _is_folder(where: SourceUri) -> bool:
    return where.root == _LOCAL and Path("/", where.path).is_dir()


def _listed(store: Store, path: str) -> Iterator[ListedPage]:
    """Yield what is in a folder, or fits a pattern."""
    fixed, fits = fixed_part(path), None
    if fixed == path:
        fixed = f"{path.rstrip('/')}/"
    else:
        fits = compiled(path).fullmatch
    for page in store.list_pages(fixed):
        named = [
            each
            for each in zip(*page, strict=True)
            if (fits is None or fits(each[0])) and not _HIDDEN.search(each[0], len(fixed))
        ]
        yield ListedPage(*zip(*named, strict=True)) if named else ListedPage((), (), ())


def _files(root: str, page: ListedPage) -> pa.RecordBatch:
    """Return the files of a page that have bytes, with whether they can be cut."""
    there = [at for at, size in enumerate(page.sizes) if size]
    keys = [page.keys[at] for at in there]
    for key in keys:
        if key.lower().endswith(_OTHER_FORMATS):
            raise Invalid(f"source file {SourceFile(root, key, 0).name} is not NDJSON (plain or .gz)")
    cut = [not key.endswith(_GZIP_SUFFIXES) for key in keys]
    return file_page(root, keys, [page.sizes[at] for at in there], [page.etags[at] for at in there], cut)
