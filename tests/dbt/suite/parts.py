"""The parts of dbt's suite that CI runs, by how they reach the lake. `make dbt` runs all of it both ways."""

from __future__ import annotations

PARTS: dict[str, tuple[str, ...]] = {
    "path": (
        "test_base.BaseSimpleMaterializations",
        "test_constraints.BaseIncrementalConstraintsRollback",
        "test_docs_generate.BaseDocsGenReferences",
        "test_incremental.BaseIncremental",
        "test_incremental_microbatch.BaseMicrobatch",
        "test_incremental_predicates.TestPredicatesDeleteInsert",
        "test_snapshot_timestamp.BaseSnapshotTimestamp",
    ),
    "url": (
        "test_base.BaseSimpleMaterializations",
        "test_get_catalog_for_single_relation.BaseGetCatalogForSingleRelation",
        "test_snapshot_timestamp.BaseSnapshotTimestamp",
    ),
}
