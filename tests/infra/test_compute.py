"""What runs: the functions, and Spark."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from alluvia.operations.results.jobs import START_MS_MAX
from alluvia.serverless.query_settings import QuerySettings
from alluvia_spark.backfill_job.estimate import APPLICATION_DISK_GB
from functions.backfill.handler import WORKERS
from infra.specs import STACK_NAME
from tests.infra.policies import resources_of, text, the_id

Template = dict[str, Any]
FUNCTION = "AWS::Lambda::Function"
FOLDERS = {
    "Ingest": "ingest",
    "Commit": "ingest",
    "Merge": "merge",
    "Pipeline": "pipeline",
    "Query": "query",
    "Jobs": "query",
    "Vacuum": "vacuum",
    "Backfill": "backfill",
}
WITH_DUCKDB = ("Ingest", "Commit", "Query", "Jobs", "Merge", "Pipeline")


def function(template: Template, name: str) -> dict[str, Any]:
    return resources_of(template, FUNCTION)[the_id(template, FUNCTION, f"Functions{name}")]


def assets(assembly: Path) -> dict[str, Path]:
    """The folder or file of every asset, by the key that it is published under."""
    manifest = json.loads((assembly / f"{STACK_NAME}.assets.json").read_text(encoding="utf-8"))
    return {
        destination["objectKey"]: assembly / entry["source"]["path"]
        for entry in manifest["files"].values()
        for destination in entry["destinations"].values()
    }


def test_these_are_all_the_functions(template: Template) -> None:
    assert len(resources_of(template, FUNCTION)) == len(FOLDERS)


@pytest.mark.parametrize(("name", "folder"), FOLDERS.items())
def test_a_function_runs_its_own_handler_on_arm(template: Template, name: str, folder: str) -> None:
    found = function(template, name)
    assert found["Runtime"] == "python3.13"
    assert found["Architectures"] == ["arm64"]
    assert found["Handler"] == f"functions.{folder}.handler.handler"
    assert "ReservedConcurrentExecutions" not in found


@pytest.mark.parametrize(("name", "folder"), FOLDERS.items())
def test_a_function_holds_its_own_code_alone(template: Template, assembly: Path, name: str, folder: str) -> None:
    code = assets(assembly)[function(template, name)["Code"]["S3Key"]]
    files = [path.relative_to(code).as_posix() for path in code.rglob("*") if path.is_file()]
    assert files == [f"functions/{folder}/handler.py"]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_function_has_the_layers_that_it_imports(template: Template, name: str) -> None:
    layers = resources_of(template, "AWS::Lambda::LayerVersion")
    library, core, query = (
        the_id(template, "AWS::Lambda::LayerVersion", f"Functions{layer}Layer")
        for layer in ("Library", "Core", "Query")
    )
    expected = {library, core, query} if name in WITH_DUCKDB else {library, core}
    # Their order means nothing: no two layers hold the same file.
    assert {layer["Ref"] for layer in function(template, name)["Layers"]} == expected
    for layer in layers.values():
        assert layer["CompatibleArchitectures"] == ["arm64"]
        assert layer["CompatibleRuntimes"] == ["python3.13"]


@pytest.mark.parametrize("name", FOLDERS)
def test_logs_do_not_pile_up(template: Template, name: str) -> None:
    log = the_id(template, "AWS::Logs::LogGroup", f"Functions{name}Log")
    assert function(template, name)["LoggingConfig"] == {"LogGroup": {"Ref": log}}
    assert resources_of(template, "AWS::Logs::LogGroup")[log]["RetentionInDays"] == 30


@pytest.mark.parametrize("name", ["Ingest", "Query"])
def test_what_the_api_calls_answers_before_the_api_gives_up(template: Template, name: str) -> None:
    assert function(template, name)["Timeout"] < 30


@pytest.mark.parametrize("name", ["Merge", "Vacuum"])
def test_what_a_schedule_starts_may_take_as_long_as_lambda_allows(template: Template, name: str) -> None:
    assert function(template, name)["Timeout"] == 900
    configs = resources_of(template, "AWS::Lambda::EventInvokeConfig").values()
    called = {"Ref": the_id(template, FUNCTION, f"Functions{name}")}
    (config,) = (config for config in configs if config["FunctionName"] == called)
    live = the_id(template, "AWS::Lambda::Alias", f"Functions{name}Live")
    assert text(config["Qualifier"]) == f"{{{live}}}.split(':')[7]"
    assert config["MaximumRetryAttempts"] == 2


def test_the_environment_is_what_the_handlers_read(template: Template) -> None:
    found = {
        name: {
            key: text(value)
            for key, value in function(template, name)["Environment"]["Variables"].items()
            if key.startswith("ALLUVIA_")
        }
        for name in FOLDERS
    }
    lake = f"s3://{{{the_id(template, 'AWS::S3::Bucket', 'StorageLake')}}}/lake"
    queue = the_id(template, "AWS::SQS::Queue", "EventQueueEvents")
    tables = {name: the_id(template, "AWS::SQS::Queue", f"{name}QueueTables") for name in ("Merge", "Vacuum")}
    steps = the_id(template, "AWS::SQS::Queue", "PipelineQueueSteps")
    code = found["Backfill"].pop("ALLUVIA_CODE_URI")
    upkeep = f"{{{the_id(template, 'AWS::StepFunctions::StateMachine', 'UpkeepRunsMachine')}}}"
    query = {
        "ALLUVIA_LAKE": lake,
        "ALLUVIA_QUERY_TIMEOUT_SECONDS": "25",
        "ALLUVIA_QUERY_MEMORY_MB": "2358",
        "ALLUVIA_RESULT_CACHE": "on",
        "ALLUVIA_MAX_RESULT_BYTES": "5000000000",
    }
    assert found == {
        "Ingest": {
            "ALLUVIA_LAKE": lake,
            "ALLUVIA_MODE": "queued",
            "ALLUVIA_QUEUE_URL": f"{{{queue}}}",
            "ALLUVIA_CREATE_TABLES": "false",
        },
        "Commit": {"ALLUVIA_LAKE": lake, "ALLUVIA_MODE": "direct", "ALLUVIA_CREATE_TABLES": "false"},
        "Merge": {
            "ALLUVIA_LAKE": lake,
            "ALLUVIA_TABLES_QUEUE_URL": f"{{{tables['Merge']}}}",
            "ALLUVIA_SPARK_UPKEEP_ARN": upkeep,
        },
        "Pipeline": {
            "ALLUVIA_LAKE": lake,
            "ALLUVIA_TABLES_QUEUE_URL": f"{{{steps}}}",
            "ALLUVIA_SPARK_UPKEEP_ARN": upkeep,
        },
        "Query": {
            **query,
            "ALLUVIA_JOBS_FUNCTION": f"{{{the_id(template, 'AWS::Lambda::Alias', 'FunctionsJobsLive')}}}",
            "ALLUVIA_JOB_CONCURRENCY": "4",
        },
        "Jobs": query,
        "Vacuum": {
            "ALLUVIA_LAKE": lake,
            "ALLUVIA_TABLES_QUEUE_URL": f"{{{tables['Vacuum']}}}",
            "ALLUVIA_RETENTION_HOURS": "168",
            "ALLUVIA_SPARK_UPKEEP_ARN": upkeep,
        },
        "Backfill": {
            "ALLUVIA_LAKE": lake,
            "ALLUVIA_EMR_APPLICATION_ID": (
                f"{{{the_id(template, 'AWS::EMRServerless::Application', 'SparkApplication')}.ApplicationId}}"
            ),
            "ALLUVIA_EMR_ROLE_ARN": f"{{{the_id(template, 'AWS::IAM::Role', 'SparkJobRole')}.Arn}}",
            "ALLUVIA_EMR_UPKEEP_ROLE_ARN": f"{{{the_id(template, 'AWS::IAM::Role', 'SparkUpkeepRole')}.Arn}}",
        },
    }
    assert code.startswith("s3://cdk-hnb659fds-assets-{AWS::AccountId}-{AWS::Region}/backfill/")


def test_a_job_has_a_minute_less_than_its_function_and_is_never_called_twice(template: Template) -> None:
    assert QuerySettings.read({}).job_seconds == function(template, "Jobs")["Timeout"] - 60
    configs = resources_of(template, "AWS::Lambda::EventInvokeConfig")
    (config,) = (found for name, found in configs.items() if name.startswith("FunctionsJobs"))
    assert (config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"] * 1000) == (0, START_MS_MAX)


def test_a_query_has_time_and_memory_to_fail_as_a_query(template: Template) -> None:
    query = function(template, "Query")
    environment = query["Environment"]["Variables"]
    assert int(environment["ALLUVIA_QUERY_TIMEOUT_SECONDS"]) < query["Timeout"]
    assert int(environment["ALLUVIA_QUERY_MEMORY_MB"]) < query["MemorySize"]


def test_the_job_and_its_archive_are_published_where_the_function_looks(template: Template, assembly: Path) -> None:
    environment = function(template, "Backfill")["Environment"]["Variables"]
    bucket_and_prefix = text(environment["ALLUVIA_CODE_URI"]).removeprefix("s3://")
    prefix = bucket_and_prefix.partition("/")[2]
    published = assets(assembly)
    assert published[f"{prefix}/job.py"].read_text(encoding="utf-8") == "# job\n"
    assert published[f"{prefix}/environment.tar.gz"].read_text(encoding="utf-8") == "not one really"
    # `cdk gc` keeps what a template names.
    assert template["Metadata"]["BackfillCode"] == [f"{prefix}/job.py", f"{prefix}/environment.tar.gz"]


def test_spark_stops_by_itself_and_has_a_ceiling(template: Template) -> None:
    (application,) = resources_of(template, "AWS::EMRServerless::Application").values()
    assert application["ReleaseLabel"] == "emr-spark-8.0.0"
    assert application["Type"] == "SPARK"
    assert application["Architecture"] == "ARM64"
    assert application["AutoStartConfiguration"] == {"Enabled": True}
    assert application["AutoStopConfiguration"] == {"Enabled": True, "IdleTimeoutMinutes": 5}
    assert application["MaximumCapacity"] == {"Cpu": "64 vCPU", "Memory": "256 GB", "Disk": "1280 GB"}
    assert "InitialCapacity" not in application


def test_spark_finds_the_packages_of_the_archive_and_its_region(template: Template) -> None:
    (application,) = resources_of(template, "AWS::EMRServerless::Application").values()
    (defaults,) = application["RuntimeConfiguration"]
    assert defaults == {
        "Classification": "spark-defaults",
        "Properties": {
            "spark.emr-serverless.driverEnv.AWS_DEFAULT_REGION": {"Ref": "AWS::Region"},
            "spark.emr-serverless.driverEnv.JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
            "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": "python3.13",
            "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": "python3.13",
            "spark.emr-serverless.driverEnv.PYTHONPATH": "./environment",
            "spark.executorEnv.AWS_DEFAULT_REGION": {"Ref": "AWS::Region"},
            "spark.executorEnv.JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
            "spark.executorEnv.PYSPARK_PYTHON": "python3.13",
            "spark.executorEnv.PYTHONPATH": "./environment",
        },
    }


def test_the_workers_of_a_request_that_asks_for_none_fit_into_the_application(template: Template) -> None:
    (application,) = resources_of(template, "AWS::EMRServerless::Application").values()
    most = {name.lower(): int(text.split()[0]) for name, text in application["MaximumCapacity"].items()}
    asked = {name.partition(".")[2]: int(value.rstrip("g")) for name, value in WORKERS.items()}
    executors = asked["dynamicAllocation.maxExecutors"]
    memory_gb = asked["executor.memory"] + asked["executor.memoryOverhead"]
    driver_gb = math.ceil(asked["driver.memory"] * 1.1)  # what Spark adds where nothing is said
    assert asked["driver.cores"] + executors * asked["executor.cores"] == most["cpu"]
    assert driver_gb + executors * memory_gb <= most["memory"]
    assert 20 + executors * asked["emr-serverless.executor.disk"] <= most["disk"]
    assert all(8 <= size <= 30 for size in (memory_gb, driver_gb))  # of a worker with 4 vCPUs
    assert most["disk"] == APPLICATION_DISK_GB


def test_outputs_name_what_a_user_needs(template: Template) -> None:
    assert set(template["Outputs"]) == {
        "ApiUrl",
        "AlarmTopicArn",
        "BackfillStateMachineArn",
        "UpkeepStateMachineArn",
        "BucketName",
        "DeadLettersUrl",
        "LakeUri",
        "IncomingUri",
        "EmrApplicationId",
        "QueueUrl",
        *(f"{name}{kind}Url" for name in ("Merge", "Vacuum", "Pipeline") for kind in ("Queue", "DeadLetters")),
        *(f"{name}FunctionName" for name in FOLDERS),
    }
