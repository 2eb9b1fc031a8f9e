"""How many requests each operation sends to an S3 server, counted by the server, for us and for `deltalake`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa

import alluvia
from benchmarks.report import Figure
from tests.s3server import S3Server

ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "name": [f"name-{at}" for at in range(100)]})
SCHEMA = ROWS.schema


def figures(server: S3Server, _: Path) -> list[Figure]:
    """Measure appends, opens, refreshes and optimize."""
    bucket = server.new_bucket()
    lake = alluvia.connect(f"s3://{bucket}/ours", **server.options)
    uri, options = f"s3://{bucket}/theirs", delta_options(server)
    found = [_warm_append(server, lake, uri, options)]
    found += _cold_open(server, bucket, uri, options)
    found += _refresh(server, bucket, uri, options)
    found.append(_merge(server, lake, bucket, options))
    found.append(_cold_window(server, bucket))
    return found


def delta_options(server: S3Server) -> dict[str, str]:
    """Return deltalake's storage options for the server."""
    return {
        "AWS_ENDPOINT_URL": server.endpoint_url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": server.options["region"],
        "AWS_ACCESS_KEY_ID": server.options["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": server.options["secret_access_key"],
        "aws_conditional_put": "etag",
    }


def count(server: S3Server, action: Callable[[], object]) -> Counter[str]:
    """Return the requests that an action sends."""
    server.requests()
    action()
    return server.requests()


def shown(counts: Counter[str]) -> str:
    """Return counts as text."""
    return " + ".join(f"{number} {kind}" for kind, number in sorted(counts.items(), reverse=True)) or "0"


def _ratio(ours: Counter[str], theirs: Counter[str]) -> float:
    return ours.total() / max(1, theirs.total())


def _warm_append(server: S3Server, lake: alluvia.Lake, uri: str, options: dict[str, str]) -> Figure:
    table = lake.create_table("events", SCHEMA)
    deltalake.write_deltalake(uri, ROWS, storage_options=options)
    theirs_handle = deltalake.DeltaTable(uri, storage_options=options)
    for _ in range(12):
        table.append(ROWS)
        deltalake.write_deltalake(theirs_handle, ROWS, mode="append")
    ours = count(server, lambda: table.append(ROWS))
    theirs = count(server, lambda: deltalake.write_deltalake(theirs_handle, ROWS, mode="append"))
    holds = ours == Counter({"PUT": 2})
    return Figure("Warm append, one partition", shown(ours), shown(theirs), _ratio(ours, theirs), "2 PUT", holds)


def _cold_open(server: S3Server, bucket: str, uri: str, options: dict[str, str]) -> list[Figure]:
    found = []
    for after in (0, 5):
        lake = alluvia.connect(f"s3://{bucket}/ours", **server.options)
        if after == 0:
            lake.table("events").checkpoint()
            deltalake.DeltaTable(uri, storage_options=options).create_checkpoint()
        for _ in range(after):
            lake.table("events").append(ROWS)
            deltalake.write_deltalake(uri, ROWS, mode="append", storage_options=options)
        fresh = alluvia.connect(f"s3://{bucket}/ours", **server.options)
        ours = count(server, lambda: fresh.table("events").snapshot())  # noqa: B023
        theirs = count(server, lambda: deltalake.DeltaTable(uri, storage_options=options))
        holds = ours["GET"] - after <= 4 and ours["LIST"] <= 1 and not ours["HEAD"]
        name = f"Cold open, {after} commits after the checkpoint"
        bar = f"4 GET + 1 LIST + {after} GET"
        found.append(Figure(name, shown(ours), shown(theirs), _ratio(ours, theirs), bar, holds))
    return found


def _refresh(server: S3Server, bucket: str, uri: str, options: dict[str, str]) -> list[Figure]:
    """Each new commit costs a GET, and one more finds that there is no further one."""
    found = []
    other = alluvia.connect(f"s3://{bucket}/ours", **server.options).table("events")
    table = alluvia.connect(f"s3://{bucket}/ours", **server.options).table("events")
    table.snapshot()
    theirs_handle = deltalake.DeltaTable(uri, storage_options=options)
    for commits in (0, 1, 10):
        for _ in range(commits):
            other.append(ROWS)
            deltalake.write_deltalake(uri, ROWS, mode="append", storage_options=options)
        ours = count(server, table.snapshot)
        theirs = count(server, theirs_handle.update_incremental)
        name = f"Warm refresh after {commits} commits of others"
        holds = ours == Counter({"GET": commits + 1})
        found.append(Figure(name, shown(ours), shown(theirs), _ratio(ours, theirs), f"{commits} + 1 GET", holds))
    return found


def _merge(server: S3Server, lake: alluvia.Lake, bucket: str, options: dict[str, str]) -> Figure:
    table = lake.create_table("small", SCHEMA, properties={"delta.checkpointInterval": "1000"})
    uri = f"s3://{bucket}/small"
    deltalake.write_deltalake(uri, ROWS, storage_options=options, configuration={"delta.checkpointInterval": "1000"})
    theirs_handle = deltalake.DeltaTable(uri, storage_options=options)
    for at in range(100):
        table.append(ROWS)
        if at:
            deltalake.write_deltalake(theirs_handle, ROWS, mode="append")
    ours = count(server, table.optimize)
    theirs = count(server, theirs_handle.optimize.compact)
    assert len(table.snapshot().files) == 1
    holds = ours.total() <= 103
    return Figure(
        "Optimize 100 files into one", shown(ours), shown(theirs), _ratio(ours, theirs), "103 requests", holds
    )


def _cold_window(server: S3Server, bucket: str) -> Figure:
    lake = alluvia.connect(f"s3://{bucket}/ours", **server.options)
    table = lake.create_events("clicks", properties={"delta.checkpointInterval": "1000"})
    for at in range(300):
        table.ingest(events(at))
    table.checkpoint()
    fresh = alluvia.connect(f"s3://{bucket}/ours", **server.options).table("clicks")
    counts = count(server, lambda: fresh.ingest(events(7)))
    return Figure(
        "A cold writer learns 300 commits' event ids", shown(counts), "", None, "10 requests", counts.total() <= 10
    )


def events(number: int) -> pa.Table:
    """Return a batch of ten events of the default event table."""
    at = pa.array([1_431_857_103_000_000] * 10, pa.timestamp("us", tz="UTC"))
    text = pa.array([f"{number}-{each}" for each in range(10)])
    return pa.table(
        {
            "event_id": text,
            "ts": at,
            "event": text,
            "source": text,
            "properties": pa.nulls(10, pa.string()),
            "received_at": at,
        }
    )
