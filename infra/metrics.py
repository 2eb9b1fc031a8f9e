"""What CloudWatch counts of the functions' log lines, which are JSON: no request and no line is made for a metric."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_logs as logs
from constructs import Construct

NAMESPACE = "Alluvia"
SERVICE = "service"


class LogMetrics(Construct):
    """Metric filters over the functions' log groups.

    Events                  events that were accepted over HTTP
    Rejects                 events that became rejects, at once or on their way out of the queue
    HandledFailures         requests that a function answered with 500 or more; by service: ingest, query, sql,
                            upload
    PartialBatchFailures    messages of a queue that failed and will come again; by service: ingest, merge,
                            pipeline, vacuum
    CommitsSinceCheckpoint  of one table, after its merge
    Sweeps                  that put all tables into a queue; by service: merge, pipeline,
                            vacuum

    They read lines of the level INFO: with a higher one the alarms on them see nothing.
    """

    def __init__(self, scope: Construct, construct_id: str, *, log_groups: Mapping[str, logs.LogGroup]) -> None:
        super().__init__(scope, construct_id)
        self._log_groups = log_groups
        answers = logs.FilterPattern.all(_number("$.accepted"), _number("$.rejected"))
        failures = _number("$.status", 500)
        events = [name for name in ("Ingest", "Upload") if name in log_groups]
        self._count("Events", events, answers, "$.accepted")
        self._count("Rejects", [*events, "Commit"], answers, "$.rejected")
        over_http = [name for name in ("Ingest", "Query", "Sql", "Upload") if name in log_groups]
        self._count("HandledFailures", over_http, failures, "1", by_service=True)
        failed, commits = "$.failed_messages", "$.commits_since_checkpoint"
        consumers = ["Commit", "Merge", "Pipeline", "Vacuum"]
        self._count("PartialBatchFailures", consumers, _number(failed), failed, by_service=True)
        self._count("CommitsSinceCheckpoint", ["Merge"], _number(commits), commits)
        self._count("Sweeps", ["Merge", "Pipeline", "Vacuum"], _number("$.tables_enqueued"), "1", by_service=True)

    def metric(
        self, name: str, period: Duration, *, statistic: str = "Sum", service: str | None = None
    ) -> cloudwatch.Metric:
        """One of the metrics; with `service`, its part of one that is counted by service."""
        dimensions = {} if service is None else {SERVICE: service}
        return cloudwatch.Metric(
            namespace=NAMESPACE, metric_name=name, period=period, statistic=statistic, dimensions_map=dimensions
        )

    def _count(
        self, metric: str, functions: list[str], pattern: logs.IFilterPattern, value: str, *, by_service: bool = False
    ) -> None:
        for name in functions:
            logs.MetricFilter(
                self,
                f"{metric}{name}",
                log_group=self._log_groups[name],
                metric_namespace=NAMESPACE,
                metric_name=metric,
                filter_pattern=pattern,
                metric_value=value,
                dimensions={SERVICE: f"$.{SERVICE}"} if by_service else None,
            )


def _number(field: str, least: int = 0) -> logs.JsonPattern:
    return logs.FilterPattern.number_value(field, ">=", least)
