"""Functions hand work over to Spark where their limits do not hold it: one job of a table at a time."""

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

import alluvia
from alluvia.api.lake import Lake
from alluvia.errors import AlluviaError, Invalid
from alluvia.rollups import change
from alluvia.serverless import derived_runs, function_limits, spark_upkeep
from alluvia.serverless.function_limits import FunctionLimits, too_big_to_merge, too_big_to_vacuum
from alluvia_spark.upkeep import job
from functions.backfill import handler as backfill
from functions.merge.handler import handler as merge
from functions.pipeline.handler import handler as pipeline
from functions.vacuum.handler import handler as vacuum
from tests.log_lines import Context

REGION = "eu-central-1"
ROLE = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/upkeep"
FILES = 5


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    lake = alluvia.connect(str(tmp_path))
    table = lake.create_table("t", {"id": "long"})
    for number in range(FILES):
        table.append([{"id": number}])
    return lake


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        wait = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 60, "End": True}}}
        created = boto3.client("stepfunctions").create_state_machine(
            name="upkeep", definition=json.dumps(wait), roleArn=ROLE
        )
        arn: str = created["stateMachineArn"]
        monkeypatch.setenv(spark_upkeep.MACHINE, arn)
        spark_upkeep._client.cache_clear()
        yield arn
        spark_upkeep._client.cache_clear()


def executions(machine: str) -> list[dict[str, Any]]:
    client = boto3.client("stepfunctions")
    found = client.list_executions(stateMachineArn=machine)["executions"]
    return [json.loads(client.describe_execution(executionArn=each["executionArn"])["input"]) for each in found]


def end_all(machine: str) -> None:
    client = boto3.client("stepfunctions")
    for each in client.list_executions(stateMachineArn=machine)["executions"]:
        client.stop_execution(executionArn=each["executionArn"])


def test_merge_hands_a_table_over_once_while_a_job_runs(
    lake: Lake, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_limits, "MERGED_BYTES_A_SECOND", 1)
    event = {"tables": ["t"], "order": "oldest"}
    (first,) = merge(event, Context("one"))["tables"]
    (second,) = merge(event, Context("one"))["tables"]
    assert (first["handed_over"]["started"], second["handed_over"]["started"]) == (True, False)
    assert first["handed_over"]["execution"] == second["handed_over"]["execution"]
    assert "and a run has 840 s" in first["handed_over"]["reason"]
    assert (first["left"], first["files_removed"], len(lake["t"].files)) == (0, 0, FILES)
    (given,) = executions(machine)
    assert given == {
        "action": "upkeep",
        "operation": "optimize",
        "table": "t",
        "how": {"when_due": False, "target_size": None, "order": "oldest"},
        "token": first["handed_over"]["execution"],
    }
    end_all(machine)
    (third,) = merge(event, Context("one"))["tables"]
    assert ("handed_over" in third, third["files_removed"], len(lake["t"].files)) == (False, FILES, 1)
    assert len(executions(machine)) == 1


def test_vacuum_hands_a_table_over(lake: Lake, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_limits, "LISTED_OBJECTS_A_SECOND", 0.001)
    monkeypatch.setenv("ALLUVIA_RETENTION_HOURS", "48")
    (report,) = vacuum({"tables": ["t"]}, Context("one"))["tables"]
    assert report["handed_over"]["started"]
    assert executions(machine)[0]["how"] == {"retention_hours": 48.0}
    (dry,) = vacuum({"tables": ["t"], "dry_run": True}, Context("one"))["tables"]
    assert "handed_over" not in dry
    lake["t"].optimize()
    lake["t"].optimize()
    (other,) = merge({"tables": ["t"]}, Context("one"))["tables"]
    assert "handed_over" not in other


def test_a_run_of_a_pipeline_is_handed_over_once_an_hour(
    lake: Lake, machine: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    declared = tmp_path_factory.mktemp("pipelines") / "copy.sql"
    declared.write_text("CREATE TABLE copy SCHEDULE ON CHANGE AS SELECT id FROM t")
    lake.pipeline(declared).run()
    lake["t"].append([{"id": FILES}])
    monkeypatch.setattr(derived_runs, "FUNCTION_BYTES_MAX", 10)
    for started in (True, False):
        (report,) = pipeline({}, Context("one"))["tables"]
        assert (report["table"], report["handed_over"]["started"]) == ("copy", started)
    assert "more than the 10 of a function" in report["handed_over"]["reason"]
    (given,) = executions(machine)
    token = report["handed_over"]["execution"]
    assert given == {"action": "upkeep", "operation": "pipeline", "table": "copy", "how": {}, "token": token}
    assert job.arguments_of("pipeline", json.dumps(given["how"])) == {}
    end_all(machine)
    with pytest.raises(AlluviaError, match=r"copy: Unsupported: .* the job of Spark for it has ended: the next one"):
        pipeline({}, Context("one"))
    assert lake["copy"].count() == FILES


def test_a_rebuild_of_a_rollup_is_handed_over(lake: Lake, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create_rollup("counted", "SELECT id, count(*) AS c FROM t GROUP BY id", fill=False)
    size = sum(file.size for file in lake["t"].snapshot().files)
    monkeypatch.setattr(derived_runs, "FUNCTION_BYTES_MAX", size - 1)
    (report,) = pipeline({}, Context("one"))["tables"]
    assert report["handed_over"]["started"]
    (given,) = executions(machine)
    assert (given["operation"], given["table"]) == ("pipeline", "counted")
    lake["counted"].refresh()
    lake["t"].append([{"id": FILES}])  # little is read of a change
    (report,) = pipeline({}, Context("one"))["tables"]
    assert (report["mode"], report["groups"]) == ("folded", 1)
    monkeypatch.delenv(spark_upkeep.MACHINE)
    lake["t"].append([{"id": FILES}])
    monkeypatch.setattr(derived_runs, "FUNCTION_BYTES_MAX", 10)
    with pytest.raises(AlluviaError, match=r"counted: Unsupported: .* run `alluvia rollup refresh --spark`, or"):
        pipeline({}, Context("one"))


def test_all_that_a_rollup_is_behind_counts(lake: Lake, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake["t"]
    lake.create_rollup("counted", "SELECT id, count(*) AS c FROM t GROUP BY id")
    before = {file.path: file.size for file in table.snapshot().files}
    table.delete("id = 0")
    for number in range(FILES - 2):
        table.append([{"id": number}])
    after = {file.path: file.size for file in table.snapshot().files}
    behind = sum(size for path, size in (before | after).items() if (path in before) != (path in after))
    monkeypatch.setattr(change, "STEP_BYTES", 1)  # a step for each commit
    monkeypatch.setattr(derived_runs, "FUNCTION_BYTES_MAX", behind - 1)
    (report,) = pipeline({}, Context("one"))["tables"]
    assert report["handed_over"]["started"], report
    assert executions(machine)[0]["table"] == "counted"
    monkeypatch.setattr(derived_runs, "FUNCTION_BYTES_MAX", behind)
    (report,) = pipeline({}, Context("one"))["tables"]
    assert (report["mode"], report["source_version"]) == ("recomputed", table.version)


def test_a_rollup_that_is_far_behind_goes_on_without_spark(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create_rollup("counted", "SELECT id, count(*) AS c FROM t GROUP BY id")
    for number in range(FILES):
        lake["t"].append([{"id": number}])
    monkeypatch.setattr(change, "STEP_BYTES", 1)
    largest = max(file.size for file in lake["t"].snapshot().files)
    monkeypatch.setattr(derived_runs, "FUNCTION_BYTES_MAX", largest)
    (report,) = pipeline({}, Context("one"))["tables"]
    assert report["source_version"] == lake["t"].version
    assert lake.sql("SELECT sum(c) AS c FROM counted")["c"].to_pylist() == [2 * FILES]


def test_work_that_fits_or_has_no_machine_stays(lake: Lake, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (report,) = merge({"tables": ["t"]}, Context("one"))["tables"]
    assert (report["files_removed"], executions(machine)) == (FILES, [])
    monkeypatch.delenv(spark_upkeep.MACHINE)
    monkeypatch.setattr(function_limits, "MERGED_BYTES_A_SECOND", 0.001)
    for number in range(FILES):
        lake["t"].append([{"id": number}])
    (report,) = merge({"tables": ["t"], "full": True}, Context("one"))["tables"]
    assert (report["left"], len(lake["t"].files)) == (0, 1)


@pytest.mark.parametrize(
    "error",
    [ClientError({"Error": {"Code": "ThrottlingException"}}, "x"), EndpointConnectionError(endpoint_url="https://x")],
)
def test_a_table_that_cannot_be_handed_over_fails(
    lake: Lake, machine: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(function_limits, "MERGED_BYTES_A_SECOND", 1)
    monkeypatch.setattr(spark_upkeep._client(), "start_execution", refuse)
    with pytest.raises(AlluviaError, match="t: Unavailable: the upkeep of t could not be handed over to Spark"):
        merge({"tables": ["t"]}, Context("one"))
    assert len(lake["t"].files) == FILES


def test_the_backfill_function_starts_the_job(lake: Lake, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    application = boto3.client("emr-serverless").create_application(
        name="alluvia", releaseLabel="emr-7.0.0", type="SPARK", clientToken="once"
    )["applicationId"]
    for name, value in {
        "LAKE": "s3://lake/main",
        "EMR_APPLICATION_ID": application,
        "EMR_ROLE_ARN": ROLE.replace("upkeep", "backfill"),
        "EMR_UPKEEP_ROLE_ARN": ROLE,
        "CODE_URI": "s3://code/1",
    }.items():
        monkeypatch.setenv(f"ALLUVIA_{name}", value)
    backfill._emr.cache_clear()
    request = {
        "action": "upkeep",
        "operation": "optimize",
        "table": "t/_rejects",
        "how": {"full": True},
        "token": "a-1",
    }
    answer = backfill.handler(request, None)
    again = backfill.handler(request, None)
    (run, *_) = runs = emrserverless_backends[DEFAULT_ACCOUNT_ID][REGION].job_runs[application]
    assert (answer["operation"], answer["table"]) == (again["operation"], again["table"]) == ("optimize", "t/_rejects")
    assert len({each.client_token for each in runs}) == 1
    assert run.execution_role_arn == ROLE
    arguments = run.job_driver["sparkSubmit"]["entryPointArguments"]
    assert arguments[:2] == ["upkeep", "optimize"]
    given = job._parser().parse_args(arguments[1:])
    assert (given.lake, given.table) == ("s3://lake/main", "t/_rejects")
    assert job.arguments_of(given.operation, given.how) == {"full": True}
    attempts: dict[str, int] = {}
    start = backfill._emr().start_job_run

    def noted(**given: Any) -> Any:
        attempts[operation] = given["retryPolicy"]["maxAttempts"]
        return start(**given)

    monkeypatch.setattr(backfill._emr(), "start_job_run", noted)
    for operation in backfill.OPERATIONS:
        backfill.handler({**request, "operation": operation, "table": "t", "how": {}}, None)
        arguments = runs[-1].job_driver["sparkSubmit"]["entryPointArguments"]
        given = job._parser().parse_args(arguments[1:])
        assert given.operation == operation
        assert "full" not in job.arguments_of(operation, given.how)
    assert [*attempts] == [*backfill.OPERATIONS] == [*job.OPERATIONS]
    assert attempts == {operation: 1 if operation == "verify" else 3 for operation in job.OPERATIONS}
    for wrong, field in (
        ({"operation": "drop"}, "operation"),
        ({"table": "T!"}, "table"),
        ({"how": "full"}, "how"),
        ({"token": "a b"}, "token"),
    ):
        with pytest.raises(Invalid, match=f"^{field} must be"):
            backfill.handler(request | wrong, None)
    monkeypatch.delenv("ALLUVIA_EMR_UPKEEP_ROLE_ARN")
    with pytest.raises(Invalid, match="ALLUVIA_EMR_UPKEEP_ROLE_ARN is not set"):
        backfill.handler(request, None)
    backfill._emr.cache_clear()


@pytest.mark.parametrize(
    ("operation", "how", "reason"),
    [
        ("optimize", "[]", "expected a JSON object"),
        ("optimize", '{"dry": 1}', "optimize takes target_size, .*not 'dry'"),
        ("vacuum", '{"retention_hours": -1}', "retention_hours must be a number"),
        ("vacuum", '{"retention_hours": NaN}', "retention_hours must be a number"),
        ("vacuum", '{"retention": 1}', "vacuum takes retention_hours, not 'retention'"),
        ("verify", '{"full": true}', "verify takes no arguments, not 'full'"),
    ],
)
def test_a_job_refuses_arguments_that_its_operation_does_not_have(operation: str, how: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        job.arguments_of(operation, how)


class Group:
    """As much of a group of files as the limits look at."""

    def __init__(self, size: int) -> None:
        self.size = self.weight = size


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ([1 << 30], None),
        ([3 << 30], "of disk to be sorted"),
        ([100_000_000] * 840, None),
        ([100_000_000] * 850, "more than 4 runs of 840 s"),
    ],
)
def test_the_limits_of_the_merge_function(sizes: list[int], reason: str | None) -> None:
    groups: list[Any] = list(map(Group, sizes))
    said = too_big_to_merge(groups, FunctionLimits(840, 3_184_000_000, 4096 << 20))
    assert (said is None) == (reason is None)
    assert (reason or "") in (said or "")


@pytest.mark.parametrize(("files", "reason"), [(9_000_000, None), (10_000_000, "of memory")])
def test_the_limits_of_the_vacuum_function(files: int, reason: str | None) -> None:
    said = too_big_to_vacuum(files, FunctionLimits(840, 1_769_000_000, 512 << 20))
    assert (said is None) == (reason is None)
    assert (reason or "") in (said or "")
