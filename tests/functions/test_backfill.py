from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.emrserverless.models import emrserverless_backends

from alluvia.backfill_jobs import default_job_id
from alluvia.errors import Invalid, Unavailable
from alluvia_spark.backfill_job.estimate import estimate
from alluvia_spark.sources.files import SourceOptions
from functions.backfill import handler as backfill
from functions.backfill import job as entry_point

EVENTS = Path(__file__).parents[2] / "events"
REGION = "eu-central-1"
ROLE = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/backfill"
REQUEST = {"table": "requests", "source": "s3://archive/2015/*.gz"}


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        created = boto3.client("emr-serverless").create_application(
            name="alluvia", releaseLabel="emr-7.0.0", type="SPARK", clientToken="once"
        )
        monkeypatch.setenv("ALLUVIA_LAKE", "s3://lake/main")
        monkeypatch.setenv("ALLUVIA_EMR_APPLICATION_ID", created["applicationId"])
        monkeypatch.setenv("ALLUVIA_EMR_ROLE_ARN", ROLE)
        monkeypatch.setenv("ALLUVIA_CODE_URI", "s3://code/backfill/1/")
        backfill._emr.cache_clear()
        yield created["applicationId"]
        backfill._emr.cache_clear()


def _runs(application: str) -> list[Any]:
    runs: list[Any] = emrserverless_backends[DEFAULT_ACCOUNT_ID][REGION].job_runs[application]
    return runs


def _error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "because"}}, "StartJobRun")


def test_it_starts_the_job(application: str) -> None:
    answer = backfill.handler({**REQUEST, "job_id": "logs-2015"}, None)
    run = boto3.client("emr-serverless").get_job_run(applicationId=application, jobRunId=answer["job_run_id"])["jobRun"]
    assert (answer["job_id"], answer["application_id"]) == ("logs-2015", application)
    assert run["executionRole"] == ROLE
    assert run["jobDriver"]["sparkSubmit"] == {
        "entryPoint": "s3://code/backfill/1/job.py",
        "entryPointArguments": [
            *("--lake", "s3://lake/main"),
            *("--table", "requests"),
            *("--source", "s3://archive/2015/*.gz"),
            *("--job-id", "logs-2015"),
            *("--attempt", "1"),
        ],
        "sparkSubmitParameters": (
            "--conf spark.archives=s3://code/backfill/1/environment.tar.gz#environment"
            " --conf spark.driver.cores=4 --conf spark.driver.memory=14g"
            " --conf spark.executor.cores=4 --conf spark.executor.memory=8g --conf spark.executor.memoryOverhead=6g"
            " --conf spark.emr-serverless.executor.disk=80g --conf spark.dynamicAllocation.maxExecutors=15"
        ),
    }


def test_a_request_may_ask_for_what_a_dry_run_computes(application: str, tmp_path: Path) -> None:
    (tmp_path / "one.ndjson").write_text('{"event_id": "1"}\n')
    said = estimate(f"{tmp_path}/lake", "requests", f"{tmp_path}/one.ndjson", reading=SourceOptions())
    assert backfill.handler({**REQUEST, "spark": dict(said.spark)}, None)["application_id"] == application


def test_a_request_may_ask_for_other_workers(application: str) -> None:
    asked = {"spark.emr-serverless.executor.disk": "200g", "spark.dynamicAllocation.maxExecutors": "3"}
    answer = backfill.handler({**REQUEST, "spark": asked}, None)
    run = boto3.client("emr-serverless").get_job_run(applicationId=application, jobRunId=answer["job_run_id"])["jobRun"]
    given = run["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"].split()
    found = dict(each.split("=", 1) for each in given if each != "--conf")
    archives = "s3://code/backfill/1/environment.tar.gz#environment"
    assert found == {"spark.archives": archives, **backfill.WORKERS, **asked}


def test_it_says_how_files_are_read(application: str) -> None:
    backfill.handler({**REQUEST, "format": "csv", "hive": True, "manifest": False, "on_bad_file": "reject"}, None)
    (run,) = _runs(application)
    arguments = run.job_driver["sparkSubmit"]["entryPointArguments"]
    given = entry_point._parser().parse_args(arguments)
    assert (given.format, given.hive, given.manifest, given.on_bad_file) == ("csv", True, False, "reject")
    assert given.attempt == 1


def test_the_same_request_has_the_same_token_and_another_attempt_another(application: str) -> None:
    first, again = backfill.handler(REQUEST, None), backfill.handler(REQUEST, None)
    backfill.handler({**REQUEST, "attempt": 2}, None)
    backfill.handler({**REQUEST, "job_id": "other"}, None)
    tokens = [run.client_token for run in _runs(application)]
    assert first["job_id"] == again["job_id"]
    assert tokens[0] == tokens[1]
    assert len(set(tokens)) == 3
    assert all(len(token) == 64 for token in tokens)


def test_without_a_job_id_another_source_or_table_is_another_job(application: str) -> None:
    requests = [REQUEST, {**REQUEST, "source": "s3://archive/2016/"}, {**REQUEST, "table": "clicks"}]
    assert len({backfill.handler(request, None)["job_id"] for request in requests}) == 3


def test_the_function_and_the_command_give_a_job_the_same_id(application: str) -> None:
    known = "f832a669bff46a35a4c79c3af8b92db2"  # of jobs that have run
    assert backfill.handler(REQUEST, None)["job_id"] == known
    assert default_job_id(REQUEST["table"], REQUEST["source"]) == known


def test_status(application: str) -> None:
    started = backfill.handler(REQUEST, None)
    status = backfill.handler({"action": "status", "job_run_id": started["job_run_id"]}, None)
    assert status["state"] == "SUCCESS"
    assert status["job_run_id"] == started["job_run_id"]
    assert json.loads(json.dumps(status)) == status


def test_status_of_an_unknown_run(application: str) -> None:
    backfill.handler(REQUEST, None)
    with pytest.raises(Invalid, match="ResourceNotFoundException"):
        backfill.handler({"action": "status", "job_run_id": "00fg4i7v2nb8js09"}, None)


@pytest.mark.parametrize("name", ["backfill_start", "backfill_status"])
def test_the_example_events_are_understood(application: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    event = json.loads((EVENTS / f"{name}.json").read_text())
    if name == "backfill_status":
        event["job_run_id"] = backfill.handler(REQUEST, None)["job_run_id"]
    assert backfill.handler(event, None)["application_id"] == application


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({}, "table"),
        ({**REQUEST, "table": "Requests"}, "table"),
        ({**REQUEST, "table": "a/../b"}, "table"),
        ({**REQUEST, "table": 5}, "table"),
        ({"table": "requests"}, "source"),
        ({**REQUEST, "source": "/etc/passwd"}, "source"),
        ({**REQUEST, "source": "s3://archive"}, "source"),
        ({**REQUEST, "source": "s3://archive/a\nb"}, "source"),
        ({**REQUEST, "job_id": "../up"}, "job_id"),
        ({**REQUEST, "job_id": ""}, "job_id"),
        ({**REQUEST, "job_id": "x" * 129}, "job_id"),
        ({**REQUEST, "attempt": 0}, "attempt"),
        ({**REQUEST, "attempt": True}, "attempt"),
        ({**REQUEST, "spark": "--conf a=b"}, "spark"),
        ({**REQUEST, "spark": {"spark.jars": "s3://evil/a.jar"}}, "spark"),
        ({**REQUEST, "spark": {"spark.executor.memory": "8g --conf spark.jars=s3://evil/a.jar"}}, "spark"),
        ({**REQUEST, "spark": {"spark.executor.cores": 4}}, "spark"),
        ({**REQUEST, "jobid": "a"}, "jobid"),
        ({**REQUEST, "format": "xml"}, "format"),
        ({**REQUEST, "hive": "yes"}, "hive"),
        ({**REQUEST, "manifest": 1}, "manifest"),
        ({**REQUEST, "on_bad_file": "skip"}, "on_bad_file"),
        ({"action": "stop"}, "action"),
        ({"action": "status"}, "job_run_id"),
        ({"action": "status", "job_run_id": "A B"}, "job_run_id"),
    ],
)
def test_a_bad_request_names_its_field(application: str, event: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid, match=f"^{field} "):
        backfill.handler(event, None)
    assert application not in emrserverless_backends[DEFAULT_ACCOUNT_ID][REGION].job_runs


@pytest.mark.parametrize("event", [[], None, "requests"])
def test_an_event_that_is_no_object(application: str, event: object) -> None:
    with pytest.raises(Invalid, match="the event must be a JSON object: send"):
        backfill.handler(event, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALLUVIA_LAKE", ""),
        ("ALLUVIA_LAKE", "/srv/lake"),
        ("ALLUVIA_EMR_APPLICATION_ID", ""),
        ("ALLUVIA_EMR_ROLE_ARN", ""),
        ("ALLUVIA_CODE_URI", ""),
        ("ALLUVIA_CODE_URI", "s3://code/a --conf x=y"),
    ],
)
def test_a_missing_or_bad_setting_is_named(
    application: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(Invalid, match=name):
        backfill.handler(REQUEST, None)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (_error("ThrottlingException"), Unavailable),
        (_error("InternalServerException"), Unavailable),
        (_error("ValidationException"), Invalid),
        (_error("AccessDeniedException"), Invalid),
        (EndpointConnectionError(endpoint_url="https://example.com"), Unavailable),
    ],
)
def test_errors_of_the_service_say_whether_a_later_try_may_help(
    application: str, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: type[Exception]
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(backfill._emr(), "start_job_run", fail)
    with pytest.raises(expected, match="EMR Serverless"):
        backfill.handler(REQUEST, None)
