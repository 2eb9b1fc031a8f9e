"""API Gateway has the routes that the functions take, each with its methods, and no others."""

from __future__ import annotations

from alluvia.serverless.routes.ingest_routes import INGEST_ROUTES
from alluvia.serverless.routes.query_routes import QUERY_ROUTES
from infra import http_api

OF_A_SERVER = {("PUT", "/v1/upload/{table}/{upload}/parts/{part}")}
"""In AWS, parts go to presigned URLs of S3."""


def test_the_api_has_each_route_of_the_functions_and_no_other() -> None:
    deployed = {("POST", path) for path in http_api.EVENT_PATHS} | {("GET", "/healthz"), ("HEAD", "/healthz")}
    for routes in (
        http_api.QUERY_ROUTES,
        http_api.SQL_ROUTES,
        http_api.UPLOAD_ROUTES,
        http_api.PUBLISHING,
        http_api.WEBHOOK_ROUTES,
    ):
        deployed |= {(method.value, path) for path, methods in routes.items() for method in methods}
    declared = {(method, route.path) for route in (*INGEST_ROUTES, *QUERY_ROUTES) for method in route.methods}
    assert deployed == declared - OF_A_SERVER


def test_routes_of_sources_are_those_whose_senders_sign() -> None:
    signed = {route.path for route in INGEST_ROUTES if route.right.on == "sender"} - {path for _, path in OF_A_SERVER}
    assert {*http_api.WEBHOOK_ROUTES} == signed
