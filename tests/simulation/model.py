"""A plain model of a Delta table, fed with the bytes that take effect. It shares no code with the library.

Rows are tuples of their values in the order of the schema at the time; a version's rows are a count of each.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulation.deletions import deleted_rows, vector_path
from tests.simulation.s3 import BUCKET
from tests.simulation.scheduler import Violation

Row = tuple[Any, ...]
_PLACE = f"s3://{BUCKET}/"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file's rows, as they stand in it, and the bytes it has."""

    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    size: int

    def holds(self, names: Collection[str]) -> bool:
        """Whether it holds an event or a row of one of these names."""
        at = next((self.columns.index(name) for name in ("event_id", "id") if name in self.columns), None)
        return at is not None and any(event_of(row[at]) in names for row in self.rows)


@dataclass(frozen=True)
class Version:
    """A table at one version. `at_us` is when its commit took effect, in true time; `files` by path."""

    number: int
    at_us: int
    timestamp_ms: int
    txn_id: str
    operation: str
    files: Mapping[str, DataFile]
    columns: tuple[str, ...]
    configuration: Mapping[str, str]
    rows: Counter[Row]
    oldest_readable: int
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass
class TableModel:
    """All that was ever committed to one table, and when each file was removed, in true time and by its commit.

    Versions below `erased_below` have ended with an erasure.
    """

    root: str
    versions: list[Version] = field(default_factory=list)
    removed_us: dict[str, int] = field(default_factory=dict)
    removed_at: dict[str, int] = field(default_factory=dict)
    removed_ms: dict[str, int] = field(default_factory=dict)
    txn_ids: dict[str, int] = field(default_factory=dict)
    apps: dict[str, int] = field(default_factory=dict)
    phantoms: list[int] = field(default_factory=list)
    known: dict[str, DataFile] = field(default_factory=dict)
    erased_below: int = 0

    @property
    def tip(self) -> Version:
        return self.versions[-1]

    @property
    def is_clone(self) -> bool:
        """Whether it has ever begun as a shallow clone, which has files of other tables."""
        return any(version.operation == "CLONE" for version in self.versions)

    def key(self, path: str) -> str:
        """Return the key of a file by its path below the table's root, or by its URI."""
        return path.removeprefix(_PLACE) if path.startswith(_PLACE) else self.root + path

    def needed(self) -> set[str]:
        """Return the keys of what the versions need that can be read."""
        return {self.key(path) for version in self.versions[self.tip.oldest_readable :] for path in version.files}

    def fork(self, version: int) -> TableModel:
        """Return the table as it was at a version, to go on from there."""
        removed = {path: at for path, at in self.removed_at.items() if at <= version}
        return TableModel(
            self.root,
            self.versions[: version + 1],
            {path: self.removed_us[path] for path in removed},
            removed,
            {path: self.removed_ms[path] for path in removed},
            {each: number for each, number in self.txn_ids.items() if number <= version},
            known=dict(self.known),
            erased_below=self.erased_below,
        )

    def commit(self, number: int, data: bytes, at_us: int, objects: Mapping[str, tuple[bytes, int]]) -> Version | None:
        """Take a commit that has taken effect. None for one under a number that has come and gone."""
        actions = [json.loads(line) for line in data.splitlines() if line]
        info = actions[0].get("commitInfo") or {}
        if number < len(self.versions):
            self.phantoms.append(number)
            return None
        if number > len(self.versions):
            raise Violation("versions are gapless", f"{self.root} {number} after {len(self.versions) - 1}")
        version = self._apply(number, info, actions, at_us, objects)
        self._check(version, info)
        self.versions.append(version)
        if version.operation == "ERASE":
            self.erased_below = version.oldest_readable
        return version

    def _apply(
        self,
        number: int,
        info: Mapping[str, Any],
        actions: list[dict[str, Any]],
        at_us: int,
        objects: Mapping[str, tuple[bytes, int]],
    ) -> Version:
        before = self.versions[-1] if self.versions else None
        files = dict(before.files) if before else {}
        columns = before.columns if before else ()
        configuration = before.configuration if before else {}
        rows: Counter[Row] = Counter(before.rows) if before else Counter()
        oldest = before.oldest_readable if before else 0
        timestamp_ms = int(info.get("inCommitTimestamp") or info["timestamp"])
        for action in actions:
            if "metaData" in action:
                metadata = action["metaData"]
                widened = tuple(entry["name"] for entry in json.loads(metadata["schemaString"])["fields"])
                if rows and widened != columns:
                    rows = recast(rows, columns, widened)
                columns, configuration = widened, metadata["configuration"]
            if "domainMetadata" in action and "oldest" in action["domainMetadata"]["domain"].lower():
                oldest = _number(action["domainMetadata"]["configuration"])
            if "txn" in action:
                self.apps[action["txn"]["appId"]] = action["txn"]["version"]
        for action in actions:
            if "remove" in action:
                self._remove(files, rows, columns, unquote(action["remove"]["path"]), (number, at_us, timestamp_ms))
        for action in actions:
            if "add" in action:
                self._add(files, rows, columns, action["add"], objects)
        _drop_zeros(rows)
        return Version(
            number,
            at_us,
            timestamp_ms,
            str(info.get("txnId")),
            str(info.get("operation")),
            files,
            columns,
            configuration,
            rows,
            oldest,
            info.get("operationParameters") or {},
        )

    def _remove(
        self,
        files: dict[str, DataFile],
        rows: Counter[Row],
        columns: tuple[str, ...],
        path: str,
        when: tuple[int, int, int],
    ) -> None:
        if path not in files:
            raise Violation("a removed file was there", f"{self.root} {path} in version {when[0]}")
        rows.subtract(_padded(files.pop(path), columns))
        self.removed_at[path], self.removed_us[path], self.removed_ms[path] = when

    def _add(
        self,
        files: dict[str, DataFile],
        rows: Counter[Row],
        columns: tuple[str, ...],
        add: Mapping[str, Any],
        objects: Mapping[str, tuple[bytes, int]],
    ) -> None:
        path = unquote(add["path"])
        found = objects.get(self.key(path))
        if found is None:
            raise Violation("a commit's data files are durable", f"{self.root}{path} is not in the store")
        if len(found[0]) != add["size"]:
            raise Violation("sizes are true", f"{path}: {add['size']} in the log, {len(found[0])} in the store")
        if path in files:
            raise Violation("a file is added once", f"{self.root} {path}")
        file = read_rows(found[0], add["partitionValues"])
        stats = json.loads(add["stats"])
        if stats["numRecords"] != len(file.rows):
            raise Violation("row counts are true", f"{path}: {stats['numRecords']} promised, {len(file.rows)} there")
        if vector := add.get("deletionVector"):
            file = self._without_deleted(file, vector, objects)
        files[path] = self.known[path] = file
        rows.update(_padded(file, columns))
        self.removed_at.pop(path, None)
        self.removed_us.pop(path, None)
        self.removed_ms.pop(path, None)

    def _without_deleted(
        self, file: DataFile, vector: Mapping[str, Any], objects: Mapping[str, tuple[bytes, int]]
    ) -> DataFile:
        """Return a file without the rows that a deletion vector deletes."""
        if self.versions[0].configuration.get("delta.enableDeletionVectors") != "true":
            raise Violation("no deletion vector where none is allowed", self.root)
        key = self.root + vector_path(vector)
        if key not in objects:
            raise Violation("a commit's data files are durable", f"{key} is not in the store")
        gone = deleted_rows(vector, objects[key][0])
        if len(gone) != vector["cardinality"]:
            raise Violation("row counts are true", f"{key}: {vector['cardinality']} promised, {len(gone)} there")
        return replace(file, rows=tuple(row for at, row in enumerate(file.rows) if at not in gone))

    def _check(self, version: Version, info: Mapping[str, Any]) -> None:
        if any(number < 0 for number in version.rows.values()):
            raise Violation("no row is taken twice", f"{self.root} version {version.number}")
        if self.versions and version.timestamp_ms <= self.tip.timestamp_ms and info.get("inCommitTimestamp"):
            raise Violation("in-commit timestamps increase", f"{self.root} version {version.number}")
        if self.versions and version.oldest_readable < self.tip.oldest_readable:
            raise Violation("what has expired stays so", f"{self.root} version {version.number}")
        if version.txn_id in self.txn_ids:
            raise Violation("a transaction commits once", f"{self.root} {version.txn_id} in version {version.number}")
        self.txn_ids[version.txn_id] = version.number

    def at_time(self, timestamp_ms: int) -> int | None:
        """Return the newest version at or before a moment."""
        found = [version.number for version in self.versions if version.timestamp_ms <= timestamp_ms]
        return found[-1] if found else None


def read_rows(data: bytes, values: Mapping[str, str | None]) -> DataFile:
    """Read a data file, and give its rows the values, all texts, of the columns by which the table is partitioned."""
    table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    for name, value in values.items():
        table = table.append_column(name, pa.array([value] * len(table), pa.string()))
    return DataFile(tuple(tuples(table)), tuple(table.column_names), len(data))


def tuples(table: pa.Table) -> list[Row]:
    """Return a table's rows."""
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True))


def event_of(event_id: str) -> str:
    """Return the event that a row or a reject is of: a reject's id has a hash of its content behind the event's."""
    return event_id.partition("#")[0]


def _padded(file: DataFile, columns: tuple[str, ...]) -> list[Row]:
    """Return a file's rows under the columns of a later schema."""
    if file.columns == columns:
        return list(file.rows)
    at = {name: index for index, name in enumerate(file.columns)}
    return [tuple(row[at[name]] if name in at else None for name in columns) for row in file.rows]


def recast(rows: Counter[Row], columns: tuple[str, ...], wanted: tuple[str, ...]) -> Counter[Row]:
    """Return rows under another schema."""
    at = {name: index for index, name in enumerate(columns)}
    found: Counter[Row] = Counter()
    for row, number in rows.items():
        found[tuple(row[at[name]] if name in at else None for name in wanted)] += number
    return found


def _drop_zeros(rows: Counter[Row]) -> None:
    for row in [row for row, number in rows.items() if number == 0]:
        del rows[row]


def _number(configuration: str) -> int:
    digits = "".join(character for character in configuration if character.isdigit())
    return int(digits or 0)
