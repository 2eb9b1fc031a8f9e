"""When merge and vacuum run by themselves. Backfill has no schedule: someone asks for it."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

MERGE_EVERY = Duration.minutes(10)
VACUUM_EVERY = Duration.days(1)


class Schedules(Construct):
    """A run that failed is not retried: the next one does its work too. Runs may overlap, so nothing locks."""

    def __init__(self, scope: Construct, construct_id: str, *, merge: lambda_.Alias, vacuum: lambda_.Alias) -> None:
        super().__init__(scope, construct_id)
        for name, function, every in (("Merge", merge, MERGE_EVERY), ("Vacuum", vacuum, VACUUM_EVERY)):
            # Lambda itself would run a failed asynchronous call twice more.
            function.configure_async_invoke(retry_attempts=0)
            target = targets.LambdaFunction(function, retry_attempts=0, max_event_age=Duration.minutes(5))
            events.Rule(self, name, schedule=events.Schedule.rate(every), targets=[target])
