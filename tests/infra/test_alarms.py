"""What wakes an operator, and what does not: each alarm's metric, when it rings, and what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from infra.settings import Settings
from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.metric_math import evaluate
from tests.infra.policies import has_any, resources_of, text, the_id

Template = dict[str, Any]
ALARM = "AWS::CloudWatch::Alarm"
FUNCTION = "AWS::Lambda::Function"
EXPECTED = {
    "DeadLetters",
    "QueueAge",
    "PartialBatchFailures",
    "ApiFailures",
    *(f"{name}{kind}" for name in ("Ingest", "Query") for kind in ("Errors", "Throttles", "Unavailable")),
    *(
        f"{name}{kind}"
        for name in ("Commit", "Jobs", "Merge", "Pipeline", "Vacuum")
        for kind in ("Errors", "Throttles")
    ),
    *(f"Backfill{kind}" for kind in ("Errors", "Throttles")),
    "Rejects",
    "CommitsSinceCheckpoint",
    "UpkeepFailed",
    *(
        f"{name}{kind}"
        for name in ("Merge", "Pipeline", "Vacuum")
        for kind in ("Missing", "Failures", "DeadLetters", "QueueAge")
    ),
}


def alarms(template: Template) -> dict[str, dict[str, Any]]:
    found = resources_of(template, ALARM)
    return {re.sub(r"^Alarms(\w+?)[0-9A-F]{8}$", r"\1", name): alarm for name, alarm in found.items()}


def metrics(alarm: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The metrics that an alarm reads, each by its id in the alarm's expression."""
    if "MetricName" in alarm:
        return {"": alarm}
    stats = {each["Id"]: each["MetricStat"] for each in alarm["Metrics"] if "MetricStat" in each}
    return {
        name: {**stat["Metric"], "Period": stat["Period"], "Statistic": stat["Stat"]} for name, stat in stats.items()
    }


def dimensions(metric: dict[str, Any]) -> dict[str, str]:
    return {each["Name"]: text(each["Value"]) for each in metric.get("Dimensions", [])}


def rings(alarm: dict[str, Any], *periods: dict[str, float]) -> bool:
    """Whether an alarm with an expression is in alarm after periods with these values, by metric name."""
    (expression,) = (each["Expression"] for each in alarm["Metrics"] if "Expression" in each)
    names = {name: metric["MetricName"] for name, metric in metrics(alarm).items()}
    assert alarm["EvaluationPeriods"] == len(periods)
    assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    values = [evaluate(expression, {name: found.get(kind) for name, kind in names.items()}) for found in periods]
    return all(value is not None and value >= alarm["Threshold"] for value in values)


def test_these_are_all_the_alarms(template: Template) -> None:
    assert set(alarms(template)) == EXPECTED


def test_every_alarm_goes_to_the_topic(template: Template) -> None:
    topic = {"Ref": the_id(template, "AWS::SNS::Topic", "AlarmsTopic")}
    assert all(alarm["AlarmActions"] == [topic] for alarm in alarms(template).values())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_alarm_says_what_is_felt_why_and_what_to_do(template: Template, name: str) -> None:
    description = alarms(template)[name]["AlarmDescription"]
    assert 120 < len(description) <= 1024  # CloudWatch takes no more
    assert len(re.findall(r"[.:;] ", description)) >= 2
    settings = set(re.findall(r"alluvia:(\w+)", description))
    assert settings <= {
        "query_rate",
        *(name for name in Settings.__dataclass_fields__ if name.endswith("_concurrency")),
    }


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_only_what_must_run_is_missed(template: Template, name: str) -> None:
    alarm = alarms(template)[name]
    assert alarm["TreatMissingData"] == ("breaching" if name.endswith("Missing") else "notBreaching")


@pytest.mark.parametrize(
    ("name", "queue", "metric", "threshold"),
    [
        ("DeadLetters", "EventQueueDeadLetters", "ApproximateNumberOfMessagesVisible", 1),
        ("QueueAge", "EventQueueEvents", "ApproximateAgeOfOldestMessage", 900),
        ("MergeDeadLetters", "MergeQueueDeadLetters", "ApproximateNumberOfMessagesVisible", 1),
        ("MergeQueueAge", "MergeQueueTables", "ApproximateAgeOfOldestMessage", 7200),
        ("PipelineDeadLetters", "PipelineQueueDeadLetters", "ApproximateNumberOfMessagesVisible", 1),
        ("PipelineQueueAge", "PipelineQueueSteps", "ApproximateAgeOfOldestMessage", 7200),
        ("VacuumDeadLetters", "VacuumQueueDeadLetters", "ApproximateNumberOfMessagesVisible", 1),
        ("VacuumQueueAge", "VacuumQueueTables", "ApproximateAgeOfOldestMessage", 7200),
    ],
)
def test_queues_raise_alarms(template: Template, name: str, queue: str, metric: str, threshold: int) -> None:
    alarm = alarms(template)[name]
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == ("AWS/SQS", metric, "Maximum")
    assert (alarm["Threshold"], alarm["EvaluationPeriods"], alarm["Period"]) == (threshold, 1, 300)
    assert dimensions(alarm) == {"QueueName": f"{{{the_id(template, 'AWS::SQS::Queue', queue)}.QueueName}}"}


@pytest.mark.parametrize("name", ["Merge", "Vacuum"])
def test_a_message_that_failed_once_is_tried_again_before_its_age_raises_an_alarm(
    template: Template, name: str
) -> None:
    queue = resources_of(template, "AWS::SQS::Queue")[the_id(template, "AWS::SQS::Queue", f"{name}QueueTables")]
    assert alarms(template)[f"{name}QueueAge"]["Threshold"] > queue["VisibilityTimeout"] + 900


@pytest.mark.parametrize("kind", ["Errors", "Throttles"])
@pytest.mark.parametrize("name", ["Commit", "Jobs", "Merge", "Pipeline", "Vacuum", "Backfill"])
def test_each_failure_of_what_works_by_itself_raises_an_alarm(template: Template, name: str, kind: str) -> None:
    alarm = alarms(template)[f"{name}{kind}"]
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == ("AWS/Lambda", kind, "Sum")
    assert (alarm["Threshold"], alarm["EvaluationPeriods"]) == (1, 1)
    assert dimensions(alarm) == {"FunctionName": f"{{{the_id(template, FUNCTION, f'Functions{name}')}}}"}


@pytest.mark.parametrize("name", ["Ingest", "Query"])
@pytest.mark.parametrize(
    ("kind", "bad"), [("Errors", "Errors"), ("Throttles", "Throttles"), ("Unavailable", "HandledFailures")]
)
def test_requests_raise_an_alarm_by_the_share_that_fails(template: Template, name: str, kind: str, bad: str) -> None:
    alarm = alarms(template)[f"{name}{kind}"]
    found = {metric["MetricName"]: metric for metric in metrics(alarm).values()}
    assert set(found) == {bad, "Invocations"}
    function = the_id(template, FUNCTION, f"Functions{name}")
    assert dimensions(found["Invocations"]) == {"FunctionName": f"{{{function}}}"}
    own = {"service": name.lower()} if bad == "HandledFailures" else {"FunctionName": f"{{{function}}}"}
    assert dimensions(found[bad]) == own
    assert {(metric["Statistic"], metric["Period"]) for metric in found.values()} == {("Sum", 900)}
    assert not rings(alarm, {bad: 1, "Invocations": 1})
    assert not rings(alarm, {bad: 40, "Invocations": 1000})
    assert rings(alarm, {bad: 60, "Invocations": 1000})
    assert rings(alarm, {bad: 2, "Invocations": 2})
    assert not rings(alarm, {"Invocations": 1000})
    assert not rings(alarm, {})


@pytest.mark.parametrize("name", ["Ingest", "Query"])
def test_requests_that_are_all_throttled_raise_an_alarm(template: Template, name: str) -> None:
    """Lambda does not count them as invocations."""
    assert rings(alarms(template)[f"{name}Throttles"], {"Throttles": 10, "Invocations": 0})
    assert rings(alarms(template)[f"{name}Throttles"], {"Throttles": 10})


def test_the_api_raises_an_alarm_by_the_share_that_fails(template: Template) -> None:
    alarm = alarms(template)["ApiFailures"]
    api = f"{{{the_id(template, 'AWS::ApiGatewayV2::Api', 'HttpApi')}}}"
    for metric in metrics(alarm).values():
        assert (metric["Namespace"], dimensions(metric), metric["Statistic"]) == (
            "AWS/ApiGateway",
            {"ApiId": api},
            "Sum",
        )
    assert not rings(alarm, {"5xx": 1, "Count": 1})
    assert not rings(alarm, {"5xx": 49, "Count": 1000})
    assert rings(alarm, {"5xx": 50, "Count": 1000})
    assert not rings(alarm, {"5xx": 0, "Count": 1000})


def test_rejects_raise_an_alarm_by_their_share(template: Template) -> None:
    alarm = alarms(template)["Rejects"]
    assert {(metric["Namespace"], metric["Statistic"]) for metric in metrics(alarm).values()} == {("Alluvia", "Sum")}
    assert not rings(alarm, {"Rejects": 9, "Events": 0})
    assert rings(alarm, {"Rejects": 10, "Events": 0})
    assert rings(alarm, {"Rejects": 50, "Events": 950})
    assert not rings(alarm, {"Rejects": 49, "Events": 951})
    assert not rings(alarm, {"Events": 951})


@pytest.mark.parametrize("name", ["Merge", "Vacuum"])
def test_a_sweep_that_does_not_come_is_missed(template: Template, name: str) -> None:
    alarm = alarms(template)[f"{name}Missing"]
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == ("Alluvia", "Sweeps", "Sum")
    assert dimensions(alarm) == {"service": name.lower()}
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "LessThanThreshold")
    assert (alarm["Period"], alarm["EvaluationPeriods"]) == (86_400, 2)
    (rule,) = (
        found
        for rule, found in resources_of(template, "AWS::Events::Rule").items()
        if rule.startswith(f"Schedules{name}")
    )
    assert rule["ScheduleExpression"] == "rate(1 day)"


def test_looks_for_due_tables_that_do_not_come_are_missed_within_hours(template: Template) -> None:
    alarm = alarms(template)["PipelineMissing"]
    assert (alarm["MetricName"], dimensions(alarm)) == ("Sweeps", {"service": "pipeline"})
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "LessThanThreshold")
    assert (alarm["Period"], alarm["EvaluationPeriods"]) == (3600, 2)


@pytest.mark.parametrize(
    ("name", "metric", "service", "threshold", "statistic", "seconds", "periods", "breaching"),
    [
        ("PartialBatchFailures", "PartialBatchFailures", "ingest", 1, "Sum", 300, 6, 3),
        ("CommitsSinceCheckpoint", "CommitsSinceCheckpoint", None, 1000, "Maximum", 600, 3, 3),
        ("MergeFailures", "PartialBatchFailures", "merge", 1, "Sum", 300, 1, 1),
        ("PipelineFailures", "PartialBatchFailures", "pipeline", 1, "Sum", 300, 1, 1),
        ("VacuumFailures", "PartialBatchFailures", "vacuum", 1, "Sum", 300, 1, 1),
    ],
)
def test_what_the_functions_report_raises_alarms(
    template: Template,
    name: str,
    metric: str,
    service: str | None,
    threshold: int,
    statistic: str,
    seconds: int,
    periods: int,
    breaching: int,
) -> None:
    alarm = alarms(template)[name]
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == ("Alluvia", metric, statistic)
    assert dimensions(alarm) == ({} if service is None else {"service": service})
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (threshold, "GreaterThanOrEqualToThreshold")
    assert (alarm["Period"], alarm["EvaluationPeriods"]) == (seconds, periods)
    assert alarm.get("DatapointsToAlarm", periods) == breaching


def test_cloudwatch_takes_every_window(template: Template) -> None:
    """A day at most, or a week where a period is an hour or longer."""
    for alarm in alarms(template).values():
        period = max(metric["Period"] for metric in metrics(alarm).values())
        assert period * alarm["EvaluationPeriods"] <= (604_800 if period >= 3600 else 86_400)


def test_a_failed_job_is_told_to_the_topic(template: Template) -> None:
    rule = template["Resources"][the_id(template, "AWS::Events::Rule", "AlarmsJobFailed")]["Properties"]
    application = the_id(template, "AWS::EMRServerless::Application", "SparkApplication")
    assert rule["State"] == "ENABLED"
    assert rule["EventPattern"] == {
        "source": ["aws.emr-serverless"],
        "detail-type": ["EMR Serverless Job Run State Change"],
        # A run that takes longer than it may is cancelled, and does not fail.
        "detail": {
            "applicationId": [{"Fn::GetAtt": [application, "ApplicationId"]}],
            "state": ["FAILED", "CANCELLED"],
        },
    }
    (target,) = rule["Targets"]
    assert target["Arn"] == {"Ref": the_id(template, "AWS::SNS::Topic", "AlarmsTopic")}
    told = json.loads(target["InputTransformer"]["InputTemplate"])
    for name, path in target["InputTransformer"]["InputPathsMap"].items():
        assert f"<{name}>" in told
        assert path in ("$.detail.jobRunId", "$.detail.state")


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
    assert not has_any(template, "AWS::SNS::Subscription")
    told = read_template(synthesise(placeholders, tmp_path, alarm_email="oncall@example.com"))
    (subscription,) = resources_of(told, "AWS::SNS::Subscription").values()
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "oncall@example.com")
