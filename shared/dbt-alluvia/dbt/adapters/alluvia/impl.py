"""The adapter: what dbt asks of a lake, besides what the macros in `dbt.include.alluvia` write as SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbt.adapters.base import ConstraintSupport, available
from dbt.adapters.capability import Capability, CapabilityDict, CapabilitySupport, Support
from dbt.adapters.protocol import AdapterConfig
from dbt.adapters.sql import SQLAdapter
from dbt_common.contracts.constraints import ConstraintType
from dbt_common.contracts.metadata import CatalogTable, ColumnMetadata, TableMetadata
from dbt_common.exceptions import DbtDatabaseError

from alluvia.errors import TableExists, TableNotFound
from dbt.adapters.alluvia.columns import AlluviaColumn, columns_of
from dbt.adapters.alluvia.connections import AlluviaConnectionManager
from dbt.adapters.alluvia.relations import AlluviaRelation

if TYPE_CHECKING:
    import agate

SINGLE_CATALOG = "get_catalog_for_single_relation"


@dataclass
class AlluviaConfig(AdapterConfig):
    """The options of a model besides dbt's own: the layout and the properties of its table."""

    partition_by: str | list[str] | None = None
    sort_by: str | list[str] | None = None
    cluster_by: str | list[str] | None = None
    table_properties: dict[str, str] | None = None


class AlluviaAdapter(SQLAdapter):
    """A lake, to dbt."""

    ConnectionManager = AlluviaConnectionManager
    Relation = AlluviaRelation
    Column = AlluviaColumn
    AdapterSpecificConfigs = AlluviaConfig

    CONSTRAINT_SUPPORT = {  # noqa: RUF012 - dbt's own name for it
        ConstraintType.check: ConstraintSupport.ENFORCED,
        ConstraintType.not_null: ConstraintSupport.ENFORCED,
        ConstraintType.unique: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.primary_key: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.foreign_key: ConstraintSupport.NOT_SUPPORTED,
    }
    _capabilities = CapabilityDict(
        {
            Capability.SchemaMetadataByRelations: CapabilitySupport(support=Support.Full),
            Capability.TableLastModifiedMetadata: CapabilitySupport(support=Support.Full),
            Capability.TableLastModifiedMetadataBatch: CapabilitySupport(support=Support.Full),
            Capability.GetCatalogForSingleRelation: CapabilitySupport(support=Support.Full),
            Capability.MicrobatchConcurrency: CapabilitySupport(support=Support.Full),
        }
    )

    @classmethod
    def date_function(cls) -> str:
        return "now()"

    @classmethod
    def is_cancelable(cls) -> bool:
        return True

    @classmethod
    def convert_text_type(cls, agate_table: agate.Table, col_idx: int) -> str:  # noqa: ARG003
        return "VARCHAR"

    @classmethod
    def convert_number_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        import agate

        if agate_table.aggregate(agate.MaxPrecision(col_idx)):
            return "DOUBLE"
        return cls.convert_integer_type(agate_table, col_idx)  # the numbers of seeds are all of agate's one type

    @classmethod
    def convert_integer_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        values = (row[col_idx] for row in agate_table.rows)
        return "BIGINT" if any(value is not None and not -(2**31) <= value < 2**31 for value in values) else "INTEGER"

    @classmethod
    def convert_datetime_type(cls, agate_table: agate.Table, col_idx: int) -> str:  # noqa: ARG003
        return "TIMESTAMP"

    @classmethod
    def convert_time_type(cls, agate_table: agate.Table, col_idx: int) -> str:  # noqa: ARG003
        return "VARCHAR"  # Delta has no type of times of the day

    @classmethod
    def quote(cls, identifier: str) -> str:
        return '"{}"'.format(identifier.replace('"', '""'))

    def valid_incremental_strategies(self) -> list[str]:
        return ["append", "delete+insert", "merge", "microbatch"]

    def get_columns_in_relation(self, relation: AlluviaRelation) -> list[AlluviaColumn]:
        """Return the columns of a table or a view; none where there is none of that name."""
        try:
            return self._columns(f"SELECT * FROM {relation.render()} LIMIT 0")  # noqa: S608 - quoted
        except DbtDatabaseError as error:
            if isinstance(error.__cause__, TableNotFound):
                return []
            raise

    @available.parse(lambda *_, **__: [])
    def get_column_schema_from_query(self, sql: str) -> list[AlluviaColumn]:
        """Return the columns that a table of a query's rows would have. The query is run."""
        return self._columns(sql)

    def _columns(self, query: str) -> list[AlluviaColumn]:
        _, cursor = self.connections.add_select_query(query)
        with self.connections.exception_handler(query):
            return columns_of(cursor.answer.schema)

    def get_catalog_for_single_relation(self, relation: AlluviaRelation) -> CatalogTable | None:
        """Return what a catalog says of a table or a view; None where there is none of that name."""
        rows = [dict(row) for row in self.execute_macro(SINGLE_CATALOG, kwargs={"relation": relation})]
        if not rows:
            return None
        first = rows[0]
        metadata = TableMetadata(
            first["table_type"],
            first["table_schema"],
            first["table_name"],
            first["table_database"],
            first["table_comment"],
            first["table_owner"],
        )
        columns = {
            row["column_name"]: ColumnMetadata(
                row["column_type"], int(row["column_index"]), row["column_name"], row["column_comment"]
            )
            for row in rows
        }
        return CatalogTable(metadata, columns, {})

    @available.parse_none
    def run_with_values(self, text: str, values: dict[str, Any]) -> None:
        """Run a text with the values of its `$name`. dbt's log has the text alone."""
        self.connections.add_query(text, bindings=values)

    @available.parse_none
    def check_that_only_the_name_is_taken(self, clone: str) -> None:
        """Run the statement that makes a clone of a name that is taken, and raise any error but that one.

        A server tells it by its message alone.
        """
        try:
            self.connections.add_query(clone)
        except DbtDatabaseError as error:
            if not isinstance(error.__cause__, TableExists) and "already exists" not in str(error):
                raise

    @available
    @staticmethod
    def rows_as_texts(table: agate.Table) -> list[dict[str, str | None]]:
        """Return the rows of a seed, for SQL that casts them, with names by position, as its own may be anything."""
        return [{f"c{at}": _text(value) for at, value in enumerate(row)} for row in table.rows]


def _text(value: Any) -> str | None:
    return None if value is None else value.isoformat() if hasattr(value, "isoformat") else str(value)
