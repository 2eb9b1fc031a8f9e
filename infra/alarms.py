"""What is worth waking someone for, sent to one topic. docs/OPERATIONS.md has a row for each."""

from __future__ import annotations

from aws_cdk import Aws, Duration
from aws_cdk import aws_apigatewayv2 as api
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.metrics import LogMetrics
from infra.schedules import SWEEP_EVERY

PERIOD = Duration.minutes(5)
# Rates are taken over a quarter of an hour: a total outage is over them within minutes, one error never is.
RATE_PERIOD = Duration.minutes(15)
FAILED_PERCENT_MAX = 5
REJECTED_PERCENT_MAX = 5
REJECTS_MIN = 10
QUEUE_AGE_SECONDS_MAX = 900
# A message that failed once comes again after an hour and a half.
TABLES_AGE_SECONDS_MAX = 7200
CHECKPOINT_PERIOD = Duration.minutes(10)
COMMITS_SINCE_CHECKPOINT_MAX = 1000
JOB_STATES = ["FAILED", "CANCELLED"]
CALL_ERRORS = {
    "Commit": (
        "Events wait in the queue: a whole batch failed, by a time-out, a crash or a setting. It comes again by "
        "itself; if this persists, QueueAge and DeadLetters follow. Commit's log has the error."
    ),
    "Jobs": (
        "Jobs of queries fail, or never start: the function crashed, timed out or ran out of memory. Nothing runs them "
        "again; their senders read that they failed. Jobs' log has the error. After a deployment: point live back."
    ),
    "Merge": (
        "Queries of some tables get slower: a batch of tables, or a sweep, failed, by a time-out, a crash or a "
        "setting. It comes again by itself; if this persists, MergeDeadLetters follows. Merge's log has the error."
    ),
    "Vacuum": (
        "Deleted data of some tables still exists: a batch of tables, or a sweep, failed, by a time-out, a crash or a "
        "setting. It comes again by itself; if this persists, VacuumDeadLetters follows. Vacuum's log has the error."
    ),
    "Pipeline": (
        "Tables of pipelines and rollups get behind: a look for due tables failed, by a time-out, a crash or a "
        "setting, or a table whose log cannot be read. The next look is a minute later. Pipeline's log has the error."
    ),
    "Backfill": (
        "A caller could not start a backfill: the request is invalid, or EMR Serverless refuses it. The function's "
        "log and its answer name the field or the reason."
    ),
}

FELT = {
    "Merge": "Queries and cold starts of some tables get slower",
    "Vacuum": "Deleted data still exists, and costs",
    "Pipeline": "Some tables of pipelines and rollups are behind their sources",
}
AGAIN = {"Merge": "in an hour and a half", "Vacuum": "in an hour and a half", "Pipeline": "in a quarter of an hour"}
MISSED = {
    "Merge": (SWEEP_EVERY, "days"),
    "Vacuum": (SWEEP_EVERY, "days"),
    "Pipeline": (Duration.hours(1), "hours"),
}


class Alarms(Construct):
    """Alarms that go to `topic`, which has a subscriber if the deployment names an email address.

    Without one it is the place to attach a pager. The topic has no key of ours: CloudWatch cannot publish to one under
    the AWS managed key, and an alarm carries names and numbers, no data.

    What is called over HTTP raises an alarm by the share of requests that fail, so that a single error wakes nobody;
    what works by itself raises one for each failure. A metric without data is well, but for that of what must run.
    """

    def __init__(self, scope: Construct, construct_id: str, *, email: str | None) -> None:
        super().__init__(scope, construct_id)
        self.topic = self._topic()
        if email is not None:
            self.topic.add_subscription(subscriptions.EmailSubscription(email))

    def watch_queue(self, queue: sqs.Queue, dead_letters: sqs.Queue, metrics: LogMetrics) -> None:
        """Events that were accepted over HTTP, but are late or given up."""
        self._dead_letters(
            "DeadLetters",
            dead_letters,
            "Accepted events are missing from their tables: messages failed 5 times and were set aside. Likely a table "
            "was dropped, or its writes fail for good. Read Commit's log, fix the cause, then redrive within 14 days.",
        )
        self._age(
            "QueueAge",
            queue,
            QUEUE_AGE_SECONDS_MAX,
            "Accepted events have waited 15 minutes for their commit: queries do not see them yet. Commit fails, is "
            "throttled, or is too slow for the events. See its other alarms; else raise alluvia:commit_concurrency.",
        )
        # A message that fails comes again every 6 minutes or so: its five tries take half an hour.
        self._alarm(
            "PartialBatchFailures",
            metrics.metric("PartialBatchFailures", PERIOD, service="ingest"),
            1,
            "Some tables get no events while others do: the same messages keep failing, and become dead letters after "
            "5 tries. Commit's log names the table and the error, or the message that cannot be read.",
            periods=6,
            breaching=3,
        )

    def watch_api(self, http_api: api.HttpApi) -> None:
        """Answers of API Gateway, whoever made them."""
        failed = http_api.metric_server_error(period=RATE_PERIOD, statistic="Sum")
        requests = http_api.metric_count(period=RATE_PERIOD, statistic="Sum")
        self._rate(
            "ApiFailures",
            failed,
            requests,
            "Callers get a 5xx for over 5% of requests. See the alarms of Ingest and Query for which of them and why. "
            "If those are silent, the access log has integrationError: a time-out, or a function not to be called.",
        )

    def watch_requests(self, name: str, function: lambda_.Function, metrics: LogMetrics) -> None:
        """A function that answers HTTP requests: the share of them that fail, in each of three ways."""
        calls = function.metric_invocations(period=RATE_PERIOD, statistic="Sum")
        self._rate(
            f"{name}Errors",
            function.metric_errors(period=RATE_PERIOD, statistic="Sum"),
            calls,
            f"Callers get a 500: over 5% of {name}'s calls crash, time out or run out of memory. Its log has the "
            "error under function_request_id. If a deployment came just before, point the alias live back.",
        )
        self._rate(
            f"{name}Throttles",
            function.metric_throttles(period=RATE_PERIOD, statistic="Sum"),
            calls,
            f"Callers get a 503: Lambda has no room for over 5% of {name}'s calls. The account's concurrency, or "
            f"alluvia:{name.lower()}_concurrency, is used up. Ask for a higher quota, or lower alluvia:query_rate.",
            counted="FILL(bad, 0) + FILL(total, 0)",  # Lambda does not count them as invocations
        )
        service = name.lower()
        self._rate(
            f"{name}Unavailable",
            metrics.metric("HandledFailures", RATE_PERIOD, service=service),
            calls,
            f"Callers of {name} get a 503 for over 5% of requests and have to try again, or a 500 for damaged data. S3 "
            "or SQS refuses or throttles, or many writers commit to one table. The log lines with a status say which.",
        )

    def watch_calls(self, name: str, function: lambda_.Function) -> None:
        """A function that works by itself, or that someone calls by hand: each failure counts."""
        errors = function.metric_errors(period=PERIOD, statistic="Sum")
        self._alarm(f"{name}Errors", errors, 1, CALL_ERRORS[name])
        throttles = function.metric_throttles(period=PERIOD, statistic="Sum")
        self._alarm(
            f"{name}Throttles",
            throttles,
            1,
            f"{name} was refused for lack of concurrency; queries or ingestion may be refused as well. The account's "
            "concurrent executions are used up: ask for a higher quota, or lower alluvia:query_rate.",
        )

    def watch_rejects(self, metrics: LogMetrics) -> None:
        """Events that cannot become rows."""
        rejects, accepted = (metrics.metric(name, RATE_PERIOD) for name in ("Rejects", "Events"))
        percent = cloudwatch.MathExpression(
            expression=f"IF(FILL(bad, 0) >= {REJECTS_MIN}, 100 * FILL(bad, 0) / (FILL(bad, 0) + FILL(good, 0)), 0)",
            using_metrics={"bad": rejects, "good": accepted},
            period=RATE_PERIOD,
            label="% of events",
        )
        self._alarm(
            "Rejects",
            percent,
            REJECTED_PERCENT_MAX,
            "Over 5% of events are missing from their tables: they are kept in <table>._rejects, with a reason each. "
            "Likely a sender changed its format, or a table its columns. Query the rejects by reason.",
        )

    def watch_tables(self, name: str, queue: sqs.Queue, dead_letters: sqs.Queue, metrics: LogMetrics) -> None:
        """A function that takes tables from a queue: that it keeps up, that none fails, that the sweeps come."""
        felt, service = FELT[name], name.lower()
        period, unit = MISSED[name]
        self._dead_letters(
            f"{name}DeadLetters",
            dead_letters,
            f"{felt}: {name} failed on them 3 times, or got a message that it cannot read, and set it aside. Its log "
            "names the table and the error, or the message. Fix the cause, then redrive; the next sweep comes to the "
            "table as well.",
        )
        self._age(
            f"{name}QueueAge",
            queue,
            TABLES_AGE_SECONDS_MAX,
            f"{felt}: a message has waited for two hours. {name} failed on its table, and tries again, or it does not "
            f"get to all tables. See its other alarms; if they are silent, raise alluvia:{service}_concurrency.",
        )
        self._alarm(
            f"{name}Failures",
            metrics.metric("PartialBatchFailures", PERIOD, service=service),
            1,
            f"{felt}: {name} failed on a table, or got a message that it cannot read. It tries again "
            f"{AGAIN[name]}. Its log names the table and the error; if it says Unavailable, wait for the next try.",
        )
        self._alarm(
            f"{name}Missing",
            metrics.metric("Sweeps", period, service=service),
            1,
            f"{felt}: no sweep of {name} has put the tables into its queue for two {unit}. The rule is disabled or "
            "gone, or the function fails. See the rule in EventBridge; call the function's alias live by hand with {}.",
            periods=2,
            too_few=True,
        )

    def watch_checkpoints(self, metrics: LogMetrics) -> None:
        """Tables that take long to open."""
        self._alarm(
            "CommitsSinceCheckpoint",
            metrics.metric("CommitsSinceCheckpoint", CHECKPOINT_PERIOD, statistic="Maximum"),
            COMMITS_SINCE_CHECKPOINT_MAX,
            "Cold starts and first queries take seconds: some table has no checkpoint in its last 1,000 commits. Merge "
            "fails on it or comes too seldom. Merge's log has commits_since_checkpoint for each table.",
            periods=3,
        )

    def watch_jobs(self, application_id: str) -> None:
        """Backfills that ended without a commit. There is no metric of them: EMR's event goes to the topic."""
        rule = events.Rule(
            self,
            "JobFailed",
            event_pattern=events.EventPattern(
                source=["aws.emr-serverless"],
                detail_type=["EMR Serverless Job Run State Change"],
                # A run that takes too long is cancelled.
                detail={"applicationId": [application_id], "state": JOB_STATES},
            ),
        )
        run, state = (events.EventField.from_path(f"$.detail.{name}") for name in ("jobRunId", "state"))
        text = (
            f"The Spark run {run} ended as {state}: a backfill's rows are not in the table, or upkeep is not done. "
            "Ask the backfill function for its details, and fix the cause. Start a backfill again with attempt raised "
            "by one: rows still go in once. Upkeep is started again by itself."
        )
        # With a role, no policy has to let all rules of all accounts publish.
        target = targets.SnsTopic(self.topic, message=events.RuleTargetInput.from_text(text), authorize_using_role=True)
        rule.add_target(target)

    def watch_upkeep(self, machine: sfn.IStateMachine) -> None:
        """Upkeep that functions hand over to Spark."""
        self._alarm(
            "UpkeepFailed",
            machine.metric_failed(period=PERIOD, statistic="Sum"),
            1,
            "Queries of a big table get slower, or its deleted data costs: Spark failed to maintain it after merge or "
            "vacuum had handed it over. The execution in Step Functions has the cause. The functions go on with what "
            "they can do, and hand the rest over again within 6 hours.",
        )

    def _topic(self) -> sns.Topic:
        topic = sns.Topic(self, "Topic", enforce_ssl=True)
        # A topic with a policy of its own has lost the default one, which let this account's alarms publish.
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            )
        )
        return topic

    def _dead_letters(self, name: str, dead_letters: sqs.Queue, description: str) -> None:
        waiting = dead_letters.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum")
        self._alarm(name, waiting, 1, description)

    def _age(self, name: str, queue: sqs.Queue, seconds_max: int, description: str) -> None:
        age = queue.metric_approximate_age_of_oldest_message(period=PERIOD, statistic="Maximum")
        self._alarm(name, age, seconds_max, description)

    def _rate(
        self,
        name: str,
        bad: cloudwatch.Metric,
        total: cloudwatch.Metric,
        description: str,
        *,
        counted: str = "FILL(total, 0)",
    ) -> None:
        """An alarm for the share of bad ones, if there are two at least, in all that are `counted`."""
        percent = cloudwatch.MathExpression(
            expression=f"IF(FILL(bad, 0) > 1, 100 * FILL(bad, 0) / ({counted}), 0)",
            using_metrics={"bad": bad, "total": total},
            period=RATE_PERIOD,
            label="% of requests",
        )
        self._alarm(name, percent, FAILED_PERCENT_MAX, description)

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.IMetric,
        threshold: int,
        description: str,
        *,
        periods: int = 1,
        breaching: int | None = None,
        too_few: bool = False,
    ) -> None:
        """An alarm for a metric at or over the threshold in `breaching` of some periods; `too_few`: under it."""
        comparison, missing = cloudwatch.ComparisonOperator, cloudwatch.TreatMissingData
        alarm = cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            threshold=threshold,
            comparison_operator=(
                comparison.LESS_THAN_THRESHOLD if too_few else comparison.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
            ),
            evaluation_periods=periods,
            datapoints_to_alarm=breaching,
            treat_missing_data=missing.BREACHING if too_few else missing.NOT_BREACHING,
            alarm_description=description,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))
