"""The columns of a data file, as far as the log knows them. Pure.

Statistics count the nulls of some columns: by default of the first 32, and of none within lists and maps. If a file has
more columns, this library tags its add with a digest of all of them. The tag describes the file, not the table. So it
stays true in clones, branches and restores, and after the table has gained or lost columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import orjson
import pyarrow as pa

from alluvia.delta.log.actions import AddFile
from alluvia.delta.schema.variant_shredding import is_marked

COLUMNS_TAG = "alluvia.columns"
"""The tag of an add with the digest of its file's columns (`columns_digest`)."""
_DIGEST_BYTES = 16

Names = dict[str, "Names | None"]


def columns_digest(columns: Iterable[pa.Field]) -> str:
    """Return a digest of the names and types of columns, nested ones included.

    Neither their order nor whether they allow nulls makes a difference.
    """
    return blake2b(orjson.dumps(_shape(columns)), digest_size=_DIGEST_BYTES).hexdigest()


def columns_tag(columns: pa.Schema, indexed_columns: int) -> Mapping[str, str]:
    """Return the tag of a file with these columns; empty if the statistics name all of them."""
    names = counted_names(columns)
    if names is not None and _leaf_count(names) <= indexed_columns:
        return {}
    return {COLUMNS_TAG: columns_digest(columns)}


def counted_names(columns: Iterable[pa.Field]) -> Names | None:
    """Return the columns, fields of structs included, in complete null counts; None if some cannot be counted."""
    names: Names = {}
    for column in columns:
        kind, inner = pa.binary() if is_marked(column) else column.type, None
        if pa.types.is_struct(kind):
            inner = counted_names(kind.fields)
        if inner is None and _holds_struct(kind):
            return None
        names[column.name] = inner
    return names


def counts_all(file: AddFile, names: Names) -> bool:
    """Whether a file's statistics name all of these columns."""
    if file.stats is None:
        return False
    try:
        return _counted(names, orjson.loads(file.stats).get("nullCount"))
    except (ValueError, AttributeError):
        return False


def _counted(names: Names, counts: Any) -> bool:
    return isinstance(counts, dict) and all(
        name in counts and (inner is None or _counted(inner, counts[name])) for name, inner in names.items()
    )


def _leaf_count(names: Names) -> int:
    return sum(1 if inner is None else _leaf_count(inner) for inner in names.values())


def _holds_struct(kind: pa.DataType) -> bool:
    """Whether a type has fields within lists or maps, which statistics leave out."""
    if pa.types.is_map(kind):
        return _holds_struct(kind.key_type) or _holds_struct(kind.item_type)
    if pa.types.is_list(kind):
        return _holds_struct(kind.value_type)
    return pa.types.is_struct(kind)


def _shape(columns: Iterable[pa.Field]) -> list[Any]:
    return sorted(([each.name, "variant" if is_marked(each) else _kind(each.type)] for each in columns), key=_name)


def _name(column: list[Any]) -> str:
    return str(column[0])


def _kind(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return _shape(kind.fields)
    if pa.types.is_map(kind):
        return ["map", _kind(kind.key_type), _kind(kind.item_type)]
    if pa.types.is_list(kind):
        return ["list", _kind(kind.value_type)]
    return str(kind)
