"""Branches over HTTP: the header `X-Alluvia-Branch`, with the rights of the lake, and the routes of branches."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import alluvia
from alluvia.query.identity import identify
from alluvia.serverless.settings import environment
from functions.ingest import handler as ingest
from functions.query import handler as query
from tests.access import asking_for_tokens, grant, token
from tests.functions.test_query import Answer, event


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[alluvia.Lake]:
    with asking_for_tokens(tmp_path_factory.mktemp("lake"), "ALLUVIA_ALLOW_WRITES") as lake:
        lake.create_table("hits", {"path": "string", "tenant": "string"}).append(
            [{"path": "/", "tenant": "a"}, {"path": "/x", "tenant": "b"}]
        )
        lake.create_table("secrets", {"n": "long"}).append([{"n": 42}])
        lake.create_events("clicks")
        lake.branch("fix")
        yield lake


def send(bearer: str, text: str, branch: str | None = "fix", *, path: str = "/q", body: str | None = None) -> Answer:
    headers = {"Authorization": f"Bearer {bearer}"} | ({"X-Alluvia-Branch": branch} if branch else {})
    sent = event(json.dumps({"query": text}) if body is None else body, path=path) | {"headers": headers}
    answer: Answer = query.handler(sent, None) if path == "/q" else ingest.handler(sent, None)
    return answer


def rows(answer: Answer) -> Any:
    assert answer["statusCode"] == 200, answer["body"]
    return [json.loads(line) for line in answer["body"].splitlines()]


def test_queries_and_statements_go_to_the_branch(lake: alluvia.Lake) -> None:
    writer = token(lake, grant("read:hits write:hits append:hits"))
    assert rows(send(writer, "INSERT INTO hits VALUES ('/new', 'a')"))
    count = "SELECT count(*) AS n FROM hits"
    on_branch, on_lake = send(writer, count), send(writer, count, None)
    assert (rows(on_branch), rows(on_lake)) == ([{"n": 3}], [{"n": 2}])
    assert rows(send(writer, "SELECT count(*) AS n FROM fix.hits", None)) == [{"n": 3}]
    assert identify(lake.on_branch("fix").catalog, "SELECT 1 FROM hits(version => 1)") != identify(
        lake.catalog, "SELECT 1 FROM hits(version => 1)"
    )
    assert "X-Alluvia-Branch" in on_branch["headers"]["Vary"]
    assert send(writer, count, "none")["statusCode"] == 400


def test_callers_see_no_more_than_on_the_lake(lake: alluvia.Lake) -> None:
    reader = token(lake, grant("read:hits", where="tenant = 'b'", hide="tenant"))
    assert rows(send(reader, "SELECT * FROM hits")) == [{"path": "/x"}]
    assert rows(send(reader, "SELECT * FROM fix.hits", None)) == [{"path": "/x"}]
    assert rows(send(reader, "SELECT * FROM lake.hits")) == [{"path": "/x"}]
    for branch, text in (
        ("fix", "SELECT * FROM secrets"),
        (None, "SELECT * FROM fix.secrets"),
        ("fix", "SELECT * FROM lake.secrets"),
        ("fix", "INSERT INTO hits VALUES ('/y', 'b')"),
    ):
        assert send(reader, text, branch)["statusCode"] == 403


def test_columns_are_hidden_on_a_branch_by_what_they_are_called_in_the_lake(lake: alluvia.Lake) -> None:
    people = lake.create_table("people", {"n": "long", "tenant": "string"})
    people.evolve(rename={"n": "id"})  # maps columns: those that are added have other names in files
    people.evolve(add={"mail": "string"})
    people.append([{"id": 1, "tenant": "a", "mail": "a@x"}])
    old, new = lake.branch("people_old"), lake.branch("people_new")
    reader = token(lake, grant("read:people", hide="mail address"))
    first = rows(send(reader, "SELECT * FROM people", "people_old"))
    people.evolve(rename={"mail": "address"})
    new["people"].evolve(rename={"mail": "anything"})
    seen = [{"id": 1, "tenant": "a"}]
    assert (first, rows(send(reader, "SELECT * FROM people", None))) == (seen, seen)
    later = token(lake, grant("read:people", hide="address"))
    for branch in (old.name, new.name):
        assert rows(send(later, "SELECT * FROM people", branch)) == seen
        assert rows(send(later, f"SELECT * FROM {branch}.people", None)) == seen
        assert rows(send(later, f"SELECT 1 AS n; SELECT * FROM {branch}.people", None)) == seen
        assert "ETag" not in send(later, "SELECT * FROM people", branch)["headers"]
    people.evolve(rename={"tenant": "was"})
    people.evolve(add={"tenant": "string"})
    filtered = token(lake, grant("read:people", where="tenant = 'a'"))
    assert send(filtered, "SELECT * FROM people", old.name)["statusCode"] == 403
    assert rows(send(filtered, "SELECT * FROM people", None)) == []


def test_an_erasure_takes_results_of_branches(lake: alluvia.Lake) -> None:
    visits = lake.create_table("visits", {"who": "string"})
    lake.branch("before_visits")
    visits.append([{"who": "somebody"}])
    reader = token(lake, grant("read:visits"))
    text = "SELECT * FROM lake.visits"
    states = [send(reader, text, "before_visits")["headers"]["Alluvia-Cache"] for _ in range(2)]
    assert states == ["miss", "hit"]
    folder = Path(os.environ["ALLUVIA_LAKE"])
    visits.erase("who = 'somebody'")
    assert [path for path in folder.rglob("*") if path.is_file() and b"somebody" in path.read_bytes()] == []
    assert rows(send(reader, text, "before_visits")) == []


def test_events_and_uploads_go_to_the_branch(lake: alluvia.Lake) -> None:
    sender = token(lake, grant("append:clicks append:prices"))
    answer = send(sender, "", path="/v1/events/clicks", body='{"event_id": "e1", "event": "open"}')
    assert rows(answer)[0]["accepted"] == 1
    assert (lake.on_branch("fix")["clicks"].count(), lake["clicks"].count()) == (1, 0)
    with environment({"ALLUVIA_MODE": "queued", "ALLUVIA_QUEUE_URL": "https://queue"}):
        answer = send(sender, "", path="/v1/events/clicks", body='{"event_id": "e2", "event": "open"}')
    assert (answer["statusCode"], "cannot write to a branch" in answer["body"]) == (400, True)


def test_paths_that_take_no_branch(lake: alluvia.Lake) -> None:
    reader = token(lake, grant("read:hits"))
    assert send(reader, "", path="/v1/webhooks/shop", body="{}")["statusCode"] in (400, 401)
    asked = json.dumps({"query": "SELECT 1 AS n", "mode": "async"})
    assert send(reader, "", body=asked)["statusCode"] == 400


def ask(bearer: str, method: str, path: str, body: object = None, search: str = "") -> Answer:
    sent = event("" if body is None else json.dumps(body), method=method, path=f"/v1/branches{path}")
    headers = {"Authorization": f"Bearer {bearer}"}
    answer: Answer = query.handler(sent | {"headers": headers, "rawQueryString": search}, None)
    return answer


def told(answer: Answer, status: int = 200) -> Any:
    assert answer["statusCode"] == status, answer["body"]
    return json.loads(answer["body"])


def test_a_branch_is_cut_compared_published_and_discarded(lake: alluvia.Lake) -> None:
    stock = lake.create_table("stock", {"n": "long", "tenant": "string"})
    stock.append([{"n": 1, "tenant": "a"}, {"n": 2, "tenant": "b"}])
    admin, reader = token(lake, grant("admin:* read:*")), token(lake, grant("read:stock"))
    cut = ask(admin, "POST", "", {"name": "count", "expires": "1d"})
    assert (told(cut, 201)["name"], cut["headers"]["Location"]) == ("count", "/v1/branches/count")
    assert ask(admin, "POST", "", {"name": "count"})["statusCode"] == 400
    assert rows(send(token(lake, grant("write:stock read:stock")), "UPDATE stock SET n = 3 WHERE n = 2", "count"))
    (found,) = told(ask(reader, "GET", "/count/diff", search="table=stock&key=tenant"))["tables"]
    assert (found["change"], found["rows_added"], found["rows_removed"], found["rows_changed"]) == ("changed", 0, 0, 1)
    told(ask(reader, "POST", "/count/publish"), 403)
    dry = told(ask(admin, "POST", "/count/publish", {"dry_run": True}))
    assert ([each["how"] for each in dry["tables"]], stock.to_arrow().sort_by("n")["n"].to_pylist()) == (
        ["fast-forward"],
        [1, 2],
    )
    assert told(ask(admin, "POST", "/count/publish"))["tables"][0]["version"] == lake["stock"].version
    assert lake["stock"].to_arrow().sort_by("n")["n"].to_pylist() == [1, 3]
    assert told(ask(admin, "DELETE", "/count")) == {"name": "count", "discarded": True}
    assert told(ask(admin, "GET", "/count"), 404)["error"] == "there is no branch 'count'"


def test_a_conflict_is_a_409_that_names_the_table(lake: alluvia.Lake) -> None:
    table = lake.create_table("both", {"n": "long"})
    table.append([{"n": 1}])
    lake.branch("late")["both"].delete("n = 1")
    table.delete("n = 1")
    refused = told(ask(token(lake, grant("admin:*")), "POST", "/late/publish"), 409)["error"]
    assert refused.startswith("branch late cannot be published: ")
    assert "both" in refused


def test_a_difference_tells_nothing_of_what_the_caller_may_not_see(lake: alluvia.Lake) -> None:
    people = lake.create_table("members", {"id": "long", "tenant": "string"})
    people.append([{"id": 1, "tenant": "a"}])
    hidden = lake.create_table("unseen", {"id": "long"})
    branch = lake.branch("grown")
    branch["members"].append([{"id": 2, "tenant": "b"}])
    branch["members"].evolve(add={"mail": "string"})
    branch[hidden.name].append([{"id": 7}])
    partly = token(lake, grant("read:members", where="tenant = 'a'"))
    (found,) = told(ask(partly, "GET", "/grown/diff"))["tables"]
    known = {"table": "members", "change": "changed", "base_version": 1, "version": branch["members"].version}
    assert {name: value for name, value in found.items() if value is not None} == known
    assert set(found) > {"rows_added", "columns_added"}
    told(ask(partly, "GET", "/grown/diff", search="table=unseen"), 403)


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "", {"name": 3}, "name: send text, as in "),
        ("POST", "", {"at": "2026-01-01"}, "name: send the name of the branch"),
        ("POST", "", {"name": "x", "until": "1d"}, "until is not a field of a branch"),
        ("POST", "", {"name": "x", "expires": "soon"}, "expires: 'soon' is not a duration"),
        ("POST", "", ["x"], "the body must be a JSON object"),
        ("POST", "/fix/publish", {"dry_run": "yes"}, "dry_run: send true or false"),
        ("POST", "/fix/publish", {"isolation": "none"}, "isolation: "),
    ],
)
def test_a_wrong_field_is_named(lake: alluvia.Lake, method: str, path: str, body: object, says: str) -> None:
    assert told(ask(token(lake, grant("admin:*")), method, path, body), 400)["error"].startswith(says)
