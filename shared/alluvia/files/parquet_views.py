"""Parquet whose Arrow types are views, as DataFusion and Rust's writers leave them. Pure, but for the stream.

pyarrow reads no view as a dictionary, and casts no list of them. Parquet itself has no views: only the Arrow schema in
the footer names them, so without it the same columns are plain.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.delta.log.files.thrift import read_struct, written_struct

_MAGIC = b"PAR1"
_KEY_VALUES = 5
"""The field of a footer for what writers add, such as the Arrow schema. Source: parquet.thrift, `FileMetaData`."""


def plain_metadata(file: pq.ParquetFile, stream: IO[bytes]) -> pq.FileMetaData | None:
    """Return a file's metadata without its Arrow schema if that has views in it; else None."""
    if not _has_views(file.schema_arrow.types):
        return None
    stream.seek(-len(_MAGIC) - 4, io.SEEK_END)
    size = int.from_bytes(stream.read(4), "little")
    stream.seek(-len(_MAGIC) - 4 - size, io.SEEK_END)
    footer = read_struct(stream.read(size))
    footer.pop(_KEY_VALUES)
    data = written_struct(footer)
    return pq.read_metadata(io.BytesIO(_MAGIC + data + len(data).to_bytes(4, "little") + _MAGIC))


def _has_views(kinds: Iterable[pa.DataType]) -> bool:
    types = pa.types
    return any(
        types.is_string_view(kind) or types.is_binary_view(kind) or types.is_list_view(kind)
        or types.is_large_list_view(kind) or _has_views(kind.field(at).type for at in range(kind.num_fields))
        for kind in kinds
    )  # fmt: skip
