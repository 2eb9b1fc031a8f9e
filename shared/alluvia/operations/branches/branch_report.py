"""What a branch has changed, and what publishing it does, as rows for a terminal, SQL and HTTP. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alluvia.operations.branches.branch_diff import TableDiff
    from alluvia.operations.branches.branch_publish import PublishedTable


def diff_row(diff: TableDiff) -> dict[str, Any]:
    """Return what a branch has done to a table. Pairs are what was and what is."""
    return {
        "table": diff.name,
        "change": diff.kind,
        "base_version": diff.base_version,
        "version": diff.version,
        "rows_added": diff.rows_added,
        "rows_removed": diff.rows_removed,
        "rows_changed": diff.rows_changed,
        "files_added": diff.files_added,
        "files_removed": diff.files_removed,
        "columns_added": dict(diff.columns_added),
        "columns_removed": dict(diff.columns_removed),
        "columns_changed": {name: list(pair) for name, pair in diff.columns_changed.items()},
        "properties": {name: list(pair) for name, pair in diff.properties.items()},
    }


def published_row(table: PublishedTable) -> dict[str, Any]:
    """Return what publishing does to a table; `conflict` says what stands in the way, in a dry run."""
    return {
        "table": table.name,
        "change": table.kind,
        "how": table.how,
        "version": table.version,
        "files_added": table.files_added,
        "files_removed": table.files_removed,
        "conflict": None if table.conflict is None else str(table.conflict),
    }
