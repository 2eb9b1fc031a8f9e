"""Who gets in: the handlers with tokens, as API Gateway would call them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alluvia
from alluvia.access import registry
from alluvia.access.claims import read_claims
from alluvia.access.signing import unverified_claims
from alluvia.errors import Invalid
from alluvia.serverless.routes.ingest_routes import INGEST_ROUTES
from functions.ingest import handler as ingest
from functions.query import handler as query
from tests.access import grant, token

Answer = dict[str, Any]
CHALLENGE = 'Bearer realm="alluvia"'


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> alluvia.Lake:
    lake = alluvia.connect(tmp_path_factory.mktemp("lake"))
    lake.create_events("clicks")
    lake.create_table("totals", {"name": "string", "n": "long"}).append([{"name": "a", "n": 1}, {"name": "b", "n": 2}])
    lake.create_table("secrets", {"n": "long"}).append([{"n": 42}])
    return lake


@pytest.fixture(autouse=True)
def tokens_only(lake: alluvia.Lake, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_LAKE", lake.uri.removeprefix("file://"))
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    monkeypatch.setenv("ALLUVIA_ALLOW_WRITES", "true")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "config"))


def send(path: str, body: object, authorization: str | None, **context: object) -> Answer:
    event = {
        "version": "2.0",
        "rawPath": path,
        "headers": {} if authorization is None else {"Authorization": authorization},
        "requestContext": {"http": {"method": "POST", "path": path}, "stage": "$default", **context},
        "body": json.dumps(body),
        "isBase64Encoded": False,
    }
    handler: Callable[[dict[str, Any], Any], Answer] = (ingest if path.startswith("/v1/") else query).handler
    return handler(event, None)


def post(table: str, bearer: str | None) -> Answer:
    return send(f"/v1/events/{table}", {"event": "open"}, None if bearer is None else f"Bearer {bearer}")


def ask(sql: str, bearer: str | None) -> Answer:
    return send("/q", {"query": sql}, None if bearer is None else f"Bearer {bearer}")


def outcome(answer: Answer) -> tuple[int, str | None]:
    return answer["statusCode"], answer["headers"].get("WWW-Authenticate")


def test_without_a_token_nobody_gets_in(lake: alluvia.Lake) -> None:
    for answer in (post("clicks", None), ask("SELECT 1", None), ask("SHOW TABLES", None)):
        assert outcome(answer) == (401, CHALLENGE)
        assert "Authorization: Bearer <token>" in json.loads(answer["body"])["error"]
    assert lake["clicks"].version == 0


def test_every_route_for_events_asks_who_sends_them() -> None:
    posted = [route for route in INGEST_ROUTES if "POST" in route.methods]
    assert len(posted) >= 3
    for route in posted:
        path = route.path.replace("{table}", "clicks").replace("{source}", "nobody")
        answer = send(path, {"event": "open"}, None)
        assert answer["statusCode"] == 401, path
        if not route.public:  # the others have secrets of their sources
            assert outcome(answer) == (401, CHALLENGE)


@pytest.mark.parametrize("authorization", ["Basic YTpi", "Bearer", "Bearer ", "Bearer a.b.c", "bearer \0", ""])
def test_a_bad_token_is_a_401_that_says_so(authorization: str) -> None:
    status, challenge = outcome(send("/q", {"query": "SELECT 1"}, authorization))
    assert (status, challenge) == (401, CHALLENGE if not authorization else f'{CHALLENGE}, error="invalid_token"')


def test_the_health_check_needs_no_token() -> None:
    request = {
        "rawPath": "/healthz",
        "requestContext": {"http": {"method": "GET", "path": "/healthz"}, "stage": "$default"},
    }
    assert ingest.handler(request, None)["statusCode"] == 200


STATEMENTS = {
    "append": "INSERT INTO totals VALUES ('c', 3)",
    "read": "SELECT * FROM totals",
    "write": "UPDATE totals SET n = n WHERE n = 1",
    "admin": "ALTER TABLE totals SET TBLPROPERTIES ('x' = '1')",
}
NEEDS = {"append": {"append"}, "read": {"read"}, "write": {"write", "read"}, "admin": {"admin"}}


@pytest.mark.parametrize("operation", STATEMENTS)
def test_each_statement_needs_its_scopes(lake: alluvia.Lake, operation: str) -> None:
    granted = [grant(f"{each}:totals") for each in NEEDS[operation]]
    assert ask(STATEMENTS[operation], token(lake, *granted))["statusCode"] == 200
    for missing in granted:
        others = [grant(f"{each}:totals") for each in STATEMENTS if each not in missing.operations]
        if operation == "append":
            others = [each for each in others if "write" not in each.operations]
        (name,) = missing.operations
        scope = f"{name}:totals"
        answer = ask(STATEMENTS[operation], token(lake, *others, grant(f"{name}:other")))
        expected = f'{CHALLENGE}, error="insufficient_scope", scope="{scope}"'
        assert outcome(answer) == (403, expected)
        assert scope in json.loads(answer["body"])["error"]


def test_events_need_the_scope_to_append(lake: alluvia.Lake) -> None:
    assert post("clicks", token(lake, grant("append:cl*")))["statusCode"] == 200
    assert post("clicks", token(lake, grant("write:clicks")))["statusCode"] == 200
    refused = post("clicks", token(lake, grant("read:clicks"), grant("append:other"), grant("append:clicks._rejects")))
    assert outcome(refused) == (403, f'{CHALLENGE}, error="insufficient_scope", scope="append:clicks"')
    assert post("clicks%2F_rejects", token(lake, grant("append:*")))["statusCode"] == 403
    for name in ("Clicks", "BRONZE.clicks", "..", "bronz\u0435.clicks", "lake.clicks"):  # no scope would allow these
        refused = post(quote(name), token(lake, grant("append:clicks"), grant("append:bronze.*")))
        assert refused["statusCode"] == 400
        assert f"table name {name!r}" in json.loads(refused["body"])["error"]


@pytest.mark.parametrize("path", ["/v1/events/clicks", "/v1/logs", "/v1/upload/clicks"])
def test_the_right_to_append_is_checked_before_the_body(lake: alluvia.Lake, path: str) -> None:
    request = {
        "rawPath": path,
        "headers": {"Authorization": f"Bearer {token(lake, grant('read:clicks'))}"},
        "requestContext": {"http": {"method": "POST", "path": path}, "stage": "$default"},
        "body": "no base64",
        "isBase64Encoded": True,
    }
    assert outcome(ingest.handler(request, None))[0] == 403


def test_the_document_names_the_scope_of_events(lake: alluvia.Lake) -> None:
    request = {"rawPath": "/openapi.json", "requestContext": {"http": {"method": "GET"}, "stage": "$default"}}
    paths = json.loads(query.handler(request, None)["body"])["paths"]
    assert paths["/v1/events/{table}"]["post"]["description"] == "Needs the scope append:{table}."


def test_a_statement_that_is_not_allowed_undoes_those_before_it(lake: alluvia.Lake) -> None:
    bearer = token(lake, grant("append:totals"), grant("read:totals"))
    before = lake["totals"].version
    assert ask("INSERT INTO totals VALUES ('d', 4); SELECT * FROM secrets", bearer)["statusCode"] == 403
    assert ask("INSERT INTO totals VALUES ('d', 4); DELETE FROM secrets", bearer)["statusCode"] == 403
    assert ask("INSERT INTO totals SELECT 'x', n FROM secrets", bearer)["statusCode"] == 403
    assert lake["totals"].version == before


def test_what_may_not_be_read_is_not_named(lake: alluvia.Lake) -> None:
    bearer = token(lake, grant("read:totals"), grant("read:nothing"))
    assert json.loads(ask("SHOW TABLES", bearer)["body"]) == {"name": "totals"}
    missing = ask("SELECT * FROM nothing", bearer)
    assert (missing["statusCode"], "secrets" in missing["body"]) == (404, False)
    there, absent = ask("SELECT * FROM secrets", bearer), ask("SELECT * FROM secretz", bearer)
    assert (there["statusCode"], absent["statusCode"]) == (403, 403)
    assert there["body"].replace("secrets", "secretz") == absent["body"]


def test_a_direct_invocation_is_for_those_who_may_invoke_the_function() -> None:
    assert query.handler({"query": "SELECT * FROM secrets"}, None)["statusCode"] == 200


def test_a_revoked_token_is_refused(lake: alluvia.Lake) -> None:
    bearer = token(lake, grant("read:totals"))
    registry.revoke(lake.store, lake.clock, read_claims(unverified_claims(bearer)))
    other = alluvia.connect(lake.uri.removeprefix("file://"))  # a process that has not looked yet
    from alluvia.serverless.warm_lake import using

    with using(other):
        answer = ask("SELECT * FROM totals", bearer)
    assert (answer["statusCode"], "revoked" in answer["body"]) == (401, True)


def test_requests_beyond_the_limit_wait(lake: alluvia.Lake) -> None:
    bearer = token(lake, grant("read:totals"), requests=2)
    answers = [ask("SELECT 1", bearer) for _ in range(3)]
    assert [answer["statusCode"] for answer in answers] == [200, 200, 429]
    assert 1 <= int(answers[2]["headers"]["Retry-After"]) <= 30
    assert ask("SELECT 1", token(lake, grant("read:totals"), requests=2))["statusCode"] == 200


def test_a_query_that_would_read_too_much_is_refused_before_it_does(lake: alluvia.Lake) -> None:
    size = sum(file.size for file in lake["totals"].snapshot().files)
    assert ask("SELECT * FROM totals", token(lake, grant("read:totals"), query_bytes=size))["statusCode"] == 200
    refused = ask("SELECT * FROM totals", token(lake, grant("read:totals"), query_bytes=size - 1))
    assert (refused["statusCode"], f"would read {size} bytes" in refused["body"]) == (422, True)
    twice = ask("SELECT * FROM totals a, totals b", token(lake, grant("read:totals"), query_bytes=size))
    assert twice["statusCode"] == 422
    both = token(lake, grant("append:totals"), grant("read:totals"), query_bytes=1)
    assert ask("INSERT INTO totals SELECT * FROM totals", both)["statusCode"] == 422


@settings(max_examples=25, deadline=None)
@given(
    authorization=st.text(max_size=200) | st.binary(max_size=300).map(lambda data: "Bearer " + data.decode("latin-1"))
)
def test_no_header_breaks_a_handler(authorization: str) -> None:
    for path in ("/q", "/v1/events/clicks"):
        assert send(path, {"query": "SELECT 1"}, authorization)["statusCode"] == 401


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_damaged_token_breaks_a_handler(lake: alluvia.Lake, data: st.DataObject) -> None:
    bearer = token(lake, grant("read:totals"))
    at = data.draw(st.integers(0, len(bearer) - 1))
    other = data.draw(st.characters(max_codepoint=255).filter(lambda each: each != bearer[at]))
    assert ask("SELECT 1", bearer[:at] + other + bearer[at + 1 :])["statusCode"] == 401


SIGNED = {"iam": {"accessKey": "AKIA", "userArn": "arn:aws:iam::123456789012:user/ada", "userId": "AIDA"}}


@pytest.mark.parametrize("mode", [None, "iam"])
@pytest.mark.parametrize(
    ("authorizer", "status"),
    [
        (SIGNED, 200),
        ({"iam": {"accessKey": "AKIA"}}, 200),
        (None, 401),
        ({}, 401),
        ({"iam": None}, 401),
        ({"iam": {}}, 401),
        ({"iam": {"userArn": None, "accessKey": ""}}, 401),
        ({"iam": "arn:aws:iam::123456789012:user/ada"}, 401),
        ({"jwt": {"claims": {"sub": "ada"}}}, 401),
        ({"lambda": SIGNED}, 401),
        ("iam", 401),
    ],
)
def test_what_no_authorizer_has_seen_is_a_401_unless_everyone_may_come(
    monkeypatch: pytest.MonkeyPatch, mode: str | None, authorizer: object, status: int
) -> None:
    if mode is None:
        monkeypatch.delenv("ALLUVIA_AUTH")
    else:
        monkeypatch.setenv("ALLUVIA_AUTH", mode)
    context = {} if authorizer is None else {"authorizer": authorizer}
    for path, body in (("/q", {"query": "SELECT 1"}), ("/v1/events/clicks", {"event": "open"})):
        answer = send(path, body, "AWS4-HMAC-SHA256 Credential=AKIA", **context)
        assert answer["statusCode"] == status, answer
        if status == 401:
            assert outcome(answer)[1] == "AWS4-HMAC-SHA256"
            assert "no authorizer has verified this request" in answer["body"]
    monkeypatch.setenv("ALLUVIA_AUTH", "open")
    assert send("/q", {"query": "SELECT 1"}, None, **context)["statusCode"] == 200


def test_a_setting_that_is_unknown_lets_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_AUTH", "token")
    with pytest.raises(Invalid, match="ALLUVIA_AUTH is 'token'"):
        ask("SELECT 1", None)
    with pytest.raises(Invalid, match="ALLUVIA_AUTH is 'token'"):
        post("clicks", None)


@pytest.mark.parametrize("where", ["tenant = = $tenant", "tenant = $tenant ORDER BY n", "n IN (SELECT 1)"])
def test_what_is_no_row_filter_lets_nobody_in(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AUTH": "jwt", "JWT_ISSUER": "https://a.b", "JWT_AUDIENCE": "lake", "JWT_WHERE": where}.items():
        monkeypatch.setenv(f"ALLUVIA_{name}", value)
    with pytest.raises(Invalid, match=r"ALLUVIA_JWT_WHERE: .* is not a row filter"):
        ask("SELECT 1", None)


def test_the_lake_keeps_no_token_and_no_private_key(lake: alluvia.Lake) -> None:
    bearer = token(lake, grant("read:totals"))
    folder = Path(lake.uri.removeprefix("file://"))
    kept = b"".join(each.read_bytes() for each in (folder / "_alluvia" / "tokens").rglob("*") if each.is_file())
    assert b'"crv":"Ed25519"' in kept
    assert b"PRIVATE" not in kept
    assert bearer.rpartition(".")[2].encode() not in kept
