"""Merge: on a schedule, the small files of every table become few, sorted ones, and checkpoints are written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from aws_lambda_powertools import Logger

from alluvia import Table, runtime
from alluvia.errors import Invalid
from alluvia.rounds import checked, every_table

logger = Logger(service="merge")


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Merge the tables that `{"tables": [...]}` names, or all tables and their rejects; see `every_table`."""
    target_size = target_file_bytes(os.environ)

    def work(table: Table) -> dict[str, Any]:
        return asdict(table.merge(target_size=target_size))

    return every_table(runtime.lake(), checked(event, "tables"), context, work, logger)


def target_file_bytes(environment: Mapping[str, str]) -> int | None:
    """Return the size that merged files should have; None leaves it to each table's property."""
    text = environment.get("ALLUVIA_TARGET_FILE_BYTES")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise Invalid(f"ALLUVIA_TARGET_FILE_BYTES is {text!r}: use a number of bytes above 0")
    return int(text)
