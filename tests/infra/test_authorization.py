"""Whom the routes answer, where the settings say that it is not AWS's to decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import has_any, resources_of
from tests.infra.test_compute import function

AUTHORIZER = "AWS::ApiGatewayV2::Authorizer"
JWT = {
    "auth": "jwt",
    "jwt_issuer": "https://issuer.example",
    "jwt_audience": "lake",
    "jwt_where": "tenant = $tenant",
}


def variables(template: dict[str, Any], name: str) -> dict[str, Any]:
    found = function(template, name)["Environment"]["Variables"]
    return {key: value for key, value in found.items() if key.startswith(("ALLUVIA_AUTH", "ALLUVIA_JWT"))}


@pytest.mark.parametrize(
    ("settings", "kind", "told"),
    [
        ({"auth": "tokens"}, "NONE", {"ALLUVIA_AUTH": "tokens"}),
        (
            JWT,
            "JWT",
            {
                "ALLUVIA_AUTH": "jwt",
                "ALLUVIA_JWT_ISSUER": "https://issuer.example",
                "ALLUVIA_JWT_AUDIENCE": "lake",
                "ALLUVIA_JWT_WHERE": "tenant = $tenant",
            },
        ),
    ],
)
def test_a_route_without_aws_has_a_function_that_asks(
    placeholders: Sources, tmp_path: Path, settings: dict[str, str], kind: str, told: dict[str, str]
) -> None:
    template = read_template(synthesise(placeholders, tmp_path, sql_writes="true", **settings))
    routes = resources_of(template, "AWS::ApiGatewayV2::Route").values()
    assert {route["AuthorizationType"] for route in routes} == {kind}
    assert {"POST /v1/events/{table}", "POST /q", "POST /sql"} < {route["RouteKey"] for route in routes}
    for name in ("Ingest", "Query", "Sql"):
        assert variables(template, name) == told
    assert variables(template, "Commit") == {}
    if kind == "NONE":
        assert not has_any(template, AUTHORIZER)
    else:
        (authorizer,) = resources_of(template, AUTHORIZER).values()
        assert authorizer["JwtConfiguration"] == {"Audience": ["lake"], "Issuer": "https://issuer.example"}


def test_by_default_the_functions_are_told_nothing(template: dict[str, Any]) -> None:
    assert variables(template, "Ingest") == variables(template, "Query") == {}
