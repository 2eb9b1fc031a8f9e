"""Upkeep that a function hands over to Spark, by a state machine that starts a job on EMR Serverless and watches it.

There is no lock. Whether a job runs is what Step Functions says; a start has the name of the table, the operation and
the current period, and Step Functions gives each name to one execution only. So of two functions that hand over at
once, one starts nothing. Should two jobs of a table meet all the same, one of them repeats some work.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import orjson

from alluvia.api.lake import Lake
from alluvia.errors import Unavailable
from alluvia.serverless.log_lines import Logger

MACHINE = "ALLUVIA_SPARK_UPKEEP_ARN"
"""The state machine; without it, functions do all upkeep themselves."""
PERIOD_HOURS = 6
"""A table and an operation have at most one start in this time, so that a job that fails is not started for ever."""


def is_on() -> bool:
    """Whether there is a state machine to hand work over to."""
    return bool(os.environ.get(MACHINE))


def hand_over(
    lake: Lake,
    table: str,
    operation: str,
    how: Mapping[str, Any],
    reason: str,
    logger: Logger,
    *,
    period_hours: int = PERIOD_HOURS,
) -> dict[str, Any] | None:
    """Have Spark do an operation, unless it does so already, and return the facts for the function's answer.

    `how` are arguments of the operation. Two requests to Step Functions, one if a job is running. Returns None where
    the job of this period has ended: then the function does what it can. Raises `Unavailable`.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    arn = os.environ[MACHINE]
    place = hashlib.sha256(orjson.dumps([lake.uri, table])).hexdigest()[:24]
    prefix = f"{operation}-{place}-"
    facts = {"operation": operation, "reason": reason}
    try:
        for page in _client().get_paginator("list_executions").paginate(stateMachineArn=arn, statusFilter="RUNNING"):
            for each in page["executions"]:
                if each["name"].startswith(prefix):
                    return {**facts, "execution": each["name"], "started": False}
        name = f"{prefix}{lake.clock.now_ms() // (period_hours * 3_600_000)}"
        given = {"action": "upkeep", "operation": operation, "table": table, "how": dict(how), "token": name}
        _client().start_execution(stateMachineArn=arn, name=name, input=orjson.dumps(given).decode())
    except ClientError as error:
        code = error.response["Error"].get("Code", "")
        if code == "ExecutionAlreadyExists":
            return None
        raise Unavailable(f"the upkeep of {table} could not be handed over to Spark ({code})") from error
    except BotoCoreError as error:
        kind = type(error).__name__
        raise Unavailable(f"the upkeep of {table} could not be handed over to Spark ({kind})") from error
    logger.info("handed over to Spark", extra={"table": table, "execution": name, **facts})
    return {**facts, "execution": name, "started": True}


@cache
def _client() -> Any:
    import boto3
    from botocore.config import Config

    config = Config(connect_timeout=2, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 5})
    return boto3.client("stepfunctions", config=config)
