"""Who may do what over HTTP: every route and method of the functions, for every kind of caller."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pytest

import alluvia
from alluvia.access import registry
from alluvia.access.claims import TokenClaims, read_claims
from alluvia.access.issuing import signing_key
from alluvia.access.rights import Rights
from alluvia.access.signing import sign, unverified_claims
from alluvia.server.gateway import Gateway, ServerRules
from alluvia.serverless.routes.ingest_routes import INGEST_ROUTES
from alluvia.serverless.routes.openapi import document
from alluvia.serverless.routes.query_routes import QUERY_ROUTES
from alluvia.serverless.routes.route import Route, RouteTable, route_at
from alluvia.serverless.settings import environment
from alluvia.serverless.warm_lake import using
from tests.access import grant, token

MATRIX = """
method   path                             sends  open none invalid read append write admin publish query pinned editor

POST     /v1/events/clicks                event  200  401  401     403  200    200   403   403     403   403    403
POST     /v1/events/others                event  200  401  401     403  403    403   403   403     403   403    403
POST     /v1/logs                         logs   200  401  401     403  403    403   403   403     403   403    403
POST     /v1/upload/clicks                event  200  401  401     403  200    200   403   403     403   403    403
POST     /v1/upload/others                event  200  401  401     403  403    403   403   403     403   403    403
GET      /v1/upload/clicks/none           -      404  401  401     403  404    404   403   403     403   403    403
POST     /v1/upload/clicks/none/complete  -      404  401  401     403  404    404   403   403     403   403    403
PUT      /v1/upload/clicks/none/parts/1   event  403  403  403     403  403    403   403   403     403   403    403
POST     /v1/{call}                       event  401  401  401     401  401    401   401   401     401   401    401
OPTIONS  /v1/{call}                       -      401  401  401     401  401    401   401   401     401   401    401
POST,GET /v1/webhooks/shop                event  401  401  401     401  401    401   401   401     401   401    401
OPTIONS  /v1/webhooks/shop                -      401  401  401     401  401    401   401   401     401   401    401
GET,HEAD /healthz                         -      200  200  200     200  200    200   200   200     200   200    200
GET,HEAD /readyz                          -      200  200  200     200  200    200   200   200     200   200    200
GET,HEAD /openapi.json                    -      200  200  401     200  200    200   200   200     200   200    200
GET      /v1/nothing                      -      404  404  404     404  404    404   404   404     404   404    404

POST     /q                               select 200  401  401     200  403    403   403   403     403   403    200
POST     /q                               one    200  401  401     200  200    200   200   403     403   403    200
POST     /q                               show   200  401  401     200  200    200   200   403     403   403    200
POST     /q                               insert 200  401  401     403  200    200   403   403     403   403    403
POST     /q                               update 200  401  401     403  403    403   403   403     403   403    403
POST     /q                               alter  200  401  401     403  403    403   200   403     403   403    403
POST     /sql                             select 200  401  401     200  403    403   403   403     403   403    200
POST     /sql                             insert 200  401  401     403  200    200   403   403     403   403    403
GET,HEAD /q?{select}                      -      200  401  401     200  403    403   403   403     403   403    200
GET,HEAD /q?{one}                         -      200  401  401     200  200    200   200   403     403   403    200
GET,HEAD /q?{insert}                      -      405  401  401     405  405    405   405   403     403   403    405
GET,HEAD /q/{hash}?{select}               -      200  401  401     200  403    403   403   403     403   403    200
GET,HEAD /v1/jobs/none                    -      404  401  401     404  404    404   404   404     404   404    404
DELETE   /v1/jobs/none                    -      404  401  401     404  404    404   404   404     404   404    404
GET,HEAD /v1/jobs/none/result.csv         -      404  401  401     404  404    404   404   404     404   404    404
GET,HEAD /v1/tables                       -      200  401  401     200  200    200   200   403     403   403    200
GET,HEAD /v1/tables/clicks                -      200  401  401     200  403    403   403   403     403   403    200

GET,HEAD /v1/branches                     -      200  401  401     403  403    403   403   403     403   403    403
POST     /v1/branches                     branch 201  401  401     403  403    403   403   403     403   403    403
GET,HEAD /v1/branches/fix                 -      200  401  401     403  403    403   403   403     403   403    403
GET,HEAD /v1/branches/none                -      404  401  401     403  403    403   403   403     403   403    403
DELETE   /v1/branches/spare               -      200  401  401     403  403    403   403   403     403   403    403
GET,HEAD /v1/branches/fix/diff            -      200  401  401     200  200    200   200   403     403   403    200
GET      /v1/branches/fix/diff?table=clicks -    200  401  401     200  403    403   403   403     403   403    200
GET      /v1/branches/none/diff           -      404  401  401     404  404    404   404   403     403   403    404
POST     /v1/branches/fix/publish         dry    200  401  401     403  403    403   403   403     403   403    403

GET,HEAD /v1/queries                      -      200  401  401     200  200    200   200   200     200   200    200
GET,HEAD /v1/queries/top                  -      200  401  401     200  403    403   403   403     200   200    200
GET,HEAD /v1/queries/spare                -      200  401  401     200  403    403   403   200     403   403    200
GET,HEAD /v1/queries/secret               -      200  401  401     403  403    403   403   403     403   403    200
GET,HEAD /v1/queries/absent               -      404  401  401     403  403    403   403   403     403   403    404
GET,HEAD /v1/queries/top.json             -      200  401  401     200  403    403   403   403     200   200    200
GET      /v1/queries/top.json?version=0   -      200  401  401     200  403    403   403   403     403   200    200
GET      /v1/queries/top.json?version=1   -      200  401  401     200  403    403   403   403     200   403    200
GET      /v1/queries/top.json?version=2   -      404  401  401     403  403    403   403   403     404   403    404
GET      /v1/queries/top.json?nope=1      -      400  401  401     400  403    403   403   403     400   400    400
GET      /v1/queries/spare.json           -      200  401  401     200  403    403   403   403     403   403    200
GET      /v1/queries/secret.json          -      200  401  401     403  403    403   403   403     403   403    403
GET      /v1/queries/absent.json          -      404  401  401     403  403    403   403   403     403   403    404
GET,HEAD /v1/links/top.json?{link}        -      200  200  200     200  200    200   200   200     200   200    200
GET      /v1/links/top.json?{link}&event=shut -  403  403  403     403  403    403   403   403     403   403    403
GET      /v1/links/top?{link}             -      404  404  404     404  404    404   404   404     404   404    404
GET      /v1/links/top.json?{link}&version=0 -   403  403  403     403  403    403   403   403     403   403    403
GET      /v1/links/spare.json?{link}      -      403  403  403     403  403    403   403   403     403   403    403
GET      /v1/links/absent.json?{link}     -      403  403  403     403  403    403   403   403     403   403    403
GET      /v1/links/top.json?{token}       -      403  403  403     403  403    403   403   403     403   403    403
GET      /v1/links/top.json               -      400  400  400     400  400    400   400   400     400   400    400
PUT      /v1/queries/spare                clicks 200  401  401     403  403    403   403   403     403   403    200
PUT      /v1/queries/spare_one            nothing 200  401  401     403  403    403   403   200     403   403    200
PUT      /v1/queries/top3                 nothing 200  401  401     403  403    403   403   403     403   403    200
DELETE   /v1/queries/spare_gone           -      200  401  401     403  403    403   403   200     403   403    200
DELETE   /v1/queries/top2                 -      200  401  401     403  403    403   403   403     403   403    200
"""
"""The statuses of requests. `open`: without tokens, or behind AWS IAM. `none`: without a token. `invalid`: with one
that is bad, expired or revoked. The others have tokens for the table clicks or queries: `publish` for names that begin
with spare, `query` for top, `pinned` for its version 0; `editor` may publish all, and read clicks."""

GRANTS = {
    "read": [grant("read:clicks")],
    "append": [grant("append:clicks")],
    "write": [grant("write:clicks")],
    "admin": [grant("admin:clicks")],
    "publish": [grant("publish:spare*")],
    "query": [grant("query:top")],
    "pinned": [grant("query:top@0")],
    "editor": [grant("publish:*"), grant("read:clicks")],
}
SQL = {
    "select": "SELECT count(*) AS n FROM clicks",
    "one": "SELECT 1 AS one",
    "show": "SHOW TABLES",
    "insert": "INSERT INTO clicks (event_id, event, ts, received_at) VALUES ('e', 'open', now(), now())",
    "update": "UPDATE clicks SET event = 'shut' WHERE event_id = 'none'",
    "alter": "ALTER TABLE clicks SET TBLPROPERTIES ('x' = '1')",
}
BODIES: dict[str, object] = {
    "event": {"event": "open"},
    "logs": {"resourceLogs": []},
    "clicks": {"query": SQL["select"]},
    "nothing": {"query": SQL["one"]},
    "branch": {"name": "spare"},
    "dry": {"dry_run": True},
} | {name: {"query": text} for name, text in SQL.items()}
CALLS = ("track", "identify", "page", "screen", "group", "alias", "batch", "import", *"tipsgab")
INVALID = ("bad", "expired", "revoked")


@dataclass(frozen=True)
class Row:
    method: str
    path: str
    sends: str
    expected: dict[str, int]

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.sends}"

    def route(self) -> Route | None:
        return route_at(ROUTES, self.method, self.path.partition("?")[0])


def rows() -> list[Row]:
    header, *lines = (line.split() for line in MATRIX.strip().splitlines() if line)
    callers = header[3:]
    return [
        Row(method, path.replace("{call}", call), sends, dict(zip(callers, map(int, statuses), strict=True)))
        for methods, path, sends, *statuses in lines
        for method in methods.split(",")
        for call in (CALLS if "{call}" in path else ("",))
    ]


ROWS = rows()
ROUTES = RouteTable((*INGEST_ROUTES, *QUERY_ROUTES))
DOCUMENT = document(ROUTES, version="0", description="", scheme=None, all_ask=False)


class Served:
    """A lake behind the gateway, and a bearer token for each kind of caller (None: no token)."""

    def __init__(self, lake: alluvia.Lake) -> None:
        self.lake = lake
        self.gateway = Gateway(lake.clock, ServerRules())
        self.bearers: dict[str, str | None] = {name: token(lake, *grants) for name, grants in GRANTS.items()}
        self.link = lake.link_query("top", {"event": "open"}).partition("?")[2]
        self.bearers |= {"none": None, "bad": "a.b.c", "expired": expired(lake), "revoked": revoked(lake)}

    def spare_branch(self, *, there: bool) -> None:
        if any(each.name == "spare" for each in self.lake.branches()) != there:
            if there:
                self.lake.branch("spare")
            else:
                self.lake.drop_branch("spare")

    def linked(self, search: str) -> str:
        return search.replace("{link}", self.link).replace("{token}", f"link-token={self.bearers['query']}")

    def send(self, row: Row, bearer: str | None) -> int:
        path, _, search = row.path.partition("?")
        fields = {f"{{{name}}}": urlencode({"query": text}) for name, text in SQL.items()}
        body = b"" if row.sends == "-" else json.dumps(BODIES[row.sends]).encode()
        environ: dict[str, Any] = {
            "REQUEST_METHOD": row.method,
            "PATH_INFO": path.replace("{hash}", hashlib.sha256(SQL["select"].encode()).hexdigest()),
            "QUERY_STRING": self.linked(fields.get(search, search)),
            "CONTENT_TYPE": "application/json",
            "HTTP_HOST": "localhost",
            "wsgi.input": io.BytesIO(body),
        }
        if bearer is not None:
            environ["HTTP_AUTHORIZATION"] = f"Bearer {bearer}"
        statuses: list[str] = []
        list(self.gateway(environ, lambda status, _: statuses.append(status)))
        return int(statuses[0][:3])


def expired(lake: alluvia.Lake) -> str:
    key, now_s = signing_key(lake.store, os.environ), lake.clock.now_ms() // 1000
    assert key is not None
    claims = TokenClaims(lake.clock.new_id(), "old", now_s - 7200, now_s - 3600, Rights((grant("read:*"),)))
    return sign(claims.plain(), key)


def revoked(lake: alluvia.Lake) -> str:
    bearer = token(lake, grant("read:*"), grant("write:*"))
    registry.revoke(lake.store, lake.clock, read_claims(unverified_claims(bearer)))
    return bearer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("lake")
    chosen = {"ALLUVIA_ALLOW_WRITES": "true", "ALLUVIA_ALLOW_PUBLISH": "true", "XDG_CONFIG_HOME": str(place)}
    with environment(chosen, without=["ALLUVIA_AUTH"]):
        lake = alluvia.connect(str(place))
        for name in ("clicks", "others"):
            lake.create_events(name)
        lake.create_table("secrets", {"n": "long"}).append([{"n": 42}])
        lake.publish_query("top", SQL["select"])
        lake.publish_query("top", "SELECT count(*) AS n FROM clicks WHERE event = $event", {"event": "string=open"})
        lake.publish_query("spare", SQL["select"])
        lake.publish_query("secret", "SELECT n FROM secrets")
        for name in ("spare_one", "top3"):
            lake.publish_query(name, SQL["one"])
        lake.branch("fix")
        with using(lake):
            yield Served(lake)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_each_caller_gets_what_it_may(served: Served, row: Row) -> None:
    found: dict[str, set[int]] = {}

    def send(caller: str, column: str) -> None:
        if row.method == "DELETE" and "/queries/" in row.path:
            served.lake.publish_query(row.path.rpartition("/")[2], SQL["one"])
        if "/branches" in row.path:
            served.spare_branch(there=row.method == "DELETE")
        found.setdefault(column, set()).add(served.send(row, served.bearers[caller]))

    with environment({"ALLUVIA_AUTH": "open"}):
        for caller in ("none", "bad"):
            send(caller, "open")
    for mode in ({}, {"ALLUVIA_AUTH": "iam"}):  # no authorizer has verified these requests
        with environment(mode):
            for caller in ("none", "bad", "admin"):
                send(caller, "none")
    with environment({"ALLUVIA_AUTH": "tokens"}):
        for caller in served.bearers:
            send(caller, "invalid" if caller in INVALID else caller)
    assert found == {column: {status} for column, status in row.expected.items()}


def test_every_route_and_method_is_in_the_table() -> None:
    there = {(method, route.path) for route in ROUTES for method in route.methods}
    tested = {(row.method, route.path) for row in ROWS if (route := row.route()) is not None}
    assert tested == there


REFUSED = {
    "any table": {"publish", "query", "pinned"},
    "*": {*GRANTS},
    "{table}": {"read", "admin", "publish", "query", "pinned", "editor"},
    "{query}": {"read", "append", "write", "admin", "query", "pinned"},
}
"""Callers who lack a right for clicks, or for a query whose name begins with spare, by what the right is on."""


@pytest.mark.parametrize("row", [row for row in ROWS if row.route() is not None], ids=str)
def test_a_route_declares_the_right_and_the_statuses_that_callers_meet(row: Row) -> None:
    route = row.route()
    assert route is not None
    if not route.public:
        assert (row.expected["none"], row.expected["invalid"]) == (401, 401)
    assert {row.expected[caller] for caller in REFUSED.get(route.right.on, set())} <= {403}
    described = DOCUMENT["paths"][route.path][row.method.lower()]["responses"]
    assert {*map(str, row.expected.values())} <= {*described}
