"""Sources of a job: a file, a folder, a pattern or a list of files, in a directory or on S3.

The files are read through Alluvia's own stores and not through Hadoop's s3a, which the Spark wheel does not hold: so no
jars are downloaded, the lake's credentials and endpoint serve for the source too, and a line's place in its file, on
which the identity of an event without an id rests, is known exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from alluvia.clock import Clock
from alluvia.errors import Invalid
from alluvia.store import ObjectInfo, Store
from alluvia_spark.sources.file_lists import listed_files
from alluvia_spark.sources.files import FETCH_BYTES, BadFile, SourceFile, SourceOptions, read_range
from alluvia_spark.sources.formats import PROBE_BYTES, is_lines, may_be_lines
from alluvia_spark.sources.manifest import file_page
from alluvia_spark.sources.places import LOCAL, Found, SourceUri, Stores, compiled, fixed_part, parse

CUT_BYTES_MIN = FETCH_BYTES
"""Smaller files are never divided among tasks, so they are not opened in advance."""
_OTHER_FORMATS = (".bz2", ".xz", ".zip", ".lz4", ".snappy", ".avro", ".orc", ".tar", ".tgz")
_HIDDEN = re.compile(r"(?:^|(?<=/))[._]")


def list_files(source: str, clock: Clock, reading: SourceOptions, **options: str) -> Iterator[pa.RecordBatch]:
    """List the files of a source, page by page, as `manifest.file_page`: in key order, or in that of its list.

    In a directory, files are taken at any depth. Names that start with `.` or `_` below the fixed part are left out, as
    Hadoop does. Empty files are left out. Raises `Invalid` for a file in a format that is not read, and at the end if
    there was no file.
    """
    where, stores = parse(source), Stores(clock, options)
    number = 0
    for page in listed_files(stores, where) if reading.is_list else _pages(stores.open(where.root), where):
        files = [SourceFile(*each) for each in zip(*page, strict=True) if each[2]]
        number += len(files)
        yield file_page(*_checked(stores, files, reading.format))
    if not number:
        raise Invalid(f"source {source!r} matches no file, or only empty ones")


def _pages(store: Store, where: SourceUri) -> Iterator[Found]:
    is_folder = where.path.endswith("/") or _is_folder(where)
    exact = None if is_folder else store.head(where.path)
    for page in [[exact]] if exact else _listed(store, where.path, is_pattern=not _is_folder(where)):
        keys, sizes, etags = ([getattr(info, name) for info in page] for name in ("key", "size", "etag"))
        yield Found([where.root] * len(page), keys, sizes, etags)


def _is_folder(where: SourceUri) -> bool:
    return where.root == LOCAL and Path("/", where.path).is_dir()


def _listed(store: Store, path: str, *, is_pattern: bool) -> Iterator[list[ObjectInfo]]:
    """Yield what is in a folder, or fits a pattern, if the path may be one."""
    fixed, fits = fixed_part(path) if is_pattern else path, None
    if fixed == path:
        fixed = f"{path.rstrip('/')}/"
    else:
        fits = compiled(path).fullmatch
    for page in store.list_pages(fixed):
        yield [
            info
            for info in page.infos()
            if (fits is None or fits(info.key)) and not _HIDDEN.search(info.key, len(fixed))
        ]


def _checked(stores: Stores, files: list[SourceFile], kind: str | None) -> tuple[Found, list[bool]]:
    """Return files with whether each may be cut; to tell, the first bytes of long ones are read."""
    for file in files:
        if file.key.lower().endswith(_OTHER_FORMATS):
            raise Invalid(f"source file {file.name} is in a format or a compression that is not read")
    cut = [False] * len(files)
    long = [at for at, file in enumerate(files) if file.size > CUT_BYTES_MIN and may_be_lines(file.key, kind)]
    for root in {files[at].root for at in long}:
        store, ours = stores.open(root), [at for at in long if files[at].root == root]
        for at, probed in zip(ours, store.map(partial(_probed, store), [files[at] for at in ours]), strict=True):
            files[at], cut[at] = probed
    keys, sizes, etags = ([getattr(file, name) for file in files] for name in ("key", "size", "etag"))
    return Found([file.root for file in files], keys, sizes, etags), cut


def _probed(store: Store, file: SourceFile) -> tuple[SourceFile, bool]:
    """Return a long file with its etag, and whether it is of lines. One that is missing is found so when it is read."""
    try:
        if not file.etag and (info := store.head(file.key)) is not None:
            file = SourceFile(file.root, file.key, file.size, info.etag)
        return file, is_lines(read_range(store, file, 0, min(PROBE_BYTES, file.size)))
    except BadFile:
        return file, False
