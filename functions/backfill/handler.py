"""Backfill: starts the PySpark job on EMR Serverless, and says how a run of it stands."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from alluvia.backfill_jobs import FORMATS, ON_BAD_FILE, check_job_id, default_job_id
from alluvia.errors import AlluviaError, Invalid, Unavailable
from alluvia.lazy_dataclasses import dataclass
from alluvia.serverless.events import fields_of
from alluvia.serverless.log_lines import Logger, with_request_id
from alluvia.serverless.settings import text
from alluvia.table_names import TABLE_NAME, TABLE_OR_REJECTS

if TYPE_CHECKING:
    from mypy_boto3_emr_serverless import EMRServerlessClient

ATTEMPTS_MAX = 3
RUN_MINUTES_MAX = 12 * 60  # the job itself refuses to commit after that
ARCHIVE = "environment.tar.gz#environment"  # `#` names the folder that Spark unpacks it in; see infra/backfill.py
_SOURCE = re.compile(r"s3a?://[a-z0-9][a-z0-9.-]+/[^\x00-\x1f]+")
_CODE_URI = re.compile(r"s3://[a-z0-9][a-z0-9.-]+(/[A-Za-z0-9._/-]*)?")
_RUN_ID = re.compile(r"[0-9a-z]{1,64}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,80}")
OPERATIONS = ("optimize", "vacuum", "verify", "pipeline")
_READING = ("format", "hive", "manifest", "on_bad_file")
_FIELDS = {
    "start": ("action", "table", "source", "job_id", "attempt", "spark", *_READING),
    "status": ("action", "job_run_id"),
    "upkeep": ("action", "operation", "table", "how", "token", "spark"),
}
_CHOICES = {"format": FORMATS, "on_bad_file": ON_BAD_FILE}
_GB, _COUNT = re.compile(r"[1-9][0-9]{0,3}[gG]"), re.compile(r"[1-9][0-9]{0,3}")
_SPARK = {
    "spark.driver.cores": _COUNT,
    "spark.driver.memory": _GB,
    "spark.driver.memoryOverhead": _GB,
    "spark.emr-serverless.driver.disk": _GB,
    "spark.executor.cores": _COUNT,
    "spark.executor.memory": _GB,
    "spark.executor.memoryOverhead": _GB,
    "spark.emr-serverless.executor.disk": _GB,
    "spark.dynamicAllocation.initialExecutors": _COUNT,
    "spark.dynamicAllocation.maxExecutors": _COUNT,
}
"""What a request may ask of EMR Serverless: `alluvia backfill --dry-run --json` computes it from the files."""
WORKERS = {
    "spark.driver.cores": "4",
    "spark.driver.memory": "14g",
    "spark.executor.cores": "4",
    "spark.executor.memory": "8g",
    "spark.executor.memoryOverhead": "6g",
    "spark.emr-serverless.executor.disk": "80g",
    "spark.dynamicAllocation.maxExecutors": "15",
}
"""The default of a request: the whole capacity of the application of infra/backfill.py."""
_TRANSIENT = ("ThrottlingException", "TooManyRequestsException", "InternalServerException", "ServiceUnavailable")

logger = Logger(service="backfill")


@dataclass(frozen=True, slots=True)
class BackfillSettings:
    """What the function reads from its environment."""

    lake: str
    application_id: str
    role_arn: str
    code_uri: str
    upkeep_role_arn: str = ""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> BackfillSettings:
        """Read the settings; raise `Invalid`, naming the variable, if one is missing or unusable."""
        why = "this function starts a job on EMR Serverless; without AWS, `alluvia backfill` runs the same job"
        names = ("ALLUVIA_LAKE", "ALLUVIA_EMR_APPLICATION_ID", "ALLUVIA_EMR_ROLE_ARN", "ALLUVIA_CODE_URI")
        lake, application_id, role_arn, code_uri = (text(environment, name, why) for name in names)
        upkeep_role_arn = environment.get("ALLUVIA_EMR_UPKEEP_ROLE_ARN", "")
        settings = cls(lake, application_id, role_arn, code_uri, upkeep_role_arn)
        if not settings.lake.startswith("s3://"):
            raise Invalid("ALLUVIA_LAKE must be s3://bucket/prefix: EMR Serverless reaches no other lake")
        if not _CODE_URI.fullmatch(settings.code_uri):
            raise Invalid("ALLUVIA_CODE_URI must be s3://bucket/prefix, with only letters, digits and . _ - /")
        return settings


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job to start. `attempt` tells one deliberate start of a job from another, after a run that failed.

    `reading` are the arguments of the job that say how files are read, `spark` the properties of its workers.
    """

    table: str
    source: str
    job_id: str
    attempt: int = 1
    reading: tuple[str, ...] = ()
    spark: Mapping[str, str] = field(default_factory=lambda: WORKERS)

    @classmethod
    def read(cls, event: Mapping[str, Any]) -> JobRequest:
        """Check an event; raise `Invalid`, naming the field."""
        table = _text(event, "table", TABLE_NAME, "a table's name: a lower-case letter, then letters, digits and _")
        source = _text(event, "source", _SOURCE, "s3://bucket/path: a key, a prefix or a pattern")
        given = event.get("job_id")
        job_id = default_job_id(table, source) if given is None else check_job_id(given)
        attempt = event.get("attempt", 1)
        if not isinstance(attempt, int) or isinstance(attempt, bool) or attempt < 1:
            raise Invalid(f"attempt must be a whole number, 1 or more, not {attempt!r}")
        return cls(table, source, job_id, attempt, _reading(event), _spark(event))

    @property
    def client_token(self) -> str:
        """The same for the same request, so that EMR Serverless starts it once however often it is sent."""
        return hashlib.sha256(json.dumps([self.table, self.job_id, self.attempt]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class UpkeepRequest:
    """An operation on a table for a job to do. `how` are its arguments, and `token` tells one start from another."""

    operation: str
    table: str
    token: str
    how: Mapping[str, Any]
    spark: Mapping[str, str] = field(default_factory=lambda: WORKERS)

    @classmethod
    def read(cls, event: Mapping[str, Any]) -> UpkeepRequest:
        """Check an event; raise `Invalid`, naming the field."""
        operation, how = event.get("operation"), event.get("how", {})
        if operation not in OPERATIONS:
            raise Invalid(f"operation must be one of {', '.join(OPERATIONS)}, not {operation!r}")
        if not isinstance(how, dict):
            raise Invalid(f"how must be an object of the operation's arguments, not {how!r}")
        table = _text(event, "table", TABLE_OR_REJECTS, "a table's name, or that of its rejects")
        token = _text(event, "token", _TOKEN, "a text that tells this start from others: letters, digits, - and _")
        return cls(operation, table, token, how, _spark(event))


@with_request_id(logger)
def handler(event: object, context: object) -> dict[str, Any]:  # noqa: ARG001
    """Start a job, or with `{"action": "status", "job_run_id": …}` report on a run of one.

    With `{"action": "upkeep", "operation": "optimize", "table": …, "token": …}` it starts one that maintains a table.

    Raises `Invalid` for what the caller or the operator must fix, `Unavailable` for what a later try may get.
    """
    settings = BackfillSettings.read(os.environ)
    action = event.get("action", "start") if isinstance(event, dict) else "start"
    if action not in _FIELDS:
        raise Invalid(f"action must be 'start', 'status' or 'upkeep', not {action!r}")
    given = fields_of(event, '{"table": …, "source": …}', _FIELDS[action])
    try:
        if action == "status":
            return _status(settings, given)
        if action == "upkeep":
            return _start_upkeep(settings, UpkeepRequest.read(given))
        return _start(settings, JobRequest.read(given))
    except (ClientError, BotoCoreError) as error:
        raise _ours(error) from error


def _start(settings: BackfillSettings, job: JobRequest) -> dict[str, Any]:
    name = f"alluvia-backfill-{job.table}"
    run = _run(settings, settings.role_arn, name, job.client_token, _arguments(settings, job), job.spark)
    started = {"table": job.table, "job_id": job.job_id, **run}
    logger.info("started", extra={"attempt": job.attempt, **started})
    return started


def _start_upkeep(settings: BackfillSettings, job: UpkeepRequest) -> dict[str, Any]:
    if not settings.upkeep_role_arn:
        raise Invalid("ALLUVIA_EMR_UPKEEP_ROLE_ARN is not set: upkeep needs a role that may delete objects of the lake")
    name = f"alluvia-{job.operation}-{job.table}".replace("/", "-")
    token = hashlib.sha256(json.dumps([job.operation, job.table, job.token]).encode()).hexdigest()
    arguments = ["upkeep", job.operation, "--lake", settings.lake, "--table", job.table, "--how", json.dumps(job.how)]
    attempts = 1 if job.operation == "verify" else ATTEMPTS_MAX  # a damaged table would fail each of them
    run = _run(settings, settings.upkeep_role_arn, name, token, arguments, job.spark, attempts)
    started = {"operation": job.operation, "table": job.table, **run}
    logger.info("started", extra=started)
    return started


def _run(
    settings: BackfillSettings,
    role_arn: str,
    name: str,
    token: str,
    arguments: list[str],
    spark: Mapping[str, str],
    attempts: int = ATTEMPTS_MAX,
) -> dict[str, str]:
    """Have EMR Serverless start a job once for each token."""
    code = settings.code_uri.rstrip("/")
    properties = {"spark.archives": f"{code}/{ARCHIVE}", **spark}
    answer = _emr().start_job_run(
        applicationId=settings.application_id,
        clientToken=token,
        executionRoleArn=role_arn,
        name=name[:256],
        jobDriver={
            "sparkSubmit": {
                "entryPoint": f"{code}/job.py",
                "entryPointArguments": arguments,
                "sparkSubmitParameters": " ".join(f"--conf {name}={value}" for name, value in properties.items()),
            }
        },
        executionTimeoutMinutes=RUN_MINUTES_MAX,
        retryPolicy={"maxAttempts": attempts},
    )
    return {"job_run_id": answer["jobRunId"], "application_id": answer["applicationId"]}


def _arguments(settings: BackfillSettings, job: JobRequest) -> list[str]:
    pairs = {"--lake": settings.lake, "--table": job.table, "--source": job.source, "--job-id": job.job_id}
    return [*(text for pair in pairs.items() for text in pair), "--attempt", f"{job.attempt}", *job.reading]


def _reading(event: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the job's arguments for the fields of an event that say how files are read."""
    arguments: list[str] = []
    for name in _READING:
        value, option = event.get(name), f"--{name.replace('_', '-')}"
        if name in _CHOICES:
            if value is not None and value not in _CHOICES[name]:
                raise Invalid(f"{name} must be one of {', '.join(_CHOICES[name])}, not {value!r}")
            arguments += [] if value is None else [option, value]
        elif value is not None and not isinstance(value, bool):
            raise Invalid(f"{name} must be true or false, not {value!r}")
        else:
            arguments += [option] if value else []
    return tuple(arguments)


def _spark(event: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the properties of the workers, those of the event in place of ours."""
    given = event.get("spark", {})
    if not isinstance(given, dict):
        raise Invalid(f"spark must be an object of Spark's properties, not {given!r}")
    for name, value in given.items():
        form = _SPARK.get(name)
        if form is None:
            raise Invalid(f"spark must have no property but {', '.join(_SPARK)}, not {name!r}")
        if not isinstance(value, str) or not form.fullmatch(value):
            wanted = "gigabytes, such as '8g'" if form is _GB else "a whole number as text, such as '4'"
            raise Invalid(f"spark must have {wanted}, for {name}, not {value!r}")
    return {**WORKERS, **given}


def _status(settings: BackfillSettings, event: Mapping[str, Any]) -> dict[str, Any]:
    run_id = _text(event, "job_run_id", _RUN_ID, "the job_run_id of an earlier answer")
    run = _emr().get_job_run(applicationId=settings.application_id, jobRunId=run_id)["jobRun"]
    return {
        "job_run_id": run_id,
        "application_id": settings.application_id,
        "state": run["state"],
        "details": run.get("stateDetails", ""),
        "created_at": run["createdAt"].isoformat(),
        "updated_at": run["updatedAt"].isoformat(),
    }


@cache
def _emr() -> EMRServerlessClient:
    return boto3.client("emr-serverless")


def _text(event: Mapping[str, Any], name: str, form: re.Pattern[str], wanted: str) -> str:
    value = event.get(name)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise Invalid(f"{name} must be {wanted}; got {'nothing' if value is None else repr(value)}")
    return value


def _ours(error: ClientError | BotoCoreError) -> AlluviaError:
    """Return our error for theirs: of the message only the code and the reason that AWS gives, which hold no secret."""
    if not isinstance(error, ClientError):
        return Unavailable(f"EMR Serverless cannot be reached ({type(error).__name__}): try again")
    code, message = error.response["Error"].get("Code", ""), error.response["Error"].get("Message", "")
    if code in _TRANSIENT:
        return Unavailable(f"EMR Serverless did not accept the request ({code}): try again")
    return Invalid(f"EMR Serverless refuses the request ({code}): {message}")
