"""Run the benchmarks, print one table and keep it under `benchmarks/results/`: `python -m benchmarks [NAME …]`."""

from __future__ import annotations

import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks import (
    answers,
    appends,
    backfills,
    checkpoints,
    clusters,
    cold_starts,
    command_line,
    costs,
    crowds,
    fetching,
    flows,
    icedb,
    lookups,
    many_tables,
    merges,
    opens,
    parsing,
    pipelines,
    posts,
    queries,
    report,
    requests,
    rollups,
    row_changes,
    row_groups,
    served,
    spark_reads,
    spark_streaming,
    spark_upkeep,
    streaming,
    transactions,
    uploads,
    vacuums,
    warm_queries,
    wide_tables,
    writers,
)
from tests.s3server import running_server

PARTS = {
    "requests": requests.figures,
    "flows": flows.figures,
    "opens": opens.figures,
    "appends": appends.figures,
    "checkpoints": checkpoints.figures,
    "parsing": parsing.figures,
    "queries": queries.figures,
    "warm_queries": warm_queries.figures,
    "warm_suites": warm_queries.suites,
    "fetching": fetching.figures,
    "served": served.figures,
    "wide_tables": wide_tables.figures,
    "lookups": lookups.figures,
    "answers": answers.figures,
    "row_changes": row_changes.figures,
    "row_groups": row_groups.figures,
    "pipelines": pipelines.figures,
    "rollups": rollups.figures,
    "vacuums": vacuums.figures,
    "cold_starts": cold_starts.figures,
    "command_line": command_line.figures,
    "merges": merges.figures,
    "clusters": clusters.figures,
    "icedb": icedb.figures,
    "many_tables": many_tables.figures,
    "writers": writers.figures,
    "posts": posts.figures,
    "streaming": streaming.figures,
    "streaming_30000": streaming.many_figures,
    "crowds": crowds.figures,
    "costs": costs.figures,
    "transactions": transactions.figures,
    "uploads": uploads.figures,
    "spark_reads": spark_reads.figures,
    "spark_streaming": spark_streaming.figures,
    "spark_upkeep": spark_upkeep.figures,
    "backfill": backfills.figures,
}

BY_NAME_ONLY = ("icedb", "streaming_30000")
"""Benchmarks that need the network or half an hour; they run only if named."""


def main(names: list[str]) -> int:
    """Run some benchmarks, all by default; return 1 if a bar does not hold, 2 for a name that is none."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        sys.stderr.write(f"there is no benchmark {unknown[0]!r}; there are {', '.join(PARTS)}\n")
        return 2
    found = []
    for name in names or [name for name in PARTS if name not in BY_NAME_ONLY]:
        started = time.monotonic()
        with running_server() as server, tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
            found += PARTS[name](server, Path(folder))
        sys.stderr.write(f"{name}: {time.monotonic() - started:.0f} s\n")
    versions = {name: version(name) for name in ("deltalake", "pyarrow", "duckdb", "moto", "pyspark")}
    if "icedb" in names:
        versions["icedb"] = icedb.version()
    path = report.keep("-".join(names) or "all", found, versions)
    sys.stdout.write(f"{report.text(found)}\n\nkept in {path.relative_to(path.parent.parent.parent)}\n")
    return 1 if any(figure.holds is False for figure in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
