"""The names of a file's columns, and of the fields in them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from alluvia.delta.schema.names import fold
from alluvia.files.misfit import Misfit


class FileNames:
    """The names that a file was found to have so far, of which there may be so many."""

    def __init__(self, names_max: int) -> None:
        self._names_max = names_max
        self._columns: set[str] = set()
        self._count = 0

    def take_column(self, name: str, row: int | None = None) -> None:
        """Take the name of another column. Raises `Misfit` for one that is empty, comes twice, or is one too many.

        `row` is the first that has it, from 1, where rows name their columns.
        """
        if not name.strip():
            which = f"column {len(self._columns) + 1} of the file" if row is None else f"row {row}: a field"
            raise Misfit(f"{which} has no name")
        if fold(name) in self._columns:
            where = "the file has the column" if row is None else f"row {row}: the file has the column"
            raise Misfit(f"{where} {name!r:.100} twice")
        self._columns.add(fold(name))
        self.take_field(name)

    def take_columns(self, names: Sequence[str]) -> None:
        """Take the names of all columns, as `take_column` does."""
        if len(names) > self._names_max:
            raise Misfit(f"the file has {len(names)} columns, more than the limit of {self._names_max}")
        for name in names:
            self.take_column(name)

    def take_fields(self, paths: Iterable[str]) -> None:
        """Take the names of fields, as `take_field` does."""
        for path in paths:
            self.take_field(path)

    def take_field(self, path: str) -> None:
        """Take the name of another field in a column. Raises `Misfit` for one too many."""
        self._count += 1
        if self._count > self._names_max:
            raise Misfit(
                f"the file has more than the limit of {self._names_max} columns and fields in them, such as "
                f"{path!r:.100}: put values whose names vary into a map, or make them JSON text"
            )
