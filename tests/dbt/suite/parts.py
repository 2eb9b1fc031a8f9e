"""The parts of dbt's suite that CI runs, by how they reach the lake. `make dbt` runs all of it both ways.

Each shows what neither another nor the project of the guide shows: seeds and changes of the kind of a model (over
HTTP, which sends the rows of a seed), a catalog of one table, contracts, each strategy, and changes in snapshots.
"""

from __future__ import annotations

PARTS: dict[str, tuple[str, ...]] = {
    "path": (
        "test_constraints.BaseIncrementalConstraintsRollback",
        "test_incremental.BaseIncremental",
        "test_incremental_microbatch.BaseMicrobatch",
        "test_incremental_predicates.TestPredicatesDeleteInsert",
        "test_snapshot_timestamp.BaseSnapshotTimestamp",
    ),
    "url": (
        "test_base.BaseSimpleMaterializations",
        "test_get_catalog_for_single_relation.BaseGetCatalogForSingleRelation",
    ),
}
