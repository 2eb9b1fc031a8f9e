"""SQL that writes is a function of its own, with a role of its own, where the settings ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import allowed, grants, resources_of, text, the_id
from tests.infra.test_alarms import EXPECTED, alarms, dimensions, metrics
from tests.infra.test_compute import function
from tests.infra.test_events import READ_PATHS
from tests.infra.test_privileges import APPEND, WRITES, actions, lake, statements

Template = dict[str, Any]
OF_BRANCHES = ("POST /v1/branches", "DELETE /v1/branches/{branch}", "POST /v1/branches/{branch}/publish")
DATA, COMMIT = "lake/clicks/part-0.parquet", "lake/clicks/_delta_log/00000000000000000001.json"


@pytest.fixture(scope="module")
def writing(placeholders: Sources, tmp_path_factory: pytest.TempPathFactory) -> Template:
    folder: Path = tmp_path_factory.mktemp("writing")
    return read_template(synthesise(placeholders, folder, sql_writes="true", sql_concurrency="7"))


def test_without_the_setting_no_function_writes_for_callers_of_sql(template: Template) -> None:
    functions = resources_of(template, "AWS::Lambda::Function").values()
    assert not [each for each in functions if "ALLUVIA_ALLOW_WRITES" in each["Environment"]["Variables"]]


def test_its_role_reads_and_puts_and_deletes_nothing(writing: Template) -> None:
    found = statements(writing, "Sql")
    assert actions(writing, "Sql", "s3") == APPEND | {"s3:DeleteObject"}
    assert allowed(found, "s3:DeleteObject", lake(writing, "lake/_alluvia/kept/events/clone/dev.json"))
    assert allowed(found, "s3:DeleteObject", lake(writing, "lake/_alluvia/branches/7f/orders/part-0.parquet"))
    assert {action.partition(":")[0] for action, _ in grants(found)} == {"s3", "logs"}
    for key in (DATA, COMMIT, "lake/_alluvia/tx/1.json"):
        assert allowed(found, "s3:PutObject", lake(writing, key), none_match="*")
        assert allowed(found, "s3:GetObject", lake(writing, key))
    assert not allowed(found, "s3:DeleteObject", lake(writing, DATA))
    assert not allowed(found, "s3:DeleteObjectVersion", lake(writing, DATA))


def test_its_rights_end_at_the_lakes_prefix(writing: Template) -> None:
    found = statements(writing, "Sql")
    for action in ("s3:PutObject", "s3:GetObject"):
        assert not allowed(found, action, lake(writing, "incoming/x"), none_match="*")
        assert not allowed(found, action, lake(writing, "x"), none_match="*")
    assert allowed(found, "s3:ListBucket", lake(writing), prefix="lake/")
    assert not allowed(found, "s3:ListBucket", lake(writing), prefix="")


@pytest.mark.parametrize("action", WRITES)
def test_the_query_function_stays_read_only(writing: Template, action: str) -> None:
    assert actions(writing, "Query", "s3") == APPEND  # of results and jobs alone
    for key in (DATA, COMMIT):
        assert not allowed(statements(writing, "Query"), action, lake(writing, key), none_match="*")
    assert "ALLUVIA_ALLOW_WRITES" not in function(writing, "Query")["Environment"]["Variables"]


def test_it_runs_the_folder_of_queries_with_the_right_to_write(writing: Template) -> None:
    found, query = function(writing, "Sql"), function(writing, "Query")
    assert found["Handler"] == "functions.query.handler.handler"
    assert found["Code"] == query["Code"]
    assert found["Layers"] == query["Layers"]
    assert found["ReservedConcurrentExecutions"] == 7
    assert found["Timeout"] < 30
    added = {"ALLUVIA_ALLOW_WRITES": "true", "POWERTOOLS_SERVICE_NAME": "sql"}
    variables = dict(query["Environment"]["Variables"])
    del variables["ALLUVIA_JOBS_FUNCTION"], variables["ALLUVIA_JOB_CONCURRENCY"]  # what writes is no job
    assert found["Environment"]["Variables"] == {**variables, **added}


def test_its_route_is_signed_throttled_and_its_own(writing: Template) -> None:
    routes = {each["RouteKey"]: each for each in resources_of(writing, "AWS::ApiGatewayV2::Route").values()}
    assert set(routes) == {
        "GET /healthz",
        "HEAD /healthz",
        *(f"{method} {path}" for path in READ_PATHS for method in ("GET", "HEAD")),
        "DELETE /v1/jobs/{job}",
        "POST /q",
        "POST /sql",
        *OF_BRANCHES,
        "POST /v1/events/{table}",
        "POST /v1/logs",
    }
    leads_to = {}
    for route in ("POST /q", "POST /sql", *OF_BRANCHES):
        assert routes[route]["AuthorizationType"] == "AWS_IAM"
        integration = text(routes[route]["Target"]).removeprefix("integrations/{").removesuffix("}")
        leads_to[route] = writing["Resources"][integration]["Properties"]["IntegrationUri"]["Ref"]
    live = {name: the_id(writing, "AWS::Lambda::Alias", f"Functions{name}Live") for name in ("Query", "Sql")}
    assert leads_to == {"POST /q": live["Query"], **dict.fromkeys(("POST /sql", *OF_BRANCHES), live["Sql"])}
    (stage,) = (each for each in writing["Resources"].values() if each["Type"] == "AWS::ApiGatewayV2::Stage")
    limits = {"ThrottlingRateLimit": 20, "ThrottlingBurstLimit": 40}
    settings = stage["Properties"]["RouteSettings"]
    assert [settings[route] for route in ("POST /q", "POST /sql", *OF_BRANCHES)] == [limits] * 5
    ids = resources_of(writing, "AWS::ApiGatewayV2::Route").items()
    assert {name for name, each in ids if each["RouteKey"] in ("POST /q", "POST /sql")} <= set(stage["DependsOn"])


def test_its_failures_raise_alarms_of_its_own(writing: Template) -> None:
    found = alarms(writing)
    assert set(found) - EXPECTED == {f"Sql{kind}" for kind in ("Errors", "Throttles", "Unavailable")}
    own = {each["MetricName"]: each for each in metrics(found["SqlUnavailable"]).values()}
    assert dimensions(own["HandledFailures"]) == {"service": "sql"}
    assert "alluvia:sql_concurrency" in found["SqlThrottles"]["AlarmDescription"]
    log = the_id(writing, "AWS::Logs::LogGroup", "FunctionsSqlLog")
    (counted,) = (
        each
        for each in resources_of(writing, "AWS::Logs::MetricFilter").values()
        if each["LogGroupName"] == {"Ref": log}
    )
    (count,) = counted["MetricTransformations"]
    assert (count["MetricName"], count["Dimensions"]) == ("HandledFailures", [{"Key": "service", "Value": "$.service"}])
