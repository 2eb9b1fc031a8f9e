"""A table at one version. It never changes, whatever is committed later."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from alluvia import notebook
from alluvia.clock import datetime_of
from alluvia.delta.file_columns import columns_digest
from alluvia.delta.file_schema_adapter import FileForm, ReadPlan
from alluvia.delta.log.actions import AddFile, Protocol
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.replay import State, totals
from alluvia.delta.partitioning.spec import PartitionField, PartitionSpec, parse_spec
from alluvia.delta.places import TablePlaces
from alluvia.delta.promoted_fields import PROPERTIES, Promoted, promoted_fields
from alluvia.delta.properties import Properties
from alluvia.delta.protocols import check_readable, settings_of
from alluvia.delta.schema.column_mapping import ColumnMapping, mapping_of, physical_schema
from alluvia.delta.schema.comments import column_comments
from alluvia.delta.schema.nesting import not_readable
from alluvia.delta.schema.serialization import arrow_schema, schema_fields, uses_type
from alluvia.delta.schema.types import type_name
from alluvia.delta.schema.variant_shredding import marked
from alluvia.delta.schema.variants import VARIANT, is_variant
from alluvia.errors import Corrupt
from alluvia.store import Store
from alluvia.store.outside import PIN, is_outside
from alluvia.table_names import REJECTS

ETAG = "alluvia.etag"
"""The tag of an external table's file with its ETag."""
_OF_METADATA = (
    "schema",
    "settings",
    "partition_spec",
    "mapping",
    "physical_schema",
    "has_variants",
    "variant",
    "promoted",
    "file_form",
    "columns_digest",
    "places",
)


class Snapshot:
    """One version of the table at `root`, a key prefix of its store.

    Without the store, the keys of files whose paths are absolute are not known. `earlier` is another version of the
    table: what follows from its metadata need not be worked out again if that is the same. Raises `Unsupported` on
    creation for a table with a feature that this library cannot read. `place` gives the key of an object where it is
    read by another name than the log's.
    """

    def __init__(
        self,
        state: State,
        root: str,
        name: str,
        store: Store | None = None,
        earlier: Snapshot | None = None,
        place: Callable[[str], str] | None = None,
    ) -> None:
        self.state = state
        self.root = root
        self.name = name
        self._store = store
        self._place = place
        self.origin = ""
        """What tells its versions from those of the same table elsewhere: the id of a branch."""
        known = None if earlier is None else earlier.state
        if known is not None and known.metadata is state.metadata and known.protocol is state.protocol:
            self.__dict__.update({key: earlier.__dict__[key] for key in _OF_METADATA if key in earlier.__dict__})
        else:
            check_readable(state.protocol, state.metadata)

    def __repr__(self) -> str:
        return f"<Snapshot {self.name!r}, version {self.version}{self._committed}>"

    def _repr_html_(self) -> str:
        files, size = self.totals
        columns = [(field.name, type_name(field.type), "" if field.nullable else "NOT NULL") for field in self.schema]
        summary = f"version {self.version}{self._committed}: {files:,} files, {size:,} bytes"
        return notebook.table(self.name, summary, ("column", "type", ""), columns)

    @property
    def _committed(self) -> str:
        if not self.timestamp_ms:
            return ""
        return f", committed {datetime_of(self.timestamp_ms):%Y-%m-%d %H:%M:%S} UTC"

    @property
    def version(self) -> int:
        """Return the version's number."""
        return self.state.version

    @property
    def timestamp_ms(self) -> int:
        """Return when the version was committed, in ms since the Unix epoch; 0 where the log does not say."""
        return self.state.timestamp_ms

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the columns, partition columns included, in the table's order. Raises `Corrupt` or `Unsupported`."""
        schema = arrow_schema(self.state.metadata.schema_string)
        missing = [name for name in self.partition_columns if name not in schema.names]
        if missing:
            msg = f"the table's metaData names the partition column {missing[0]!r}, which is not in its schemaString"
            raise Corrupt(msg)
        return schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Return the columns whose values are in the log and not in the files."""
        return self.state.metadata.partition_columns

    @property
    def files(self) -> ActionSet[AddFile]:
        """Return the data files; `len()` of them is cheap."""
        return self.state.files

    @cached_property
    def totals(self) -> tuple[int, int]:
        """Return how many data files there are, and their bytes together; opens no sidecar for it (`replay.totals`)."""
        return totals(self.state)

    @property
    def properties(self) -> Mapping[str, str]:
        """Return the table's properties as they are in the log."""
        return self.state.metadata.configuration

    @property
    def comment(self) -> str | None:
        """Return the table's comment."""
        return self.state.metadata.description or None

    @property
    def column_comments(self) -> dict[str, str]:
        """Return the comments of the columns that have one, by name."""
        return column_comments(schema_fields(self.state.metadata.schema_string))

    @property
    def protocol(self) -> Protocol:
        """Return what a client of this table must be able to do."""
        return self.state.protocol

    @cached_property
    def settings(self) -> Properties:
        """Return the properties that are in force, parsed."""
        return settings_of(self.protocol, self.state.metadata)

    @cached_property
    def partition_spec(self) -> PartitionSpec:
        """Return how rows are split into files: `alluvia.partition_by`, else the partition columns."""
        if self.settings.partition_by:
            fields = parse_spec(self.settings.partition_by, self.schema).fields
        else:
            # Another writer's columns may have any type, and any name.
            columns = [self.schema.field(name) for name in self.partition_columns]
            fields = tuple(PartitionField(each.name, kind=each.type) for each in columns)
        if self.mapping is not ColumnMapping.NONE:
            fields = tuple(replace(each, stored=self.physical_name(each.column)) for each in fields)
        return PartitionSpec(fields)

    @cached_property
    def mapping(self) -> ColumnMapping:
        """Return how columns are found in data files."""
        return mapping_of(self.protocol, self.state.metadata)

    @cached_property
    def physical_schema(self) -> pa.Schema:
        """Return the schema, field by field, with the names that columns have in files, statistics and the log.

        A variant, which is text in the schema, has the type that it is stored in.
        """
        if self.mapping is ColumnMapping.NONE and not self.has_variants:
            return self.schema
        return physical_schema(self.state.metadata.schema_string, self.mapping)

    @property
    def counted_schema(self) -> pa.Schema:
        """Return the physical schema as statistics see it: a variant is one column, of bytes."""
        pairs = zip(self.schema, self.physical_schema, strict=True)
        return pa.schema([each.with_type(pa.binary()) if is_variant(ours, each) else each for ours, each in pairs])

    @property
    def column_names(self) -> list[str]:
        """Return the columns' names, also of a table whose rows cannot be read. Raises `Corrupt`."""
        return [str(field.get("name")) for field in schema_fields(self.state.metadata.schema_string)]

    @cached_property
    def not_readable(self) -> str | None:
        """Return why rows cannot be read, if a column is nested too deeply. Raises `Corrupt`."""
        return not_readable(schema_fields(self.state.metadata.schema_string))

    @cached_property
    def has_variants(self) -> bool:
        """Return whether there are variants in a column."""
        text = self.state.metadata.schema_string
        return VARIANT in text and uses_type(text, VARIANT)

    @cached_property
    def variant(self) -> str | None:
        """Return the column that this library writes as a variant: `properties`, or how that is called now."""
        if self.settings.properties_as != VARIANT or not self.has_variants:
            return None
        pairs = zip(self.schema, self.physical_schema, strict=True)
        return next((str(ours.name) for ours, theirs in pairs if is_variant(ours, theirs)), None)

    @property
    def has_properties(self) -> bool:
        """Return whether there is a column `properties`."""
        return bool(self.schema.get_all_field_indices(PROPERTIES))

    @cached_property
    def promoted(self) -> Promoted:
        """Return the fields of `properties` that have columns of their own."""
        return promoted_fields(self.state.metadata.schema_string, self.schema)

    @cached_property
    def file_form(self) -> FileForm:
        """Return how rows lie in data files."""
        settings, in_files = self.settings, dict(zip(self.schema.names, self.physical_schema.names, strict=True))

        def stored(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(in_files[name] for name in names if name in in_files)

        by_stored_names = replace(
            settings,
            bloom_filters=stored(settings.bloom_filters),
            cluster_by=stored(settings.cluster_by),
            sort_by=stored(settings.sort_by),
        )
        return FileForm(self.schema, self.physical_schema, settings, by_stored_names, self.promoted)

    @cached_property
    def columns_digest(self) -> str:
        """Return the digest of the columns of files that are written for this version."""
        pairs = zip(self.schema, self.physical_schema, strict=True)
        return columns_digest(
            marked(theirs) if is_variant(ours, theirs) else theirs
            for ours, theirs in pairs
            if ours.name not in self.partition_columns
        )

    @property
    def expires(self) -> bool:
        """Whether a file is removed once all of its rows are old: then rows of different days must not share a file.

        Rejects expire with the rows of their table.
        """
        return bool(self.settings.ttl_ms) or f"/{REJECTS}" in self.name

    def physical_name(self, column: str) -> str:
        """Return the name that a top column has in files, statistics and the log."""
        return str(self.physical_field(column).name)

    def physical_field(self, column: str) -> pa.Field:
        """Return a top column as files have it."""
        return self.physical_schema.field(self.schema.get_field_index(column))

    def read_plan(self, schema: pa.Schema) -> ReadPlan:
        """Return how to read some of the table's columns from its files; `schema` holds them, in any order."""
        plan = self.stored_plan(schema)
        names = {*schema.names}
        if not self.promoted or (PROPERTIES not in names and names.isdisjoint(each.column for each in self.promoted)):
            return plan

        def widened(needed: list[str]) -> ReadPlan:
            return self.stored_plan(pa.schema([*schema, *map(self.schema.field, needed)]))

        return replace(plan, promoted=self.promoted, widened=widened)

    def stored_plan(self, schema: pa.Schema) -> ReadPlan:
        """Return how to read columns in their stored form, without looking for promoted fields in texts."""
        at = [self.schema.get_field_index(name) for name in schema.names]
        physical = pa.schema([self.physical_schema.field(each) for each in at])
        return ReadPlan(schema, physical, frozenset(self.partition_columns), self.mapping)

    def key(self, file: AddFile) -> str:
        """Return a data file's key in the store. Raises `Unsupported` for one that the store does not hold.

        That of an external table's file is pinned to the ETag that it had when it was declared.
        """
        key, etag = self.locate(file.path), file.tags.get(ETAG)
        return key if etag is None or not is_outside(key) else f"{key}{PIN}{etag}"

    def locate(self, path: str) -> str:
        """Return the key of a path of the log (decoded): below the table's root, or absolute.

        Raises `Unsupported` for a file that is not the table's (`TablePlaces`).
        """
        key = self.places.key(path)
        return key if self._place is None else self._place(key)

    def renamed(self, name: str, origin: str, place: Callable[[str], str]) -> Snapshot:
        """Return this version under another name, with the keys that `place` gives for its files."""
        other = Snapshot(self.state, self.root, name, self._store, self, place)
        other.origin = origin
        return other

    @cached_property
    def places(self) -> TablePlaces:
        """Return the judge of where files may lie."""
        return TablePlaces(self._store, self.root, self.state.metadata)
