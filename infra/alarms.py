"""What is worth waking someone for, sent to one topic."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Aws, Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

PERIOD = Duration.minutes(5)
QUEUE_AGE_SECONDS_MAX = 900


class Alarms(Construct):
    """Alarms on dead letters, on the age of the queue, and on each function's errors and throttles.

    They go to `topic`, which has a subscriber if the deployment names an email address; without one it is the place
    to attach a pager. The topic has no key of ours: CloudWatch cannot publish to one under the AWS managed key, and
    an alarm carries names and numbers, no data.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        queue: sqs.Queue,
        dead_letters: sqs.Queue,
        functions: Mapping[str, lambda_.Function],
        email: str | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.topic = self._topic()
        if email is not None:
            self.topic.add_subscription(subscriptions.EmailSubscription(email))
        waiting = dead_letters.metric_approximate_number_of_messages_visible(period=PERIOD, statistic="Maximum")
        self._alarm("DeadLetters", waiting, 1, "Events could not be committed after several attempts")
        age = queue.metric_approximate_age_of_oldest_message(period=PERIOD, statistic="Maximum")
        self._alarm("QueueAge", age, QUEUE_AGE_SECONDS_MAX, "Accepted events wait too long for their commit")
        for name, function in functions.items():
            errors = function.metric_errors(period=PERIOD, statistic="Sum")
            self._alarm(f"{name}Errors", errors, 1, f"{name} failed")
            throttles = function.metric_throttles(period=PERIOD, statistic="Sum")
            self._alarm(f"{name}Throttles", throttles, 1, f"{name} was refused for want of concurrency")

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

    def _alarm(self, name: str, metric: cloudwatch.Metric, threshold: int, description: str) -> None:
        alarm = cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            threshold=threshold,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=description,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))
