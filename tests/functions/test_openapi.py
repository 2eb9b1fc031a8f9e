"""The OpenAPI document: valid, complete both ways, and silent about what is not for its reader."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jsonschema
import pytest
from openapi_spec_validator import validate

import alluvia
from alluvia.query.formats import FORMATS
from alluvia.serverless import http
from alluvia.serverless.routes.query_fields import OTHER_NAMES
from functions.ingest import handler as ingest
from functions.ingest.uploads import PARAMETERS as UPLOAD_PARAMETERS
from functions.query import handler as query
from functions.query.answering import STATUSES
from functions.query.query_request import NAMES
from tests.access import grant, token
from tests.functions.test_query import Answer, event

Json = dict[str, Any]
TYPES = {
    "string": ("a b", {"type": "string", "default": "a b"}),
    "long": ("7", {"type": "integer", "format": "int64", "default": 7}),
    "integer": ("-1", {"type": "integer", "format": "int32", "default": -1}),
    "short": ("1", {"type": "integer", "minimum": -32768, "maximum": 32767, "default": 1}),
    "byte": ("1", {"type": "integer", "minimum": -128, "maximum": 127, "default": 1}),
    "double": ("0.5", {"type": "number", "format": "double", "default": 0.5}),
    "float": ("0.5", {"type": "number", "format": "float", "default": 0.5}),
    "decimal(9,2)": ("0.5", {"type": "string", "format": "decimal", "default": "0.50"}),
    "boolean": ("true", {"type": "boolean", "default": True}),
    "date": ("2026-01-31", {"type": "string", "format": "date", "default": "2026-01-31"}),
    "timestamp": (
        "2026-01-31T12:00:00+01:00",
        {"type": "string", "format": "date-time", "default": "2026-01-31T11:00:00+00:00"},
    ),
    "timestamp_ntz": ("2026-01-31 12:00:00", {"type": "string", "default": "2026-01-31T12:00:00"}),
}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = alluvia.connect(tmp_path_factory.mktemp("lake"))
    for name in ("open_table", "secret_table"):
        lake.create_table(name, {"path": "string", "n": "long"}).append([{"path": "/", "n": 1}])
    lake.create_events("events")
    lake.publish_query(
        "top", "SELECT * FROM open_table WHERE path = $path AND n >= $least", {"path": "string", "least": "long=1"}
    )
    lake.publish_query("hidden", "SELECT * FROM secret_table WHERE n = $secret_field", {"secret_field": "long"})
    columns = ", ".join(f"$p{at} AS p{at}" for at in range(len(TYPES)))
    parameters = {f"p{at}": f"{kind}={text}" for at, (kind, (text, _)) in enumerate(TYPES.items())}
    lake.publish_query("types", f"SELECT {columns}", parameters)
    return lake.uri.removeprefix("file://")


@pytest.fixture(autouse=True)
def lake(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    monkeypatch.setenv("ALLUVIA_LAKE", uri)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return alluvia.connect(uri)


def get(path: str, bearer: str | None = None) -> Answer:
    path, _, search = path.partition("?")
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    return query.handler(event("", method="GET", path=path) | {"headers": headers, "rawQueryString": search}, None)


def found(bearer: str | None = None) -> Json:
    answer = get("/openapi.json", bearer)
    assert (answer["statusCode"], answer["headers"]["Content-Type"]) == (200, "application/json"), answer["body"]
    document: Json = json.loads(answer["body"])
    return document


def published(document: Json) -> set[str]:
    return {path.removesuffix(".{format}") for path in document["paths"] if path.endswith(".{format}")}


def test_it_is_valid() -> None:
    validate(found())


def test_the_fields_of_requests_are_those_that_are_read() -> None:
    posting = found()["paths"]["/q"]["post"]
    assert set(posting["requestBody"]["content"]["application/json"]["schema"]["properties"]) == {*NAMES, *OTHER_NAMES}
    given = {(each["in"], each["name"]) for each in posting["parameters"]}
    assert given == {
        *(("query", name) for name in (*NAMES, "values")),
        *(("header", f"Alluvia-Max-{name}") for name in ("Bytes", "Seconds")),
        *(("header", name) for name in ("Prefer", "Idempotency-Key", "X-Alluvia-Branch")),
    }
    assert set(posting["responses"]["200"]["content"]) == {form.content_type.partition(";")[0] for form in FORMATS}
    statuses = {*http._STATUSES.values(), *STATUSES.values()} - {412}  # of published queries alone
    assert set(map(int, posting["responses"])) == {200, 202, 303, 405, *statuses}


def test_the_parameters_of_uploads_are_those_that_are_read() -> None:
    upload = found()["paths"]["/v1/upload/{table}"]["post"]
    assert [each["name"] for each in upload["parameters"] if each["in"] == "query"] == [*UPLOAD_PARAMETERS]
    form = upload["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert ({*form["properties"]}, form["required"]) == ({*UPLOAD_PARAMETERS, "data"} - {"parts", "bytes"}, ["data"])


WRITTEN = ("delimiter", "decimal_separator", "bom")
"""How CSV is written: fields of every published query."""


def test_published_queries_have_their_parameters_and_answer_as_it_says() -> None:
    document = found()
    assert published(document) == {"/v1/queries/top", "/v1/queries/hidden", "/v1/queries/types"}
    path, at_least = document["paths"]["/v1/queries/top.{format}"]["get"]["parameters"][1:3]
    assert (path["name"], path["required"], path["schema"]) == ("path", True, {"type": "string"})
    assert (at_least["name"], at_least["required"], at_least["schema"]["default"]) == ("least", False, 1)
    every = document["paths"]["/v1/queries/types.{format}"]["get"]["parameters"]
    types = [each for each in every if each["name"] not in WRITTEN]
    assert [each["name"] for each in every if each["name"] in WRITTEN] == list(WRITTEN)
    values = {each["name"]: each["schema"] for each in types if each["in"] == "query"}
    shown = [*values.values()]
    assert shown == [schema for _, schema in TYPES.values()]
    for schema in shown:
        jsonschema.validate(schema["default"], schema, format_checker=jsonschema.FormatChecker())
    [forms] = [each["schema"]["enum"] for each in types if each["in"] == "path"]
    for form in forms:
        given = {
            each["name"]: json.dumps(each["schema"]["default"]).strip('"') for each in types if each["in"] == "query"
        }
        answer = get(f"/v1/queries/types.{form}?" + urlencode(given))
        plain = get(f"/v1/queries/types.{form}")
        assert (answer["statusCode"], answer["headers"]["ETag"]) == (200, plain["headers"]["ETag"]), answer["body"]


def test_real_answers_are_as_it_says(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    document = found()

    def check(path: str, method: str, answer: Answer) -> None:
        described = document["paths"][path][method]["responses"][str(answer["statusCode"])]
        if "$ref" in described:
            described = document["components"]["responses"][described["$ref"].rpartition("/")[2]]
        kind = answer["headers"]["Content-Type"].partition(";")[0]
        schema = described["content"][kind]["schema"]
        schema = document["components"]["schemas"]["Error"] if "$ref" in schema else schema
        jsonschema.validate(json.loads(answer["body"]), schema)

    for path in ("/v1/tables", "/v1/tables/{table}", "/readyz", "/openapi.json"):
        check(path, "get", get(path.replace("{table}", "open_table")))
    check("/q", "get", get("/q?format=json&query=FROM+open_table"))
    check("/v1/queries", "get", get("/v1/queries"))
    for name in ("top", "types.json"):
        check("/v1/queries/{query}", "get", get(f"/v1/queries/{name}"))
    check("/v1/tables/{table}", "get", get("/v1/tables/none"))
    check("/q", "get", get("/q?qurey=1"))
    for body in ('{"a": 1}', '{"ts": '):
        posted = ingest.handler(event(body, path="/v1/events/events"), None)
        check("/v1/events/{table}", "post", posted)
    logs = event("-1", path="/v1/logs") | {"headers": {"Content-Type": "application/json"}}
    check("/v1/logs", "post", ingest.handler(logs, None))
    lake.branch("fix")["open_table"].delete("n = 1")
    for path in ("/v1/branches", "/v1/branches/{branch}", "/v1/branches/{branch}/diff"):
        check(path, "get", get(path.replace("{branch}", "fix")))
    check("/v1/branches/{branch}/diff", "get", get("/v1/branches/none/diff"))
    monkeypatch.setenv("ALLUVIA_ALLOW_WRITES", "true")
    for path, method, body in (
        ("/v1/branches", "POST", '{"name": "more", "expires": "1d"}'),
        ("/v1/branches/{branch}/publish", "POST", '{"dry_run": true}'),
        ("/v1/branches/{branch}", "DELETE", ""),
    ):
        sent = event(body, method=method, path=path.replace("{branch}", "fix"))
        check(path, method.lower(), query.handler(sent, None))
    lake.drop_branch("more")
    check("/healthz", "get", ingest.handler(event("", method="GET", path="/healthz"), None))


def test_who_sees_which_queries(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    stranger = found()
    assert published(stranger) == set()
    assert stranger["components"]["securitySchemes"]["tokens"]["scheme"] == "bearer"
    assert stranger["security"] == [{"tokens": []}]
    some = found(token(lake, grant("read:open_table")))
    assert published(some) == {"/v1/queries/top", "/v1/queries/types"}
    for document in (stranger, some):
        assert not re.search("secret_|hidden", json.dumps(document))
    assert "/v1/queries/hidden" in published(found(token(lake, grant("read:*"))))
    assert "/v1/queries/top" not in published(found(token(lake, grant("append:*"))))
    assert get("/openapi.json", "a.b.c")["statusCode"] == 401


@pytest.mark.parametrize(("auth", "scheme"), [("iam", "iam"), ("jwt", "jwt"), ("tokens", "tokens")])
def test_in_a_function_it_says_how_callers_are_known(monkeypatch: pytest.MonkeyPatch, auth: str, scheme: str) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "query")
    monkeypatch.setenv("ALLUVIA_AUTH", auth)
    monkeypatch.setenv("ALLUVIA_JWT_ISSUER", "https://issuer.example")
    monkeypatch.setenv("ALLUVIA_JWT_AUDIENCE", "lake")
    document = found()
    assert list(document["components"]["securitySchemes"]) == [scheme]
    assert document["security"] == [{scheme: []}]
    # API Gateway asks on every route but those of webhooks; with tokens, nobody is in front of the functions.
    assert ("security" in document["paths"]["/healthz"]["get"]) is (auth == "tokens")
    assert document["paths"]["/v1/webhooks/{source}"]["post"]["security"] == []
