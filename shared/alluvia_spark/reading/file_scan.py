"""One scan of some files by Spark's Parquet reader, with what the log says of them: partition values, deleted rows.

In Delta the log has the values, and paths mean nothing. But most writers name folders after the values, and where all
of them are what Spark would read out of the paths, it need not be told them row by row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from py4j.java_gateway import JVMView  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.paths import is_absolute, is_own_name
from alluvia.delta.partitioning.partition import NULL_FOLDER
from alluvia.delta.partitioning.values import partition_value
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Unavailable
from alluvia_spark.reading.deleted_rows import FILE, ROW, DeletedRows
from alluvia_spark.reading.filters import constant, converted, identifier
from alluvia_spark.schemas import stored_schema

_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_FORMS = (
    (pa.types.is_integer, re.compile(r"-?\d{1,18}", re.ASCII)),
    (pa.types.is_boolean, re.compile(r"true|false")),
    (pa.types.is_date, re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)),
)
"""The types, and their texts in the log, that Spark reads out of a path as we do."""


@dataclass(frozen=True, slots=True)
class FolderTexts:
    """What Spark reads in the paths of files as one column. `as_text` says that it must read texts.

    `others` are texts that are not the value in the log, each with a file that has it: all of them, if texts are read.
    """

    others: Mapping[str | None, AddFile]
    as_text: bool


def folder_texts(
    files: Sequence[AddFile], columns: Sequence[pa.Field], others: Sequence[str]
) -> Mapping[str, FolderTexts] | None:
    """Return what Spark reads in paths as each partition column; None where it does not find all of them there.

    `columns` have the names that they have in the log, `others` are the names of the other columns.
    """
    names = {field.name for field in columns}
    taken = {name.lower() for name in others}
    keys = [name for name, _ in _folders(files[0].path)]
    if not names <= set(keys) or len(set(keys)) < len(keys):
        return None
    if any(key.lower() in taken or _ESCAPE.search(key) for key in keys):
        return None
    by_text: dict[str, dict[str | None, AddFile]] = {name: {} for name in names}
    for file in files:
        folders = _folders(file.path)
        if is_absolute(file.path) or [name for name, _ in folders] != keys:
            return None
        if any(bool(name) != bool(text) for name, text in folders):  # `p=` and `=v`, at which Spark fails
            return None
        for name, text in folders:
            if name in names:
                read = None if text == NULL_FOLDER else _ESCAPE.sub(lambda code: chr(int(code[1], 16)), text)
                if _value(by_text[name].setdefault(read, file), name) != _value(file, name):
                    return None
    return {field.name: _texts(field, by_text[field.name]) for field in columns}


def _value(file: AddFile, name: str) -> str | None:
    return file.partition_values.get(name) or None


def _texts(field: pa.Field, files: Mapping[str | None, AddFile]) -> FolderTexts:
    differ = {text: file for text, file in files.items() if text != _value(file, field.name)}
    form = next((form for matches, form in _FORMS if matches(field.type)), None)
    if pa.types.is_string(field.type):
        return FolderTexts(differ, as_text=False)
    if form is None or differ or not all(text is None or form.fullmatch(text) for text in files):
        return FolderTexts(files, as_text=True)
    return FolderTexts({}, as_text=False)


def _folders(path: str) -> list[tuple[str, str]]:
    """Return the names and values of a path's folders; an empty name for a folder that is not of that form."""
    parts = (part.partition("=") for part in path.split("/")[:-1])
    return [(name if equals else "", value) for name, equals, value in parts]


CASES_MAX = 64
"""So many comparisons for each row cost less than a join."""
_OPTIONS = {
    "__globPaths__": "false",  # characters such as [ are part of a path's name
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
"""What would read other rows than the log says, if a session had it set."""
_NO_BOUNDS = {"parquet.filter.stats.enabled": "false", "parquet.filter.columnindex.enabled": "false"}
"""For files of others with floating-point numbers: their bounds leave NaN out, which Spark sorts above every number."""
_PLAIN = re.compile(r"[\w.-]+", re.ASCII)
_SIZE = "__alluvia_size"
_CHANGED = "a data file does not have the size that the table's log says: check the table with alluvia verify"


class ScannedTable(NamedTuple):
    """A snapshot that a session reads. `uri` gives a file's URI in the session, by its key."""

    spark: SparkSession
    snapshot: Snapshot
    uri: Callable[[str], str]


class FileScan:
    """A scan of some files of a snapshot. `deleted` has the numbers of deleted rows, by the file's key in the log.

    Partition values come from the folders' names, else by the files' sizes, where a few tell them apart; both are
    expressions that Spark compiles into the scan. Else they come by a join on the file's name.
    """

    def __init__(self, source: ScannedTable, files: Sequence[AddFile], deleted: Mapping[str, pa.Int64Array]) -> None:
        self._source = source
        snapshot = source.snapshot
        self._files = {source.uri(snapshot.key(file)): file for file in files}
        self._deleted = {file.key: deleted[file.key] for file in files if len(deleted.get(file.key, ()))}
        stored = stored_schema(snapshot)
        self._types = {field.name: field.dataType for field in stored}
        pairs = [(name, snapshot.physical_name(name)) for name in snapshot.partition_columns]
        self._partitioned = [pa.field(physical, snapshot.schema.field(name).type) for name, physical in pairs]
        names = [field.name for field in self._partitioned]
        self._base = source.uri(f"{snapshot.root}x").removesuffix("x")
        self._texts = (
            {}
            if self._lie_elsewhere
            else _few(folder_texts(files, self._partitioned, [name for name in self._types if name not in names]))
        )
        self._sizes = {} if self._texts else _sizes(files)
        self._joined = bool(names) and not self._texts and not self._sizes
        read = [field for field in stored if field.name in self._texts or field.name not in names]
        self._number = (_number_column(source.spark, self._types) if self._deleted else None) or ROW
        numbers = [] if self._number == ROW else [StructField(self._number, LongType())]
        self._read_as = StructType([self._as_read(field) for field in read] + numbers)
        shown = {uri.rpartition("/")[2] for uri in self._files}
        plain = len(shown) == len(self._files) and all(map(_PLAIN.fullmatch, shown))
        self._key = "file_name" if plain else "file_path"

    @property
    def _lie_elsewhere(self) -> bool:
        """Whether files lie outside the table's folder, as a clone's and a branch's do: Spark has one base path."""
        return not all(uri.startswith(self._base) for uri in self._files)

    def _as_read(self, field: StructField) -> StructField:
        texts = self._texts.get(field.name)
        return StructField(field.name, StringType()) if texts is not None and texts.as_text else field

    @cached_property
    def deletion(self) -> Column | None:
        """Whether a row is deleted, as an expression; None where no row is, or where a join costs less."""
        return self._deleted_rows.condition(self._number) if self._deleted else None

    @cached_property
    def _deleted_rows(self) -> DeletedRows:
        keys = {file.key: key for key, file in self._by_key.items()}
        numbers = {keys[key]: each for key, each in self._deleted.items()}
        return DeletedRows(numbers, alone=len(self._files) == 1)

    @property
    def joins_deleted(self) -> bool:
        """Whether deleted rows are found by a join."""
        return bool(self._deleted) and self.deletion is None

    @cached_property
    def rows(self) -> DataFrame:
        """The rows that are not deleted, of which `column` gives the columns."""
        wanted = {FILE: self._key} if self._joined or (self._deleted and len(self._files) > 1) else {}
        if self._deleted and (self.deletion is None or self._number == ROW):
            wanted[ROW] = "row_index"
        wanted |= {_SIZE: "file_size"} if self._sizes and self._partitioned else {}
        rows = self._read
        if wanted:
            metadata = rows.metadataColumn("_metadata")
            rows = rows.select("*", *(metadata.getField(name).alias(alias) for alias, name in wanted.items()))
        if self.deletion is not None:
            rows = rows.where(~self.deletion)
        elif self._deleted:
            deleted = self._deleted_rows.frame(self._source.spark)
            rows = rows.join(F.broadcast(deleted), [FILE, ROW] if FILE in wanted else [ROW], "left_anti")
        return rows.join(F.broadcast(self._values()), FILE) if self._joined else rows

    def column(self, name: str) -> str:
        """Return a column of `stored_schema`, of `rows`, as SQL: Spark's Python takes long to make an expression."""
        partitioned = () if self._joined else self._partitioned
        return next((self._value(field) for field in partitioned if field.name == name), identifier(name))

    @cached_property
    def _read(self) -> DataFrame:
        reader = self._source.spark.read.options(**_OPTIONS).schema(self._read_as)
        if not all(is_own_name(file.path) for file in self._files.values()) and _holds_floats(self._read_as):
            reader = reader.options(**_NO_BOUNDS)
        if self._texts:
            reader = reader.option("basePath", self._base.removesuffix("/"))
        else:
            reader = reader.option("recursiveFileLookup", "true")
        return reader.parquet(*self._files)

    def _value(self, field: pa.Field) -> str:
        """Return a partition column, by the folder's name or the file's size."""
        if self._sizes:
            return self._cases(
                field, identifier(_SIZE), self._sizes, f"raise_error({constant(_CHANGED, StringType())})"
            )
        texts = self._texts[field.name]
        name = identifier(field.name)
        return self._cases(field, name, texts.others, "NULL" if texts.as_text else name)

    def _cases(
        self, field: pa.Field, key: str, files: Mapping[str | None, AddFile] | Mapping[int, AddFile], rest: str
    ) -> str:
        """Return the value of the file that has a key; the files with most bytes are compared first."""
        kind = self._types[field.name]
        cases = []
        for given, file in sorted(files.items(), key=lambda pair: -pair[1].size):
            same = f"{key} IS NULL" if given is None else f"{key} = {_key(given)}"
            cases.append(f"WHEN {same} THEN {constant(partition_value(file, field.name, field.type), kind)}")
        return f"CASE {' '.join(cases)} ELSE {converted(rest, kind)} END" if cases else rest

    def _values(self) -> DataFrame:
        """Return the values of the partition columns by file."""
        columns: list[pa.Array] = [pa.array(list(self._by_key), pa.string())]
        columns += [
            pa.array([partition_value(file, field.name, field.type) for file in self._by_key.values()], field.type)
            for field in self._partitioned
        ]
        schema = pa.schema([pa.field(FILE, pa.string()), *self._partitioned])
        return self._source.spark.createDataFrame(pa.Table.from_arrays(columns, schema=schema))

    @cached_property
    def _by_key(self) -> Mapping[str, AddFile]:
        """The files by what a scan says of them: their names where those differ, else their paths."""
        if self._key == "file_name":
            return {uri.rpartition("/")[2]: file for uri, file in self._files.items()}
        known = {_plain(uri): file for uri, file in self._files.items()}
        files = {_shown(path): known.pop(_plain(unquote(path)), None) for path in self._read.inputFiles()}
        if known:
            raise Unavailable(f"Spark does not list the data file {min(known)}: read the table again")
        return {path: file for path, file in files.items() if file is not None}


def _key(given: str | int) -> str:
    return str(given) if isinstance(given, int) else constant(given, StringType())


def _holds_floats(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_floats(field.dataType) for field in kind.fields)
    if isinstance(kind, MapType):
        return _holds_floats(kind.keyType) or _holds_floats(kind.valueType)
    return _holds_floats(kind.elementType) if isinstance(kind, ArrayType) else isinstance(kind, (FloatType, DoubleType))


def _few(texts: Mapping[str, FolderTexts] | None) -> Mapping[str, FolderTexts]:
    """Return texts of folders if there are not too many to compare, else none."""
    if texts is None or max((len(each.others) for each in texts.values()), default=0) > CASES_MAX:
        return {}
    return texts


def _sizes(files: Sequence[AddFile]) -> Mapping[int, AddFile]:
    """Return files by their sizes if these are few, and tell partitions apart; else none."""
    by_size: dict[int, AddFile] = {}
    for file in files:
        if by_size.setdefault(file.size, file).partition_values != file.partition_values:
            return {}
    return by_size if len(by_size) <= CASES_MAX else {}


def _number_column(spark: SparkSession, taken: Mapping[str, object]) -> str | None:
    """Return the name of the column in which Spark's Parquet reader numbers rows, as this version of Spark says it.

    For `_metadata.row_index` Spark makes an object of each row on top. None where a table has a column of that name,
    and where Spark does not say it, as over Connect.
    """
    jvm = getattr(spark, "_jvm", None)
    name = None if jvm is None else _number_name(jvm)
    return None if name is None or name.lower() in {each.lower() for each in taken} else name


@lru_cache(maxsize=4)  # to ask takes milliseconds
def _number_name(jvm: JVMView) -> str | None:
    parquet = jvm.org.apache.spark.sql.execution.datasources.parquet
    try:
        return str(parquet.ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME())
    except Py4JError:
        return None


def _plain(uri: str) -> str:
    """Return a URI without the slashes that a scheme may have."""
    scheme, _, rest = uri.partition(":")
    return f"{scheme}:{rest.lstrip('/')}"


def _shown(path: str) -> str:
    """Return a path of `inputFiles` as `_metadata` has it."""
    return path.replace("file:///", "file:/", 1)
