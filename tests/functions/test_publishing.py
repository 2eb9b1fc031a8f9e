"""Queries are published, described, listed and withdrawn over HTTP."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

import alluvia
from alluvia.errors import Conflict, PreconditionFailed
from alluvia.operations.catalog.versioned_objects import write_numbered
from alluvia.query import published
from functions.query import handler as query
from tests.access import grant, token
from tests.functions.test_query import Answer, error_of, event

SELECT = "SELECT n FROM hits WHERE n >= $least ORDER BY n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> alluvia.Lake:
    lake = alluvia.connect(str(tmp_path_factory.mktemp("lake")))
    lake.create_table("hits", {"n": "long"}).append([{"n": 1}, {"n": 2}])
    return lake


@pytest.fixture
def lake(place: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    monkeypatch.setenv("ALLUVIA_LAKE", place.uri.removeprefix("file://"))
    monkeypatch.setenv("ALLUVIA_ALLOW_PUBLISH", "true")
    for name in [each.name for each in published.list_published(place.store)[0]]:
        place.unpublish_query(name)
    return place


def send(method: str, path: str, body: object = None, headers: dict[str, str] | None = None, **fields: str) -> Answer:
    text = body if isinstance(body, str) else "" if body is None else json.dumps(body)
    sent = event(text, method=method, path=f"/v1/queries{path}")
    return query.handler(sent | {"headers": headers or {}, "rawQueryString": urlencode(fields)}, None)


def put(name: str, body: object, **headers: str) -> Answer:
    return send("PUT", f"/{name}", body, {name.replace("_", "-"): value for name, value in headers.items()})


def test_from_publishing_to_withdrawing(lake: alluvia.Lake) -> None:
    body = {"query": SELECT, "parameters": {"least": {"type": "BIGINT", "default": 2}}}
    made = put("top", body)
    told = json.loads(made["body"])
    version = told["version"]
    assert (made["statusCode"], made["headers"]["ETag"]) == (201, f'"{version}"')
    assert told.pop("published").endswith("+00:00")
    parameters = {"least": {"type": "long", "default": "2"}}
    known = {"path": "/v1/queries/top.json"}
    assert told == known | {
        "name": "top",
        "version": version,
        "parameters": parameters,
        "query": SELECT,
        "publisher": None,
    }
    assert json.loads(send("GET", "/top.json")["body"]) == [{"n": 2}]
    again = put("top", {"query": SELECT, "parameters": {"least": "long=2"}})
    assert (again["statusCode"], json.loads(again["body"])) == (200, json.loads(made["body"]))
    shown = send("GET", "/top")
    assert (shown["body"], shown["headers"]["ETag"]) == (made["body"], made["headers"]["ETag"])
    assert json.loads(put("top", {"query": "SELECT 1 AS n"})["body"])["version"] == version + 1
    assert json.loads(send("GET", "/top", version=str(version))["body"])["query"] == SELECT
    gone = send("DELETE", "/top")
    assert (gone["statusCode"], json.loads(gone["body"])) == (
        200, {"name": "top", "withdrawn": True, "version": version + 2}
    )  # fmt: skip
    assert [send(method, "/top")["statusCode"] for method in ("GET", "DELETE")] == [404, 404]
    assert put("top", {"query": "SELECT 1 AS n"})["statusCode"] == 201


def test_a_description_can_be_sent_back(lake: alluvia.Lake) -> None:
    lake.publish_query("top", SELECT, {"least": "decimal(9,2)=0.50"})
    told = json.loads(send("GET", "/top")["body"])
    again = put("top", {"query": told["query"], "parameters": told["parameters"]})
    assert (again["statusCode"], json.loads(again["body"])) == (200, told)


def test_conditions_are_compared_with_the_version(lake: alluvia.Lake) -> None:
    one, two = {"query": "SELECT 1 AS n"}, {"query": "SELECT 2 AS n"}
    assert put("top", one, if_match="*")["statusCode"] == 412
    made = put("top", one, if_none_match="*")
    tag = made["headers"]["ETag"]
    assert made["statusCode"] == 201
    refused = [
        put("top", two, if_none_match="*"),
        put("top", two, if_match='"99"'),
        put("top", two, if_match=f"W/{tag}"),
        put("top", two, if_none_match=f'"7", W/{tag}'),
        send("DELETE", "/top", None, {"If-Match": '"99"'}),
    ]
    assert [answer["statusCode"] for answer in refused] == [412] * 5
    assert f"version {tag.strip(chr(34))} is published as top" in error_of(refused[0])
    changed = put("top", two, if_match=f'"99", {tag}')
    assert (changed["statusCode"], put("top", one, if_match=tag)["statusCode"]) == (200, 412)
    assert send("DELETE", "/top", None, {"If-Match": changed["headers"]["ETag"]})["statusCode"] == 200


@pytest.mark.parametrize(("condition", "status"), [({}, 409), ({"if_none_match": "*"}, 412)])
def test_a_lost_race_changes_nothing(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, condition: dict[str, str], status: int
) -> None:
    writer = "alluvia.query.published.write_numbered"

    def late(*args: Any, **named: Any) -> None:
        monkeypatch.setattr(writer, write_numbered)
        lake.publish_query("top", "SELECT 'winner' AS n")
        write_numbered(*args, **named)

    monkeypatch.setattr(writer, late)
    assert put("top", {"query": "SELECT 'loser' AS n"}, **condition)["statusCode"] == status
    assert json.loads(send("GET", "/top.json")["body"]) == [{"n": "winner"}]


def test_in_python_a_lost_race_is_an_error_of_its_own_only_under_a_condition(lake: alluvia.Lake) -> None:
    def overtaken(_: object) -> bool:
        lake.publish_query("top", "SELECT 'winner' AS n")
        return True

    with pytest.raises(PreconditionFailed, match="changed by another writer"):
        published.publish(lake.catalog, "top", "SELECT 'loser' AS n", {}, overtaken)
    assert issubclass(PreconditionFailed, Conflict)


@pytest.mark.parametrize(
    ("name", "body", "status", "reason"),
    [
        ("Top", {"query": "SELECT 1"}, 400, "query name 'Top'"),
        ("top.json", {"query": "SELECT 1"}, 400, "query name 'top.json'"),
        ("top", "SELECT 1", 400, "the body is not JSON"),
        ("top", "[]", 400, "the body must be a JSON object"),
        ("top", {}, 400, "query: send the text of one SELECT"),
        ("top", {"query": 1}, 400, "query: send the text of one SELECT"),
        ("top", {"query": "SELECT 1", "params": {}}, 400, "params is not a field of a query to publish"),
        ("top", {"query": "SELECT"}, 400, "SELECT clause without selection list"),
        ("top", {"query": "DROP TABLE hits"}, 400, "DROP"),
        ("top", {"query": "SELECT nope FROM hits"}, 400, "nope"),
        ("top", {"query": "SELECT * FROM nope"}, 404, "nope"),
        ("top", {"query": "SELECT $x", "parameters": ["x"]}, 400, "parameters: send an object"),
        ("top", {"query": "SELECT $x", "parameters": {"x": "txt"}}, 400, "parameter x: unknown type"),
        ("top", {"query": "SELECT $x", "parameters": {"x": 1}}, 400, "parameter x: send a type"),
        ("top", {"query": "SELECT $x", "parameters": {"x": {"typ": "long"}}}, 400, "parameter x: send a type"),
        ("top", {"query": "SELECT $x", "parameters": {"x": {"type": "long", "default": []}}}, 400, "default must"),
        ("top", {"query": "SELECT $x", "parameters": {"x": {"type": "long", "default": "a"}}}, 400, "x: 'a' is not a"),
        ("top", {"query": "SELECT $version", "parameters": {"version": "long"}}, 400, "parameter 'version'"),
        ("top", {"query": f"SELECT '{'x' * 300_000}'"}, 400, "more than the limit"),
    ],
)  # fmt: skip
def test_what_cannot_be_published_says_why(
    lake: alluvia.Lake, name: str, body: object, status: int, reason: str
) -> None:
    answer = put(name, body)
    assert (answer["statusCode"], reason in error_of(answer)) == (status, True), answer["body"]
    assert json.loads(send("GET", "")["body"])["queries"] == []


def test_defaults_are_values_of_their_types(lake: alluvia.Lake) -> None:
    types = {"a": ("double", 0.5), "b": ("boolean", True), "c": ("string", "="), "d": ("date", "2026-01-31")}
    parameters = {name: {"type": kind, "default": default} for name, (kind, default) in types.items()}
    assert put("all", {"query": "SELECT $a AS a, $b AS b, $c AS c, $d AS d", "parameters": parameters})
    assert json.loads(send("GET", "/all.json")["body"]) == [{"a": 0.5, "b": True, "c": "=", "d": "2026-01-31"}]


def test_other_forms_of_a_body_and_other_fields_are_refused(lake: alluvia.Lake) -> None:
    form = "application/x-www-form-urlencoded"  # which curl says of any body
    refused = [put("top", "SELECT 1", content_type=kind) for kind in ("text/plain", form)]
    assert [answer["statusCode"] for answer in refused] == [415, 415]
    assert put("top", {"query": "SELECT 0 AS n"}, content_type=form)["statusCode"] == 201
    assert "version is not a field" in error_of(send("PUT", "/top", {"query": "SELECT 1"}, version="1"))
    lake.publish_query("top", "SELECT 1 AS n")
    assert "to run the query, name a form" in error_of(send("GET", "/top", least="1"))
    assert "to run the query, name a form" in error_of(send("GET", "", name="1"))


def test_the_list_comes_in_pages(lake: alluvia.Lake) -> None:
    for name in "abcde":
        lake.publish_query(f"page_{name}", "SELECT 1 AS n")
    lake.unpublish_query("page_c")
    pages: list[list[str]] = []
    after: str | None = ""
    while after is not None:
        page = json.loads(send("GET", "", after=after, limit="2")["body"])
        pages.append([each["name"] for each in page["queries"] if each["name"].startswith("page_")])
        after = page["next"]
    assert [name for page in pages for name in page] == ["page_a", "page_b", "page_d", "page_e"]
    assert max(map(len, pages)) <= 2
    for limit in ("0", "1001", "x", "9" * 5000):
        assert "must be a number from 1 to 1000" in error_of(send("GET", "", limit=limit))


def test_publishing_is_off_unless_the_settings_say_otherwise(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.publish_query("top", "SELECT 1 AS n")
    monkeypatch.delenv("ALLUVIA_ALLOW_PUBLISH")
    for answer in (put("top", {"query": "SELECT 2"}), send("DELETE", "/top")):
        assert (answer["statusCode"], "start `alluvia serve` with --allow-publish" in error_of(answer)) == (403, True)
    assert json.loads(send("GET", "/top.json")["body"]) == [{"n": 1}]


def test_the_name_of_a_hidden_column_shows_in_no_text(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake.create_table("people", {"n": "long", "salary": "long"}, exist_ok=True)
    lake.publish_query("pay", "SELECT n, salary AS pay FROM people WHERE salary > 0")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "config"))
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    bearers = {
        hide: {"Authorization": f"Bearer {token(lake, grant('read:*', hide=hide))}"} for hide in ("", "salary", "other")
    }
    for path in ("", "/pay", "/pay.json", "/pay.csv"):
        for method in ("GET", "HEAD"):
            told = send(method, path, headers=bearers["salary"])
            assert "salary" not in json.dumps(told), path
    document = event("", method="GET", path="/openapi.json") | {"headers": bearers["salary"]}
    assert "salary" not in query.handler(document, None)["body"]
    assert send("GET", "/pay.json", headers=bearers["salary"])["statusCode"] == 400
    assert "query" in json.loads(send("GET", "/pay", headers=bearers[""])["body"])
    assert "query" not in json.loads(send("GET", "/pay", headers=bearers["other"])["body"])
