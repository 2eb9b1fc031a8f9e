"""When merge and vacuum look at all tables, and pipeline at those that are made of others.

Backfill has no schedule: someone asks for it.
"""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

SWEEP_EVERY = Duration.days(1)
SWEEP_RETRIES = 2
LOOK_EVERY = Duration.minutes(1)
"""What is made of a table is at most about this much behind it, and the time of a run."""


class Schedules(Construct):
    """Sweeps, which put a message for each table into the function's queue: a minute's work for any number of tables.

    One that failed is tried again. A table may then be in the queue twice, which costs a second look at it. A look for
    tables that are due is not: the next one is a minute away.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        merge: lambda_.Alias,
        vacuum: lambda_.Alias,
        pipeline: lambda_.Alias,
    ) -> None:
        super().__init__(scope, construct_id)
        for name, function in (("Merge", merge), ("Vacuum", vacuum)):
            self._call(name, function, SWEEP_EVERY, SWEEP_RETRIES, Duration.hours(1))
        self._call("Pipeline", pipeline, LOOK_EVERY, 0, LOOK_EVERY)

    def _call(self, name: str, function: lambda_.Alias, every: Duration, retries: int, age_max: Duration) -> None:
        function.configure_async_invoke(retry_attempts=retries, max_event_age=age_max)
        target = targets.LambdaFunction(function, retry_attempts=retries, max_event_age=age_max)
        events.Rule(self, name, schedule=events.Schedule.rate(every), targets=[target])
