"""One schema for independently written files: missing columns are null, contradicting ones are refused. Pure."""

from __future__ import annotations

import pyarrow as pa

from alluvia.errors import Invalid

Path = tuple[str, ...]


class UnifiedSchema:
    """Takes the schemas of files, one after another; columns are in the order in which they were first seen."""

    def __init__(self) -> None:
        self._whole: pa.DataType = pa.struct([])
        self._first: dict[Path, str] = {}

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of all files so far."""
        return pa.schema([self._whole.field(at) for at in range(self._whole.num_fields)])

    def add(self, file: str, schema: pa.Schema) -> None:
        """Take a file's schema. Raises `Invalid`, naming the file, the column, and a file that it contradicts."""
        self._whole = self._unify(self._whole, pa.struct(list(schema)), (), file)

    def _unify(self, ours: pa.DataType, theirs: pa.DataType, path: Path, file: str) -> pa.DataType:
        types = pa.types
        if types.is_struct(ours) and types.is_struct(theirs):
            return self._unify_fields(ours, theirs, path, file)
        if types.is_list(ours) and types.is_list(theirs):
            element = self._unify(ours.value_type, theirs.value_type, (*path, "element"), file)
            return pa.list_(pa.field("element", element))
        if types.is_map(ours) and types.is_map(theirs):
            key = self._unify(ours.key_type, theirs.key_type, (*path, "key"), file)
            value = self._unify(ours.item_type, theirs.item_type, (*path, "value"), file)
            return pa.map_(key, value)
        if not ours.equals(theirs):
            raise Invalid(
                f"{file}: column {'.'.join(path)} is {theirs}, but {ours} in {self._first_of(path)}: "
                "a column has one type in all files of a table"
            )
        return ours

    def _unify_fields(self, ours: pa.DataType, theirs: pa.DataType, path: Path, file: str) -> pa.DataType:
        known = {ours.field(at).name: ours.field(at).type for at in range(ours.num_fields)}
        spelled = {name.lower(): name for name in known}
        for at in range(theirs.num_fields):
            field = theirs.field(at)
            here = (*path, field.name)
            other = spelled.setdefault(field.name.lower(), field.name)
            if other != field.name:
                raise Invalid(
                    f"{file}: column {'.'.join(here)} differs from {'.'.join((*path, other))} in "
                    f"{self._first_of((*path, other))} only in case, which Delta does not allow"
                )
            if field.name in known:
                known[field.name] = self._unify(known[field.name], field.type, here, file)
            else:
                known[field.name] = field.type
                self._first.setdefault(here, file)
        return pa.struct(list(known.items()))

    def _first_of(self, path: Path) -> str:
        """Return the file in which a column, or the one that it is a part of, was first seen."""
        return next(self._first[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self._first)
