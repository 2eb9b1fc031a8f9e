"""With sites in the settings, their pages may call the routes and use presigned URLs; without, nothing is open."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import requests

import alluvia
from alluvia.access import origins
from functions.ingest import handler as ingest
from functions.query import handler as query
from infra import setting_values
from infra.sources import Sources
from tests.functions.test_cors import ALLOWED, SITE, call, preflight
from tests.infra.conftest import read_template, synthesise
from tests.infra.policies import resources_of, text, the_id
from tests.infra.test_compute import function
from tests.infra.test_webhooks import KEYS
from tests.s3server import S3Server

Template = dict[str, Any]
OPEN = "OPTIONS /{proxy+}"
OTHER = "https://other.example:8443"
EVIL = "https://evil.example"
HANDLERS = {
    "functions.ingest.handler.handler": ingest.handler,
    "functions.query.handler.handler": query.handler,
}
CALLED = ("Ingest", "Query", "Sql", "Upload")
ENVIRONMENT_BYTES_MAX = 4_096
"""See "Lambda quotas"."""
REFERENCE_BYTES_MAX = 140
"""What an ARN, or the URL of a queue, has in place of `{Id}`."""


@pytest.fixture(scope="module")
def open_to_pages(placeholders: Sources, tmp_path_factory: pytest.TempPathFactory) -> Template:
    """All that can be deployed, with settings as long as they may be."""
    folder: Path = tmp_path_factory.mktemp("cors")
    asked = dict.fromkeys(("sql_writes", "uploads", "publishing", "webhooks", "create_tables"), "true")
    asked |= {"auth": "jwt", "jwt_issuer": "https://issuer.example", "jwt_audience": "lake"}
    asked |= {"jwt_scopes": "permissions", "jwt_scope_prefix": "lake/", "jwt_hide": "email", "query_bytes": "9" * 15}
    asked |= {"caller_jobs": "3", "caller_result_bytes": "1000000", "caller_uploads": "5"}
    asked["caller_upload_bytes"] = "2000000"
    asked["cors_origins"] = f"{SITE.upper()}:443 {OTHER}"
    asked["jwt_where"] = "tenant = $tenant AND note <> ''"
    given = sum(len(value) for name, value in asked.items() if name.startswith(("jwt_", "cors_")))
    asked["jwt_where"] = asked["jwt_where"].replace("''", f"'{'x' * (3000 - given)}'")
    return read_template(synthesise(placeholders, folder, **asked))


def routes(template: Template) -> dict[str, dict[str, Any]]:
    return {each["RouteKey"]: each for each in resources_of(template, "AWS::ApiGatewayV2::Route").values()}


def leads_to(template: Template, method: str, path: str) -> tuple[str, dict[str, Any]]:
    """The key of the route that takes a request, and its function. A full match goes before one of `{proxy+}`.

    Source: "Routing API requests" in the developer guide of API Gateway's HTTP APIs.
    """
    found = routes(template)
    forms = {key: re.sub(r"\\{\w+\\}", "[^/]+", re.escape(key)) for key in found if "{proxy+}" not in key}
    full = [key for key, form in forms.items() if re.fullmatch(form, f"{method} {path}")]
    greedy = [key for key in found if key == f"{method} /{{proxy+}}"]
    key = (full + greedy)[0]
    integration = text(found[key]["Target"]).removeprefix("integrations/{").removesuffix("}")
    alias = template["Resources"][integration]["Properties"]["IntegrationUri"]["Ref"]
    deployed = template["Resources"][alias]["Properties"]["FunctionName"]["Ref"]
    return key, template["Resources"][deployed]["Properties"]


def handler_of(deployed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The handler of a function, with what the function is told about pages, and what it is there for."""
    told = deployed["Environment"]["Variables"]
    monkeypatch.setenv("ALLUVIA_AUTH", "open")  # API Gateway has verified the token
    for name in ("ALLUVIA_CORS_ORIGINS", "ALLUVIA_ALLOW_WRITES", "ALLUVIA_CREATE_TABLES"):
        monkeypatch.setenv(name, told.get(name, ""))
    return HANDLERS[deployed["Handler"]]


def test_without_the_setting_nothing_is_open_to_pages(template: Template) -> None:
    assert not [key for key in routes(template) if key.startswith("OPTIONS ")]
    assert not [each for each in routes(template).values() if each["AuthorizationType"] == "NONE"]
    for each in resources_of(template, "AWS::Lambda::Function").values():
        assert "ALLUVIA_CORS_ORIGINS" not in each.get("Environment", {}).get("Variables", {})
    for bucket in resources_of(template, "AWS::S3::Bucket").values():
        assert "CorsConfiguration" not in bucket
    (gateway,) = resources_of(template, "AWS::ApiGatewayV2::Api").values()
    assert "CorsConfiguration" not in gateway


def test_one_route_more_is_open_and_leads_to_ingestion(open_to_pages: Template) -> None:
    found = routes(open_to_pages)
    assert {key for key, route in found.items() if route["AuthorizationType"] == "NONE"} == {OPEN, *KEYS}
    assert found[OPEN]["Target"] == found["POST /v1/events/{table}"]["Target"]
    (stage,) = (each for each in open_to_pages["Resources"].values() if each["Type"] == "AWS::ApiGatewayV2::Stage")
    limits = {"ThrottlingRateLimit": 20, "ThrottlingBurstLimit": 40}
    assert stage["Properties"]["RouteSettings"][OPEN] == limits
    named = resources_of(open_to_pages, "AWS::ApiGatewayV2::Route").items()
    assert {name for name, each in named if each["RouteKey"] == OPEN} <= set(stage["DependsOn"])
    # API Gateway's own CORS would answer the preflight requests of sources as well.
    (gateway,) = resources_of(open_to_pages, "AWS::ApiGatewayV2::Api").values()
    assert "CorsConfiguration" not in gateway


def test_preflight_requests_of_named_sites_are_answered_on_every_path(
    open_to_pages: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {key.partition(" ")[2] for key in routes(open_to_pages)}
    paths -= {"/{proxy+}", *(key.partition(" ")[2] for key in KEYS)}
    assert {"/v1/events/{table}", "/q", "/sql", "/healthz", "/v1/upload/{table}/{upload}/complete"} < paths
    for path in sorted(re.sub(r"[{}]", "", each) for each in paths):
        key, deployed = leads_to(open_to_pages, "OPTIONS", path)
        assert key == OPEN
        handler = handler_of(deployed, monkeypatch)
        for site in (SITE, OTHER):
            answer = preflight(handler, path, site)
            assert (answer["statusCode"], answer["headers"][ALLOWED]) == (204, site), path
            assert answer["headers"]["Access-Control-Allow-Headers"] == "authorization,content-type"
            assert {"GET", "POST", "PUT", "DELETE"} <= set(
                answer["headers"]["Access-Control-Allow-Methods"].split(", ")
            )
        refused = preflight(handler, path, EVIL)
        assert refused["statusCode"] in (404, 405), path
        assert not [name for name in refused["headers"] if name.startswith("Access-Control-")]


def test_sources_of_webhooks_keep_their_own_routes_and_sites(
    open_to_pages: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/v1/webhooks/shop", "/v1/track", "/v1/b"):
        key, deployed = leads_to(open_to_pages, "OPTIONS", path)
        assert key in KEYS
        answer = preflight(handler_of(deployed, monkeypatch), path)
        assert (answer["statusCode"], ALLOWED in answer["headers"]) == (401, False)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/events/clicks", '{"event_id": "1"}', 200),
        ("GET", "/healthz", "", 200),
        ("POST", "/q", '{"query": "SELECT 1 AS n"}', 200),
        ("GET", "/q?query=SELECT", "", 400),
        ("GET", "/v1/tables/nothing", "", 404),
        ("POST", "/sql", '{"query": "CREATE OR REPLACE TABLE made (n BIGINT)"}', 200),
        ("POST", "/v1/upload/clicks?format=csv", "event_id\n2\n", 200),
        ("GET", "/v1/upload/clicks/00000000-0000-0000-0000-000000000000", "", 404),
    ],
)
def test_answers_of_each_function_are_for_pages_of_these_sites(
    open_to_pages: Template, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: str, status: int
) -> None:
    _, deployed = leads_to(open_to_pages, method, path.partition("?")[0])
    handler = handler_of(deployed, monkeypatch)
    for site, told in ((SITE, SITE), (EVIL, None), (None, None)):
        answer = call(handler, method, path, site, body, alluvia.connect("memory://pages"))
        assert answer["statusCode"] == status, answer
        assert answer["headers"].get(ALLOWED) == told
        assert "Origin" in answer["headers"]["Vary"].split(", ")
        assert "Access-Control-Allow-Credentials" not in answer["headers"]


def rules_of(template: Template) -> list[dict[str, Any]]:
    bucket = template["Resources"][the_id(template, "AWS::S3::Bucket", "StorageLake")]
    return list(bucket["Properties"]["CorsConfiguration"]["CorsRules"])


def matching(template: Template, method: str, origin: str) -> dict[str, Any] | None:
    """The rule that S3 goes by: the first that has the origin and the method ("Elements of a CORS configuration")."""
    for rule in rules_of(template):
        if {"*", origin} & {*rule["AllowedOrigins"]} and method in rule["AllowedMethods"]:
            return rule
    return None


def test_the_bucket_takes_parts_from_pages_of_named_sites_alone(open_to_pages: Template) -> None:
    for site in (SITE, OTHER):
        rule = matching(open_to_pages, "PUT", site)
        assert rule is not None
        assert ("ETag" in rule["ExposedHeaders"], rule["AllowedHeaders"]) == (True, ["*"])
    for site in (EVIL, "null", "https://app.example.evil"):
        assert matching(open_to_pages, "PUT", site) is None
    for method in ("POST", "DELETE"):
        assert matching(open_to_pages, method, SITE) is None


def test_the_bucket_gives_results_to_pages_that_a_redirect_has_brought(open_to_pages: Template) -> None:
    for site in (SITE, "null"):  # a browser that follows a redirect to another host no longer names the site
        rule = matching(open_to_pages, "GET", site)
        assert rule is not None
        assert {"ETag", "Content-Range"} <= {*rule["ExposedHeaders"]}


def test_a_page_uploads_a_file_and_gets_a_large_result(
    open_to_pages: Template, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3_server.new_bucket()
    names = {"AllowedOrigins", "AllowedMethods", "AllowedHeaders"}
    rules: list[Any] = [
        {name: rule[name] for name in names}
        | {"ExposeHeaders": rule["ExposedHeaders"], "MaxAgeSeconds": rule["MaxAge"]}
        for rule in rules_of(open_to_pages)
    ]
    s3_server.client.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": rules})
    lake = alluvia.connect(f"s3://{bucket}/lake", **s3_server.options)
    numbers = range(2000)
    handler = handler_of(leads_to(open_to_pages, "POST", "/v1/upload/numbers")[1], monkeypatch)
    begun = call(handler, "POST", "/v1/upload/numbers?parts=1&format=csv", SITE, "", lake)
    assert (begun["statusCode"], begun["headers"][ALLOWED]) == (201, SITE), begun
    said = json.loads(begun["body"])
    (part,) = said["parts"]
    asked = {"Origin": SITE, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "content-type"}
    allowed = requests.options(part["url"], headers=asked, timeout=30)
    assert (allowed.status_code, allowed.headers[ALLOWED]) == (200, SITE)
    file = "n\n" + "".join(f"{n}\n" for n in numbers)
    sent = requests.put(part["url"], data=file, headers={"Origin": SITE}, timeout=30)
    assert (sent.status_code, sent.headers[ALLOWED]) == (200, SITE)
    assert ("ETag" in sent.headers, "ETag" in sent.headers["Access-Control-Expose-Headers"]) == (True, True)
    done = call(handler, "POST", said["complete"], SITE, "{}", lake)
    assert (done["statusCode"], done["headers"][ALLOWED]) == (200, SITE), done

    handler = handler_of(leads_to(open_to_pages, "GET", "/q")[1], monkeypatch)
    monkeypatch.setenv("ALLUVIA_RESULT_LIMIT_BYTES", "1000")
    monkeypatch.setenv("ALLUVIA_MAX_RESULT_BYTES", "100000")
    answer = call(handler, "GET", "/q?query=FROM%20numbers%20ORDER%20BY%20n&format=csv", SITE, "", lake)
    assert (answer["statusCode"], answer["headers"][ALLOWED]) == (303, SITE), answer
    got = requests.get(answer["headers"]["Location"], headers={"Origin": "null"}, timeout=30)
    assert (got.status_code, got.headers[ALLOWED]) == (200, "null")
    assert got.text.split() == ["n", *map(str, numbers)]


def test_functions_have_room_for_the_longest_settings(open_to_pages: Template) -> None:
    for name in CALLED:
        variables = function(open_to_pages, name)["Environment"]["Variables"]
        assert variables["ALLUVIA_CORS_ORIGINS"] == f"{SITE} {OTHER}"
        texts = [
            f"{key}{re.sub('[{][^}]+[}]', 'x' * REFERENCE_BYTES_MAX, text(value))}" for key, value in variables.items()
        ]
        assert 3_000 < sum(len(each.encode()) for each in texts) < ENVIRONMENT_BYTES_MAX, name


def test_what_one_caller_may_have_reaches_the_functions_that_read_it(open_to_pages: Template) -> None:
    def told(name: str) -> dict[str, str]:
        found = function(open_to_pages, name)["Environment"]["Variables"].items()
        return {key.removeprefix("ALLUVIA_CALLER_"): value for key, value in found if "_CALLER_" in key}

    assert told("Query") == {"JOBS": "3", "RESULT_BYTES": "1000000"}
    assert told("Jobs") == told("Sql") == {"RESULT_BYTES": "1000000"}
    assert told("Upload") == {"UPLOADS": "5", "UPLOAD_BYTES": "2000000"}
    assert told("Ingest") == told("Commit") == {}


@pytest.mark.parametrize(
    ("written", "site"),
    [
        ("https://App.Example", "https://app.example"),
        ("HTTPS://app.example:443", "https://app.example"),
        ("http://app.example:80", "http://app.example"),
        ("http://app.example:0443", "http://app.example:443"),
        ("https://app.example:80", "https://app.example:80"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://LOCALHOST:5173", "http://localhost:5173"),
        ("https://app.example/", None),
        ("https://app.example:99999", None),
        ("https://app.example:0", None),
        ("https://", None),
        ("https://a@b", None),
        ("https://a:b:1", None),
        ("app.example", None),
    ],
)
def test_a_site_is_named_as_browsers_name_it(written: str, site: str | None) -> None:
    assert origins.normal_origin(written) == site
    if site is not None:
        assert setting_values.origins("cors_origins", f"{written} {OTHER} {site}") == (site, OTHER)
