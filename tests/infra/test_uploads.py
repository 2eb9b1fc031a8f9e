"""Files of rows are stored by a function of its own, with a role of its own, where the settings ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import allowed, grants, resources_of, text, the_id
from tests.infra.test_alarms import EXPECTED, alarms, dimensions, metrics
from tests.infra.test_compute import function
from tests.infra.test_privileges import APPEND, actions, lake, statements

Template = dict[str, Any]
ROUTE = "POST /v1/upload/{table}"


@pytest.fixture(scope="module")
def uploading(placeholders: Sources, tmp_path_factory: pytest.TempPathFactory) -> Template:
    folder: Path = tmp_path_factory.mktemp("uploading")
    return read_template(synthesise(placeholders, folder, uploads="true", upload_concurrency="7"))


def test_without_the_setting_there_is_no_such_route(template: Template) -> None:
    routes = resources_of(template, "AWS::ApiGatewayV2::Route").values()
    assert not [each for each in routes if "upload" in each["RouteKey"]]


def test_its_role_reads_and_puts_below_the_lake_and_deletes_nothing(uploading: Template) -> None:
    found = statements(uploading, "Upload")
    assert actions(uploading, "Upload", "s3") == APPEND
    assert {action.partition(":")[0] for action, _ in grants(found)} == {"s3", "logs"}
    for action in ("s3:PutObject", "s3:GetObject"):
        assert allowed(found, action, lake(uploading, "lake/clicks/part-0.parquet"), none_match="*")
        assert not allowed(found, action, lake(uploading, "incoming/x"), none_match="*")
    assert not allowed(found, "s3:DeleteObject", lake(uploading, "lake/clicks/part-0.parquet"))


def test_it_runs_the_folder_of_ingestion_and_commits(uploading: Template) -> None:
    found, ingest = function(uploading, "Upload"), function(uploading, "Ingest")
    assert (found["Handler"], found["Code"], found["Layers"]) == (ingest["Handler"], ingest["Code"], ingest["Layers"])
    assert (found["ReservedConcurrentExecutions"], found["Timeout"]) == (7, 900)
    variables = found["Environment"]["Variables"]
    assert (variables["ALLUVIA_MODE"], variables["POWERTOOLS_SERVICE_NAME"]) == ("direct", "upload")
    assert "ALLUVIA_QUEUE_URL" not in variables


def test_its_route_is_signed_throttled_and_its_own(uploading: Template) -> None:
    routes = {each["RouteKey"]: each for each in resources_of(uploading, "AWS::ApiGatewayV2::Route").values()}
    assert routes[ROUTE]["AuthorizationType"] == "AWS_IAM"
    integration = text(routes[ROUTE]["Target"]).removeprefix("integrations/{").removesuffix("}")
    target = uploading["Resources"][integration]["Properties"]["IntegrationUri"]["Ref"]
    assert target == the_id(uploading, "AWS::Lambda::Alias", "FunctionsUploadLive")
    (stage,) = (each for each in uploading["Resources"].values() if each["Type"] == "AWS::ApiGatewayV2::Stage")
    limits = {"ThrottlingRateLimit": 20, "ThrottlingBurstLimit": 40}
    assert stage["Properties"]["RouteSettings"][ROUTE] == limits


def test_its_failures_raise_alarms_of_its_own(uploading: Template) -> None:
    found = alarms(uploading)
    assert set(found) - EXPECTED == {f"Upload{kind}" for kind in ("Errors", "Throttles", "Unavailable")}
    own = {each["MetricName"]: each for each in metrics(found["UploadUnavailable"]).values()}
    assert dimensions(own["HandledFailures"]) == {"service": "upload"}
    assert "alluvia:upload_concurrency" in found["UploadThrottles"]["AlarmDescription"]
