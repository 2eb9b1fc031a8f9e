"""Upkeep as a job for spark-submit: `job.py upkeep OPERATION --lake URI --table NAME`, on EMR Serverless, say.

The operation `pipeline` brings a rollup up to date, or a table by the declaration that it records. `verify` reads all
rows, and fails if it finds damage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any

import orjson

from alluvia.clock import SystemClock
from alluvia.errors import AlluviaError, Invalid
from alluvia.operations.compaction.optimize import OptimizeOptions
from alluvia.store import open_store
from alluvia.verify.report import VerifyReport
from alluvia_spark import pipelines, upkeep
from alluvia_spark.session import QUICK_JAVA, session

OPERATIONS: Mapping[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "optimize": (upkeep.optimize, tuple(each.name for each in fields(OptimizeOptions))),
    "vacuum": (upkeep.vacuum, ("retention_hours",)),
    "verify": (upkeep.verify, ()),
    "pipeline": (pipelines.run_declared, ("full_refresh", "share_bytes", "memory_mb")),
}
"""The operations: what does each, and the arguments that it takes."""
REPORTS = "_alluvia/upkeep/reports/"
"""Reports are kept here in the lake, as `<operation>/<table>.json`."""
NAMES_MAX = 100
HOURS_MAX = 87_600
"""Ten years, as in the settings of a deployed stack."""


def main(arguments: Sequence[str]) -> int:
    """Run one operation; print its report as one line of JSON, or an error as one line. Returns the status."""
    given = _parser().parse_args(arguments)
    options = {name: value for name in ("endpoint_url", "region") if (value := getattr(given, name)) is not None}
    try:
        how = arguments_of(given.operation, given.how)
        work, _ = OPERATIONS[given.operation]
        with session(f"alluvia {given.operation} {given.table}", settings=QUICK_JAVA) as spark:
            report = work(spark, given.lake, given.table, **how, options=options)
        body = orjson.dumps({"operation": given.operation, "table": given.table, "report": report}, default=str)
        _keep(given.lake, f"{REPORTS}{given.operation}/{given.table}.json", body, options)
    except AlluviaError as error:
        sys.stderr.write(f"{given.operation}: {error}\n")
        return 1
    sys.stdout.write(f"{body.decode()}\n")
    if isinstance(report, VerifyReport) and not report.ok:
        sys.stderr.write(f"verify: table {given.table} is damaged: the report says where\n")
        return 1
    return 0


def arguments_of(operation: str, text: str) -> dict[str, Any]:
    """Return the arguments of an operation that a JSON object has. Raises `Invalid` for others."""
    try:
        how = json.loads(text)
    except ValueError:
        how = None
    if not isinstance(how, dict):
        raise Invalid(f"how: expected a JSON object of arguments, got {text!r:.100}")
    _, known = OPERATIONS[operation]
    if unknown := sorted(how.keys() - set(known)):
        raise Invalid(f"how: {operation} takes {', '.join(known) or 'no arguments'}, not {unknown[0]!r:.100}")
    if operation == "pipeline":
        _check_pipeline(how)
    return _of_vacuum(how) if operation == "vacuum" else how


def _check_pipeline(how: Mapping[str, Any]) -> None:
    if not isinstance(how.get("full_refresh", False), bool):
        raise Invalid(f"how: full_refresh must be true or false, not {how['full_refresh']!r:.100}")
    for name in ("share_bytes", "memory_mb"):
        value = how.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise Invalid(f"how: {name} must be a number, 1 or more, not {value!r:.100}")


def _of_vacuum(how: Mapping[str, Any]) -> dict[str, Any]:
    hours = how.get("retention_hours")
    if hours is not None and (
        isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 <= hours <= HOURS_MAX
    ):
        raise Invalid(f"how: retention_hours must be a number from 0 to {HOURS_MAX}, not {hours!r:.100}")
    return {"retention": None if hours is None else timedelta(hours=hours), "names_max": NAMES_MAX}


def _keep(lake: str, key: str, body: bytes, options: Mapping[str, str]) -> None:
    """Put a report where the state machine of infra/spark_runs.py reads it."""
    given = options if lake.startswith("s3:") else {}
    open_store(lake, SystemClock(), **given).put(key, body)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="job.py upkeep", description="Maintain a table by tasks of Spark.")
    parser.add_argument("operation", choices=OPERATIONS)
    parser.add_argument("--lake", required=True, help="the lake's URI: s3://bucket/prefix, or a path")
    parser.add_argument("--table", required=True, help="a table of the lake")
    parser.add_argument("--how", default="{}", help="the operation's arguments, as a JSON object")
    parser.add_argument("--endpoint-url", help="of another S3 than Amazon's")
    parser.add_argument("--region", help="of the lake's bucket")
    return parser
