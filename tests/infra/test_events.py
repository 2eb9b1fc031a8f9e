"""How events come in, and what runs by itself: the queues, the API, the schedules."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import resources_of, text, the_id

Template = dict[str, Any]
QUEUE = "AWS::SQS::Queue"
READ_PATHS = (
    "/openapi.json", "/q", "/q/{hash}", "/readyz", "/v1/branches", "/v1/branches/{branch}",
    "/v1/branches/{branch}/diff", "/v1/jobs/{job}", "/v1/jobs/{job}/{result}", "/v1/queries", "/v1/queries/{query}",
    "/v1/tables", "/v1/tables/{table}",
)  # fmt: skip


QUEUES = {"Commit": "EventQueueEvents", "Merge": "MergeQueueTables", "Vacuum": "VacuumQueueTables",
          "Pipeline": "PipelineQueueSteps"}  # fmt: skip
"""What feeds which function."""


def dead_letters_of(template: Template, name: str) -> str:
    return the_id(template, QUEUE, re.sub("(Events|Tables|Steps)$", "DeadLetters", QUEUES[name]))


def mapping_of(template: Template, name: str) -> dict[str, Any]:
    """What feeds a function."""
    live = the_id(template, "AWS::Lambda::Alias", f"Functions{name}Live")
    mappings = resources_of(template, "AWS::Lambda::EventSourceMapping").values()
    (found,) = (each for each in mappings if text(each["FunctionName"]) == f"{{{live}}}.split(':')[6]:live")
    return found


@pytest.mark.parametrize(("name", "receives"), [("Commit", 5), ("Merge", 3), ("Vacuum", 3), ("Pipeline", 3)])
def test_a_message_that_keeps_failing_goes_to_the_dead_letters(template: Template, name: str, receives: int) -> None:
    queues = resources_of(template, QUEUE)
    dead, fed = dead_letters_of(template, name), the_id(template, QUEUE, QUEUES[name])
    assert queues[fed]["RedrivePolicy"] == {
        "deadLetterTargetArn": {"Fn::GetAtt": [dead, "Arn"]},
        "maxReceiveCount": receives,
    }
    assert queues[dead]["MessageRetentionPeriod"] > queues[fed]["MessageRetentionPeriod"]
    assert [queues[each]["MaximumMessageSize"] for each in (dead, fed)] == [1_048_576, 1_048_576]


def test_these_are_all_the_queues_and_they_are_encrypted(template: Template) -> None:
    queues = resources_of(template, QUEUE)
    fed = {the_id(template, QUEUE, prefix) for prefix in QUEUES.values()}
    assert set(queues) == fed | {dead_letters_of(template, name) for name in QUEUES}
    assert {queue["SqsManagedSseEnabled"] for queue in queues.values()} == {True}


def test_queues_of_events_outlive_the_stack(template: Template) -> None:
    """Events in them are nowhere else; what a queue of tables holds comes again with the next sweep."""
    queues = {name: found for name, found in template["Resources"].items() if found["Type"] == QUEUE}
    policies = {name: (queue["DeletionPolicy"], queue["UpdateReplacePolicy"]) for name, queue in queues.items()}
    events = {the_id(template, QUEUE, "EventQueueEvents"), dead_letters_of(template, "Commit")}
    assert policies == {name: ("Retain", "Retain") if name in events else ("Delete", "Delete") for name in queues}


def test_queues_are_reached_over_tls_alone(template: Template) -> None:
    policies = resources_of(template, "AWS::SQS::QueuePolicy").values()
    protected = {text(queue) for policy in policies for queue in policy["Queues"]}
    assert protected == {f"{{{name}}}" for name in resources_of(template, QUEUE)}
    for policy in policies:
        (statement,) = (each for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Deny")
        assert statement["Action"] == "sqs:*"
        assert statement["Principal"] == {"AWS": "*"}
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


@pytest.mark.parametrize(
    ("name", "messages", "concurrency"), [("Commit", 10_000, 8), ("Merge", 100, 4), ("Vacuum", 100, 2)]
)
def test_a_queue_is_read_in_batches_that_can_fail_in_part(
    template: Template, name: str, messages: int, concurrency: int
) -> None:
    assert len(resources_of(template, "AWS::Lambda::EventSourceMapping")) == len(QUEUES)
    mapping = mapping_of(template, name)
    assert mapping["EventSourceArn"] == {"Fn::GetAtt": [the_id(template, QUEUE, QUEUES[name]), "Arn"]}
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BatchSize"] == messages
    assert mapping["MaximumBatchingWindowInSeconds"] == 20
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": concurrency}


def test_the_queue_of_pipelines_delivers_one_message_of_a_table_at_a_time(template: Template) -> None:
    queues = resources_of(template, QUEUE)
    fed, dead = queues[the_id(template, QUEUE, QUEUES["Pipeline"])], queues[dead_letters_of(template, "Pipeline")]
    assert (fed["FifoQueue"], dead["FifoQueue"]) == (True, True)
    assert all("FifoQueue" not in queues[the_id(template, QUEUE, QUEUES[name])] for name in ("Merge", "Vacuum"))
    mapping = mapping_of(template, "Pipeline")
    assert (mapping["BatchSize"], mapping["ScalingConfig"]) == (1, {"MaximumConcurrency": 4})
    assert "MaximumBatchingWindowInSeconds" not in mapping  # Lambda takes none for a FIFO queue
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    functions = resources_of(template, "AWS::Lambda::Function")
    timeout = functions[the_id(template, "AWS::Lambda::Function", "FunctionsPipeline")]["Timeout"]
    assert fed["VisibilityTimeout"] >= timeout


@pytest.mark.parametrize("name", [name for name in QUEUES if name != "Pipeline"])
def test_a_batch_stays_invisible_for_six_time_outs_and_the_window(template: Template, name: str) -> None:
    functions = resources_of(template, "AWS::Lambda::Function")
    function = functions[the_id(template, "AWS::Lambda::Function", f"Functions{name}")]
    queue = resources_of(template, QUEUE)[the_id(template, QUEUE, QUEUES[name])]
    window = mapping_of(template, name)["MaximumBatchingWindowInSeconds"]
    assert queue["VisibilityTimeout"] >= 6 * function["Timeout"] + window


def test_s3_notifies_the_merge_queue_of_every_tenth_commit(template: Template) -> None:
    lake = template["Resources"][the_id(template, "AWS::S3::Bucket", "StorageLake")]
    queue = the_id(template, QUEUE, "MergeQueueTables")
    (notification,) = lake["Properties"]["NotificationConfiguration"]["QueueConfigurations"]
    assert notification["Event"] == "s3:ObjectCreated:Put"
    assert notification["Queue"] == {"Fn::GetAtt": [queue, "Arn"]}
    rules = {rule["Name"]: rule["Value"] for rule in notification["Filter"]["S3Key"]["Rules"]}
    assert set(rules) == {"prefix", "suffix"}
    root = text(lake_uri(template)).partition("}/")[2]

    def notified(key: str) -> bool:
        return key.startswith(rules["prefix"]) and key.endswith(rules["suffix"])

    for table in ("clicks", "clicks/_rejects"):
        told = [v for v in range(100) if notified(f"{root}/{table}/_delta_log/{v:020}.json")]
        assert told == list(range(0, 100, 10))
    assert not notified("incoming/clicks/_delta_log/00000000000000000010.json")
    assert not notified(f"{root}/clicks/_delta_log/00000000000000000010.checkpoint.parquet")
    # S3 asks the queue whether it may send before the bucket has a notification.
    (policy,) = (
        name
        for name, found in resources_of(template, "AWS::SQS::QueuePolicy").items()
        if {"Ref": queue} in found["Queues"]
    )
    assert {queue, policy} <= set(lake["DependsOn"])


def lake_uri(template: Template) -> Any:
    return template["Outputs"]["LakeUri"]["Value"]


def test_s3_may_send_to_the_merge_queue_alone_and_for_this_account_alone(template: Template) -> None:
    ((queues, statement),) = (
        (policy["Queues"], statement)
        for policy in resources_of(template, "AWS::SQS::QueuePolicy").values()
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    )
    queue = the_id(template, QUEUE, "MergeQueueTables")
    assert queues == [{"Ref": queue}]
    assert statement == {
        "Sid": "NotificationsOfS3",
        "Effect": "Allow",
        "Principal": {"Service": "s3.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": {"Fn::GetAtt": [queue, "Arn"]},
        "Condition": {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}},
    }


def test_every_route_asks_for_a_signature(template: Template) -> None:
    routes = resources_of(template, "AWS::ApiGatewayV2::Route").values()
    assert sorted((route["RouteKey"], route["AuthorizationType"]) for route in routes) == [
        ("DELETE /v1/jobs/{job}", "AWS_IAM"),
        ("GET /healthz", "AWS_IAM"),
        *[(f"GET {path}", "AWS_IAM") for path in READ_PATHS],
        ("HEAD /healthz", "AWS_IAM"),
        *[(f"HEAD {path}", "AWS_IAM") for path in READ_PATHS],
        ("POST /q", "AWS_IAM"),
        ("POST /v1/events/{table}", "AWS_IAM"),
        ("POST /v1/logs", "AWS_IAM"),
    ]


@pytest.mark.parametrize(
    ("route", "function"),
    [
        ("POST /v1/events/{table}", "FunctionsIngest"),
        ("POST /v1/logs", "FunctionsIngest"),
        ("GET /healthz", "FunctionsIngest"),
        ("HEAD /healthz", "FunctionsIngest"),
        *[(f"{method} {path}", "FunctionsQuery") for path in READ_PATHS for method in ("GET", "HEAD")],
        ("POST /q", "FunctionsQuery"),
    ],
)
def test_a_route_leads_to_its_function(template: Template, route: str, function: str) -> None:
    routes = resources_of(template, "AWS::ApiGatewayV2::Route").values()
    (target,) = (text(found["Target"]) for found in routes if found["RouteKey"] == route)
    integration = template["Resources"][target.removeprefix("integrations/{").removesuffix("}")]["Properties"]
    assert integration["IntegrationUri"] == {"Ref": the_id(template, "AWS::Lambda::Alias", f"{function}Live")}
    assert integration["PayloadFormatVersion"] == "2.0"


def test_the_api_is_throttled_and_its_access_logged(template: Template) -> None:
    (stage,) = resources_of(template, "AWS::ApiGatewayV2::Stage").values()
    assert stage["DefaultRouteSettings"] == {"ThrottlingBurstLimit": 1000, "ThrottlingRateLimit": 500}
    log = the_id(template, "AWS::Logs::LogGroup", "HttpAccessLog")
    assert stage["AccessLogSettings"]["DestinationArn"] == {"Fn::GetAtt": [log, "Arn"]}
    fields = json.loads(stage["AccessLogSettings"]["Format"])
    assert {"requestId", "status", "route", "caller"} <= set(fields)
    assert all(value.startswith("$context.") for value in fields.values())


def test_every_route_of_queries_has_a_throttle_of_its_own(template: Template) -> None:
    routes = resources_of(template, "AWS::ApiGatewayV2::Route")
    query = {"Ref": the_id(template, "AWS::Lambda::Alias", "FunctionsQueryLive")}
    integrations = resources_of(template, "AWS::ApiGatewayV2::Integration")
    to_query = {f"integrations/{{{name}}}" for name, found in integrations.items() if found["IntegrationUri"] == query}
    queries = {name: route["RouteKey"] for name, route in routes.items() if text(route["Target"]) in to_query}
    (stage,) = (found for found in template["Resources"].values() if found["Type"] == "AWS::ApiGatewayV2::Stage")
    limits = {"ThrottlingRateLimit": 20, "ThrottlingBurstLimit": 40}
    assert stage["Properties"]["RouteSettings"] == dict.fromkeys(queries.values(), limits)
    # API Gateway refuses a stage with settings of a route that it does not know.
    assert set(queries) <= set(stage["DependsOn"])


def test_rates_and_concurrency_are_settings(placeholders: Sources, tmp_path: Path) -> None:
    chosen = {
        "ingest_rate": "50",
        "ingest_burst": "60",
        "query_rate": "2",
        "query_burst": "3",
        "query_bytes": "1000000",
        "query_seconds": "9",
        "ingest_concurrency": "70",
        "query_concurrency": "30",
        "job_concurrency": "9",
        "commit_concurrency": "5",
        "merge_concurrency": "6",
        "vacuum_concurrency": "7",
        "pipeline_concurrency": "3",
    }
    found = read_template(synthesise(placeholders, tmp_path, **chosen))
    (stage,) = resources_of(found, "AWS::ApiGatewayV2::Stage").values()
    assert stage["DefaultRouteSettings"] == {"ThrottlingRateLimit": 50, "ThrottlingBurstLimit": 60}
    routes = (
        "POST /q",
        "DELETE /v1/jobs/{job}",
        *(f"{method} {path}" for path in READ_PATHS for method in ("GET", "HEAD")),
    )
    assert stage["RouteSettings"] == {key: {"ThrottlingRateLimit": 2, "ThrottlingBurstLimit": 3} for key in routes}
    concurrency = {name: mapping_of(found, name)["ScalingConfig"]["MaximumConcurrency"] for name in QUEUES}
    assert concurrency == {"Commit": 5, "Merge": 6, "Vacuum": 7, "Pipeline": 3}
    functions = resources_of(found, "AWS::Lambda::Function")
    key, kind = "ReservedConcurrentExecutions", "AWS::Lambda::Function"
    reserved = {name: each[key] for name, each in functions.items() if key in each}
    query = the_id(found, kind, "FunctionsQuery")
    assert reserved == {the_id(found, kind, "FunctionsIngest"): 70, query: 30}
    told = functions[query]["Environment"]["Variables"]
    assert (told["ALLUVIA_QUERY_BYTES"], told["ALLUVIA_QUERY_TIMEOUT_SECONDS"]) == ("1000000", "9")
    assert told["ALLUVIA_JOB_CONCURRENCY"] == "9"


@pytest.mark.parametrize("name", ["Merge", "Vacuum"])
def test_merge_and_vacuum_sweep_by_themselves(template: Template, name: str) -> None:
    rule = template["Resources"][the_id(template, "AWS::Events::Rule", f"Schedules{name}")]["Properties"]
    assert rule["ScheduleExpression"] == "rate(1 day)"
    assert rule["State"] == "ENABLED"
    (target,) = rule["Targets"]
    assert target["Arn"] == {"Ref": the_id(template, "AWS::Lambda::Alias", f"Functions{name}Live")}


def test_pipelines_are_looked_at_every_minute(template: Template) -> None:
    rule = template["Resources"][the_id(template, "AWS::Events::Rule", "SchedulesPipeline")]["Properties"]
    (target,) = rule["Targets"]
    assert (rule["ScheduleExpression"], rule["State"]) == ("rate(1 minute)", "ENABLED")
    assert target["Arn"] == {"Ref": the_id(template, "AWS::Lambda::Alias", "FunctionsPipelineLive")}
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}


def test_nothing_else_has_a_schedule(template: Template) -> None:
    rules = resources_of(template, "AWS::Events::Rule").values()
    assert len([rule for rule in rules if "ScheduleExpression" in rule]) == 3
