"""When merge and vacuum look at all tables. Backfill has no schedule: someone asks for it."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

SWEEP_EVERY = Duration.days(1)
SWEEP_RETRIES = 2


class Schedules(Construct):
    """Sweeps, which put a message for each table into the function's queue: a minute's work for any number of tables.

    One that failed is tried again. A table may then be in the queue twice, which costs a second look at it.
    """

    def __init__(self, scope: Construct, construct_id: str, *, merge: lambda_.Alias, vacuum: lambda_.Alias) -> None:
        super().__init__(scope, construct_id)
        for name, function in (("Merge", merge), ("Vacuum", vacuum)):
            function.configure_async_invoke(retry_attempts=SWEEP_RETRIES)
            target = targets.LambdaFunction(function, retry_attempts=SWEEP_RETRIES, max_event_age=Duration.hours(1))
            events.Rule(self, name, schedule=events.Schedule.rate(SWEEP_EVERY), targets=[target])
