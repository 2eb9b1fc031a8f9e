"""A set of file actions, cheap at 100,000 files: columns from a checkpoint, and a few changes on top. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.log.actions import Json, decode_path, file_key


class FileAction(Protocol):
    """What an add and a remove have in common."""

    @property
    def key(self) -> str:
        """Identity of the logical file."""


T = TypeVar("T", bound=FileAction)


class ActionSet(Generic[T]):
    """An immutable set of file actions by key, in order: first the checkpoint's, then those of later commits.

    `base` holds a checkpoint's rows with the action's field names as columns; `parse` makes an action of a row.
    """

    def __init__(
        self,
        parse: Callable[[Json], T],
        base: pa.Table | None = None,
        added: Mapping[str, T] | None = None,
        gone: frozenset[str] = frozenset(),
    ) -> None:
        self._parse = parse
        self._base = base
        self._added = dict(added or {})
        self._gone = gone

    def changed(self, changes: Iterable[tuple[str, T | None]]) -> ActionSet[T]:
        """Return this set after changes in order: a key with its new action, or with None where it went."""
        added, gone = dict(self._added), set(self._gone)
        for key, action in changes:
            added.pop(key, None)
            if action is not None:
                added[key] = action
            if self._base is not None:
                gone.add(key)
        successor = ActionSet(self._parse, self._base, added, frozenset(gone))
        if "_base_keys" in self.__dict__:
            successor.__dict__["_base_keys"] = self._base_keys
        return successor

    def __len__(self) -> int:
        base = self.base
        return (0 if base is None else len(base)) + len(self._added)

    def __iter__(self) -> Iterator[T]:
        if self._base is not None:
            yield from self.parse_rows(self.base)
        yield from self._added.values()

    def get(self, key: str) -> T | None:
        """Return the action of a key, or None."""
        found = self._added.get(key)
        if found is None and self._base is not None and key not in self._gone:
            at = pc.index(self._base_keys, pa.scalar(key)).as_py()
            return None if at < 0 else self._parse(_row(self._base.slice(at, 1)))
        return found

    @property
    def added(self) -> list[T]:
        """Return the actions that stand on top of the checkpoint's."""
        return list(self._added.values())

    @cached_property
    def base(self) -> pa.Table | None:
        """Return the checkpoint's rows that still hold, as columns."""
        if self._base is None or not self._gone:
            return self._base
        hidden = pc.is_in(self._base_keys, value_set=pa.array(sorted(self._gone), pa.string()))
        return self._base.filter(pc.invert(hidden))

    def parse_rows(self, rows: pa.Table) -> Iterator[T]:
        """Make actions of rows of `base`."""
        for batch in rows.to_batches(max_chunksize=4096):
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                yield self._parse(row)

    @cached_property
    def _base_keys(self) -> pa.Array:
        """Return the keys of all rows of the checkpoint."""
        if self._base is None:
            return pa.array([], pa.string())
        paths = self._base["path"].combine_chunks()
        if pc.any(pc.match_substring(paths, "%")).as_py():
            paths = pa.array([decode_path(path) for path in paths.to_pylist()], pa.string())
        if "deletionVector" in self._base.column_names:
            vectors = self._base["deletionVector"].to_pylist()
            if any(vectors):
                pairs = zip(paths.to_pylist(), vectors, strict=True)
                return pa.array([file_key(path, vector) for path, vector in pairs], pa.string())
        return paths


def _row(rows: pa.Table) -> dict[str, Any]:
    row: dict[str, Any] = rows.to_pylist(maps_as_pydicts="strict")[0]
    return row
