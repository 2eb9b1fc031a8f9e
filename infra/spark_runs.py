"""State machines that start a job of Spark, watch it to its end, and answer with the report of the job."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from infra.nag import accept, accept_wildcard
from infra.storage import LAKE_PREFIX, Storage

BACKFILL_REPORTS = f"{LAKE_PREFIX}_alluvia/backfill/reports/"
"""Where `functions/backfill/job.py` puts a job's report, as `<table>/<job id>.json`."""
UPKEEP_REPORTS = f"{LAKE_PREFIX}_alluvia/upkeep/reports/"
"""Where `alluvia_spark/upkeep/job.py` puts one, as `<operation>/<table>.json`."""
LOOK_EVERY = Duration.minutes(1)
# EMR Serverless tries a run three times, of at most 12 hours each.
TIMEOUT = Duration.hours(37)
ENDED = ("FAILED", "CANCELLED")


class SparkRuns(Construct):
    """Its input is a request to the backfill function; its output the job's report, below `reports`.

    `named` are the fields of the function's answer that make the report's key.

    It calls the function for each step, so it may do nothing with EMR Serverless, nor pass a role. What a retry can
    cure is retried: calls that the function answers with `Unavailable`. A failed job is not: EMR Serverless has tried
    it three times, and the alarm has been sent. The execution then fails with the run's state and its details.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        backfill: lambda_.IFunction,
        storage: Storage,
        reports: str,
        named: tuple[str, str],
    ) -> None:
        super().__init__(scope, construct_id)
        self._reports, self._named = reports, named
        self.machine = sfn.StateMachine(
            self,
            "Machine",
            definition_body=sfn.DefinitionBody.from_chainable(self._definition(backfill, storage)),
            timeout=TIMEOUT,
        )
        why = "An execution's history shows its few steps for 90 days; logs and traces take rights without a resource."
        accept(self.machine, "SF1", why)
        accept(self.machine, "SF2", why)
        accept_wildcard(
            self.machine.role,
            storage.bucket.arn_for_objects(f"{reports}*"),
            "The reports of all jobs, whose ids are not known.",
        )

    def allow_hand_over(self, role: iam.IRole) -> None:
        """Lets `role` start executions, and see which are running."""
        role.add_to_principal_policy(
            iam.PolicyStatement(
                actions=["states:StartExecution", "states:ListExecutions"], resources=[self.machine.state_machine_arn]
            )
        )

    def _definition(self, backfill: lambda_.IFunction, storage: Storage) -> sfn.IChainable:
        start = self._call("Start", backfill, None, "$.run")
        asked = {"action": "status", "job_run_id": sfn.JsonPath.string_at("$.run.job_run_id")}
        look = self._call("Look", backfill, sfn.TaskInput.from_object(asked), "$.status")
        wait = sfn.Wait(self, "Wait", time=sfn.WaitTime.duration(LOOK_EVERY))
        failed = sfn.Fail(self, "Failed", error_path="$.status.state", cause_path="$.status.details")
        ended = sfn.Choice(self, "HasItEnded?")
        ended.when(sfn.Condition.string_equals("$.status.state", "SUCCESS"), self._report(storage))
        ended.when(sfn.Condition.or_(*(sfn.Condition.string_equals("$.status.state", name) for name in ENDED)), failed)
        ended.otherwise(wait)
        return start.next(wait).next(look).next(ended)

    def _call(
        self, name: str, backfill: lambda_.IFunction, payload: sfn.TaskInput | None, result_path: str
    ) -> tasks.LambdaInvoke:
        """Call the function; without a payload, with the state's input."""
        call = tasks.LambdaInvoke(
            self, name, lambda_function=backfill, payload=payload, payload_response_only=True, result_path=result_path
        )
        call.add_retry(errors=["Unavailable"], interval=Duration.seconds(10), max_attempts=8, backoff_rate=2)
        return call

    def _report(self, storage: Storage) -> tasks.CallAwsService:
        names = (sfn.JsonPath.string_at(f"$.run.{name}") for name in self._named)
        key = sfn.JsonPath.format(f"{self._reports}{{}}/{{}}.json", *names)
        return tasks.CallAwsService(
            self,
            "Report",
            service="s3",
            action="getObject",
            iam_action="s3:GetObject",
            parameters={"Bucket": storage.bucket.bucket_name, "Key": key},
            iam_resources=[storage.bucket.arn_for_objects(f"{self._reports}*")],
            result_selector={"report": sfn.JsonPath.string_to_json(sfn.JsonPath.string_at("$.Body"))},
            output_path="$.report",
        )
