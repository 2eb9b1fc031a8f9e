"""How far a stream has read a table, and how far its next batch goes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from alluvia.delta.log.actions import AddFile
from alluvia.errors import Invalid

WHOLE = 1 << 62
"""In the order of offsets: all files of a version."""


@dataclass(frozen=True, slots=True)
class Offset:
    """The end of a batch: the stream has read the table up to a version.

    `files` counts the files of that version that were read, if these are not all: those that its commit added, or, of
    the `initial` version, those that the table had.
    """

    table_id: str
    version: int
    files: int | None = None
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as Spark keeps it in the checkpoint."""
        whole = {"table": self.table_id, "version": self.version}
        return whole if self.files is None else {**whole, "files": self.files, "initial": self.initial}

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Offset:
        """Return what `to_json` wrote. Raises `Invalid`."""
        try:
            files = kept.get("files")
            files = None if files is None else int(files)
            return cls(str(kept["table"]), int(kept["version"]), files, initial=bool(kept.get("initial")))
        except (KeyError, TypeError, ValueError) as error:
            raise Invalid(
                f"checkpoint: {kept!r:.200} is not an offset of a stream from a table of this library"
            ) from error

    @property
    def place(self) -> tuple[int, int]:
        """Return what puts the offsets of one table in order. All files of a version come before its end."""
        return self.version, WHOLE if self.files is None else self.files


class Unit(NamedTuple):
    """The least that a batch can end with, and its end then: a file that was added, or with `file` None a commit."""

    end: Offset
    size: int
    file: AddFile | None

    def without_statistics(self) -> Unit:
        """Return it as tasks need it."""
        return self if self.file is None else self._replace(file=replace(self.file, stats=None))


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much a batch reads at most, of files and of their bytes; None: without a limit."""

    files: int | None = None
    size: int | None = None

    def exceeded(self, files: int, size: int) -> bool:
        """Return whether a batch of this size goes beyond a limit."""
        return (self.files is not None and files > self.files) or (self.size is not None and size > self.size)
