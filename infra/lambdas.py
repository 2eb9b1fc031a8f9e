"""The Lambda functions: versions, logs, and roles, which begin with the right to write those logs."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration, RemovalPolicy, Size
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.nag import accept
from infra.sources import Sources
from infra.specs import Spec

RUNTIME = lambda_.Runtime.PYTHON_3_13
ARCHITECTURE = lambda_.Architecture.ARM_64
ALIAS = "live"


class Functions(Construct):
    """Functions by name, with their aliases, roles and log groups. They share one set of layers.

    Whatever calls a function calls its alias. A deployment that changes a function, its layers included, publishes a
    version and then points the alias at it, so no call meets code of one release with settings of another. Versions
    stay when newer ones come: going back is pointing the alias at one of them.
    """

    def __init__(self, scope: Construct, construct_id: str, *, sources: Sources) -> None:
        super().__init__(scope, construct_id)
        self.by_name: dict[str, lambda_.Function] = {}
        self.live: dict[str, lambda_.Alias] = {}
        self.roles: dict[str, iam.Role] = {}
        self.logs: dict[str, logs.LogGroup] = {}
        self._sources = sources
        self._layers = {
            name: lambda_.LayerVersion(
                self,
                f"{name.capitalize()}Layer",
                code=lambda_.Code.from_asset(str(path)),
                compatible_architectures=[ARCHITECTURE],
                compatible_runtimes=[RUNTIME],
            )
            for name, path in sources.layers.items()
        }

    def add(self, name: str, spec: Spec, environment: Mapping[str, str], *, reserved: int | None = None) -> None:
        """Adds a function whose role may write its own log group and nothing else yet.

        `reserved` concurrent executions are kept for it, and are all that it gets; None shares those of the account.
        """
        log = logs.LogGroup(
            self, f"{name}Log", retention=logs.RetentionDays.ONE_MONTH, removal_policy=RemovalPolicy.DESTROY
        )
        role = iam.Role(self, f"{name}Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log.grant_write(role)
        function = lambda_.Function(
            self,
            name,
            code=lambda_.Code.from_asset(str(self._sources.functions[spec.folder])),
            handler=f"functions.{spec.folder}.handler.handler",
            runtime=RUNTIME,
            architecture=ARCHITECTURE,
            layers=[self._layers[layer] for layer in spec.layers],
            memory_size=spec.memory_mb,
            ephemeral_storage_size=Size.mebibytes(spec.disk_mb),
            timeout=Duration.seconds(spec.timeout_seconds),
            role=role,
            log_group=log,
            description=spec.description,
            reserved_concurrent_executions=reserved,
            current_version_options=lambda_.VersionOptions(removal_policy=RemovalPolicy.RETAIN),
            environment={"POWERTOOLS_SERVICE_NAME": spec.folder, "POWERTOOLS_LOG_LEVEL": "INFO", **environment},
        )
        accept(function, "L1", "The layers hold compiled wheels for Python 3.13; a newer runtime could not load them.")
        self.by_name[name] = function
        self.live[name] = lambda_.Alias(self, f"{name}Live", alias_name=ALIAS, version=function.current_version)
        self.roles[name] = role
        self.logs[name] = log
