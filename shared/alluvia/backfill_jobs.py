"""Ids and options of backfill jobs. The function that starts jobs has no Spark, and goes by the same. Pure."""

from __future__ import annotations

import hashlib
import json
import re

from alluvia.errors import Invalid

FORMATS = ("json", "csv", "parquet")
"""The formats of files that a job may be told to read."""
ON_BAD_FILE = ("fail", "reject")
"""What a job may do about a damaged file."""
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def default_job_id(table: str, source: str) -> str:
    """Return the id of a job that was given none: the same source goes into the same table once."""
    return hashlib.sha256(json.dumps([table, source]).encode()).hexdigest()[:32]


def check_job_id(job_id: object) -> str:
    """Return a job id that can be part of a key; raise `Invalid` for anything else."""
    if not isinstance(job_id, str) or not _JOB_ID.fullmatch(job_id):
        raise Invalid(f"job_id {job_id!r} must be up to 128 letters, digits and . _ -, with a letter or digit first")
    return job_id
