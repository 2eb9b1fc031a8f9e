"""Classes of dbt's suite that cannot hold for a lake, and why. `docs/guides/dbt.md` says the same to users."""

from __future__ import annotations

HELPER = "a class of dbt's own that others inherit: it has no models, or no expectations"
FUNCTIONS = "functions: SQL runs confined, and loads no code"
PYTHON = "Python models: SQL runs confined, and loads no code"
MATERIALIZED = "materialized views: rollups are not declared by dbt"
GRANTS = "grants: a lake has none, and tokens say who reads what"
HEADER = "its header is SET TIME ZONE: a query has no settings"
SEED_EMPTY = "seed --empty, which dbt has from 1.12 on"
QUOTED_CHECK = "a CHECK of a quoted name, which Spark would read as a text"
NAMES = "a seed with dots in its name: names are letters, digits and underscores"
DATABASES = "a second database: a lake has one"
CLONES = "clones are possible here"
ZONED = "times without a zone: now() has one"
QUOTES = "quotes escaped with a backslash, for databases that have no other way"

REASONS: dict[str, tuple[str, ...]] = {
    HELPER: (
        "base_array_utils.BaseArrayUtils",
        "base_data_type_macro.BaseDataTypeMacro",
        "base_utils.BaseUtils",
        "test_caching.BaseCachingTest",
        "test_constraints.BaseConstraintsColumnsEqual",
        "test_constraints.BaseContractSqlHeader",
        "test_current_timestamp.BaseCurrentTimestamp",
    ),
    FUNCTIONS: (
        "test_js_udfs.BasicJSAggregateUDF",
        "test_js_udfs.BasicJSUDF",
        "test_js_udfs.JSAggregateUDFVolatilityIgnored",
        "test_js_udfs.JSUDFDefaultArgSupport",
        "test_js_udfs.JSUDFDeterministicVolatility",
        "test_js_udfs.JSUDFMultiLineBody",
        "test_js_udfs.JSUDFNonDeterministicVolatility",
        "test_js_udfs.JSUDFStableVolatilityWarns",
        "test_udafs.BasicPythonUDAF",
        "test_udafs.BasicSQLUDAF",
        "test_udafs.PythonUDAFDefaultArgSupport",
        "test_udafs.UDAFBase",
        "test_udfs.CanFindScalarFunctionRelation",
        "test_udfs.DeterministicUDF",
        "test_udfs.ErrorForUnsupportedType",
        "test_udfs.NonDeterministicUDF",
        "test_udfs.PythonUDFDefaultArgSupport",
        "test_udfs.PythonUDFEntryPointRequired",
        "test_udfs.PythonUDFNotSupported",
        "test_udfs.PythonUDFRuntimeVersionRequired",
        "test_udfs.PythonUDFSupported",
        "test_udfs.PythonUDFVolatilitySupport",
        "test_udfs.PythonUDFWithPackagesSupported",
        "test_udfs.SqlUDFDefaultArgSupport",
        "test_udfs.StableUDF",
        "test_udfs.UDFsBasic",
    ),
    PYTHON: (
        "test_python_model.BasePythonEmptyTests",
        "test_python_model.BasePythonIncrementalTests",
        "test_python_model.BasePythonMetaGetTests",
        "test_python_model.BasePythonModelTests",
        "test_python_model.BasePythonSampleTests",
        "test_spark.BasePySparkTests",
    ),
    MATERIALIZED: (
        "basic.MaterializedViewBasic",
        "changes.MaterializedViewChanges",
        "changes.MaterializedViewChangesApplyMixin",
        "changes.MaterializedViewChangesContinueMixin",
        "changes.MaterializedViewChangesFailMixin",
        "relation_types.CatalogRelationTypes",
    ),
    GRANTS: (
        "test_incremental_grants.BaseIncrementalGrants",
        "test_invalid_grants.BaseInvalidGrants",
        "test_model_grants.BaseModelGrants",
        "test_seed_grants.BaseSeedGrants",
        "test_snapshot_grants.BaseSnapshotGrants",
    ),
    HEADER: (
        "test_constraints.BaseIncrementalContractSqlHeader",
        "test_constraints.BaseTableContractSqlHeader",
        "test_dbt_show.BaseShowSqlHeader",
    ),
    SEED_EMPTY: ("test_empty.BaseTestEmptySeedFlag",),
    QUOTED_CHECK: ("test_constraints.BaseConstraintQuotedColumn",),
    NAMES: ("test_seed.BaseSeedSpecificFormats",),
    DATABASES: ("test_aliases.BaseSameAliasDifferentDatabases",),
    CLONES: ("test_dbt_clone.BaseCloneNotPossible", "test_dbt_clone.TestPostgresCloneNotPossible"),
    ZONED: ("test_current_timestamp.BaseCurrentTimestampNaive",),
    QUOTES: ("test_escape_single_quotes.BaseEscapeSingleQuotesBackslash",),
}
LEFT_OUT = {key: reason for reason, keys in REASONS.items() for key in keys}
LEFT_OUT_OVER_HTTP = (
    "test_model_hooks.BasePrePostModelHooks",
    "test_model_hooks.BasePrePostModelHooksInConfigWithCount",
    "test_model_hooks.TestPrePostModelHooksUnderscores",
)
"""Their hooks run VACUUM, which a server refuses."""
