"""The backfill job's entry point for spark-submit: on EMR Serverless, or on any cluster that holds the archive."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence

from alluvia.backfill_jobs import FORMATS, ON_BAD_FILE
from alluvia.clock import SystemClock
from alluvia.errors import AlluviaError
from alluvia.store import open_store
from alluvia_spark.backfill import run
from alluvia_spark.backfill_job.job import Report
from alluvia_spark.sources.files import SourceOptions
from alluvia_spark.upkeep.job import main as upkeep

STORE_OPTIONS = ("endpoint_url", "region")


def main(arguments: Sequence[str]) -> int:
    """Run one job; print its report as one line of JSON, or one line of what went wrong. Returns the exit status.

    With `upkeep` as the first argument, the job maintains a table.
    """
    if arguments[:1] == ["upkeep"]:
        return upkeep(arguments[1:])
    given = _parser().parse_args(arguments)
    options = {name: value for name in STORE_OPTIONS if (value := getattr(given, name)) is not None}
    try:
        reading = SourceOptions(given.manifest, given.format, given.hive, given.on_bad_file)
        report = run(
            given.lake,
            given.table,
            given.source,
            given.job_id,
            reading=reading,
            attempt=given.attempt,
            options=options,
        )
        told = _keep(given.lake, report, options)
    except AlluviaError as error:
        sys.stderr.write(f"backfill: {error}\n")
        return 1
    sys.stdout.write(told + "\n")
    return 0


def _keep(lake: str, report: Report, options: Mapping[str, str]) -> str:
    """Put a job's report where the state machine of infra/spark_runs.py reads it, and return it.

    A run that finds the job done knows no counts: the report of the one that did it stays.
    """
    body = json.dumps(report.said())
    store = open_store(lake, SystemClock(), **(options if lake.startswith("s3:") else {}))
    key = f"_alluvia/backfill/reports/{report.table}/{report.job_id}.json"
    if report.already_applied:
        store.put_if_absent(key, body.encode())
    else:
        store.put(key, body.encode())
    return body


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="job.py", description="Read files of events into a table, in one commit.")
    parser.add_argument("--lake", required=True, help="the lake's URI: s3://bucket/prefix, or a path")
    parser.add_argument("--table", required=True, help="a table that exists")
    parser.add_argument("--source", required=True, help="a file, a directory or a glob: s3://, s3a://, or a path")
    parser.add_argument("--job-id", help="what makes two runs one job; by default table and source do")
    parser.add_argument("--format", choices=FORMATS, help="how all files are read; by default they tell")
    parser.add_argument("--hive", action="store_true", help="take fields from folders such as dt=2024-01-01")
    parser.add_argument("--manifest", action="store_true", help="the source is a list of files")
    parser.add_argument("--on-bad-file", choices=ON_BAD_FILE, default="fail", help="the treatment of a damaged file")
    parser.add_argument("--attempt", type=int, help="what the tries of one start have in common: one fails for all")
    parser.add_argument("--endpoint-url", help="of another S3 than Amazon's")
    parser.add_argument("--region", help="of the lake's bucket")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
