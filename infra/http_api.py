"""The HTTP API: POST /v1/events/{table}, /v1/logs and /q, GET /healthz, and POST /sql if there is a function for it."""

from __future__ import annotations

import json

from aws_cdk import RemovalPolicy
from aws_cdk import aws_apigatewayv2 as api
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

EVENT_PATHS = ("/v1/events/{table}", "/v1/logs")
QUERY_PATH = "/q"
SQL_PATH = "/sql"
ACCESS_LOG_FIELDS = {
    "requestId": "$context.requestId",
    "time": "$context.requestTime",
    "caller": "$context.identity.userArn",
    "ip": "$context.identity.sourceIp",
    "route": "$context.routeKey",
    "path": "$context.path",
    "status": "$context.status",
    "bytes": "$context.responseLength",
    "latencyMs": "$context.responseLatency",
    "error": "$context.error.message",
    "integrationError": "$context.integrationErrorMessage",
}


class HttpApi(Construct):
    """Nothing here is open to the world.

    Every route, /healthz included, takes requests signed with AWS credentials (SigV4) whose principal may
    `execute-api:Invoke` it. That is the simplest safe default: it needs no secret of ours, and an account's own roles
    can be let in one by one. A public route would be an addition that someone decides on.

    Routes of queries have a throttle of their own, so that no flood of queries takes requests from ingestion.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        ingest: lambda_.Alias,
        query: lambda_.Alias,
        sql: lambda_.Alias | None,
        throttle: api.ThrottleSettings,
        query_throttle: api.ThrottleSettings,
    ) -> None:
        super().__init__(scope, construct_id)
        self.api = api.HttpApi(
            self, "Api", create_default_stage=False, default_authorizer=authorizers.HttpIamAuthorizer()
        )
        to_ingest = integrations.HttpLambdaIntegration("Ingest", ingest)
        for path in EVENT_PATHS:
            self.api.add_routes(path=path, methods=[api.HttpMethod.POST], integration=to_ingest)
        self.api.add_routes(path="/healthz", methods=[api.HttpMethod.GET], integration=to_ingest)
        queries = {QUERY_PATH: query} if sql is None else {QUERY_PATH: query, SQL_PATH: sql}
        routes = [
            route
            for path, function in queries.items()
            for route in self.api.add_routes(
                path=path,
                methods=[api.HttpMethod.POST],
                integration=integrations.HttpLambdaIntegration("Query" if path == QUERY_PATH else "Sql", function),
            )
        ]
        self.stage = self._stage(throttle)
        limits = {"ThrottlingRateLimit": query_throttle.rate_limit, "ThrottlingBurstLimit": query_throttle.burst_limit}
        _resource(self.stage).route_settings = {f"POST {path}": limits for path in queries}
        # API Gateway refuses settings of a route that does not exist yet.
        self.stage.node.add_dependency(*routes)
        self.url = self.stage.url

    def _stage(self, throttle: api.ThrottleSettings) -> api.HttpStage:
        access_log = logs.LogGroup(
            self, "AccessLog", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=RemovalPolicy.DESTROY
        )
        stage = api.HttpStage(
            self,
            "Stage",
            http_api=self.api,
            stage_name="$default",
            auto_deploy=True,
            throttle=throttle,
        )
        _resource(stage).access_log_settings = api.CfnStage.AccessLogSettingsProperty(
            destination_arn=access_log.log_group_arn, format=json.dumps(ACCESS_LOG_FIELDS)
        )
        return stage


def _resource(stage: api.HttpStage) -> api.CfnStage:
    resource = stage.node.default_child
    assert isinstance(resource, api.CfnStage)  # noqa: S101 - narrows the type
    return resource
