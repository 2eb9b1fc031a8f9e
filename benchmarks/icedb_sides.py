"""What the comparison with IceDB runs in fresh processes, for both of them: appends, merges and a query.

Each action imports what it needs, and returns what is to be timed.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from time import time
from typing import Any

from tests.peer_duckdb import load, use_here

Timed = Callable[[], Any]
Row = dict[str, Any]
QUERY = "SELECT count(*), CAST(sum(ts) AS BIGINT) FROM {files} WHERE event = 'buy'"


def _batches(batches: int, rows: int, countries: int) -> list[list[Row]]:
    chance = random.Random(3)

    def row(at: int) -> Row:
        event, country = chance.choice(("click", "view", "buy")), ("de", "fr", "it", "jp")[at % countries]
        return {
            "id": f"{chance.getrandbits(96):024x}",
            "ts": 1_700_000_000_000 + chance.randrange(10**9),
            "event": event,
            "country": country,
            "value": chance.random(),
        }

    return [[row(at) for at in range(rows)] for _ in range(batches)]


def append_ours(uri: str, options: Row, table: str, batches: int, rows: int, countries: int) -> Timed:
    """Append batches of rows: how many rows."""
    import alluvia.api.lake  # loaded before the time is taken

    events, given = alluvia.connect(uri, **options).table(table), _batches(batches, rows, countries)

    def timed() -> int:
        for batch in given:
            events.append(batch)
        return batches * rows

    return timed


def append_icedb(source: str, options: Row, bucket: str, table: str, batches: int, rows: int, countries: int) -> Timed:
    """Insert batches of rows: how many rows."""
    lake, given = _icedb(source, options, bucket, table), _batches(batches, rows, countries)

    def timed() -> int:
        for batch in given:
            lake.insert(batch)
        return batches * rows

    return _silent(timed)


def merge_ours(uri: str, options: Row, table: str, files: int) -> Timed:  # noqa: ARG001
    """Merge a table's small files: whether some were merged."""
    import alluvia.api.lake  # loaded before the time is taken
    import alluvia.operations.compaction.optimize

    events = alluvia.connect(uri, **options).table(table)
    return lambda: events.optimize().files_removed > 0


def merge_icedb(source: str, options: Row, bucket: str, table: str, files: int) -> Timed:
    """Merge as many files of the biggest partition as asked for: whether some were merged."""
    lake = _icedb(source, options, bucket, table)
    return _silent(lambda: lake.merge(max_file_size=1 << 40, max_file_count=files)[0] is not None)


def query_ours(uri: str, options: Row, table: str) -> Timed:
    """Run a query: its row."""
    import alluvia.api.lake  # loaded before the time is taken
    import alluvia.query.engine

    lake = alluvia.connect(uri, **options)
    return lambda: list(lake.sql(QUERY.format(files=table)).to_pylist()[0].values())


def query_icedb(source: str, options: Row, bucket: str, table: str) -> Timed:
    """Read the log, and run a query on the files that are alive: its row."""
    lake = _icedb(source, options, bucket, table)
    log = import_module("icedb.log").IceLogIO("benchmark")

    def timed() -> list[Any]:
        _, markers, _, _ = log.read_at_max_time(lake.log_s3c, round(time() * 1000))
        files = [f"s3://{bucket}/{each.path}" for each in markers if each.tombstone is None]
        return list(lake.get_duckdb().execute(QUERY.format(files="read_parquet(?)"), [files]).fetchone())

    return _silent(timed)


def _silent(timed: Timed) -> Timed:
    """IceDB prints what it does to standard output, where the result belongs."""

    def without_output() -> Any:
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
            return timed()

    return without_output


def _icedb(source: str, options: Row, bucket: str, table: str) -> Any:
    """Return an IceDB of the source, whose connections load DuckDB's extension from its package."""
    use_here()
    sys.path.insert(0, source)
    icedb, log = import_module("icedb.icedb"), import_module("icedb.log")
    import duckdb

    class Local(icedb.IceDBv3):  # type: ignore[name-defined,misc]
        def get_duckdb(self) -> _Connection:
            connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
            load(connection, "httpfs")
            connection.execute(secret(options))
            return _Connection(connection)

    place = options["region"], options["endpoint_url"], options["access_key_id"], options["secret_access_key"]
    region, endpoint, key, secret = place
    return Local(
        partition_function=lambda row: f"country={row['country']}",
        sort_order=["event", "ts"],
        s3_region=region,
        s3_access_key=key,
        s3_secret_key=secret,
        s3_endpoint=endpoint,
        s3_client=log.S3Client(f"icedb/{table}", bucket, region, endpoint, key, secret),
        path_safe_hostname="benchmark",
        s3_use_path=True,
        compression_codec=icedb.CompressionCodec.ZSTD,
    )


class _Connection:
    """A connection of DuckDB whose `arrow` returns a table, as it did when IceDB was written."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def arrow(self) -> Any:
        return self._connection.to_arrow_table()
