"""Routes of webhook sources: there only where the settings ask for them, open, throttled, and with few secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from alluvia.events.formats.segment_format import PATHS
from infra.sources import Sources
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import allowed, resources_of
from tests.infra.test_privileges import actions, statements

Template = dict[str, Any]
ARN = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:hook-AbCdEf"
SECRETS = f"secretsmanager:alluvia/shop, ssm:/alluvia/github,secretsmanager:{ARN}"
KEYS = {f"{method} /v1/webhooks/{{source}}" for method in ("POST", "GET", "OPTIONS")} | {
    f"{method} /v1/{call}" for method in ("POST", "OPTIONS") for call in PATHS
}


@pytest.fixture(scope="module")
def taking(placeholders: Sources, tmp_path_factory: pytest.TempPathFactory) -> Template:
    folder: Path = tmp_path_factory.mktemp("webhooks")
    return read_template(synthesise(placeholders, folder, webhooks="true", webhook_secrets=SECRETS, webhook_rate="7"))


def routes(template: Template) -> dict[str, dict[str, Any]]:
    return {each["RouteKey"]: each for each in resources_of(template, "AWS::ApiGatewayV2::Route").values()}


def test_without_the_setting_every_route_is_signed(template: Template) -> None:
    assert {route["AuthorizationType"] for route in routes(template).values()} == {"AWS_IAM"}
    assert not KEYS & set(routes(template))


def test_with_it_only_those_of_webhooks_are_open(taking: Template) -> None:
    found = routes(taking)
    assert {key for key, route in found.items() if route["AuthorizationType"] == "NONE"} == KEYS
    assert {found[key]["Target"]["Fn::Join"][1][1]["Ref"] for key in KEYS} == {
        found["POST /v1/events/{table}"]["Target"]["Fn::Join"][1][1]["Ref"]
    }


def test_their_throttle_is_their_own(taking: Template) -> None:
    (stage,) = (each for each in taking["Resources"].values() if each["Type"] == "AWS::ApiGatewayV2::Stage")
    limits = {"ThrottlingRateLimit": 7, "ThrottlingBurstLimit": 200}
    assert {key: stage["Properties"]["RouteSettings"][key] for key in KEYS} == dict.fromkeys(KEYS, limits)
    ids = resources_of(taking, "AWS::ApiGatewayV2::Route").items()
    assert {name for name, each in ids if each["RouteKey"] in KEYS} <= set(stage["DependsOn"])


def test_the_function_reads_the_secrets_that_are_named_and_no_others(template: Template, taking: Template) -> None:
    found = statements(taking, "Ingest")
    here = "arn:{AWS::Partition}:%s:{AWS::Region}:{AWS::AccountId}:%s"
    assert actions(taking, "Ingest", "secretsmanager") == {"secretsmanager:GetSecretValue"}
    assert actions(taking, "Ingest", "ssm") == {"ssm:GetParameter"}
    for name, may in ((here % ("secretsmanager", "secret:alluvia/shop-a1B2c3"), True), (ARN, True),
                      (here % ("secretsmanager", "secret:alluvia/shop-2-a1B2c3"), False),
                      (here % ("secretsmanager", "secret:other-a1B2c3"), False)):  # fmt: skip
        assert allowed(found, "secretsmanager:GetSecretValue", name) is may, name
    assert allowed(found, "ssm:GetParameter", here % ("ssm", "parameter/alluvia/github"))
    assert not allowed(found, "ssm:GetParameter", here % ("ssm", "parameter/alluvia/other"))
    for name in ("Commit", "Query", "Merge", "Vacuum", "Backfill"):
        for service in ("secretsmanager", "ssm"):
            assert actions(taking, name, service) == set()
    assert actions(template, "Ingest", "secretsmanager") == set()
