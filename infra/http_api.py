"""The HTTP API: events to /v1/events/{table} and /v1/logs, queries to /q and /v1/queries, SQL that writes to /sql, …"""

from __future__ import annotations

import json

from aws_cdk import RemovalPolicy
from aws_cdk import aws_apigatewayv2 as api
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.nag import accept
from infra.settings import Settings

EVENT_PATHS = ("/v1/events/{table}", "/v1/logs")
_READ = (api.HttpMethod.GET, api.HttpMethod.HEAD)
QUERY_ROUTES = {
    "/q": (api.HttpMethod.POST, *_READ),
    "/q/{hash}": _READ,
    "/v1/queries": _READ,
    "/v1/queries/{query}": _READ,
    "/v1/jobs/{job}": (*_READ, api.HttpMethod.DELETE),
    "/v1/jobs/{job}/{result}": _READ,
    "/v1/branches": _READ,
    "/v1/branches/{branch}": _READ,
    "/v1/branches/{branch}/diff": _READ,
    "/v1/tables": _READ,
    "/v1/tables/{table}": _READ,
    "/readyz": _READ,
    "/openapi.json": _READ,
}
SQL_ROUTES = {
    "/sql": (api.HttpMethod.POST,),
    "/v1/branches": (api.HttpMethod.POST,),
    "/v1/branches/{branch}": (api.HttpMethod.DELETE,),
    "/v1/branches/{branch}/publish": (api.HttpMethod.POST,),
}
"""Of the function that may write, where the settings ask for it."""
UPLOAD_ROUTES = {
    "/v1/upload/{table}": (api.HttpMethod.POST,),
    "/v1/upload/{table}/{upload}": (api.HttpMethod.GET,),
    "/v1/upload/{table}/{upload}/complete": (api.HttpMethod.POST,),
}
PUBLISHING = {"/v1/queries/{query}": (api.HttpMethod.PUT, api.HttpMethod.DELETE)}
"""Of the same function, where the settings ask for it."""
# Events, handshakes, and what browsers ask before they send.
WEBHOOK_METHODS = (api.HttpMethod.POST, api.HttpMethod.GET, api.HttpMethod.OPTIONS)
CALLS = ("track", "identify", "page", "screen", "group", "alias", "batch", "import", *"tipsgab")
WEBHOOK_ROUTES = {"/v1/webhooks/{source}": WEBHOOK_METHODS} | {
    f"/v1/{call}": (api.HttpMethod.POST, api.HttpMethod.OPTIONS) for call in CALLS
}
"""The methods of each path whose senders the function verifies: of sources, and of Segment's API, which has paths of
one letter for analytics.js."""
PREFLIGHTS = "OPTIONS /{proxy+}"
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
    """Whom the routes answer is a setting.

    By default every route, /healthz included, takes requests signed with AWS credentials (SigV4) whose principal may
    `execute-api:Invoke` it. That is the simplest safe default: it needs no secret of ours, and an account's own roles
    can be let in one by one. With `jwt`, API Gateway verifies the tokens of an identity provider. With `tokens` it lets
    every request pass, and the functions verify the lake's tokens.

    Senders of webhooks have none of these: where the settings ask for their routes, all requests reach the function,
    which verifies each.

    Routes of queries and uploads, and those of webhooks, have throttles of their own, so that no flood takes requests
    from others.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        ingest: lambda_.Alias,
        query: lambda_.Alias,
        sql: lambda_.Alias | None,
        upload: lambda_.Alias | None,
        publishing: bool,
        throttle: api.ThrottleSettings,
        query_throttle: api.ThrottleSettings,
        authorizer: api.IHttpRouteAuthorizer,
        webhook_throttle: api.ThrottleSettings | None,
        preflights: bool,
    ) -> None:
        super().__init__(scope, construct_id)
        self.api = api.HttpApi(self, "Api", create_default_stage=False, default_authorizer=authorizer)
        if isinstance(authorizer, api.HttpNoneAuthorizer):
            accept(self.api, "APIG4", "The functions verify the bearer token of each request: alluvia:auth is tokens.")
        to_ingest = integrations.HttpLambdaIntegration("Ingest", ingest)
        for path in EVENT_PATHS:
            self.api.add_routes(path=path, methods=[api.HttpMethod.POST], integration=to_ingest)
        self.api.add_routes(path="/healthz", methods=[*_READ], integration=to_ingest)
        to_query = integrations.HttpLambdaIntegration("Query", query)
        of_query = [*QUERY_ROUTES.items(), *(PUBLISHING.items() if publishing else ())]
        queries = [(path, methods, to_query) for path, methods in of_query]
        if sql is not None:
            to_sql = integrations.HttpLambdaIntegration("Sql", sql)
            queries += [(path, methods, to_sql) for path, methods in SQL_ROUTES.items()]
        if upload is not None:
            to_upload = integrations.HttpLambdaIntegration("Upload", upload)
            queries += [(path, methods, to_upload) for path, methods in UPLOAD_ROUTES.items()]
        routes = [
            route
            for path, methods, integration in queries
            for route in self.api.add_routes(path=path, methods=[*methods], integration=integration)
        ]
        self.stage = self._stage(throttle)
        settings = {
            f"{method.value} {path}": _limits(query_throttle) for path, methods, _ in queries for method in methods
        }
        if webhook_throttle is not None:
            routes += self._webhooks(to_ingest)
            settings |= {
                f"{method.value} {path}": _limits(webhook_throttle)
                for path, methods in WEBHOOK_ROUTES.items()
                for method in methods
            }
        if preflights:
            routes += self._preflights(to_ingest)
            settings[PREFLIGHTS] = _limits(query_throttle)
        _resource(self.stage).route_settings = settings
        # API Gateway refuses settings of a route that does not exist yet.
        self.stage.node.add_dependency(*routes)
        self.url = self.stage.url

    def _webhooks(self, to_ingest: integrations.HttpLambdaIntegration) -> list[api.HttpRoute]:
        routes = [
            route
            for path, methods in WEBHOOK_ROUTES.items()
            for route in self.api.add_routes(
                path=path, methods=[*methods], integration=to_ingest, authorizer=api.HttpNoneAuthorizer()
            )
        ]
        for route in routes:
            accept(route, "APIG4", "Senders of webhooks have no AWS credentials; the function verifies each request.")
        return routes

    def _preflights(self, to_ingest: integrations.HttpLambdaIntegration) -> list[api.HttpRoute]:
        """Add one route for preflight requests of browsers to all others; sources have their own, which go first."""
        method, _, path = PREFLIGHTS.partition(" ")
        routes = self.api.add_routes(
            path=path, methods=[api.HttpMethod(method)], integration=to_ingest, authorizer=api.HttpNoneAuthorizer()
        )
        for route in routes:
            accept(route, "APIG4", "A browser sends no credentials with a preflight request, which changes nothing.")
        return routes

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


def authorizer_of(settings: Settings) -> api.IHttpRouteAuthorizer:
    """What looks at a request before a function does."""
    if settings.auth == "tokens":
        return api.HttpNoneAuthorizer()
    if settings.auth == "jwt":
        return authorizers.HttpJwtAuthorizer("Jwt", str(settings.jwt_issuer), jwt_audience=[str(settings.jwt_audience)])
    return authorizers.HttpIamAuthorizer()


def authorization_environment(settings: Settings) -> dict[str, str]:
    """What the functions behind the routes are told about callers."""
    if settings.auth == "iam":
        return {}
    given = {
        "ALLUVIA_JWT_ISSUER": settings.jwt_issuer,
        "ALLUVIA_JWT_AUDIENCE": settings.jwt_audience,
        "ALLUVIA_JWT_SCOPES": settings.jwt_scopes,
        "ALLUVIA_JWT_SCOPE_PREFIX": settings.jwt_scope_prefix,
        "ALLUVIA_JWT_WHERE": settings.jwt_where,
        "ALLUVIA_JWT_HIDE": settings.jwt_hide,
    }
    return {"ALLUVIA_AUTH": settings.auth, **{name: value for name, value in given.items() if value is not None}}


def browser_environment(settings: Settings) -> dict[str, str]:
    """Return the sites whose pages the functions behind the routes answer."""
    return {"ALLUVIA_CORS_ORIGINS": " ".join(settings.cors_origins)} if settings.cors_origins else {}


def _limits(throttle: api.ThrottleSettings) -> dict[str, object]:
    return {"ThrottlingRateLimit": throttle.rate_limit, "ThrottlingBurstLimit": throttle.burst_limit}


def _resource(stage: api.HttpStage) -> api.CfnStage:
    resource = stage.node.default_child
    assert isinstance(resource, api.CfnStage)  # noqa: S101 - narrows the type
    return resource
