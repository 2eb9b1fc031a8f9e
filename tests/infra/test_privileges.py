"""What each role may do: the full list, and then each rule by itself, so that a broken one says which it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import allowed, grants, has_any, resources_of, statements_of_role, text, the_id

Template = dict[str, Any]

ROLE = "AWS::IAM::Role"
BUCKET = "AWS::S3::Bucket"
LAMBDAS = ("Ingest", "Commit", "Merge", "Pipeline", "Query", "Jobs", "Vacuum", "Backfill")
JOBS = ("Job", "Upkeep")
READ = {"s3:GetObject", "s3:ListBucket"}
APPEND = READ | {"s3:PutObject", "s3:AbortMultipartUpload"}
LAKE_ACTIONS = {
    "Ingest": APPEND,
    "Commit": APPEND,
    "Merge": APPEND,
    "Pipeline": APPEND,
    "Query": APPEND,
    "Jobs": APPEND,
    "Vacuum": APPEND | {"s3:DeleteObject"},
    "Backfill": set[str](),
}
WRITES = ("s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion", "s3:PutObjectTagging", "s3:PutBucketPolicy")


def role_id(template: Template, name: str) -> str:
    return the_id(template, ROLE, f"Spark{name}Role" if name in JOBS else f"Functions{name}Role")


def statements(template: Template, name: str) -> list[Any]:
    return list(statements_of_role(template, role_id(template, name)))


def actions(template: Template, name: str, service: str) -> set[str]:
    return {action for action, _ in grants(statements(template, name)) if action.startswith(f"{service}:")}


def lake(template: Template, key: str = "") -> str:
    bucket = f"{{{the_id(template, BUCKET, 'StorageLake')}.Arn}}"
    return f"{bucket}/{key}" if key else bucket


@pytest.mark.parametrize("name", LAMBDAS)
def test_a_function_may_do_exactly_this_in_s3(template: Template, name: str) -> None:
    assert actions(template, name, "s3") == LAKE_ACTIONS[name]


@pytest.mark.parametrize("name", [*LAMBDAS, *JOBS])
def test_rights_in_the_lake_end_at_its_prefix(template: Template, name: str) -> None:
    found = statements(template, name)
    for action, resource in grants(found):
        if action.startswith("s3:") and action != "s3:ListBucket" and resource.startswith(lake(template)):
            prefixes = ("lake/", "incoming/", "lake/*/_rejects/", "lake/_alluvia/results/", "lake/_alluvia/jobs/")
            assert resource in {lake(template, "incoming"), *(lake(template, f"{prefix}*") for prefix in prefixes)}
    assert not allowed(found, "s3:PutObject", lake(template, "elsewhere/x"), none_match="*")
    assert not allowed(found, "s3:GetObject", lake(template, "elsewhere/x"))
    assert not allowed(found, "s3:ListBucket", lake(template))
    assert not allowed(found, "s3:ListBucket", lake(template), prefix="")
    assert not allowed(found, "s3:ListBucket", lake(template), prefix="elsewhere/")


@pytest.mark.parametrize("name", ["Ingest", "Commit", "Merge", "Pipeline", "Query", "Vacuum", *JOBS])
def test_readers_read_and_list_the_lake(template: Template, name: str) -> None:
    found = statements(template, name)
    assert allowed(found, "s3:GetObject", lake(template, "lake/events/_delta_log/_last_checkpoint"))
    assert allowed(found, "s3:ListBucket", lake(template), prefix="lake/")
    assert allowed(found, "s3:ListBucket", lake(template), prefix="lake/events/_delta_log/")


@pytest.mark.parametrize("name", ["Commit", "Merge", "Pipeline", "Vacuum", *JOBS])
def test_writers_put_into_the_lake(template: Template, name: str) -> None:
    key = "lake/events/_delta_log/00000000000000000000.json"
    assert allowed(statements(template, name), "s3:PutObject", lake(template, key), none_match="*")


def test_ingest_over_http_writes_rejects_and_nothing_else(template: Template) -> None:
    found = statements(template, "Ingest")
    for key in ("lake/clicks/_rejects/_delta_log/00000000000000000000.json", "lake/clicks/_rejects/part-0.parquet"):
        assert allowed(found, "s3:PutObject", lake(template, key), none_match="*")
    for key in ("lake/clicks/_delta_log/00000000000000000001.json", "lake/clicks/part-0.parquet"):
        assert not allowed(found, "s3:PutObject", lake(template, key), none_match="*")


@pytest.mark.parametrize("name", ["Ingest", "Commit", "Merge", "Pipeline", "Query", "Backfill", "Job"])
def test_only_vacuum_deletes(template: Template, name: str) -> None:
    found = statements(template, name)
    assert not [action for action, _ in grants(found) if action.lower().startswith("s3:delete")]
    assert not allowed(found, "s3:DeleteObject", lake(template, "lake/events/part-0.parquet"))
    assert allowed(statements(template, "Vacuum"), "s3:DeleteObject", lake(template, "lake/events/part-0.parquet"))


@pytest.mark.parametrize("name", [*LAMBDAS, *JOBS])
def test_nobody_deletes_a_version(template: Template, name: str) -> None:
    found = statements(template, name)
    assert not allowed(found, "s3:DeleteObjectVersion", lake(template, "lake/events/part-0.parquet"))
    assert not allowed(found, "s3:PutLifecycleConfiguration", lake(template))


@pytest.mark.parametrize("action", WRITES)
def test_query_writes_results_and_nothing_else(template: Template, action: str) -> None:
    found = statements(template, "Query")
    for key in ("events/part-0.parquet", "_alluvia/views/v/0.json", "_alluvia/tokens/keys/k.json", "events/_alluvia/x"):
        assert not allowed(found, action, lake(template, f"lake/{key}"), none_match="*")
    for key in ("results/0a", "jobs/x/end.json"):
        assert allowed(found, action, lake(template, f"lake/_alluvia/{key}"), none_match="*") is (
            action == "s3:PutObject"
        )


def test_query_starts_jobs_and_nobody_else_calls_a_function(template: Template) -> None:
    jobs = f"{{{the_id(template, 'AWS::Lambda::Alias', 'FunctionsJobsLive')}}}"
    for name in LAMBDAS:
        found = {pair for pair in grants(statements(template, name)) if pair[0].startswith("lambda:")}
        assert found == ({("lambda:InvokeFunction", jobs)} if name == "Query" else set()), name


@pytest.mark.parametrize("name", [*LAMBDAS, *JOBS])
def test_no_right_is_a_wildcard(template: Template, name: str) -> None:
    found = [*grants(statements(template, name))]
    assert found
    for action, resource in found:
        assert "*" not in action
        assert not resource.startswith("*")


@pytest.mark.parametrize("name", LAMBDAS)
def test_a_function_writes_its_own_log_alone(template: Template, name: str) -> None:
    log = the_id(template, "AWS::Logs::LogGroup", f"Functions{name}Log")
    found = {pair for pair in grants(statements(template, name)) if pair[0].startswith("logs:")}
    assert found == {("logs:CreateLogStream", f"{{{log}.Arn}}"), ("logs:PutLogEvents", f"{{{log}.Arn}}")}


def test_ingest_sends_and_commit_receives(template: Template) -> None:
    queue = f"{{{the_id(template, 'AWS::SQS::Queue', 'EventQueueEvents')}.Arn}}"
    assert allowed(statements(template, "Ingest"), "sqs:SendMessage", queue)
    assert not allowed(statements(template, "Ingest"), "sqs:ReceiveMessage", queue)
    assert not allowed(statements(template, "Ingest"), "sqs:DeleteMessage", queue)
    assert allowed(statements(template, "Commit"), "sqs:ReceiveMessage", queue)
    assert not allowed(statements(template, "Commit"), "sqs:SendMessage", queue)
    for name in ("Query", "Backfill", *JOBS):
        assert actions(template, name, "sqs") == set()


@pytest.mark.parametrize(("name", "kind"), [("Merge", "Tables"), ("Vacuum", "Tables"), ("Pipeline", "Steps")])
def test_what_works_on_tables_sends_to_its_own_queue_and_receives_from_it(
    template: Template, name: str, kind: str
) -> None:
    queue = f"{{{the_id(template, 'AWS::SQS::Queue', f'{name}Queue{kind}')}.Arn}}"
    found = {pair for pair in grants(statements(template, name)) if pair[0].startswith("sqs:")}
    names = (
        "SendMessage",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ReceiveMessage",
        "DeleteMessage",
        "ChangeMessageVisibility",
    )
    assert found == {(f"sqs:{action}", queue) for action in names}


def test_backfill_starts_jobs_on_one_application_with_the_roles_of_jobs(template: Template) -> None:
    application = f"{{{the_id(template, 'AWS::EMRServerless::Application', 'SparkApplication')}.Arn}}"
    role, other = (f"{{{role_id(template, name)}.Arn}}" for name in JOBS)
    found = statements(template, "Backfill")
    assert {pair for pair in grants(found) if not pair[0].startswith("logs:")} == {
        ("emr-serverless:StartJobRun", application),
        ("emr-serverless:GetJobRun", f"{application}/jobruns/*"),
        ("iam:PassRole", role),
        ("iam:PassRole", other),
    }
    assert allowed(found, "iam:PassRole", role, service="emr-serverless.amazonaws.com")
    assert not allowed(found, "iam:PassRole", role, service="lambda.amazonaws.com")
    assert not allowed(found, "iam:PassRole", role)
    for name in ("Ingest", "Commit", "Merge", "Pipeline", "Query", "Vacuum", *JOBS):
        assert actions(template, name, "iam") | actions(template, name, "emr-serverless") == set()


def test_a_job_reads_its_code_and_the_incoming_files_and_appends(template: Template) -> None:
    found = statements(template, "Job")
    (code,) = {
        resource for action, resource in grants(found) if action == "s3:GetObject" and "cdk-hnb659fds" in resource
    }
    assert code == "arn:{AWS::Partition}:s3:::cdk-hnb659fds-assets-{AWS::AccountId}-{AWS::Region}/backfill/*"
    assert actions(template, "Job", "s3") == APPEND
    assert allowed(found, "s3:GetObject", lake(template, "incoming/2026/01.ndjson.gz"))
    assert allowed(found, "s3:ListBucket", lake(template), prefix="incoming/2026/")
    assert not allowed(found, "s3:PutObject", lake(template, "incoming/2026/01.ndjson.gz"), none_match="*")
    assert {action.partition(":")[0] for action, _ in grants(found)} == {"s3"}


def test_only_the_own_application_takes_the_job_role(template: Template) -> None:
    role = template["Resources"][role_id(template, "Job")]["Properties"]
    application = the_id(template, "AWS::EMRServerless::Application", "SparkApplication")
    assert role["AssumeRolePolicyDocument"]["Statement"] == [
        {
            "Action": "sts:AssumeRole",
            "Effect": "Allow",
            "Principal": {"Service": "emr-serverless.amazonaws.com"},
            "Condition": {
                "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}},
                "ArnLike": {"aws:SourceArn": {"Fn::GetAtt": [application, "Arn"]}},
            },
        }
    ]


def test_a_job_of_upkeep_reads_its_code_and_does_in_the_lake_what_vacuum_does(template: Template) -> None:
    found = statements(template, "Upkeep")
    assert actions(template, "Upkeep", "s3") == LAKE_ACTIONS["Vacuum"]
    assert {action.partition(":")[0] for action, _ in grants(found)} == {"s3"}
    assert not allowed(found, "s3:GetObject", lake(template, "incoming/2026/01.ndjson.gz"))
    assert not allowed(found, "s3:DeleteObject", lake(template, "incoming/2026/01.ndjson.gz"))


def test_every_role_is_one_of_these(template: Template) -> None:
    found = {role_id(template, name) for name in (*LAMBDAS, *JOBS)} | {alarm_role(template)}
    found |= {the_id(template, ROLE, f"{name}RunsMachineRole") for name in ("Backfill", "Upkeep")}
    assert set(resources_of(template, ROLE)) == found
    for policy in resources_of(template, "AWS::IAM::Policy").values():
        assert len(policy["Roles"]) == 1
    assert not has_any(template, "AWS::IAM::User")


def alarm_role(template: Template) -> str:
    return the_id(template, ROLE, "AlarmsJobFailedEventsRole")


def test_what_tells_of_failed_jobs_may_publish_alarms_and_nothing_else(template: Template) -> None:
    topic = the_id(template, "AWS::SNS::Topic", "AlarmsTopic")
    assert list(grants(statements_of_role(template, alarm_role(template)))) == [("sns:Publish", f"{{{topic}}}")]


def test_a_function_is_called_by_the_api_and_the_schedules_alone(template: Template) -> None:
    permissions = resources_of(template, "AWS::Lambda::Permission").values()
    found = sorted((permission["Principal"], text(permission["SourceArn"])) for permission in permissions)
    aliases = resources_of(template, "AWS::Lambda::Alias")
    assert {permission["FunctionName"]["Ref"] for permission in permissions} <= set(aliases)
    api = the_id(template, "AWS::ApiGatewayV2::Api", "HttpApi")
    base = f"arn:{{AWS::Partition}}:execute-api:{{AWS::Region}}:{{AWS::AccountId}}:{{{api}}}/*/*"
    merge = the_id(template, "AWS::Events::Rule", "SchedulesMerge")
    vacuum = the_id(template, "AWS::Events::Rule", "SchedulesVacuum")
    pipeline = the_id(template, "AWS::Events::Rule", "SchedulesPipeline")
    assert found == [
        *[("apigateway.amazonaws.com", f"{base}/healthz")] * 2,
        *[("apigateway.amazonaws.com", f"{base}/openapi.json")] * 2,
        *[("apigateway.amazonaws.com", f"{base}/q")] * 3,
        *[("apigateway.amazonaws.com", f"{base}/q/{{hash}}")] * 2,
        *[("apigateway.amazonaws.com", f"{base}/readyz")] * 2,
        *[("apigateway.amazonaws.com", f"{base}/v1/branches")] * 2,
        *[("apigateway.amazonaws.com", f"{base}/v1/branches/{{branch}}")] * 2,
        *[("apigateway.amazonaws.com", f"{base}/v1/branches/{{branch}}/diff")] * 2,
        ("apigateway.amazonaws.com", f"{base}/v1/events/{{table}}"),
        *[("apigateway.amazonaws.com", f"{base}/v1/jobs/{{job}}")] * 3,
        *[("apigateway.amazonaws.com", f"{base}/v1/jobs/{{job}}/{{result}}")] * 2,
        ("apigateway.amazonaws.com", f"{base}/v1/logs"),
        *[("apigateway.amazonaws.com", f"{base}/v1/queries")] * 2,
        *[("apigateway.amazonaws.com", f"{base}/v1/queries/{{query}}")] * 2,
        *[("apigateway.amazonaws.com", f"{base}/v1/tables")] * 2,
        *[("apigateway.amazonaws.com", f"{base}/v1/tables/{{table}}")] * 2,
        ("events.amazonaws.com", f"{{{merge}.Arn}}"),
        ("events.amazonaws.com", f"{{{pipeline}.Arn}}"),
        ("events.amazonaws.com", f"{{{vacuum}.Arn}}"),
    ]
    assert not has_any(template, "AWS::Lambda::Url")


@pytest.fixture(scope="module")
def direct(placeholders: Sources, tmp_path_factory: pytest.TempPathFactory) -> Template:
    folder: Path = tmp_path_factory.mktemp("direct")
    sources = "s3://partner-exports/alluvia, s3://other/"
    return read_template(
        synthesise(placeholders, folder, ingest_mode="direct", create_tables="true", backfill_sources=sources)
    )


def test_direct_ingest_appends_and_neither_deletes_nor_sends(direct: Template) -> None:
    assert actions(direct, "Ingest", "s3") == APPEND
    key = "lake/clicks/_delta_log/00000000000000000001.json"
    assert allowed(statements(direct, "Ingest"), "s3:PutObject", lake(direct, key), none_match="*")
    assert actions(direct, "Ingest", "sqs") == set()
    function = resources_of(direct, "AWS::Lambda::Function")[the_id(direct, "AWS::Lambda::Function", "FunctionsIngest")]
    environment = function["Environment"]["Variables"]
    assert environment["ALLUVIA_MODE"] == "direct"
    assert environment["ALLUVIA_CREATE_TABLES"] == "true"
    assert "ALLUVIA_QUEUE_URL" not in environment


def test_queued_ingest_that_may_create_tables_writes_their_first_commit(placeholders: Sources, tmp_path: Path) -> None:
    creating = read_template(synthesise(placeholders, tmp_path, create_tables="true"))
    key = "lake/clicks/_delta_log/00000000000000000000.json"
    assert allowed(statements(creating, "Ingest"), "s3:PutObject", lake(creating, key), none_match="*")
    assert actions(creating, "Ingest", "s3") == APPEND


def test_a_job_reads_other_buckets_only_where_the_settings_say(direct: Template) -> None:
    found = statements(direct, "Job")
    partner, other = "arn:{AWS::Partition}:s3:::partner-exports", "arn:{AWS::Partition}:s3:::other"
    assert allowed(found, "s3:GetObject", f"{partner}/alluvia/a.ndjson")
    assert allowed(found, "s3:ListBucket", partner, prefix="alluvia/a")
    assert not allowed(found, "s3:GetObject", f"{partner}/alluvia-secret")
    assert not allowed(found, "s3:ListBucket", partner, prefix="")
    for key in ("alluvia", "alluvia/"):  # a source may be given without the slash, and asks which of both it is
        assert allowed(found, "s3:GetObject", f"{partner}/{key}")
        assert allowed(found, "s3:ListBucket", partner, prefix=key)
    assert allowed(found, "s3:GetObject", lake(direct, "incoming"))
    assert allowed(found, "s3:GetObject", f"{other}/anything")
    assert allowed(found, "s3:ListBucket", other)
    for bucket in (partner, other):
        assert not allowed(found, "s3:PutObject", f"{bucket}/alluvia/a.ndjson", none_match="*")
