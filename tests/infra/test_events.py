"""How events come in, and what runs by itself: the queue, the API, the schedules, the alarms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Match
from aws_cdk.assertions import Template as CdkTemplate

from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import resources_of, text, the_id

Template = dict[str, Any]
QUEUE = "AWS::SQS::Queue"


@pytest.fixture(scope="module")
def cdk_template(template: Template) -> CdkTemplate:
    return CdkTemplate.from_json(template)


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
    assert mapping["FunctionName"] == {"Ref": the_id(template, "AWS::Lambda::Function", "FunctionsCommit")}
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
    assert integration["IntegrationUri"] == {"Fn::GetAtt": [the_id(template, "AWS::Lambda::Function", function), "Arn"]}
    assert integration["PayloadFormatVersion"] == "2.0"


def test_the_api_is_throttled_and_its_access_logged(template: Template) -> None:
    (stage,) = resources_of(template, "AWS::ApiGatewayV2::Stage").values()
    assert stage["DefaultRouteSettings"] == {"ThrottlingBurstLimit": 1000, "ThrottlingRateLimit": 500}
    log = the_id(template, "AWS::Logs::LogGroup", "HttpAccessLog")
    assert stage["AccessLogSettings"]["DestinationArn"] == {"Fn::GetAtt": [log, "Arn"]}
    fields = json.loads(stage["AccessLogSettings"]["Format"])
    assert {"requestId", "status", "route", "caller"} <= set(fields)
    assert all(value.startswith("$context.") for value in fields.values())


@pytest.mark.parametrize(("name", "every"), [("Merge", "rate(10 minutes)"), ("Vacuum", "rate(1 day)")])
def test_merge_and_vacuum_run_by_themselves(template: Template, name: str, every: str) -> None:
    rule = template["Resources"][the_id(template, "AWS::Events::Rule", f"Schedules{name}")]["Properties"]
    assert rule["ScheduleExpression"] == every
    assert rule["State"] == "ENABLED"
    (target,) = rule["Targets"]
    assert target["Arn"] == {"Fn::GetAtt": [the_id(template, "AWS::Lambda::Function", f"Functions{name}"), "Arn"]}


def test_nothing_else_has_a_schedule(template: Template) -> None:
    assert len(resources_of(template, "AWS::Events::Rule")) == 2


@pytest.mark.parametrize(
    ("queue", "metric", "threshold"),
    [
        ("EventQueueDeadLetters", "ApproximateNumberOfMessagesVisible", 1),
        ("EventQueueEvents", "ApproximateAgeOfOldestMessage", 900),
    ],
)
def test_queues_raise_alarms(
    template: Template, cdk_template: CdkTemplate, queue: str, metric: str, threshold: int
) -> None:
    cdk_template.has_resource_properties(
        "AWS::CloudWatch::Alarm",
        {
            "MetricName": metric,
            "Namespace": "AWS/SQS",
            "Statistic": "Maximum",
            "Threshold": threshold,
            "ComparisonOperator": "GreaterThanOrEqualToThreshold",
            "Dimensions": [
                {"Name": "QueueName", "Value": {"Fn::GetAtt": [the_id(template, QUEUE, queue), "QueueName"]}}
            ],
            "AlarmActions": [{"Ref": Match.string_like_regexp("AlarmsTopic")}],
        },
    )


@pytest.mark.parametrize("metric", ["Errors", "Throttles"])
@pytest.mark.parametrize("name", ["Ingest", "Commit", "Merge", "Query", "Vacuum", "Backfill"])
def test_functions_raise_alarms(template: Template, cdk_template: CdkTemplate, name: str, metric: str) -> None:
    function = the_id(template, "AWS::Lambda::Function", f"Functions{name}")
    cdk_template.has_resource_properties(
        "AWS::CloudWatch::Alarm",
        {
            "MetricName": metric,
            "Namespace": "AWS/Lambda",
            "Statistic": "Sum",
            "Threshold": 1,
            "Dimensions": [{"Name": "FunctionName", "Value": {"Ref": function}}],
            "AlarmActions": [{"Ref": Match.string_like_regexp("AlarmsTopic")}],
        },
    )


def test_alarms_may_publish_to_their_topic_and_only_over_tls(template: Template) -> None:
    (policy,) = resources_of(template, "AWS::SNS::TopicPolicy").values()
    allow, deny = sorted(policy["PolicyDocument"]["Statement"], key=lambda statement: str(statement["Effect"]))
    assert (deny["Effect"], deny["Action"], deny["Principal"]) == ("Deny", "sns:Publish", "*")
    assert deny["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert (allow["Effect"], allow["Action"]) == ("Allow", "sns:Publish")
    assert allow["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert allow["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_an_address_in_the_settings_is_told_of_alarms(
    template: Template, placeholders: Sources, tmp_path: Path
) -> None:
    assert resources_of(template, "AWS::SNS::Subscription") == {}
    told = read_template(synthesise(placeholders, tmp_path, alarm_email="oncall@example.com"))
    (subscription,) = resources_of(told, "AWS::SNS::Subscription").values()
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "oncall@example.com")
