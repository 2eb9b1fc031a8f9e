"""API Gateway has the routes that the functions take, each with its methods, and no others."""

from __future__ import annotations

from pathlib import Path

from alluvia.serverless.routes.ingest_routes import INGEST_ROUTES
from alluvia.serverless.routes.query_routes import QUERY_ROUTES
from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import resources_of

OF_A_SERVER = {"PUT /v1/upload/{table}/{upload}/parts/{part}"}
"""In AWS, parts go to presigned URLs of S3."""


def test_the_api_with_all_settings_has_each_route_of_the_functions_and_no_other(
    placeholders: Sources, tmp_path: Path
) -> None:
    on = dict.fromkeys(("sql_writes", "uploads", "publishing", "links", "webhooks"), "true")
    template = read_template(synthesise(placeholders, tmp_path, **on))
    deployed = {each["RouteKey"]: each for each in resources_of(template, "AWS::ApiGatewayV2::Route").values()}
    declared = {
        f"{method} {route.path}": route.right.on in ("sender", "link")
        for route in (*INGEST_ROUTES, *QUERY_ROUTES)
        for method in route.methods
    }
    assert deployed.keys() == declared.keys() - OF_A_SERVER
    assert {key for key, each in deployed.items() if each["AuthorizationType"] == "NONE"} == {
        key for key, is_signed in declared.items() if is_signed
    } - OF_A_SERVER
