"""A table at one version: what readers hold. It never changes, whatever is committed later."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import pyarrow as pa

from alluvia.log.action_set import ActionSet
from alluvia.log.actions import AddFile, Protocol
from alluvia.log.replay import State
from alluvia.table.partition import PartitionSpec, parse_spec
from alluvia.table.predicate import Predicate
from alluvia.table.properties import Properties, read_properties
from alluvia.table.protocols import check_readable
from alluvia.table.schema import arrow_schema
from alluvia.table.skipping import prune


class Snapshot:
    """One version of the table at `root`, a key prefix of its store.

    Raises `Unsupported` on creation for a table with a feature that this library cannot read.
    """

    def __init__(self, state: State, root: str, name: str) -> None:
        check_readable(state.protocol, state.metadata)
        self.state = state
        self.root = root
        self.name = name

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
        """Return the columns, partition columns included, in the table's order."""
        return arrow_schema(self.state.metadata.schema_string)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Return the columns whose values stand in the log and not in the files."""
        return self.state.metadata.partition_columns

    @property
    def files(self) -> ActionSet[AddFile]:
        """Return the data files; `len()` of them is cheap."""
        return self.state.files

    @property
    def properties(self) -> Mapping[str, str]:
        """Return the table's properties as they stand in the log."""
        return self.state.metadata.configuration

    @property
    def protocol(self) -> Protocol:
        """Return what a client of this table must be able to do."""
        return self.state.protocol

    @cached_property
    def settings(self) -> Properties:
        """Return the properties, parsed."""
        return read_properties(self.properties)

    @cached_property
    def partition_spec(self) -> PartitionSpec:
        """Return how rows are split into files: `alluvia.partition_by`, else the partition columns."""
        return parse_spec(self.settings.partition_by or self.partition_columns, self.schema)

    def prune(self, predicate: Predicate) -> list[AddFile]:
        """Return the files that can hold rows for which a predicate holds."""
        return prune(self.files, predicate, self.schema, self.partition_columns)

    def key(self, file: AddFile) -> str:
        """Return a data file's key in the store."""
        return self.root + file.path
