"""The columns that a data file has, as far as the log says. Pure.

Statistics name the columns whose nulls they count: the first 32 by default, and none within lists and maps. A file that
this library writes with more columns than that has a tag that says which, by a digest. It is about the file alone: it
stays true wherever the add goes (clones, branches, restores), and whatever columns the table gets or loses.
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
    """Return what files have in common whose columns have these names and types, those in nested ones too.

    The order makes no difference, and neither does whether nulls are allowed.
    """
    return blake2b(orjson.dumps(_shape(columns)), digest_size=_DIGEST_BYTES).hexdigest()


def columns_tag(columns: pa.Schema, indexed_columns: int) -> Mapping[str, str]:
    """Return the tag of a file with these columns; none if statistics of its first columns name them all."""
    names = counted_names(columns)
    if names is not None and _leaf_count(names) <= indexed_columns:
        return {}
    return {COLUMNS_TAG: columns_digest(columns)}


def counted_names(columns: Iterable[pa.Field]) -> Names | None:
    """Return the names that complete statistics count the nulls of, those in structs included; None if they cannot."""
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
    """Whether there are fields within lists or maps, of which statistics say nothing."""
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
