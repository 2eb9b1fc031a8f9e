"""Spark on EMR Serverless: the application, the code that it runs and the role that its jobs take."""

from __future__ import annotations

from aws_cdk import AssetStaging, Aws, FileAssetPackaging, Stack
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.nag import accept_wildcard
from infra.setting_values import BackfillSource
from infra.sources import Sources
from infra.storage import INCOMING_PREFIX, Storage, allow_read
from layers.build import digest
from layers.emr import SPARK_ARCHIVE
from layers.recipes import PYTHON_VERSION

EMR = "emr-serverless.amazonaws.com"
IDLE_MINUTES = 5
JOB_FILE = "job.py"
CODE_PREFIX = "backfill/"
# Where Spark unpacks the archive, next to the working directory of the driver and of each executor.
ARCHIVE_FOLDER = "environment"
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
"""As `alluvia_spark.session` has it: Python does a job's work, so Java's code is not worth optimising."""


class Backfill(Construct):
    """An application that costs nothing while it is idle, and starts and stops by itself.

    The archive holds packages, not an interpreter: EMR's own Python of the version that they were built for runs them.
    The application sets that for every job. Only where the code lies comes with the job, since an application cannot be
    changed while it runs, and code changes with each deployment.

    Job logs are EMR's managed ones (kept for 30 days), so the role needs no right to write logs.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        sources: Sources,
        storage: Storage,
        may_read: tuple[BackfillSource, ...],
        release: str,
        heavy_upkeep: bool,
    ) -> None:
        super().__init__(scope, construct_id)
        self.application = self._application(release)
        self.code = SparkCode(self, "Code", sources=sources)
        self.role = self._role("JobRole", storage)
        storage.allow_read(self.role, INCOMING_PREFIX, itself=True)
        for source in may_read:
            allow_read(self.role, f"arn:{Aws.PARTITION}:s3:::{source.bucket}", source.prefix, itself=True)
        self.upkeep_role = self._role("UpkeepRole", storage) if heavy_upkeep else None
        if self.upkeep_role is not None:
            storage.allow_delete(self.upkeep_role)

    @property
    def roles(self) -> list[iam.Role]:
        """Return the roles of jobs."""
        return [self.role, *([] if self.upkeep_role is None else [self.upkeep_role])]

    def allow_start(self, role: iam.Role) -> None:
        """Lets `role` start jobs on this application, with the roles of jobs and no other, and ask how they do."""
        application = self.application.attr_arn
        jobs = f"{application}/jobruns/*"
        passed = [each.role_arn for each in self.roles]
        to_emr = {"StringEquals": {"iam:PassedToService": EMR}}
        for statement in (
            iam.PolicyStatement(actions=["emr-serverless:StartJobRun"], resources=[application]),
            iam.PolicyStatement(actions=["emr-serverless:GetJobRun"], resources=[jobs]),
            iam.PolicyStatement(actions=["iam:PassRole"], resources=passed, conditions=to_emr),
        ):
            role.add_to_policy(statement)
        accept_wildcard(role, jobs, "The jobs of this one application, whose ids are not known before they start.")

    def _application(self, release: str) -> emr.CfnApplication:
        packages, python = f"./{ARCHIVE_FOLDER}", f"python{PYTHON_VERSION}"
        # boto3 takes its region from the environment, and nothing promises that EMR sets it.
        variables = {
            "AWS_DEFAULT_REGION": Aws.REGION,
            "PYSPARK_PYTHON": python,
            "PYTHONPATH": packages,
            "JDK_JAVA_OPTIONS": QUICK_JAVA,  # which Java takes besides the options that EMR gives it
        }
        properties = {
            "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": python,
            **{f"spark.emr-serverless.driverEnv.{name}": value for name, value in variables.items()},
            **{f"spark.executorEnv.{name}": value for name, value in variables.items()},
        }
        return emr.CfnApplication(
            self,
            "Application",
            type="SPARK",
            release_label=release,
            architecture="ARM64",
            auto_start_configuration=emr.CfnApplication.AutoStartConfigurationProperty(enabled=True),
            auto_stop_configuration=emr.CfnApplication.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=IDLE_MINUTES
            ),
            maximum_capacity=emr.CfnApplication.MaximumAllowedResourcesProperty(
                cpu="64 vCPU",
                memory="256 GB",
                disk="1280 GB",  # APPLICATION_DISK_GB of alluvia_spark.backfill_job.estimate
            ),
            monitoring_configuration=emr.CfnApplication.MonitoringConfigurationProperty(
                managed_persistence_monitoring_configuration=(
                    emr.CfnApplication.ManagedPersistenceMonitoringConfigurationProperty(enabled=True)
                )
            ),
            runtime_configuration=[
                emr.CfnApplication.ConfigurationObjectProperty(classification="spark-defaults", properties=properties)
            ],
        )

    def _role(self, name: str, storage: Storage) -> iam.Role:
        """What every job may do: read its code, and append to the lake. A backfill also reads its input.

        It deletes nothing, so it must write through our store: Spark's own committers delete temporary files. Only
        upkeep, whose vacuum deletes, has a role that may.
        """
        caller = {"aws:SourceAccount": Aws.ACCOUNT_ID}
        role = iam.Role(
            self,
            name,
            assumed_by=iam.ServicePrincipal(
                EMR,
                conditions={"StringEquals": caller, "ArnLike": {"aws:SourceArn": self.application.attr_arn}},
            ),
        )
        storage.allow_append(role)
        # All versions of the code, so that a deployment takes none away from a job that is running.
        allow_read(role, f"arn:{Aws.PARTITION}:s3:::{self.code.bucket_name}", CODE_PREFIX)
        return role


class SparkCode(Construct):
    """Publishes `job.py` and the archive as assets, side by side under one prefix of the deployment's asset bucket.

    An asset's key is its hash and the file's suffix; the hash may be any text, so it is given as a path. The prefix
    carries a digest of both files: a running job never sees its code change, and no function that copies files is
    needed. `uri` is that prefix, without a slash at the end.
    """

    def __init__(self, scope: Construct, construct_id: str, *, sources: Sources) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        staged = {
            JOB_FILE: AssetStaging(self, "Job", source_path=str(sources.job)),
            SPARK_ARCHIVE: AssetStaging(self, "Environment", source_path=str(sources.environment)),
        }
        version = digest(staging.asset_hash.encode() for staging in staged.values())
        self.prefix = f"{CODE_PREFIX}{version}/"
        locations = {
            name: stack.synthesizer.add_file_asset(
                source_hash=f"{self.prefix}{name.rpartition('.')[0]}",
                file_name=staging.relative_staged_path(stack),
                packaging=FileAssetPackaging.FILE,
            )
            for name, staging in staged.items()
        }
        self.bucket_name = locations[JOB_FILE].bucket_name
        self.uri = f"s3://{self.bucket_name}/{self.prefix.rstrip('/')}"
        # `cdk gc` deletes assets whose hash no template names.
        stack.add_metadata("BackfillCode", [f"{self.prefix}{name}" for name in staged])
