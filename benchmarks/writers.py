"""16 processes append to one table over an S3 server: who fails, how many commits a second, and is every row there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

import alluvia
from benchmarks.report import Figure
from benchmarks.requests import delta_options
from tests.s3server import S3Server

PROCESSES = 16
APPENDS = 15


def figures(server: S3Server, _: Path) -> list[Figure]:
    """Run both writers, one after the other, on the same server."""
    bucket = server.new_bucket()
    schema = pa.schema({"writer": pa.int64(), "number": pa.int64()})
    table = alluvia.connect(f"s3://{bucket}/ours", **server.options).create_table("shared", schema)
    ours = _run("alluvia", f"s3://{bucket}/ours", server)
    rows = table.scan().read_all()
    ours["rows"], ours["distinct"] = len(rows), len(set(zip(*rows.to_pydict().values(), strict=True)))
    uri = f"s3://{bucket}/theirs"
    deltalake.DeltaTable.create(uri, schema=schema, storage_options=delta_options(server))
    theirs = _run("deltalake", uri, server)
    theirs["rows"] = len(deltalake.DeltaTable(uri, storage_options=delta_options(server)).to_pyarrow_table())
    wanted = PROCESSES * APPENDS
    exact = ours["failed"] == 0 and ours["rows"] == ours["distinct"] == wanted
    ratio = ours["per_second"] / max(theirs["per_second"], 0.001)
    return [
        Figure(
            f"{PROCESSES} processes, {APPENDS} appends each: failed appends",
            f"{ours['failed']} of {wanted}; {ours['rows']} rows, {ours['distinct']} distinct",
            f"{theirs['failed']} of {wanted}; {theirs['rows']} rows",
            None,
            "0, every row once",
            exact,
        ),
        Figure(
            f"{PROCESSES} processes: commits a second",
            f"{ours['per_second']:.1f}",
            f"{theirs['per_second']:.1f}",
            ratio,
            "at least 4 times",
            ratio >= 4,
        ),
        Figure(
            f"{PROCESSES} processes: requests a commit",
            f"{ours['requests'] / wanted:.1f}",
            f"{theirs['requests'] / max(1, wanted - theirs['failed']):.1f}",
            None,
        ),
    ]


def _run(kind: str, uri: str, server: S3Server) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.writers", kind, uri, json.dumps(server.options), server.endpoint_url]
    root = Path(__file__).parent.parent
    processes = [
        subprocess.Popen([*command, str(number)], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    server.requests()
    started = time.monotonic()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    failed = sum(int(process.communicate(timeout=900)[0]) for process in processes)
    seconds = time.monotonic() - started
    done = PROCESSES * APPENDS - failed
    return {"failed": failed, "per_second": done / seconds, "requests": server.requests().total()}


def _write(kind: str, uri: str, options: dict[str, Any], endpoint_url: str, number: int) -> None:
    """Append in one process; print how many appends failed for good."""
    if kind == "alluvia":
        table = alluvia.connect(uri, **options).table("shared")
        table.snapshot()
    else:
        delta = deltalake.DeltaTable(uri, storage_options=delta_options(S3Server(endpoint_url)))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    failed = 0
    for at in range(APPENDS):
        rows = pa.table({"writer": pa.array([number], pa.int64()), "number": pa.array([at], pa.int64())})
        try:
            if kind == "alluvia":
                table.append(rows)
            else:
                deltalake.write_deltalake(delta, rows, mode="append")
        except Exception as error:  # noqa: BLE001 - a failure of either writer is what is counted
            sys.stderr.write(f"{kind} {number}: {type(error).__name__}: {str(error)[:200]}\n")
            failed += 1
    sys.stdout.write(f"{failed}\n")


if __name__ == "__main__":
    _write(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
