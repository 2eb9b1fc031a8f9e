"""How events come in, and what runs by itself: the queue, the API, the schedules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import resources_of, text, the_id

Template = dict[str, Any]
QUEUE = "AWS::SQS::Queue"


def test_a_message_that_keeps_failing_goes_to_the_dead_letters(template: Template) -> None:
    queues = resources_of(template, QUEUE)
    dead, events = the_id(template, QUEUE, "EventQueueDeadLetters"), the_id(template, QUEUE, "EventQueueEvents")
    assert set(queues) == {dead, events}
    assert queues[events]["RedrivePolicy"] == {
        "deadLetterTargetArn": {"Fn::GetAtt": [dead, "Arn"]},
        "maxReceiveCount": 5,
    }
    assert queues[dead]["MessageRetentionPeriod"] > queues[events]["MessageRetentionPeriod"]
    assert [queue["MaximumMessageSize"] for queue in queues.values()] == [1_048_576, 1_048_576]
    assert [queue["SqsManagedSseEnabled"] for queue in queues.values()] == [True, True]


def test_queues_outlive_the_stack(template: Template) -> None:
    """Events in them are nowhere else."""
    queues = [found for found in template["Resources"].values() if found["Type"] == QUEUE]
    assert [(queue["DeletionPolicy"], queue["UpdateReplacePolicy"]) for queue in queues] == [("Retain", "Retain")] * 2


def test_queues_are_reached_over_tls_alone(template: Template) -> None:
    policies = resources_of(template, "AWS::SQS::QueuePolicy").values()
    protected = {text(queue) for policy in policies for queue in policy["Queues"]}
    assert protected == {f"{{{name}}}" for name in resources_of(template, QUEUE)}
    for policy in policies:
        (statement,) = policy["PolicyDocument"]["Statement"]
        assert statement["Effect"] == "Deny"
        assert statement["Action"] == "sqs:*"
        assert statement["Principal"] == {"AWS": "*"}
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_the_queue_is_committed_in_batches_that_can_fail_in_part(template: Template) -> None:
    (mapping,) = resources_of(template, "AWS::Lambda::EventSourceMapping").values()
    assert mapping["EventSourceArn"] == {"Fn::GetAtt": [the_id(template, QUEUE, "EventQueueEvents"), "Arn"]}
    live = the_id(template, "AWS::Lambda::Alias", "FunctionsCommitLive")
    assert text(mapping["FunctionName"]) == f"{{{live}}}.split(':')[6]:live"
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BatchSize"] == 10_000
    assert mapping["MaximumBatchingWindowInSeconds"] == 20
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": 8}


def test_a_batch_stays_invisible_for_six_time_outs_and_the_window(template: Template) -> None:
    functions = resources_of(template, "AWS::Lambda::Function")
    commit = functions[the_id(template, "AWS::Lambda::Function", "FunctionsCommit")]
    queue = resources_of(template, QUEUE)[the_id(template, QUEUE, "EventQueueEvents")]
    (mapping,) = resources_of(template, "AWS::Lambda::EventSourceMapping").values()
    assert queue["VisibilityTimeout"] >= 6 * commit["Timeout"] + mapping["MaximumBatchingWindowInSeconds"]


def test_every_route_asks_for_a_signature(template: Template) -> None:
    routes = resources_of(template, "AWS::ApiGatewayV2::Route").values()
    assert sorted((route["RouteKey"], route["AuthorizationType"]) for route in routes) == [
        ("GET /healthz", "AWS_IAM"),
        ("POST /q", "AWS_IAM"),
        ("POST /v1/events/{table}", "AWS_IAM"),
    ]


@pytest.mark.parametrize(
    ("route", "function"),
    [
        ("POST /v1/events/{table}", "FunctionsIngest"),
        ("GET /healthz", "FunctionsIngest"),
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
        "ingest_concurrency": "70",
        "query_concurrency": "30",
        "commit_concurrency": "4",
    }
    found = read_template(synthesise(placeholders, tmp_path, **chosen))
    (stage,) = resources_of(found, "AWS::ApiGatewayV2::Stage").values()
    assert stage["DefaultRouteSettings"] == {"ThrottlingRateLimit": 50, "ThrottlingBurstLimit": 60}
    assert stage["RouteSettings"] == {"POST /q": {"ThrottlingRateLimit": 2, "ThrottlingBurstLimit": 3}}
    (mapping,) = resources_of(found, "AWS::Lambda::EventSourceMapping").values()
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": 4}
    functions = resources_of(found, "AWS::Lambda::Function")
    key, kind = "ReservedConcurrentExecutions", "AWS::Lambda::Function"
    reserved = {name: each[key] for name, each in functions.items() if key in each}
    assert reserved == {the_id(found, kind, "FunctionsIngest"): 70, the_id(found, kind, "FunctionsQuery"): 30}


@pytest.mark.parametrize(("name", "every"), [("Merge", "rate(10 minutes)"), ("Vacuum", "rate(1 day)")])
def test_merge_and_vacuum_run_by_themselves(template: Template, name: str, every: str) -> None:
    rule = template["Resources"][the_id(template, "AWS::Events::Rule", f"Schedules{name}")]["Properties"]
    assert rule["ScheduleExpression"] == every
    assert rule["State"] == "ENABLED"
    (target,) = rule["Targets"]
    assert target["Arn"] == {"Ref": the_id(template, "AWS::Lambda::Alias", f"Functions{name}Live")}


def test_nothing_else_has_a_schedule(template: Template) -> None:
    rules = resources_of(template, "AWS::Events::Rule").values()
    assert len([rule for rule in rules if "ScheduleExpression" in rule]) == 2
