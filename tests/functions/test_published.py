"""Published queries, from the command that publishes them to their answers over HTTP."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

import alluvia
from alluvia.cli.command_line import cli
from alluvia.errors import Invalid, TableNotFound
from functions.query import handler as query
from tests.access import grant, token
from tests.functions.test_query import Answer, error_of, event

TOP = "SELECT path, n FROM hits WHERE path = $path AND n >= $least ORDER BY n"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("ALLUVIA_RESULT_CACHE", "on")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    lake = alluvia.connect(str(tmp_path / "lake"))
    columns = {"path": "string", "n": "long", "tenant": "string"}
    rows = [("/", 1, "a"), ("/", 7, "b"), ("' OR 1=1 --", 9, "a")]
    lake.create_table("hits", columns).append([dict(zip(columns, row, strict=True)) for row in rows])
    return lake


def run(*words: str) -> Any:
    result = CliRunner().invoke(cli, [*words, "--json"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def get(name: str, headers: dict[str, str] | None = None, method: str = "GET", **fields: str) -> Answer:
    sent = event("", method=method, path=f"/v1/queries/{name}")
    return query.handler(sent | {"headers": headers or {}, "rawQueryString": urlencode(fields)}, None)


def rows(answer: Answer) -> Any:
    assert answer["statusCode"] == 200, answer["body"]
    return json.loads(answer["body"])


def test_from_the_command_to_the_answer(lake: alluvia.Lake) -> None:
    [made] = run("publish", "top_pages", TOP, "--param", "path:string", "--param", "least:BIGINT=2")
    assert made == {
        "name": "top_pages",
        "version": 0,
        "url": "/v1/queries/top_pages.json",
        "parameters": "path (string), least (long, '2' by default)",
        "publisher": None,
        "query": TOP,
    }
    assert run("published") == [made]
    assert rows(get("top_pages.json", path="/")) == [{"path": "/", "n": 7}]
    assert rows(get("top_pages.ndjson", path="/", least="7")) == {"path": "/", "n": 7}
    assert get("top_pages.csv", path="' OR 1=1 --")["body"] == "path,n\r\n' OR 1=1 --,9\r\n"
    lake.publish_query("top_pages", "SELECT max(n) AS n FROM hits")
    assert rows(get("top_pages.json")) == [{"n": 9}]
    assert rows(get("top_pages.json", version="0", path="/")) == [{"path": "/", "n": 7}]
    assert get("top_pages.json", version="2")["statusCode"] == 404
    assert error_of(get("top_pages.json", version="-1")).startswith("version: '-1'")
    assert run("unpublish", "top_pages") == [{"unpublished": "top_pages", "version": 2}]
    gone = (get("top_pages.json"), get("top_pages.json", version="0"), get("top_pages"))
    assert [each["statusCode"] for each in gone] == [404, 404, 404]
    assert run("published") == []
    with pytest.raises(Invalid, match="no query is published as"):
        lake.unpublish_query("top_pages")
    assert lake.publish_query("top_pages", "SELECT 3 AS n").version == 3
    assert rows(get("top_pages.json", version="3")) == [{"n": 3}]
    assert get("top_pages.json", version="1")["statusCode"] == 404  # it was withdrawn


def test_the_url_begins_with_the_address_that_is_set(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(cli, ["publish", "one", "SELECT 1 AS n"])
    assert "/v1/queries/one.json" in result.stdout
    assert "below the address of the lake's server. None runs here" in result.stderr
    monkeypatch.setenv("ALLUVIA_URL", "https://lake.example/")
    result = CliRunner().invoke(cli, ["publish", "one", "SELECT 1 AS n", "--json"])
    url = "https://lake.example/v1/queries/one.json"
    assert (json.loads(result.stdout)["url"], result.stderr) == (url, "")
    assert lake.publish_query("one", "SELECT 1 AS n").url == url
    assert run("published")[0]["url"] == url
    monkeypatch.setenv("ALLUVIA_URL", "lake.example")
    with pytest.raises(Invalid, match=r"ALLUVIA_URL is 'lake.example': write it as https://lake\.example\.com"):
        _ = lake.publish_query("one", "SELECT 1 AS n").url


def test_what_is_published_already_makes_no_version(lake: alluvia.Lake) -> None:
    first = lake.publish_query("top", TOP, {"path": "string", "least": "long=0"})
    assert lake.publish_query("top", TOP, {"path": "string", "least": "long=0"}) == first
    assert lake.publish_query("top", TOP, {"path": "string", "least": "long=1"}).version == 1


def test_answers_have_tags_and_are_kept(lake: alluvia.Lake) -> None:
    lake.publish_query("top", TOP, {"path": "string", "least": "long=0"})
    first = get("top.json", path="/")
    tag = first["headers"]["ETag"]
    assert first["headers"]["Alluvia-Cache"] == "miss"
    assert get("top.json", path="/", least="0")["headers"]["Alluvia-Cache"] == "hit"
    again = get("top.json", {"If-None-Match": tag}, "HEAD", path="/")
    assert (again["statusCode"], again["headers"]["ETag"]) == (304, tag)
    assert get("top.json", {"If-None-Match": tag}, path="/", least="1")["statusCode"] == 200
    lake["hits"].append([{"path": "/", "n": 8}])
    assert len(rows(get("top.json", {"If-None-Match": tag}, path="/"))) == 3


VALUES = [
    ("long", "42", 42),
    ("integer", "-1", -1),
    ("double", "0.5", Decimal("0.5")),
    ("decimal(9,2)", "0.5", Decimal("0.50")),
    ("boolean", "true", True),
    ("date", "2026-01-31", "2026-01-31"),
    ("date", "2026-01-31T23:30:00-01:00", "2026-02-01"),
    ("date", "1769817600", "2026-01-31"),
    ("date", "1769817600000", "2026-01-31"),
    ("date", "20260131", "2026-01-31"),
    ("timestamp", "2026-01-31", "2026-01-31T00:00:00Z"),
    ("timestamp", "2026-01-31T12:00:00", "2026-01-31T12:00:00Z"),
    ("timestamp", "2026-01-31T12:00:00 01:00", "2026-01-31T11:00:00Z"),
    ("timestamp", "1769858400", "2026-01-31T11:20:00Z"),
    ("timestamp", "1769858400.25", "2026-01-31T11:20:00.25Z"),
    ("timestamp", "1769858400123", "2026-01-31T11:20:00.123Z"),
    ("timestamp", "1769858400123456", "2026-01-31T11:20:00.123456Z"),
    ("timestamp", "0", "1970-01-01T00:00:00Z"),
    ("timestamp_ntz", "2026-01-31T12:00:00+01:00", "2026-01-31T11:00:00"),
    ("timestamp_ntz", "1769858400", "2026-01-31T11:20:00"),
    ("timestamp", "2026-01-31T12:00:00+01:00", "2026-01-31T11:00:00Z"),
    ("timestamp_ntz", "2026-01-31 12:00:00", "2026-01-31T12:00:00"),
    ("string", "2026-01-31", "2026-01-31"),
]


def test_values_have_their_types_whatever_else_they_look_like(lake: alluvia.Lake) -> None:
    tags, found = set(), []
    for kind, text, _ in VALUES:
        lake.publish_query("echo", "SELECT $x AS x", {"x": kind})
        answer = get("echo.json", x=text)
        found.append(json.loads(answer["body"], parse_float=Decimal)[0]["x"])
        tags.add(answer["headers"]["ETag"])
    assert found == [value for _, _, value in VALUES]
    kinds = {(kind, str(value)) for kind, _, value in VALUES}
    assert len(tags) == len(kinds)  # the date and the text of it are two answers, two forms of a date are one


FORMS = "send 2026-11-20, 2026-11-20T10:30:00Z, or seconds, milliseconds or microseconds since 1970"


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz"])
@pytest.mark.parametrize("text", ["yesterday", "20.11.2026", "11/20/2026", "2026-13-01", "2026", "1" * 18, "nan", ""])
def test_what_is_no_time_names_the_parameter_and_the_forms(lake: alluvia.Lake, kind: str, text: str) -> None:
    lake.publish_query("since", "SELECT $since AS since", {"since": kind})
    answer = get("since.json", since=text)
    assert answer["statusCode"] == 400
    assert error_of(answer) == f"since: {text!r} is not a value of the type {kind}: {FORMS}"


TIMES = ["2026-11-20", "20261120", "2026-11-20T00:00:00Z", "2026-11-20T02:00:00+02:00", "1795132800", "1795132800000"]


@pytest.mark.parametrize("text", [*TIMES, "1795132800000000"])
@pytest.mark.parametrize(
    "condition",
    [
        "seen >= $since",
        "m.seen BETWEEN $since AND now()",
        "day IN ($since, NULL)",
        "plain >= $since",
        "date_trunc('day', seen) = $since",
        "$since::DATE = day",
        "seen >= CAST($since AS TIMESTAMPTZ)",
    ],
)
def test_a_query_of_ones_own_takes_times_in_the_same_forms(lake: alluvia.Lake, text: str, condition: str) -> None:
    table = lake.create_table("moments", {"seen": "timestamp", "day": "date", "plain": "timestamp_ntz"})
    rows = [
        {"seen": f"2026-11-{day}T10:00:00Z", "day": f"2026-11-{day}", "plain": f"2026-11-{day}"} for day in (19, 20)
    ]
    values = ", ".join("('{seen}', '{day}', '{plain}')".format(**each) for each in rows)
    lake.sql(f"INSERT INTO moments VALUES {values}")
    sql = f"SELECT count(*) AS n FROM moments m WHERE {condition}"
    assert table.count() == 2
    sent = event("", method="GET") | {
        "rawQueryString": urlencode({"query": sql, "format": "json", "param_since": text})
    }
    answer = query.handler(sent, None)
    assert (answer["statusCode"], json.loads(answer["body"])) == (200, [{"n": 1}]), answer["body"]
    if text.isdigit() and text not in TIMES[:2]:
        sent = event(json.dumps({"query": sql, "parameters": {"since": int(text)}, "format": "json"}))
        assert json.loads(query.handler(sent, None)["body"]) == [{"n": 1}]


def test_a_text_that_is_no_time_is_named_with_its_parameter(lake: alluvia.Lake) -> None:
    lake.create_table("moments", {"seen": "timestamp"})
    lake.sql("INSERT INTO moments VALUES (now())")
    sql = "SELECT count(*) AS n FROM moments WHERE seen >= $since"
    sent = event("", method="GET") | {"rawQueryString": urlencode({"query": sql, "param_since": "yesterday"})}
    answer = query.handler(sent, None)
    assert (answer["statusCode"], error_of(answer)) == (400, f"parameter $since: 'yesterday' is not a time: {FORMS}")


@pytest.mark.parametrize(
    "sql",
    [
        "FROM (SELECT epoch_ms(seen) AS seen FROM moments) WHERE seen = $since",
        "WITH m(seen) AS (SELECT epoch_ms(seen) FROM moments) FROM m WHERE seen = $since",
        "SELECT m.seen FROM (SELECT epoch_ms(seen) FROM moments) AS m(seen) WHERE m.seen = $since",
        "FROM numbered WHERE seen = $since",
    ],
)
@pytest.mark.parametrize("since", [1795132800000, "1795132800000"])
def test_a_name_that_the_query_gives_to_a_number_is_no_time(lake: alluvia.Lake, sql: str, since: object) -> None:
    lake.create_table("moments", {"seen": "timestamp"})
    lake.sql("INSERT INTO moments VALUES ('2026-11-20')")
    lake.sql("CREATE VIEW numbered AS SELECT epoch_ms(seen) AS seen FROM moments")
    assert lake.sql(sql, {"since": since}).to_pylist() == [{"seen": 1795132800000}]


def test_a_number_that_is_compared_with_numbers_stays_one(lake: alluvia.Lake) -> None:
    lake.sql("INSERT INTO hits VALUES ('/big', 1795132800, 'a')")
    [row] = lake.sql("SELECT path FROM hits WHERE n = $n", {"n": 1795132800}).to_pylist()
    assert row == {"path": "/big"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "path is missing: the parameters of this query are path (string), least (long, '2' by default)"),
        ({"path": "/", "pathh": "/"}, "pathh is not a parameter of this query, which has path (string), least"),
        ({"path": "/", "least": "x"}, "least: 'x' is not a value of the type long"),
        ({"path": "/", "least": ""}, "least: '' is not a value of the type long"),
        ({"path": "/", "least": "9" * 30}, "is not a value of the type long"),
    ],
)
def test_a_wrong_parameter_is_named(lake: alluvia.Lake, fields: dict[str, str], reason: str) -> None:
    lake.publish_query("top", TOP, {"path": "string", "least": "long=2"})
    answer = get("top.json", None, "GET", **fields)
    assert (answer["statusCode"], reason in error_of(answer)) == (400, True), answer["body"]


@pytest.mark.parametrize(
    ("name", "sql", "parameters", "reason"),
    [
        ("Top", "SELECT 1", {}, "query name 'Top'"),
        ("top", "DELETE FROM hits", {}, "DELETE"),
        ("top", "SELECT 1; SELECT 2", {}, "2 statements"),
        ("top", "EXPLAIN SELECT 1", {}, "not EXPLAIN"),
        ("top", "SHOW TABLES", {}, "not EXPLAIN"),
        ("top", "SUMMARIZE hits", {}, "not EXPLAIN"),
        ("top", "SELECT nothing FROM hits", {}, "nothing"),
        ("top", TOP, {"path": "string"}, r"\$least has no value"),
        ("top", "SELECT 1", {"x": "long"}, r"\$x has a value"),
        ("top", "SELECT $x", {"x": "long=a"}, "x: 'a' is not a value of the type long"),
        ("top", "SELECT $x", {"x": "array<long>"}, "parameter x: unknown type"),
        ("top", "SELECT $x", {"x": "binary"}, "parameter x: binary has no form as text"),
        ("top", "SELECT $version", {"version": "long"}, "parameter 'version'"),
    ],
)
def test_what_cannot_be_published_says_why(
    lake: alluvia.Lake, name: str, sql: str, parameters: dict[str, str], reason: str
) -> None:
    with pytest.raises(Invalid, match=reason):
        lake.publish_query(name, sql, parameters)
    assert run("published") == []


def test_a_table_that_is_not_there_is_named(lake: alluvia.Lake) -> None:
    with pytest.raises(TableNotFound, match="none"):
        lake.publish_query("top", "SELECT * FROM none")


def test_without_a_scope_it_runs_with_the_callers_rights(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.publish_query("top", "SELECT sum(n) AS n FROM hits")
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")

    def of(*grants: Any) -> Answer:
        return get("top.json", {"Authorization": f"Bearer {token(lake, *grants)}"})

    assert get("top.json")["statusCode"] == 401
    assert [of(grant("read:other"))["statusCode"], of(grant("append:hits write:hits"))["statusCode"]] == [403, 403]
    everything, part = of(grant("read:hits")), of(grant("read:hits", where="tenant = 'a'"))
    assert (rows(everything), rows(part)) == ([{"n": 17}], [{"n": 10}])
    assert everything["headers"]["ETag"] != part["headers"]["ETag"]
    assert of(grant("read:hits", hide="n"))["statusCode"] == 400
