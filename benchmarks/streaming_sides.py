"""One side of the streaming benchmark, in a process of its own: `python -m benchmarks.streaming_sides SIDE ARGUMENTS`.

It reads commands from its standard input (`append 100`, `read`, `maintain`, `stored`) and answers each with one line
of JSON: the CPU seconds and seconds that the command took, and its result.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

PEERS = Path(sys.prefix) / "peers"
"""Packages of the group `peers`, whose wheels need another version of DuckDB: see benchmarks/README.md."""
ROWS = 10
LOOK_EVERY = 10
"""`serve` and the notifications of S3 look at a table after this many commits."""
QUERY = "SELECT kind, count(*), max(id), sum(value) FROM {} GROUP BY kind ORDER BY kind"
SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("kind", pa.string()), ("value", pa.float64())]
)
_FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def batch(number: int) -> pa.Table:
    """Return the rows of a batch, the same for each side."""
    chance, ids = random.Random(number), range(number * ROWS, number * ROWS + ROWS)
    times = [_FIRST + timedelta(seconds=each) for each in ids]
    kinds, values = [chance.choice("abcd") for _ in ids], [float(chance.randrange(1000)) for _ in ids]
    return pa.table([list(ids), times, kinds, values], schema=SCHEMA)


class Ours:
    """Alluvia as `serve` and the stack keep a table: every tenth commit merges the files that are due."""

    def __init__(self, place: str, options: dict[str, Any], **merges: Any) -> None:
        import alluvia

        self._table = alluvia.connect(place, **options).create_table("t", SCHEMA)
        self._readers = alluvia.connect(place, **options)  # they must look for new commits
        self._merges = {"every": LOOK_EVERY, "when_due": True} | merges
        self._version = 0
        self.told = {"merges": 0, "merged_bytes": 0, "files_max": 0, "merge_cpu": 0.0}

    def append(self, rows: pa.Table) -> None:
        self._version = self._table.append(rows).version
        if self._version % self._merges["every"] == 0:
            began = time.process_time()
            done = self._table.optimize(when_due=self._merges["when_due"])
            self.told["merge_cpu"] += time.process_time() - began
            self.told["merges"] += len(done.versions)
            self.told["merged_bytes"] += done.bytes_written
            self.told["files_max"] = max(self.told["files_max"], done.files_before)

    def read(self) -> list[Any]:
        return [list(row.values()) for row in self._readers.sql(QUERY.format("t")).to_pylist()]

    def maintain(self) -> None:
        self._table.optimize()
        self._table.checkpoint()


class DuckLake:
    """DuckLake with small batches in its catalog, of DuckDB's own kind, or in SQLite or PostgreSQL."""

    def __init__(self, place: str, _: dict[str, Any], catalog: str) -> None:
        sys.path.insert(0, str(PEERS))
        import duckdb

        self._connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        for name in ("sqlite_scanner", "postgres_scanner", "ducklake"):
            (path,) = PEERS.glob(f"duckdb_extension_{name}/extensions/*/{name}.duckdb_extension")
            self._connection.execute(f"LOAD '{path}'")
        Path(place).mkdir(parents=True, exist_ok=True)
        where = {"duckdb": f"{place}/catalog.ducklake", "sqlite": f"sqlite:{place}/catalog.sqlite"}.get(catalog)
        where = where or f"postgres:dbname=postgres host={catalog} user=postgres"
        self._connection.execute(
            f"ATTACH 'ducklake:{where}' AS lake (DATA_PATH '{place}/data', DATA_INLINING_ROW_LIMIT {ROWS * 10})"
        )
        self._connection.execute("CREATE TABLE lake.t (id BIGINT, ts TIMESTAMPTZ, kind VARCHAR, value DOUBLE)")
        self.told: dict[str, Any] = {}

    def append(self, rows: pa.Table) -> None:
        self._connection.register("rows", rows)
        self._connection.execute("INSERT INTO lake.t FROM rows")

    def read(self) -> list[Any]:
        return [list(row) for row in self._connection.execute(QUERY.format("lake.t")).fetchall()]

    def maintain(self) -> None:
        self._connection.execute("CALL ducklake_flush_inlined_data('lake')").fetchall()
        self._connection.execute("CALL ducklake_merge_adjacent_files('lake')").fetchall()


class DeltaLake:
    """delta-rs, with its own engine for queries."""

    def __init__(self, place: str, options: dict[str, Any]) -> None:
        from deltalake import DeltaTable

        self._table = DeltaTable.create(place, SCHEMA, storage_options=options)
        self.told: dict[str, Any] = {}

    def append(self, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self._table, rows, mode="append")

    def read(self) -> list[Any]:
        from deltalake import QueryBuilder

        self._table.update_incremental()
        found = QueryBuilder().register("t", self._table).execute(QUERY.format("t")).read_all()
        return [list(row.values()) for row in pa.table(found).to_pylist()]

    def maintain(self) -> None:
        self._table.optimize.compact()
        self._table.create_checkpoint()


class Iceberg:
    """pyiceberg with a catalog in SQLite. It has no compaction, so maintenance rewrites the rows as one file."""

    def __init__(self, place: str, options: dict[str, Any]) -> None:
        sys.path.append(str(PEERS))
        home = options.pop("catalog")
        Path(home).mkdir(parents=True, exist_ok=True)
        catalog = import_module("pyiceberg.catalog.sql").SqlCatalog(
            "c", uri=f"sqlite:///{home}/catalog.sqlite", warehouse=place, **options
        )
        catalog.create_namespace("n")
        self._table = catalog.create_table("n.t", SCHEMA)
        self.told: dict[str, Any] = {}

    def append(self, rows: pa.Table) -> None:
        self._table.append(rows)

    def read(self) -> list[Any]:
        import duckdb

        rows = self._table.refresh().scan().to_arrow()
        with duckdb.connect() as connection:
            connection.register("rows", rows)
            return [list(row) for row in connection.execute(QUERY.format("rows")).fetchall()]

    def maintain(self) -> None:
        self._table.overwrite(self._table.scan().to_arrow())


SIDES: dict[str, Callable[..., Any]] = {
    "ours": Ours,
    "ducklake": DuckLake,
    "deltalake": DeltaLake,
    "pyiceberg": Iceberg,
}


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children, including those that still run."""
    return time.process_time() + sum(_children(os.getpid())) + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def _children(parent: int) -> Iterator[float]:
    tick = os.sysconf("SC_CLK_TCK")
    for each in Path(f"/proc/{parent}/task").glob("*/children"):
        for child in each.read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            yield (int(fields[11]) + int(fields[12])) / tick
            yield from _children(int(child))


@contextmanager
def postgres(folder: Path) -> Iterator[str | None]:
    """Run a PostgreSQL server, and yield the folder of its socket; None if PostgreSQL is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        yield None
        return
    folder.mkdir(parents=True)
    user = "postgres" if os.getuid() == 0 else None  # PostgreSQL refuses to run as root
    if user is not None:
        shutil.chown(folder, user)
        folder.parent.chmod(0o755)
    data, output = str(folder / "data"), subprocess.DEVNULL
    made = [str(found[-1]), "-D", data, "-U", "postgres", "-A", "trust"]
    subprocess.run(made, check=True, user=user, cwd=folder, stdout=output)
    command = [str(found[-1].with_name("postgres")), "-D", data, "-k", str(folder), "-c", "listen_addresses="]
    server = subprocess.Popen(command, user=user, cwd=folder, stdout=output, stderr=output)
    try:
        while not (folder / ".s.PGSQL.5432").exists():
            time.sleep(0.1)
        time.sleep(1)
        yield str(folder)
    finally:
        server.terminate()
        server.wait()


class Side:
    """A side in its process, which takes commands in turn with the others."""

    def __init__(self, side: str, *arguments: Any, **options: Any) -> None:
        command = [sys.executable, "-m", "benchmarks.streaming_sides", side, json.dumps([arguments, options])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, command: str) -> dict[str, Any]:
        """Run a command there. Returns `cpu` and `seconds`, and what it `found` and `told`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def main(side: str, text: str) -> None:
    """Run commands until the input ends."""
    arguments, options = json.loads(text)
    found, number = SIDES[side](*arguments, **options), 0
    for line in sys.stdin:
        command, _, count = line.strip().partition(" ")
        batches = [batch(number + at) for at in range(int(count or 0))]
        number += len(batches)
        cpu, began, answer = cpu_seconds(), time.perf_counter(), None
        for rows in batches:
            found.append(rows)
        if command != "append":
            answer = getattr(found, command)()
        took = time.perf_counter() - began
        reply = {"cpu": cpu_seconds() - cpu, "seconds": took, "found": answer, "told": found.told}
        sys.stdout.write(json.dumps(reply, default=str) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
