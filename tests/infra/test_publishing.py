"""Queries are published over HTTP where the settings ask for it: then the query function may keep them, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import allowed, resources_of
from tests.infra.test_compute import function
from tests.infra.test_privileges import LAKE_ACTIONS, actions, lake, statements

Template = dict[str, Any]
PATH = "/v1/queries/{query}"
VARIABLE = "ALLUVIA_ALLOW_PUBLISH"


@pytest.fixture(scope="module")
def publishing(placeholders: Sources, tmp_path_factory: pytest.TempPathFactory) -> Template:
    folder: Path = tmp_path_factory.mktemp("publishing")
    return read_template(synthesise(placeholders, folder, publishing="true", sql_writes="true"))


def test_without_the_setting_nobody_publishes_over_http(template: Template) -> None:
    routes = {route["RouteKey"] for route in resources_of(template, "AWS::ApiGatewayV2::Route").values()}
    assert {route for route in routes if route.endswith(PATH)} == {f"GET {PATH}", f"HEAD {PATH}"}
    query = lake(template, "lake/_alluvia/queries/top/00000000000000000000.json")
    assert not allowed(statements(template, "Query"), "s3:PutObject", query, none_match="*")
    assert VARIABLE not in function(template, "Query")["Environment"]["Variables"]


def test_with_it_the_query_function_puts_published_queries_and_results_and_nothing_else(publishing: Template) -> None:
    found = statements(publishing, "Query")
    assert actions(publishing, "Query", "s3") == LAKE_ACTIONS["Query"]
    for key in ("_alluvia/queries/top/0.json", "_alluvia/results/0a"):
        assert allowed(found, "s3:PutObject", lake(publishing, f"lake/{key}"), none_match="*")
        assert not allowed(found, "s3:DeleteObject", lake(publishing, f"lake/{key}"))
    for key in ("hits/_delta_log/0.json", "_alluvia/views/v/0.json", "_alluvia/tokens/keys/k.json", "queries/x"):
        assert not allowed(found, "s3:PutObject", lake(publishing, f"lake/{key}"), none_match="*")


def test_its_routes_are_signed_and_throttled_as_queries_are(publishing: Template) -> None:
    routes = {each["RouteKey"]: each for each in resources_of(publishing, "AWS::ApiGatewayV2::Route").values()}
    (stage,) = resources_of(publishing, "AWS::ApiGatewayV2::Stage").values()
    for route in (f"PUT {PATH}", f"DELETE {PATH}"):
        assert routes[route]["AuthorizationType"] == "AWS_IAM"
        assert routes[route]["Target"] == routes[f"GET {PATH}"]["Target"]
        assert stage["RouteSettings"][route] == stage["RouteSettings"][f"GET {PATH}"]


def test_only_the_function_behind_the_routes_is_told(publishing: Template) -> None:
    assert function(publishing, "Query")["Environment"]["Variables"][VARIABLE] == "true"
    assert VARIABLE not in function(publishing, "Sql")["Environment"]["Variables"]


def test_links_are_open_to_the_internet_where_the_settings_ask_for_them_and_nowhere_else(
    template: Template, placeholders: Sources, tmp_path: Path
) -> None:
    path = "/v1/links/{query}"
    assert not [
        each
        for each in resources_of(template, "AWS::ApiGatewayV2::Route").values()
        if path in each["RouteKey"] or each["AuthorizationType"] == "NONE"
    ]
    linked = read_template(synthesise(placeholders, tmp_path, links="true"))
    routes = {each["RouteKey"]: each for each in resources_of(linked, "AWS::ApiGatewayV2::Route").values()}
    (stage,) = resources_of(linked, "AWS::ApiGatewayV2::Stage").values()
    open_to_all = {key for key, each in routes.items() if each["AuthorizationType"] == "NONE"}
    assert open_to_all == {f"GET {path}", f"HEAD {path}"}
    for key in open_to_all:
        assert routes[key]["Target"] == routes[f"GET {PATH}"]["Target"]
        assert stage["RouteSettings"][key] == stage["RouteSettings"][f"GET {PATH}"]
    assert statements(linked, "Query") == statements(template, "Query")
