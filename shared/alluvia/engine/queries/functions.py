"""Which of DuckDB's functions a query may call. Pure.

Table functions reach files, the network, settings and secrets, so only those named here are allowed. Scalar
functions and aggregates compute on their arguments, so all are allowed except those named here. The lists were drawn
up against every function of DuckDB 1.5 and 2.0; a test holds the number and names of those functions, so that an
upgrade that brings new ones is looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping

from alluvia.delta.schema.names import fold

LAKE_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "branches": (),
    "changes": ("table", "from", "to", "expired"),
    "columns": ("table",),
    "files": ("table", "where"),
    "history": ("table", "limit"),
    "partitions": ("table", "where"),
    "row_groups": ("table", "where"),
    "table_columns": ("table",),
    "tables": (),
    "tags": (),
}
"""Table functions about the lake, with their arguments in order: a query gets their rows in their place."""
VERSIONED = frozenset({"columns", "files", "partitions", "row_groups", "table_columns"})
"""Those that take the version of their table, too."""
INFORMATION_SCHEMA = "information_schema"
INFORMATION_SCHEMA_VIEWS = frozenset({"columns", "schemata", "tables", "views"})
"""Names that tools look up in `information_schema`, also about the lake."""

TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"})

REFUSED_FUNCTIONS = frozenset(
    {
        # the environment, settings and variables
        "current_query",
        "current_setting",
        "getenv",
        "getvariable",
        # the catalog, which holds the paths of data files
        "format_type",
        "get_block_size",
        "index_key",
        "pg_get_constraintdef",
        "pg_get_expr",
        "pg_get_viewdef",
        # SQL or plans as text
        "json_deserialize_sql",
        "json_execute_serialized_sql",
        "json_serialize_plan",
        "json_serialize_sql",
        # statistics of files, which reveal rows that are not in the query
        "stats",
        # state outside the query
        "currval",
        "nextval",
        "setseed",
        "setval",
        "write_log",
        # time without work
        "pg_sleep",
        "sleep_ms",
        # raw bytes taken for DuckDB's own structures
        "combine",
        "combine_aggr",
        "finalize",
        "to_aggregate_state",
        "variant_bytes_to_variant",
    }
)

_REFUSED_PREFIXES = ("__", "duckdb_", "pragma_")


def is_refused(name: str) -> bool:
    """Whether a query may not call a scalar function or aggregate of this name."""
    name = fold(name)
    return name in REFUSED_FUNCTIONS or name.startswith(_REFUSED_PREFIXES)


# What another run of the same query may answer otherwise: functions that DuckDB does not call CONSISTENT, macros over
# them, and those of time or chance that it does call so. (`age` does too, if it is given one time.)
VARYING_FUNCTIONS = frozenset(
    {
        "ago", "current_catalog", "current_connection_id", "current_database", "current_date", "current_localtime",
        "current_localtimestamp", "current_query", "current_query_id", "current_schema", "current_schemas",
        "current_time", "current_timestamp", "current_transaction_id", "currval", "gen_random_uuid", "get_current_time",
        "get_current_timestamp", "in_search_path", "nextval", "now", "pg_conf_load_time", "pg_postmaster_start_time",
        "pg_sleep", "random", "reservoir_quantile", "setseed", "setval", "sleep_ms", "stats", "today",
        "transaction_timestamp", "txid_current", "uuid", "uuidv4", "uuidv7", "vector_type", "write_log",
    }
)  # fmt: skip
# Names that mean the time without parentheses, where no column has them.
VARYING_NAMES = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})

# What pruning may compute ahead of the query: deterministic, cheap, and of a result no larger than its arguments.
FOLDABLE = frozenset(
    {
        "%", "*", "+", "-", "/", "//", "||", "abs", "ago", "ceil", "ceiling", "date_add", "date_trunc", "epoch_ms",
        "floor", "lower", "make_date", "make_timestamp", "make_timestamptz", "round", "to_days", "to_hours",
        "to_microseconds", "to_milliseconds", "to_minutes", "to_months", "to_seconds", "to_timestamp", "to_weeks",
        "to_years", "trunc", "upper",
    }
)  # fmt: skip

# In a list of columns they can produce several.
UNNESTING = frozenset({"unlist", "unnest"})

NOW_FUNCTIONS = frozenset({"current_timestamp", "get_current_timestamp", "now", "transaction_timestamp"})
TODAY_FUNCTIONS = frozenset({"current_date", "today"})
