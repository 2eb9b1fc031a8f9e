"""The HTTP API: it has the routes that `alluvia.serverless.routes` declares, as far as the settings ask for them."""

from __future__ import annotations

import json

from aws_cdk import RemovalPolicy
from aws_cdk import aws_apigatewayv2 as api
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from alluvia.serverless.routes.ingest_routes import INGEST_ROUTES
from alluvia.serverless.routes.query_routes import QUERY_ROUTES
from alluvia.serverless.routes.route import LINKED, PUBLISHES, SENDER, Route
from infra.nag import accept
from infra.settings import Settings

EVENTS, WEBHOOKS, UPLOADS = "events", "webhooks", "uploads"
QUERIES, PUBLISHING, LINKS, SQL = "queries", "publishing", "links", "sql"
"""The kinds of routes."""
_PART_OF_FILE = "upload_parts.put_part"
"""The taker of a route that only a server without S3 has: in AWS, parts of files go to presigned URLs."""
PREFLIGHTS = "OPTIONS /{proxy+}"
_OPEN = {
    SENDER: "Senders of webhooks have no AWS credentials; the function verifies each request.",
    LINKED: "Browsers and spreadsheets have no AWS credentials; the function verifies the token in each address.",
}
"""Rights for which the function alone verifies requests, with the reason."""
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
    which verifies each. The same holds for links to published queries.

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
        links: bool,
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
        to_query = integrations.HttpLambdaIntegration("Query", query)
        kinds: dict[str, tuple[integrations.HttpLambdaIntegration, api.ThrottleSettings | None]] = {
            EVENTS: (to_ingest, None),
            QUERIES: (to_query, query_throttle),
        }
        if sql is not None:
            kinds[SQL] = (integrations.HttpLambdaIntegration("Sql", sql), query_throttle)
        if upload is not None:
            kinds[UPLOADS] = (integrations.HttpLambdaIntegration("Upload", upload), query_throttle)
        if publishing:
            kinds[PUBLISHING] = (to_query, query_throttle)
        if links:
            kinds[LINKS] = (to_query, query_throttle)
        if webhook_throttle is not None:
            kinds[WEBHOOKS] = (to_ingest, webhook_throttle)
        limited: list[api.HttpRoute] = []
        limits: dict[str, object] = {}
        for route in (*INGEST_ROUTES, *QUERY_ROUTES):
            if kind_of(route) in kinds:
                integration, own_throttle = kinds[kind_of(route)]
                added = self._add(route, integration)
                if own_throttle is not None:
                    limited += added
                    limits |= {f"{method} {route.path}": _limits(own_throttle) for method in route.methods}
        if preflights:
            limited += self._preflights(to_ingest)
            limits[PREFLIGHTS] = _limits(query_throttle)
        self.stage = self._stage(throttle)
        _resource(self.stage).route_settings = limits
        # API Gateway refuses settings of a route that does not exist yet.
        self.stage.node.add_dependency(*limited)
        self.url = self.stage.url

    def _add(self, route: Route, integration: integrations.HttpLambdaIntegration) -> list[api.HttpRoute]:
        methods = [api.HttpMethod(method) for method in route.methods]
        if route.right not in _OPEN:
            return self.api.add_routes(path=route.path, methods=methods, integration=integration)
        added: list[api.HttpRoute] = self.api.add_routes(
            path=route.path, methods=methods, integration=integration, authorizer=api.HttpNoneAuthorizer()
        )
        for each in added:
            accept(each, "APIG4", _OPEN[route.right])
        return added

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


def kind_of(route: Route) -> str:
    """Return what the settings call a route: they say whether there are routes of its kind."""
    if route.taker == _PART_OF_FILE:
        return ""
    if route in INGEST_ROUTES:
        return {"webhooks": WEBHOOKS, "uploads": UPLOADS, "upload_parts": UPLOADS}.get(route.module, EVENTS)
    if route.right in (PUBLISHES, LINKED):
        return PUBLISHING if route.right == PUBLISHES else LINKS
    return SQL if route.right.scope == "admin:*" or route.name == "sql" else QUERIES


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
