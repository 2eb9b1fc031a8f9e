"""Sidecars, the files that hold the file actions of a v2 checkpoint: the action, and its rows, opened late. Pure.

The caller fetches them. Source: Delta protocol, "Sidecar Files" and "Sidecar File Information".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.fields import Json, text, text_map, whole
from alluvia.delta.log.files.action_rows import FileRows, LogRows, Parse, T, check_fields
from alluvia.delta.log.files.parquet import ActionFile, Path
from alluvia.delta.log.paths import SIDECAR_FOLDER, decode_path
from alluvia.lazy_dataclasses import dataclass

FACTS_TAG = "alluvia.facts"
Fetch = Callable[[Sequence[str]], Sequence[bytes]]
"""Gets the bytes of files by their paths below the table's root, in parallel where that is faster."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A file with file actions of a checkpoint. `name` is below the table's root, `modification_time` in ms."""

    name: str
    size: int
    modification_time: int
    tags: Mapping[str, str] = field(default_factory=dict, compare=False)

    def to_json(self) -> Json:
        """Return the action's body."""
        return {
            "path": self.name.removeprefix(SIDECAR_FOLDER),
            "sizeInBytes": self.size,
            "modificationTime": self.modification_time,
            "tags": dict(self.tags),
        }

    @classmethod
    def from_json(cls, body: Json) -> Sidecar:
        """Read the action's body. Of an absolute URI only the name counts. Raises `ValueError`."""
        name = decode_path(text(body, "path")).rpartition("/")[2]
        if not name or name in {".", ".."}:
            raise ValueError(f"path is {body['path']!r}, which does not name a file")
        return cls(
            SIDECAR_FOLDER + name, whole(body, "sizeInBytes"), whole(body, "modificationTime"), text_map(body, "tags")
        )


@dataclass(frozen=True, slots=True)
class SidecarFacts:
    """What the maker of a sidecar recorded of its rows, all of one kind.

    `first_key` and `last_key` are the least and the greatest key. `statistics`, of adds, has the form of one file's
    and covers partition columns too, and `size` is the sum of the files' sizes in bytes; `deleted_ms_max`, of removes,
    is when the last of the files went.
    """

    kind: str
    rows: int
    first_key: str
    last_key: str
    statistics: str | None = None
    size: int | None = None
    deleted_ms_max: int | None = None

    def to_tags(self) -> dict[str, str]:
        """Return the facts as tags of the sidecar's action."""
        body: Json = {"kind": self.kind, "rows": self.rows, "firstKey": self.first_key, "lastKey": self.last_key}
        optional = {
            "statistics": self.statistics,
            "size": self.size,
            "deletedMsMax": self.deleted_ms_max,
        }
        body |= {name: value for name, value in optional.items() if value is not None}
        return {FACTS_TAG: orjson.dumps(body).decode()}

    @classmethod
    def from_tags(cls, tags: Mapping[str, str]) -> SidecarFacts | None:
        """Read facts; None where there are none, or none that can be trusted: then the sidecar must be opened."""
        try:
            body = orjson.loads(tags.get(FACTS_TAG) or "null")
            facts = cls(
                body["kind"],
                body["rows"],
                body["firstKey"],
                body["lastKey"],
                body.get("statistics"),
                body.get("size"),
                body.get("deletedMsMax"),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        texts = all(isinstance(each, str) for each in (facts.kind, facts.first_key, facts.last_key))
        numbers = all(isinstance(each, int | None) for each in (facts.size, facts.deleted_ms_max))
        sound = texts and numbers and isinstance(facts.statistics, str | None)
        return facts if sound and type(facts.rows) is int and facts.rows >= 0 else None


class SidecarFile:
    """A sidecar that is fetched when it is first opened."""

    def __init__(self, sidecar: Sidecar, fetch: Fetch) -> None:
        self.sidecar = sidecar
        self.facts = SidecarFacts.from_tags(sidecar.tags)
        self.fetch = fetch
        self._file: ActionFile | None = None

    @property
    def name(self) -> str:
        """Return the path below the table's root."""
        return self.sidecar.name

    @property
    def is_open(self) -> bool:
        """Whether it has been fetched."""
        return self._file is not None

    def open(self, data: bytes) -> None:
        """Take the sidecar's bytes. Raises `Corrupt`."""
        self._file = ActionFile(self.name, data)

    @property
    def file(self) -> ActionFile:
        """Return the file, fetched if need be."""
        if self._file is None:
            (data,) = self.fetch([self.name])
            self.open(data)
        assert self._file is not None  # noqa: S101 - opened above
        return self._file


class SidecarRows(LogRows[T]):
    """The rows of one kind in a sidecar."""

    def __init__(self, file: SidecarFile, kind: str, parse: Parse[T], fields: Mapping[str, pa.DataType]) -> None:
        super().__init__()
        self.file = file
        self.kind = kind
        self._parse = parse
        self._fields = fields
        self.facts = None if file.facts is None else file.facts.statistics
        self._opened: FileRows[T] | None = None

    @property
    def _rows(self) -> FileRows[T]:
        """Return the file's rows. No cached_property: until Python 3.12 all threads wait for the one that fetches."""
        if self._opened is None:
            check_fields(self.file.file, self.kind, self._fields)
            self._opened = FileRows(self.file.file, self.kind, self._parse)
        return self._opened

    def read(self, data: bytes) -> FileRows[T]:
        """Return the rows in the sidecar's bytes, and keep neither. Raises `Corrupt`."""
        file = ActionFile(self.file.name, data)
        check_fields(file, self.kind, self._fields)
        return FileRows(file, self.kind, self._parse)

    def __len__(self) -> int:
        return len(self._rows) if self.file.facts is None else self.file.facts.rows

    @property
    def is_open(self) -> bool:
        return self.file.is_open

    def size(self, name: str) -> int:
        known = self.file.facts.size if self.file.facts is not None and name == "size" else None
        return super().size(name) if known is None else known

    def type_of(self, path: Path) -> pa.DataType | None:
        return self._rows.type_of(path)

    def column(self, path: Path) -> pa.Array | None:
        return self._rows.column(path)

    def actions(self, at: Sequence[int] | None = None) -> Iterator[T]:
        return self._rows.actions(at)

    def structs(self, fields: Mapping[str, pa.DataType]) -> Iterator[pa.StructArray]:
        return self._rows.structs(fields)

    @property
    def keys(self) -> pa.Array:
        return self._rows.keys

    def held(self, keys: pa.Array) -> set[str]:
        return self._rows.held(keys)

    def map_batches(self, field: str, name: str) -> Iterator[pa.Array]:
        return self._rows.map_batches(field, name)

    def with_vector(self) -> pa.BooleanArray:
        return self._rows.with_vector()

    def may_hold(self, keys: pa.Array) -> bool:
        """Whether a row can have one of some keys, by the least and the greatest key."""
        facts = self.file.facts
        if facts is None:
            return True
        inside = pc.and_(pc.greater_equal(keys, facts.first_key), pc.less_equal(keys, facts.last_key))
        return bool(pc.any(inside).as_py())


def sidecar_rows(
    files: Iterable[SidecarFile], kind: str, parse: Parse[T], fields: Mapping[str, pa.DataType]
) -> list[LogRows[T]]:
    """Return the rows of one kind in some sidecars, without those that are known to hold the other kind."""
    return [SidecarRows(each, kind, parse, fields) for each in files if each.facts is None or each.facts.kind == kind]


def open_rows(parts: Iterable[LogRows[Any]]) -> None:
    """Fetch the sidecars among some rows that have not been fetched yet, all at once."""
    closed = [part.file for part in parts if isinstance(part, SidecarRows) and not part.file.is_open]
    if closed:
        for file, data in zip(closed, closed[0].fetch([each.name for each in closed]), strict=True):
            file.open(data)
