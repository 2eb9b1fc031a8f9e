"""Routes as they are declared: each leads to a function, its fields are read as documented, its right is checked."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

import alluvia
from alluvia.errors import Invalid
from alluvia.serverless.routes.bodies import JSON_BODIES
from alluvia.serverless.routes.contents import ANSWERS, BODIES, PATH_FIELDS
from alluvia.serverless.routes.fields import IN_PATH, IN_QUERY, RequestField, schema_of
from alluvia.serverless.routes.ingest_routes import CHECKED_FIELDS, INGEST_ROUTES
from alluvia.serverless.routes.query_routes import QUERY_ROUTES
from alluvia.serverless.routes.route import Route
from functions.ingest import handler as ingest
from functions.query import handler as query
from tests.access import grant, token
from tests.functions.test_query import event
from tests.webhooks import event_of

ROUTES = [
    *((route, "functions.ingest") for route in INGEST_ROUTES),
    *((route, "functions.query") for route in QUERY_ROUTES),
]
FIELDS = [
    *{
        field.name + field.place: field
        for route, _ in ROUTES
        for field in route.fields
        if field.place != IN_PATH and field.name != "values"  # which stands for fields of other names
    }.values(),
    *(field for body in JSON_BODIES.values() for field in body.fields),
    *CHECKED_FIELDS,
]
VALUES: tuple[Any, ...] = (
    "",
    "x",
    "true",
    "1",
    "async",
    0,
    1,
    -1,
    1000,
    1001,
    10**18,
    True,
    False,
    [],
    {},
    [1],
    {"a": "b"},
)


@pytest.mark.parametrize(("route", "package"), ROUTES, ids=lambda each: getattr(each, "key", None))
def test_a_route_leads_to_a_function_that_takes_its_names_and_fields(route: Route, package: str) -> None:
    parameters = [*inspect.signature(route.load_taker(package)).parameters.values()]
    by_name = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    own = 1 if package == "functions.query" else 3
    assert len(parameters) - len(by_name) == own + route.path.count("{")
    fields = [field for field in route.fields if field.place == IN_QUERY and route.only is not None]
    fields += JSON_BODIES[route.json_body].fields if route.json_body else ()
    assert by_name == {field.name for field in fields}
    assert {route.body or route.json_body} <= {"", *BODIES}
    assert {*route.answers.values()} <= {*ANSWERS}


def test_nothing_is_declared_that_no_route_has() -> None:
    assert {route.body or route.json_body for route, _ in ROUTES} - {""} == {*BODIES}
    assert {name for route, _ in ROUTES for name in route.answers.values()} == {*ANSWERS}
    in_paths = {name for route, _ in ROUTES for name in re.findall(r"{(\w+)}", route.path)}
    assert in_paths == {*PATH_FIELDS}


def test_no_two_routes_share_a_method_and_path_or_a_name() -> None:
    keys = [(method, route.path) for route, _ in ROUTES for method in route.methods]
    names = [route.name for route, _ in ROUTES]
    assert (len(keys), len(names)) == (len({*keys}), len({*names}))


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_a_field_is_read_as_its_schema_says(field: RequestField) -> None:
    """What the reader of JSON takes is what JSON Schema takes, by the schema without what others check."""
    for value in VALUES:
        if jsonschema.Draft202012Validator(field.schema).is_valid(value):
            assert field.read(value, as_json=True) == value
        else:
            with pytest.raises(Invalid, match=f"^{field.name}: "):
                field.read(value, as_json=True)
    default = field.schema.get("default")
    if default is not None:
        jsonschema.validate(default, schema_of(field))
        assert field.read(None) == default


@pytest.mark.parametrize("path", ["clicks%2F_rejects", "clicks%2f_rejects?parts=2&format=csv"])
def test_a_right_to_a_table_is_checked_for_the_whole_name_in_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    lake = alluvia.connect(tmp_path / "lake")
    lake.create_events("clicks")
    headers = {"Authorization": f"Bearer {token(lake, grant('append:clicks'))}"}
    path, _, search = path.partition("?")
    sent = event("", path=f"/v1/upload/{path}") | {"headers": headers, "rawQueryString": search}
    answer = ingest.handler(sent, None)
    assert (answer["statusCode"], "append:clicks._rejects" in answer["body"]) == (403, True)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/event/orders", "did you mean /v1/events/orders?"),
        ("/v1/tabels", "did you mean /v1/tables?"),
        ("/v1/tabels/orders", "did you mean /v1/tables/orders?"),
        ("/v1/querys/top.json", "did you mean /v1/queries/top.json?"),
        ("/health", "did you mean /healthz?"),
        ("/query", "did you mean /q?"),
        ("/v1/query", "did you mean /q?"),
        ("/v1/query/top.json", "did you mean /v1/queries/top.json?"),
        ("/v1/sql", "did you mean /sql?"),
        ("/sql/", "did you mean /sql?"),
        ("/v1/queries/", "did you mean /v1/queries?"),
        ("/v1/events", "did you mean /v1/events/{table}?"),
        ("/v1/events/", "did you mean /v1/events/{table}?"),
        ("/events/orders", "did you mean /v1/events/orders?"),
        ("/ingest/orders", "did you mean /v1/events/orders?"),
        ("/v1/upload", "did you mean /v1/upload/{table}?"),
        ("/v1/branches/b/diffs", "did you mean /v1/branches/b/diff?"),
        ("/v0/sql", "Tinybird's /v0/sql is /q here, with the same q"),
        ("/nothing/like/it", "send events to POST /v1/events/{table}"),
    ],
)
@pytest.mark.usefixtures("lake")
def test_an_unknown_path_suggests_the_nearest(path: str, told: str) -> None:
    answer = ingest.handler(event("", path=path), None)
    assert (answer["statusCode"], answer["body"]) == (404, f'{{"error":"there is nothing at {path}: {told}"}}')


def test_parameters_that_a_route_lacks_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path / "lake"))
    alluvia.connect(tmp_path / "lake").create_events("clicks")

    def refused(handler: Any, method: str, path: str, query: str) -> str:
        sent = event(b"{}", method=method, path=path)
        sent["rawQueryString"] = query
        answer = handler(sent, None)
        assert answer["statusCode"] == 400
        return str(json.loads(answer["body"])["error"])

    assert refused(ingest.handler, "POST", "/v1/events/clicks", "decimal_separator=,") == (
        "'decimal_separator' is not a parameter of POST /v1/events/{table}, which has none: "
        "POST /v1/upload/{table} has it"
    )
    assert alluvia.connect(tmp_path / "lake").table("clicks").count() == 0
    for method, path in (("GET", "/v1/tables"), ("GET", "/v1/tables/clicks"), ("DELETE", "/v1/jobs/x")):
        assert refused(query.handler, method, path, "versoin=1").startswith("'versoin' is not a parameter of ")
    assert (
        ingest.handler(event("", method="GET", path="/healthz") | {"rawQueryString": "t=1"}, None)["statusCode"] == 200
    )


def test_the_hint_for_a_decimal_comma_in_json_names_no_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path / "lake"))
    alluvia.connect(tmp_path / "lake").create_events("clicks", pa.schema([("n", pa.float64())]))
    answer = ingest.handler(event_of("/v1/events/clicks", b'{"event_id":"a","n":"1,5"}'), None)
    [error] = json.loads(answer["body"])["errors"]
    assert error["reason"] == (
        "n: expected a number (double), got a string; the decimal separator seems to be a comma: "
        "send a point, or repair the rejects with `alluvia rejects replay --set`"
    )
