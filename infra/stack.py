"""The one stack: storage, queue, functions, API, schedules, Spark and alarms, and who may do what."""

from __future__ import annotations

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_apigatewayv2 as api
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.alarms import Alarms
from infra.backfill import Backfill
from infra.http_api import HttpApi, authorization_environment, authorizer_of, browser_environment
from infra.lambdas import Functions
from infra.metrics import LogMetrics
from infra.queues import EVENTS, STEPS, TABLES, FunctionQueue
from infra.schedules import Schedules
from infra.secrets import allow_secrets
from infra.settings import Settings
from infra.sources import Sources
from infra.spark_runs import BACKFILL_REPORTS, UPKEEP_REPORTS, SparkRuns
from infra.specs import BACKFILL, COMMIT, INGEST, JOBS, MERGE, PIPELINE, QUERY, SQL, UPLOAD, VACUUM
from infra.storage import LAKE_PREFIX, REJECTS, Storage

# DuckDB gets two thirds of the function's memory; Python, Arrow results and the runtime share the rest.
QUERY_MEMORY_MB = QUERY.memory_mb * 2 // 3
# What a link may lead to, instead of an answer: 12 cents a month, if it stayed.
MAX_RESULT_BYTES = 5_000_000_000
# A job that has not started by then is reported as failed.
JOB_START_MINUTES_MAX = 15
TABLES_QUEUE = "ALLUVIA_TABLES_QUEUE_URL"
SPARK_UPKEEP = "ALLUVIA_SPARK_UPKEEP_ARN"


class AlluviaStack(Stack):
    """Least privilege, function by function:

    Ingest    over HTTP: sends to the queue, reads the lake (is there such a table?) and keeps rejects, which are all
              that it can write; in direct mode, or if it may create tables, it appends to the lake; with webhooks, it
              reads the secrets that the settings name
    Commit    the same folder behind the queue: takes messages, appends to the lake
    Merge     takes messages about tables and sends itself some, appends to the lake
    Pipeline  the same with a queue of its own: runs the tables that are made of others
    Query     reads the lake, and keeps results of queries and jobs, which are all that it can write; where the settings
              let queries be published over HTTP, it keeps these, too; starts Jobs
    Jobs      the same folder with more time: runs a query whose sender does not wait, and can do no more than Query
    Sql       the same folder, deployed if the settings ask for it: appends to the lake, and so runs no VACUUM
    Upload    the folder of Ingest, deployed if the settings ask for it: appends to the lake what files hold
    Vacuum    the same with a queue of its own, and deletes from the lake, the only function that does
    Backfill  starts and watches jobs; a job reads its input and appends to the lake, and one of upkeep may delete, too

    Unless the settings turn it off, Merge and Vacuum may start executions of a state machine, which calls Backfill to
    start a job of upkeep.

    Ingest is deployed twice from one folder: what is reached over HTTP should be able to write no table's log, only
    the queue's reader should take messages off it, and each has the memory and the time-out that its work asks for. A
    third time it is deployed for files, which take memory and may create tables. So is query: who may send queries may
    write to no table, unless they may also call the route of Sql.
    """

    def __init__(self, scope: Construct, construct_id: str, *, sources: Sources, settings: Settings) -> None:
        super().__init__(scope, construct_id, description="Alluvia: events settle into Delta tables")
        self.storage = Storage(self, "Storage", cors_origins=settings.cors_origins)
        self.events = FunctionQueue(self, "EventQueue", spec=EVENTS, timeout_seconds=COMMIT.timeout_seconds)
        self.tables = {
            name: FunctionQueue(self, f"{name}Queue", spec=TABLES, timeout_seconds=spec.timeout_seconds)
            for name, spec in (("Merge", MERGE), ("Vacuum", VACUUM))
        }
        self.tables["Pipeline"] = FunctionQueue(
            self, "PipelineQueue", spec=STEPS, timeout_seconds=PIPELINE.timeout_seconds
        )
        self.storage.notify(self.tables["Merge"].queue)
        self.spark = Backfill(
            self,
            "Spark",
            sources=sources,
            storage=self.storage,
            may_read=settings.backfill_sources,
            release=settings.emr_release,
            heavy_upkeep=settings.heavy_upkeep,
        )
        self.functions = Functions(self, "Functions", sources=sources)
        self._add_functions(settings)
        self.upkeep = self._hand_over() if settings.heavy_upkeep else None
        self._grant(settings)
        live = self.functions.live
        # One log takes about 15 conditional writes a second: 8 committers of a table seldom wait for each other.
        self.events.feed(live["Commit"], settings.commit_concurrency)
        self.tables["Merge"].feed(live["Merge"], settings.merge_concurrency)
        self.tables["Pipeline"].feed(live["Pipeline"], settings.pipeline_concurrency)
        self.tables["Vacuum"].feed(live["Vacuum"], settings.vacuum_concurrency)
        self.http = HttpApi(
            self,
            "Http",
            ingest=live["Ingest"],
            query=live["Query"],
            sql=live.get("Sql"),
            upload=live.get("Upload"),
            publishing=settings.publishing,
            links=settings.links,
            throttle=api.ThrottleSettings(rate_limit=settings.ingest_rate, burst_limit=settings.ingest_burst),
            query_throttle=api.ThrottleSettings(rate_limit=settings.query_rate, burst_limit=settings.query_burst),
            authorizer=authorizer_of(settings),
            webhook_throttle=api.ThrottleSettings(rate_limit=settings.webhook_rate, burst_limit=settings.webhook_burst)
            if settings.webhooks
            else None,
            preflights=bool(settings.cors_origins),
        )
        Schedules(self, "Schedules", merge=live["Merge"], vacuum=live["Vacuum"], pipeline=live["Pipeline"])
        self.runs = SparkRuns(
            self,
            "BackfillRuns",
            backfill=live["Backfill"],
            storage=self.storage,
            reports=BACKFILL_REPORTS,
            named=("table", "job_id"),
        )
        self.alarms = self._alarms(settings)
        self._outputs()

    def _hand_over(self) -> SparkRuns:
        """Has Merge, Pipeline and Vacuum hand over to Spark the work that is beyond them."""
        runs = SparkRuns(
            self,
            "UpkeepRuns",
            backfill=self.functions.live["Backfill"],
            storage=self.storage,
            reports=UPKEEP_REPORTS,
            named=("operation", "table"),
        )
        for name in ("Merge", "Pipeline", "Vacuum"):
            self.functions.by_name[name].add_environment(SPARK_UPKEEP, runs.machine.state_machine_arn)
            runs.allow_hand_over(self.functions.roles[name])
        return runs

    def _alarms(self, settings: Settings) -> Alarms:
        alarms = Alarms(self, "Alarms", email=settings.alarm_email)
        functions = self.functions.by_name
        metrics = LogMetrics(self, "Metrics", log_groups=self.functions.logs)
        alarms.watch_queue(self.events.queue, self.events.dead_letters, metrics)
        alarms.watch_api(self.http.api)
        for name in ("Ingest", "Query", "Sql", "Upload"):
            if name in functions:
                alarms.watch_requests(name, functions[name], metrics)
        for name in ("Commit", "Jobs", "Merge", "Pipeline", "Vacuum", "Backfill"):
            alarms.watch_calls(name, functions[name])
        alarms.watch_rejects(metrics)
        for name, tables in self.tables.items():
            alarms.watch_tables(name, tables.queue, tables.dead_letters, metrics)
        alarms.watch_checkpoints(metrics)
        alarms.watch_jobs(self.spark.application.attr_application_id)
        if self.upkeep is not None:
            alarms.watch_upkeep(self.upkeep.machine)
        return alarms

    def _add_functions(self, settings: Settings) -> None:
        lake = {"ALLUVIA_LAKE": self.storage.lake_uri}
        create = {"ALLUVIA_CREATE_TABLES": str(settings.create_tables).lower()}
        queue = {"ALLUVIA_QUEUE_URL": self.events.queue.queue_url} if settings.ingest_mode == "queued" else {}
        query = {
            "ALLUVIA_QUERY_TIMEOUT_SECONDS": str(settings.query_seconds),
            "ALLUVIA_QUERY_MEMORY_MB": str(QUERY_MEMORY_MB),
            "ALLUVIA_RESULT_CACHE": "on",
            "ALLUVIA_MAX_RESULT_BYTES": str(MAX_RESULT_BYTES),
            **_numbers(ALLUVIA_QUERY_BYTES=settings.query_bytes),
            **_numbers(ALLUVIA_CALLER_RESULT_BYTES=settings.caller_result_bytes),
        }
        spark = {
            "ALLUVIA_EMR_APPLICATION_ID": self.spark.application.attr_application_id,
            "ALLUVIA_EMR_ROLE_ARN": self.spark.role.role_arn,
            "ALLUVIA_CODE_URI": self.spark.code.uri,
        }
        if self.spark.upkeep_role is not None:
            spark["ALLUVIA_EMR_UPKEEP_ROLE_ARN"] = self.spark.upkeep_role.role_arn
        add = self.functions.add
        auth = {**authorization_environment(settings), **browser_environment(settings)}
        ingest = {**lake, **auth, "ALLUVIA_MODE": settings.ingest_mode, **queue, **create}
        add("Ingest", INGEST, ingest, reserved=settings.ingest_concurrency)
        add("Commit", COMMIT, {**lake, "ALLUVIA_MODE": "direct", **create})
        own = {name: {**lake, TABLES_QUEUE: tables.queue.queue_url} for name, tables in self.tables.items()}
        add("Merge", MERGE, own["Merge"])
        add("Pipeline", PIPELINE, own["Pipeline"])
        publishing = {"ALLUVIA_ALLOW_PUBLISH": "true"} if settings.publishing else {}
        add("Jobs", JOBS, {**lake, **query})
        jobs = {
            "ALLUVIA_JOBS_FUNCTION": self.functions.live["Jobs"].function_arn,
            "ALLUVIA_JOB_CONCURRENCY": str(settings.job_concurrency),
            **_numbers(ALLUVIA_CALLER_JOBS=settings.caller_jobs),
        }
        environment = {**lake, **auth, **query, **publishing, **jobs}
        add("Query", QUERY, environment, reserved=settings.query_concurrency)
        if settings.sql_writes:
            writes = {"ALLUVIA_ALLOW_WRITES": "true", "POWERTOOLS_SERVICE_NAME": "sql"}
            add("Sql", SQL, {**lake, **auth, **query, **writes}, reserved=settings.sql_concurrency)
        if settings.uploads:
            files = {**lake, **auth, "ALLUVIA_MODE": "direct", **create, "POWERTOOLS_SERVICE_NAME": "upload"}
            files |= _numbers(
                ALLUVIA_CALLER_UPLOADS=settings.caller_uploads, ALLUVIA_CALLER_UPLOAD_BYTES=settings.caller_upload_bytes
            )
            add("Upload", UPLOAD, files, reserved=settings.upload_concurrency)
        add("Vacuum", VACUUM, {**own["Vacuum"], "ALLUVIA_RETENTION_HOURS": str(settings.retention_hours)})
        add("Backfill", BACKFILL, {**lake, **spark})

    def _grant(self, settings: Settings) -> None:
        roles = self.functions.roles
        if settings.ingest_mode == "queued":
            self.events.queue.grant_send_messages(roles["Ingest"])
        commits = settings.ingest_mode == "direct" or settings.create_tables
        self.storage.allow_append(roles["Ingest"], LAKE_PREFIX if commits else REJECTS)
        if settings.webhooks:
            allow_secrets(roles["Ingest"], settings.webhook_secrets)
        self.storage.allow_append(roles["Commit"])
        for name, tables in self.tables.items():
            tables.queue.grant_send_messages(roles[name])
        self.storage.allow_append(roles["Merge"])
        self.storage.allow_append(roles["Pipeline"])
        self.storage.allow_results(roles["Query"])
        self.storage.allow_results(roles["Jobs"])
        self._allow_jobs(roles["Query"])
        if settings.publishing:
            self.storage.allow_publish(roles["Query"])
        if settings.sql_writes:
            self.storage.allow_append(roles["Sql"])
            self.storage.allow_release(roles["Sql"])
        if settings.uploads:
            self.storage.allow_append(roles["Upload"])
        self.storage.allow_append(roles["Vacuum"])
        self.storage.allow_delete(roles["Vacuum"])
        self.spark.allow_start(roles["Backfill"])
        every = [*roles.values(), *self.spark.roles]
        self.storage.keep_access(every, [roles["Query"]] if settings.publishing else [])
        self.storage.keep_data(every)

    def _allow_jobs(self, role: iam.Role) -> None:
        """Lets a role start jobs. Nobody starts one a second time: what is left of it says so, and how it ended."""
        jobs = self.functions.live["Jobs"]
        jobs.configure_async_invoke(retry_attempts=0, max_event_age=Duration.minutes(JOB_START_MINUTES_MAX))
        role.add_to_policy(iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[jobs.function_arn]))

    def _outputs(self) -> None:
        CfnOutput(self, "ApiUrl", value=self.http.url)
        CfnOutput(self, "BucketName", value=self.storage.bucket.bucket_name)
        CfnOutput(self, "LakeUri", value=self.storage.lake_uri)
        CfnOutput(self, "IncomingUri", value=self.storage.incoming_uri)
        CfnOutput(self, "QueueUrl", value=self.events.queue.queue_url)
        CfnOutput(self, "BackfillStateMachineArn", value=self.runs.machine.state_machine_arn)
        if self.upkeep is not None:
            CfnOutput(self, "UpkeepStateMachineArn", value=self.upkeep.machine.state_machine_arn)
        CfnOutput(self, "DeadLettersUrl", value=self.events.dead_letters.queue_url)
        for name, tables in self.tables.items():
            CfnOutput(self, f"{name}QueueUrl", value=tables.queue.queue_url)
            CfnOutput(self, f"{name}DeadLettersUrl", value=tables.dead_letters.queue_url)
        CfnOutput(self, "AlarmTopicArn", value=self.alarms.topic.topic_arn)
        CfnOutput(self, "EmrApplicationId", value=self.spark.application.attr_application_id)
        for name, function in self.functions.by_name.items():
            CfnOutput(self, f"{name}FunctionName", value=function.function_name)


def _numbers(**given: int | None) -> dict[str, str]:
    """Return those variables that have a value: a function has defaults of its own."""
    return {name: str(value) for name, value in given.items() if value is not None}
