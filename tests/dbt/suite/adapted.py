"""Fixtures and expectations that dbt leaves to adapters: texts of their SQL, names of types, messages of errors."""

from __future__ import annotations

import re
from typing import Any

import pytest
from dbt.tests.adapter.basic.expected_catalog import base_expected_catalog, expected_references_catalog, no_stats
from dbt.tests.adapter.simple_seed import fixtures, seeds
from dbt.tests.adapter.utils import fixture_get_intervals_between as intervals
from dbt.tests.util import check_relations_equal, run_dbt
from dbt_common.contracts.metadata import CatalogTable, ColumnMetadata, TableMetadata

from alluvia.errors import AlluviaError


class ContractTypes:
    """Values, their types in a contract, and the types that messages name."""

    @pytest.fixture(scope="class")
    def string_type(self) -> str:
        return "VARCHAR"

    @pytest.fixture(scope="class")
    def schema_string_type(self) -> str:
        return "text"

    @pytest.fixture(scope="class")
    def data_types(self) -> list[list[str]]:
        return [
            ["1", "int", "INTEGER"],
            ["'1'", "text", "VARCHAR"],
            ["true", "bool", "BOOLEAN"],
            ["DATE '2013-11-03'", "date", "DATE"],
            ["TIMESTAMP '2013-11-03 00:00:00'", "timestamp", "TIMESTAMP"],
            ["TIMESTAMPTZ '2013-11-03 00:00:00-07'", "timestamptz", "TIMESTAMP WITH TIME ZONE"],
            ["1.5::DECIMAL(6, 2)", "decimal(6, 2)", "DECIMAL(6,2)"],
            ["['a', 'b']", "text[]", "VARCHAR[]"],
        ]


class NotNullMessage:
    @pytest.fixture(scope="class")
    def expected_error_messages(self) -> list[str]:
        return ["column id", "null"]


_ROWS = """
    insert into <model_identifier> (id, {color}, date_day)
    select id, {color}, date_day from (
        {depends}select 'blue' as {color}, 1 as id, '2019-01-01' as date_day
    ) as model_subq
"""
_DEPENDS = "-- depends_on: <foreign_key_model_identifier> "


class ColumnsOfContract:
    @pytest.fixture(scope="class")
    def expected_sql(self) -> str:
        columns = "id INTEGER not null check ((id > 0)) check (id >= 1), color STRING, date_day STRING"
        return f"create or replace table <model_identifier> ({columns}) ;" + _ROWS.format(
            color="color", depends=_DEPENDS
        )


class ConstraintsOfContract:
    @pytest.fixture(scope="class")
    def expected_sql(self) -> str:
        checks = "check ((id > 0)), check (id >= 1)"
        columns = f"id INTEGER not null, color STRING, date_day STRING, {checks}"
        return f"create or replace table <model_identifier> ({columns}) ;" + _ROWS.format(
            color="color", depends=_DEPENDS
        )


class RowsOfEphemeral:
    """dbt compares PostgreSQL's text besides."""

    def test_ephemeral_multi(self, project: Any) -> None:
        run_dbt(["seed"])
        assert len(run_dbt(["run"])) == 3
        for name in ("dependent", "double_dependent", "super_dependent"):
            check_relations_equal(project.adapter, ["seed", name])


class RowsOfNestedEphemeral:
    """dbt compares PostgreSQL's text instead."""

    def test_ephemeral_nested(self, project: Any) -> None:
        assert len(run_dbt(["run"])) == 2
        check_relations_equal(project.adapter, ["source_table", "root_view"])


class HookContext:
    """What hooks find in their context: a profile of a lake has no host, user and password."""

    def check_hooks(self, state: str, project: Any, host: str | None, count: int = 1) -> None:
        found = self.get_ctx_vars(state, count, project)  # type: ignore[attr-defined]
        for context in found if isinstance(found, list) else [found]:
            self.check_context(context, state, project)

    def check_context(self, context: dict[str, Any], state: str, project: Any) -> None:
        assert context["test_state"] == state
        assert context["target_name"] == "default"
        assert context["target_schema"] == project.test_schema
        assert context["target_threads"] == 4
        assert context["target_type"] == "alluvia"
        assert context["run_started_at"]
        assert context["invocation_id"]
        assert context["thread_id"].startswith("Thread-") or context["thread_id"] == "MainThread"


class RunHookContext(HookContext):
    def check_hooks(self, state: str, project: Any, host: str | None, count: int = 1) -> None:
        self.check_context(self.get_ctx_vars(state, project), state, project)  # type: ignore[attr-defined]


class SurvivingViews:
    """A seed that is made anew drops no views of it, as `cascade` does elsewhere."""

    def test_simple_seed_full_refresh_flag(self, project: Any) -> None:
        self._build_relations_for_test(project)  # type: ignore[attr-defined]
        done = run_dbt(["seed", "--full-refresh"])
        self._check_relation_end_state(run_result=done, project=project, exists=True)  # type: ignore[attr-defined]

    def test_simple_seed_full_refresh_config(self, project: Any) -> None:
        self._build_relations_for_test(project)  # type: ignore[attr-defined]
        self._check_relation_end_state(run_result=run_dbt(["seed"]), project=project, exists=True)  # type: ignore[attr-defined]


class EventTimes:
    """Times as SQL writes them here."""

    @pytest.fixture(scope="class")
    def input_model_sql(self) -> str:
        rows = " union all ".join(
            f"select {day} as id, TIMESTAMPTZ '2020-01-0{day} 00:00:00+00' as event_time" for day in (1, 2, 3)
        )
        return "{{ config(materialized='table', event_time='event_time') }}\n" + rows

    @pytest.fixture(scope="class")
    def insert_two_rows_sql(self, project: Any) -> str:
        rows = ", ".join(f"({day}, TIMESTAMPTZ '2020-01-0{day} 00:00:00+00')" for day in (4, 5))
        return f"insert into {project.test_schema}.input_model (id, event_time) values {rows}"


class SampledTimes:
    """Times as SQL writes them here: two of the hour before, and one of the day before."""

    @pytest.fixture(scope="class")
    def input_model_sql(self) -> str:
        rows = " union all ".join(
            f"select {at} as id, TIMESTAMPTZ '{time}+00' as event_time"
            for at, time in enumerate(("2025-01-01 01:25:00", "2025-01-02 13:47:00", "2025-01-03 01:32:00"), 1)
        )
        return "{{ config(materialized='table', event_time='event_time') }}\n" + rows


class TypesOfSeeds:
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        text = fixtures.properties__schema_yml
        for theirs, ours in (
            ("timestamp without time zone", "TIMESTAMP"),
            ("text", "VARCHAR"),
            ("integer", "INTEGER"),
            ("boolean", "BOOLEAN"),
            ("date", "DATE"),
        ):
            text = text.replace(f"type: {theirs}\n", f"type: {ours}\n")
        return {"schema.yml": text}


class WithBom:
    """The package lacks a file of dbt's repository, so it is made of the rows that it is compared with."""

    @pytest.fixture(scope="class")
    def project(self, project: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
        project.test_dir = tmp_path_factory.mktemp("with_bom")
        rows = re.findall(r"^ *\((\d.*)\)[,;]?$", seeds.seeds__expected_sql, re.MULTILINE)
        lines = ["seed_id,first_name,email,ip_address,birthday", *(row.replace("'", "") for row in rows)]
        (project.test_dir / "seed_bom.csv").write_text("\n".join(lines), "utf-8-sig")
        return project


class ColumnsWithValues:
    """dbt adds a column with DEFAULT and a length, which are two statements here, and no length."""

    @pytest.fixture(scope="class")
    def project(self, project: Any) -> Any:
        run = project.run_sql

        def run_sql(text: str, fetch: str | None = None) -> Any:
            said = re.fullmatch(
                r"\s*alter table (\S+)\s+add column (\w+) (\w+)\(\d+\) default ('\w*'|null)\s*;?\s*",
                text,
                re.IGNORECASE,
            )
            if said is None:
                return run(text, fetch)
            table, column, kind, value = said.groups()
            return run(f"alter table {table} add column {column} {kind}; update {table} set {column} = {value}", fetch)

        project.run_sql = run_sql
        return project


class TimesWithoutZones:
    """dbt's TIMESTAMP has no time zone, and that of a table's definition has one here."""

    @pytest.fixture(scope="class")
    def project(self, project: Any) -> Any:
        run = project.run_sql

        def run_sql(text: str, fetch: str | None = None) -> Any:
            tables = re.sub(r"(?<=\s)TIMESTAMP(?=,?\n)", "TIMESTAMP WITHOUT TIME ZONE", text)
            return run(tables if "create table" in text else text, fetch)

        project.run_sql = run_sql
        return project


class TypesOfNow:
    @pytest.fixture(scope="class")
    def expected_schema(self) -> dict[str, str]:
        return {
            "current_timestamp": "TIMESTAMP WITH TIME ZONE",
            "current_timestamp_in_utc_backcompat": "TIMESTAMP",
            "current_timestamp_backcompat": "TIMESTAMP",
        }


class DaysOfFacts:
    """A date and an interval give a time, which no column of dates takes without a cast."""

    def update_fact_records(self, updates: dict[str, str], where: str | None = None) -> None:
        cast = {name: f"cast({value} as date)" if name == "updated_at" else value for name, value in updates.items()}
        super().update_fact_records(cast, where)  # type: ignore[misc]


class UnitTestedTypes:
    @pytest.fixture(scope="class")
    def data_types(self) -> list[list[str]]:
        return [
            ["1", "1"],
            ["'1'", "1"],
            ["true", "true"],
            ["DATE '2020-01-02'", "2020-01-02"],
            ["TIMESTAMP '2013-11-03 00:00:00'", "2013-11-03 00:00:00"],
            ["TIMESTAMPTZ '2013-11-03 00:00:00+00'", "2013-11-03 00:00:00+00"],
            ["1.5::DECIMAL(6, 2)", "1.5"],
            [
                "{'bar': 'baz', 'balance': 7.77, 'active': false}::JSON::VARCHAR",
                '{"bar":"baz","balance":7.77,"active":false}',
            ],
            ["['a', 'b']", "['a', 'b']"],
        ]


class DaysBetween:
    """dbt's dates are those of the United States."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        text = intervals.models__test_get_intervals_between_sql
        return {
            "test_get_intervals_between.yml": intervals.models__test_get_intervals_between_yml,
            "test_get_intervals_between.sql": self.interpolate_macro_namespace(  # type: ignore[attr-defined]
                text.replace("09/01/2023", "2023-09-01").replace("09/12/2023", "2023-09-12"), "get_intervals_between"
            ),
        }


class TypesOfCatalog:
    """A lake has no owners."""

    @pytest.fixture(scope="class")
    def profile_user(self) -> None:
        return None

    @pytest.fixture(scope="class")
    def expected_catalog(self, project: Any) -> Any:
        types = {"id_type": "INTEGER", "text_type": "VARCHAR", "time_type": "TIMESTAMP"}
        kinds = {"view_type": "VIEW", "table_type": "BASE TABLE"}
        return base_expected_catalog(project, role=None, **types, **kinds, model_stats=no_stats())


class TypesOfReferences(TypesOfCatalog):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project: Any) -> Any:
        types = {"id_type": "INTEGER", "text_type": "VARCHAR", "time_type": "TIMESTAMP", "bigint_type": "BIGINT"}
        kinds = {"view_type": "VIEW", "table_type": "BASE TABLE"}
        return expected_references_catalog(project, role=None, **types, **kinds, model_stats=no_stats())


class SingleCatalog:
    @pytest.fixture(scope="class")
    def expected_catalog_my_seed(self, project: Any) -> CatalogTable:
        return _catalog(project, "my_seed", "BASE TABLE")

    @pytest.fixture(scope="class")
    def expected_catalog_my_view_model(self, project: Any) -> CatalogTable:
        return _catalog(project, "my_view_model", "VIEW")


def _catalog(project: Any, name: str, kind: str) -> CatalogTable:
    names = ("id", "first_name", "email", "ip_address", "updated_at")
    types = ("INTEGER", "VARCHAR", "VARCHAR", "VARCHAR", "TIMESTAMP")
    columns = {
        name: ColumnMetadata(kind, at, name) for at, (name, kind) in enumerate(zip(names, types, strict=True), 1)
    }
    return CatalogTable(TableMetadata(kind, project.test_schema, name, project.database), columns, {})


class OwnProfile:
    """dbt names PostgreSQL's profile here."""

    @pytest.fixture(scope="class")
    def dbt_profile_target(self, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
        return {"type": "alluvia", "threads": 4, "path": str(tmp_path_factory.mktemp("lake"))}


class NoMaterializedViews:
    def test_simple_copy_with_materialized_views(self, project: Any) -> None:
        with pytest.raises(AlluviaError, match=r"CREATE MATERIALIZED is not supported: call lake.create_rollup"):
            project.run_sql("create materialized view {schema}.v as select 1 as n")


_CONSTRAINTS = "test_constraints.Base"
ADAPTED: dict[str, tuple[type, ...]] = {
    **{f"{_CONSTRAINTS}{kind}ConstraintsColumnsEqual": (ContractTypes,) for kind in ("Table", "View", "Incremental")},
    **{f"{_CONSTRAINTS}{kind}ConstraintsRollback": (NotNullMessage,) for kind in ("", "Incremental")},
    **{f"{_CONSTRAINTS}{kind}ConstraintsRuntimeDdlEnforcement": (ColumnsOfContract,) for kind in ("", "Incremental")},
    f"{_CONSTRAINTS}ModelConstraintsRuntimeEnforcement": (ConstraintsOfContract,),
    "test_ephemeral.BaseEphemeralMulti": (RowsOfEphemeral,),
    "test_ephemeral.BaseEphemeralNested": (RowsOfNestedEphemeral,),
    **{
        f"test_model_hooks.{name}": (HookContext,)
        for name in (
            "BasePrePostModelHooks",
            "BaseHookRefs",
            "BasePrePostModelHooksInConfig",
            "BasePrePostModelHooksInConfigKwargs",
            "BasePrePostModelHooksInConfigWithCount",
            "TestPrePostModelHooksUnderscores",
        )
    },
    "test_run_hooks.BasePrePostRunHooks": (RunHookContext,),
    "test_seed.BaseBasicSeedTests": (SurvivingViews,),
    "test_seed.BaseSeedConfigFullRefreshOn": (SurvivingViews,),
    "test_incremental_microbatch.BaseMicrobatch": (EventTimes,),
    "test_sample_mode.BaseSampleModeTest": (SampledTimes,),
    "test_copy_uppercase.BaseSimpleCopyUppercase": (OwnProfile,),
    "test_simple_copy.SimpleCopyBase": (NoMaterializedViews,),
    "test_seed_type_override.BaseSimpleSeedColumnOverride": (TypesOfSeeds,),
    "test_seed.BaseSimpleSeedWithBOM": (WithBom,),
    **{
        f"test_ephemeral_snapshot_hard_deletes.BaseSnapshot{name}": (ColumnsWithValues,)
        for name in (
            "EphemeralHardDeletes",
            "NewColumnSpecificCheckCols",
            "NewColumnTimestampStrategy",
            "NewColumnWithDeletes",
        )
    },
    "test_snapshot.BaseSimpleSnapshot": (DaysOfFacts, ColumnsWithValues),
    "test_snapshot.BaseSnapshotCheck": (DaysOfFacts,),
    "test_various_configs.BaseSnapshotDbtValidToCurrent": (TimesWithoutZones,),
    "test_timestamps.BaseCurrentTimestamps": (TypesOfNow,),
    "test_types.BaseUnitTestingTypes": (UnitTestedTypes,),
    "test_get_intervals_between.BaseGetIntervalsBetween": (DaysBetween,),
    "test_docs_generate.BaseDocsGenerate": (TypesOfCatalog,),
    "test_docs_generate.BaseDocsGenReferences": (TypesOfReferences,),
    "test_get_catalog_for_single_relation.BaseGetCatalogForSingleRelation": (SingleCatalog,),
}
