"""What is deployed, without the CDK, whose import takes seconds: the stack, and each function's size and layers."""

from __future__ import annotations

from dataclasses import dataclass

from infra.sources import LIBRARY

STACK_NAME = "Alluvia"
CORE = (LIBRARY, "core")
WITH_DUCKDB = (LIBRARY, "core", "query")


@dataclass(frozen=True, slots=True)
class Spec:
    """A deployment of the folder `functions/<folder>`. 1,769 MB of memory are one vCPU, so memory also buys speed."""

    folder: str
    memory_mb: int
    timeout_seconds: int
    layers: tuple[str, ...]
    description: str
    disk_mb: int = 512


# API Gateway gives up after 30 seconds: what it calls must answer, if only with an error, before that.
# Ingestion loads DuckDB for tables with CHECK constraints alone.
INGEST = Spec("ingest", 1024, 29, WITH_DUCKDB, "Takes events in over HTTP")
COMMIT = Spec("ingest", 1769, 60, WITH_DUCKDB, "Commits events from the queue, a batch at a time")
# What API Gateway has given up on goes on to its end, and who asks again gets its answer.
UPLOAD = Spec("ingest", 3538, 900, WITH_DUCKDB, "Takes files of rows in over HTTP", disk_mb=4096)
QUERY = Spec("query", 3538, 29, WITH_DUCKDB, "Answers SQL over HTTP", disk_mb=2048)
JOBS = Spec("query", 3538, 900, WITH_DUCKDB, "Runs queries whose senders do not wait", disk_mb=2048)
SQL = Spec("query", 3538, 29, WITH_DUCKDB, "Runs SQL that writes, over HTTP", disk_mb=2048)
MERGE = Spec("merge", 3538, 900, WITH_DUCKDB, "Makes few sorted files out of many small ones", disk_mb=4096)
PIPELINE = Spec("pipeline", 3538, 900, WITH_DUCKDB, "Brings tables that are made of others up to date", disk_mb=4096)
VACUUM = Spec("vacuum", 1769, 900, CORE, "Deletes what no retained version needs")
BACKFILL = Spec("backfill", 512, 30, CORE, "Starts Spark jobs and tells how they do")
