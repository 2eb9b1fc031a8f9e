"""Tokens that may run published queries and nothing else: with their publishers' rights, and never more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

import alluvia
from alluvia.access import registry
from alluvia.access.claims import read_claims
from alluvia.access.rights import Grant
from alluvia.access.signing import unverified_claims
from alluvia.cli.command_line import cli
from functions.query import handler as query
from tests.access import asking_for_tokens, grant, token
from tests.functions.test_query import Answer, error_of, event

NAMES = ("hits", "secrets", "path", "tenant", "amount", "_alluvia", "parquet")
TOP = "SELECT path, sum(amount) AS amount FROM hits WHERE amount >= $least GROUP BY path ORDER BY path"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[alluvia.Lake]:
    with asking_for_tokens(tmp_path_factory.mktemp("lake"), "ALLUVIA_ALLOW_PUBLISH") as lake:
        columns = {"path": "string", "amount": "long", "tenant": "string"}
        rows = [("/", 1, "a"), ("/", 7, "b"), ("/x", 20, "a")]
        lake.create_table("hits", columns).append([dict(zip(columns, row, strict=True)) for row in rows])
        lake.create_table("secrets", {"n": "long"}).append([{"n": 42}])
        lake.sql("CREATE VIEW seen AS SELECT path FROM hits")
        lake.publish_query("top", TOP, {"least": "long=0"})
        yield lake


def send(path: str, bearer: str, method: str = "GET", body: object = None, **fields: str) -> Answer:
    text = "" if body is None else json.dumps(body)
    headers = {"Authorization": f"Bearer {bearer}"}
    sent = event(text, method=method, path=f"/v1/queries{path}")
    return query.handler(sent | {"headers": headers, "rawQueryString": urlencode(fields)}, None)


def rows(answer: Answer) -> Any:
    assert answer["statusCode"] == 200, answer["body"]
    return json.loads(answer["body"])


def of(lake: alluvia.Lake, name: str, **limits: Any) -> str:
    return token(lake, grant(f"query:{name}", **limits))


def publish(lake: alluvia.Lake, name: str, text: str, *grants: Grant) -> str:
    """Publish over HTTP, and return the bearer token of the publisher."""
    bearer = token(lake, grant(f"publish:{name}"), *grants)
    answer = send(f"/{name}", bearer, "PUT", {"query": text})
    assert answer["statusCode"] == 201, answer["body"]
    return bearer


def tells_nothing(answer: Answer) -> str:
    """Return an error, which names nothing that the query reads."""
    told = json.dumps([answer["headers"], answer["body"]])
    assert [name for name in (*NAMES, "42", "20") if name in told] == []
    return error_of(answer)


def test_it_runs_its_query_over_tables_that_it_may_not_read(lake: alluvia.Lake) -> None:
    bearer = of(lake, "top")
    assert rows(send("/top.json", bearer)) == [{"path": "/", "amount": 8}, {"path": "/x", "amount": 20}]
    assert rows(send("/top.json", bearer, least="7")) == [{"path": "/", "amount": 7}, {"path": "/x", "amount": 20}]
    assert "least: 'x' is not a value of the type long" in error_of(send("/top.json", bearer, least="x"))
    assert "least (long, '0' by default)" in error_of(send("/top.json", bearer, most="1"))


def test_headers_tell_of_no_table_also_where_another_caller_has_left_the_result(lake: alluvia.Lake) -> None:
    reader = send("/top.json", token(lake, grant("read:hits")), least="3")
    assert reader["headers"]["Alluvia-Versions"] == "hits=1"
    hit = send("/top.json", of(lake, "top"), least="3")
    assert (hit["headers"]["Alluvia-Cache"], hit["body"]) == ("hit", reader["body"])
    miss = send("/top.json", of(lake, "top"), least="4")
    for answer in (hit, miss):
        assert [name for name in NAMES if name in json.dumps(answer["headers"])] == []
        told = {name for name in answer["headers"] if name.startswith("Alluvia-")}
        assert (told, answer["headers"]["Alluvia-Rows"]) == ({"Alluvia-Rows", "Alluvia-Cache"}, "2")


def test_row_filters_and_hidden_columns_of_the_token_hold(lake: alluvia.Lake) -> None:
    lake.publish_query("everything", "SELECT * FROM hits ORDER BY path, amount")
    part = of(lake, "everything", where="tenant = 'a'", hide="tenant amount")
    assert error_of(send("/everything.json", part)).startswith("the query failed")  # it sorts by a hidden column
    lake.publish_query("everything", "SELECT * FROM hits ORDER BY ALL")
    assert rows(send("/everything.json", part)) == [{"path": "/"}, {"path": "/x"}]
    both = token(lake, grant("query:everything", where="tenant = 'a'"), grant("query:every*", where="amount > 5"))
    assert [row["amount"] for row in rows(send("/everything.json", both))] == [20]


def test_hidden_columns_of_a_token_stay_hidden_once_they_are_renamed(lake: alluvia.Lake) -> None:
    people = lake.create_table("people", {"id": "long", "mail": "string"})
    people.append([{"id": 1, "mail": "a@x"}])
    lake.publish_query("first_people", "FROM people(version => 1)")
    lake.publish_query("people_now", "FROM people")
    part = {name: of(lake, name, hide="email") for name in ("first_people", "people_now")}
    assert rows(send("/first_people.json", part["first_people"])) == [{"id": 1, "mail": "a@x"}]  # it never was email
    people.evolve(rename={"mail": "email"})
    people.evolve(rename={"email": "address"})
    for name, bearer in part.items():
        assert rows(send(f"/{name}.json", bearer)) == [{"id": 1}]
    people.evolve(drop=["address"])
    assert rows(send("/first_people.json", part["first_people"])) == [{"id": 1}]


def test_it_shows_no_more_than_its_publisher_may_read(lake: alluvia.Lake) -> None:
    publish(lake, "mine", "SELECT * FROM hits ORDER BY ALL", grant("read:hits", where="tenant = 'a'", hide="tenant"))
    bearer = of(lake, "mine")
    assert rows(send("/mine.json", bearer)) == [{"path": "/", "amount": 1}, {"path": "/x", "amount": 20}]
    assert rows(send("/mine.json", of(lake, "mine", where="amount < 9"))) == [{"path": "/", "amount": 1}]
    other = token(lake, grant("publish:mine"), grant("read:hits", where="tenant = 'b'"))
    assert send("/mine", other, "PUT", {"query": "SELECT path, amount FROM hits"})["statusCode"] == 200
    assert rows(send("/mine.json", bearer)) == [{"path": "/", "amount": 7}]  # the rights of the new publisher
    reader = token(lake, grant("read:hits"))
    assert len(rows(send("/mine.json", reader))) == 3  # who may read the tables has rights of its own


@pytest.mark.parametrize("text", ["SELECT n FROM secrets", "SELECT * FROM hits, secrets", "SELECT * FROM seen"])
def test_what_a_publisher_may_not_read_it_cannot_publish(lake: alluvia.Lake, text: str) -> None:
    bearer = token(lake, grant("publish:*"), grant("read:hits"))
    answer = send("/stolen", bearer, "PUT", {"query": text})
    missing = "read:seen" if "seen" in text else "read:secrets"
    assert (answer["statusCode"], missing in error_of(answer)) == (403, True)
    assert send("/stolen", bearer)["statusCode"] == 404


def test_a_view_that_comes_to_read_more_shows_no_more_than_the_publisher_may_read(lake: alluvia.Lake) -> None:
    lake.sql("CREATE OR REPLACE VIEW shifting AS SELECT path AS x FROM hits")
    publish(lake, "shift", "SELECT * FROM shifting ORDER BY x", grant("read:hits read:shifting"))
    bearer = of(lake, "shift")
    assert len(rows(send("/shift.json", bearer))) == 3
    lake.sql("CREATE OR REPLACE VIEW shifting AS SELECT n AS x FROM secrets")
    answer = send("/shift.json", bearer)
    assert (answer["statusCode"], "ask its publisher" in tells_nothing(answer)) == (403, True)


def test_a_revoked_publisher_lends_nothing(lake: alluvia.Lake) -> None:
    publisher = publish(lake, "gone", "SELECT count(*) AS n FROM hits", grant("read:hits"))
    bearer = of(lake, "gone")
    assert rows(send("/gone.json", bearer)) == [{"n": 3}]
    registry.revoke(lake.store, lake.clock, read_claims(unverified_claims(publisher)))
    assert send("/gone.json", bearer)["statusCode"] == 403
    assert rows(send("/gone.json", token(lake, grant("read:hits")))) == [{"n": 3}]


@pytest.mark.parametrize(
    ("text", "limits", "status", "reason"),
    [
        ("SELECT CAST(path AS INTEGER) FROM hits", {}, 400, "the query failed"),
        ("SELECT error(path) FROM hits", {}, 400, "the query failed"),
        ("SELECT amount FROM hits(version => 1)", {"hide": "amount"}, 400, "the query failed"),
        ("SELECT amount FROM hits", {"where": "no_such_column = 1"}, 403, "not for this caller, to see"),
        ("SELECT amount FROM hits", {"hide": "path amount tenant"}, 403, "not for this caller, to see"),
        ("SELECT sum(range) FROM range(100000000000000)", {}, 422, "more time, memory or bytes"),
    ],
)  # fmt: skip
def test_errors_tell_nothing_of_what_it_reads(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, text: str, limits: dict[str, str], status: int, reason: str
) -> None:
    monkeypatch.setenv("ALLUVIA_QUERY_TIMEOUT_SECONDS", "1")
    lake.publish_query("broken", text)
    answer = send("/broken.json", of(lake, "broken", **limits))
    assert (answer["statusCode"], reason in tells_nothing(answer)) == (status, True), answer["body"]


def test_limits_of_the_request_do_not_find_out_how_much_it_reads(lake: alluvia.Lake) -> None:
    headers = {"Authorization": f"Bearer {of(lake, 'top')}"}
    sent = event("", method="GET", path="/v1/queries/top.json") | {"headers": headers}
    for most in ("1", "1000000000"):
        answer = query.handler(sent | {"headers": {**headers, "Alluvia-Max-Bytes": most}}, None)
        assert (answer["statusCode"], "leave it out" in tells_nothing(answer)) == (403, True)
    assert query.handler(sent | {"headers": {**headers, "Alluvia-Max-Seconds": "9"}}, None)["statusCode"] == 200


def test_a_table_that_was_dropped_and_a_limit_on_bytes_are_not_told_of_either(lake: alluvia.Lake) -> None:
    few = token(lake, grant("query:top"), query_bytes=1)
    assert "more time, memory or bytes" in tells_nothing(send("/top.json", few, least="6"))
    lake.create_table("hits_of_today", {"n": "long"})
    lake.publish_query("today", "SELECT n FROM hits_of_today")
    lake.drop_table("hits_of_today")
    answer = send("/today.json", of(lake, "today"))
    assert (answer["statusCode"], "or a version of one, is gone" in tells_nothing(answer)) == (404, True)


def test_who_has_no_right_to_a_query_learns_neither_its_parameters_nor_that_there_is_one(lake: alluvia.Lake) -> None:
    for bearer in (of(lake, "other"), token(lake, grant("read:secrets")), token(lake, grant("append:hits"))):
        for suffix, fields in ((".json", {}), (".json", {"least": "x"}), (".json", {"nope": "1"}), ("", {})):
            there, absent = send(f"/top{suffix}", bearer, **fields), send(f"/tip{suffix}", bearer, **fields)
            assert (there["statusCode"], tells_nothing(there)) == (403, error_of(absent).replace("tip", "top"))
            assert "query:top" in there["headers"]["WWW-Authenticate"]


def test_pages_of_the_list_name_no_other_query(lake: alluvia.Lake) -> None:
    for name in ("aa_hidden", "between", "zz_hidden"):
        lake.publish_query(name, "SELECT n FROM secrets" if "hidden" in name else "SELECT path FROM hits")
    for bearer in (token(lake, grant("query:between"), grant("query:top")), token(lake, grant("append:hits"))):
        after: str | None = ""
        told = []
        while after is not None:
            page = json.loads(send("", bearer, limit="1", after=after)["body"])
            told += [each["name"] for each in page["queries"]]
            after = page["next"]
            assert after in (*told, None)
        assert not [name for name in told if "hidden" in name]


def test_the_current_version_is_meant_unless_one_is_named(lake: alluvia.Lake) -> None:
    for n in range(3):
        lake.publish_query("numbered", f"SELECT {n} AS n")
    current, pinned, some = of(lake, "numbered"), of(lake, "numbered@1"), of(lake, "numbered@0 query:numbered@1")
    assert [rows(send("/numbered.json", each)) for each in (current, pinned, some)] == [
        [{"n": 2}], [{"n": 1}], [{"n": 1}]
    ]  # fmt: skip
    allowed = [
        [send("/numbered.json", each, version=n)["statusCode"] for n in "012"] for each in (current, pinned, some)
    ]
    assert allowed == [[403, 403, 200], [403, 200, 403], [200, 200, 403]]
    assert [json.loads(send("/numbered", each)["body"])["version"] for each in (current, pinned)] == [2, 1]
    lake.unpublish_query("numbered")
    lake.publish_query("numbered", "SELECT 4 AS n")
    assert [send("/numbered.json", each)["statusCode"] for each in (current, pinned)] == [200, 404]
    listed = json.loads(send("", token(lake, grant("query:numbered@1")))["body"])["queries"]
    assert listed == []


def test_the_rows_of_a_rollup_as_they_would_be_now_need_its_source_and_no_right_of_their_own(
    lake: alluvia.Lake,
) -> None:
    lake.create_rollup("by_path", "SELECT path, sum(amount) AS amount FROM hits GROUP BY path")
    lake.publish_query("live", "SELECT sum(amount) AS amount FROM by_path_live")
    both, half = token(lake, grant("read:by_path read:hits")), token(lake, grant("read:by_path"))
    for bearer in (both, of(lake, "live")):
        assert rows(send("/live.json", bearer)) == [{"amount": 28}]
    asked = {"rawQueryString": urlencode({"query": "SELECT sum(amount) AS amount FROM by_path_live"})}
    statuses = []
    for bearer in (both, half):
        sent = event("", method="GET") | asked | {"headers": {"Authorization": f"Bearer {bearer}"}}
        statuses.append(query.handler(sent, None)["statusCode"])
    assert (statuses, send("/live.json", half)["statusCode"]) == ([200, 403], 403)


def test_it_sees_itself_in_the_list_without_its_text(lake: alluvia.Lake) -> None:
    [only] = json.loads(send("", of(lake, "top"))["body"])["queries"]
    assert only.pop("published")
    parameters = {"least": {"type": "long", "default": "0"}}
    assert only == {"name": "top", "version": 0, "path": "/v1/queries/top.json", "parameters": parameters}
    by_name = {each["name"]: each for each in json.loads(send("", token(lake, grant("read:hits")))["body"])["queries"]}
    assert (by_name["top"]["query"], by_name["top"]["publisher"], by_name["mine"]["publisher"]) == (TOP, None, "test")
    assert "shift" not in by_name


def run(*words: str) -> list[Any]:
    result = CliRunner().invoke(cli, [*words, "--json"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_commands_that_make_such_tokens(lake: alluvia.Lake, tmp_path: Path) -> None:
    [made] = run("publish", "paths", "SELECT DISTINCT path FROM hits ORDER BY path", "--token", "--expires", "1d")
    assert [row["path"] for row in rows(send("/paths.json", made["token"]))] == ["/", "/x"]
    assert send("/top.json", made["token"])["statusCode"] == 403
    [created] = run("token", "create", "--query", "paths@0", "--query", "top", "--where", "tenant = 'b'")
    assert created["scopes"] == "query:paths@0 query:top"
    assert rows(send("/paths.json", created["token"])) == [{"path": "/"}]
    assert run("token", "create", "--publish", "daily_*")[0]["scopes"] == "publish:daily_*"
    unfit = CliRunner().invoke(cli, ["token", "create", "--query", "top", "--where", "nope = 1"])
    assert (unfit.exit_code, "nope" in unfit.output) == (1, True)
