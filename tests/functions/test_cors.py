"""Pages of the sites that the setting names may call the routes from a browser, and no others."""

from __future__ import annotations

import json
from typing import Any

import pytest

import alluvia
from alluvia.errors import Invalid
from alluvia.serverless import warm_lake
from alluvia.serverless.routes.ingest_routes import INGEST_ROUTES
from alluvia.serverless.routes.query_routes import QUERY_ROUTES
from functions.ingest import handler as ingest
from functions.query import handler as query

SITE = "https://app.example"
ALLOWED = "Access-Control-Allow-Origin"


def call(
    handler: Any,
    method: str,
    path: str,
    origin: str | None = SITE,
    body: str = "",
    lake: alluvia.Lake | None = None,
    **headers: str,
) -> Any:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    path, _, query = path.partition("?")
    event = {
        "rawPath": path,
        "rawQueryString": query,
        "headers": sent if origin is None else {**sent, "Origin": origin},
        "requestContext": {"http": {"method": method, "path": path}, "stage": "$default"},
        "body": body,
    }
    with warm_lake.using(lake or alluvia.connect("memory://cors")):
        return handler(event, None)


def preflight(handler: Any, path: str, origin: str = SITE) -> Any:
    asked = {"access_control_request_method": "POST", "access_control_request_headers": "authorization,content-type"}
    return call(handler, "OPTIONS", path, origin, "", None, **asked)


def paths() -> list[tuple[Any, str]]:
    own = {route.path for route in INGEST_ROUTES if "OPTIONS" in route.methods}
    found = [(ingest.handler, route.path) for route in INGEST_ROUTES if route.path not in own]
    found += [(query.handler, route.path) for route in QUERY_ROUTES]
    found += [(ingest.handler, route.path) for route in QUERY_ROUTES]  # API Gateway sends it all preflight requests
    return [(handler, path.replace("{", "").replace("}", "")) for handler, path in found]


def test_every_route_answers_what_a_browser_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")  # a preflight request bears none
    monkeypatch.setenv("ALLUVIA_CORS_ORIGINS", f"{SITE} https://other.example")
    for handler, path in paths():
        answer = preflight(handler, path)
        assert (answer["statusCode"], answer["headers"][ALLOWED]) == (204, SITE), path
        assert answer["headers"]["Access-Control-Allow-Headers"] == "authorization,content-type"
        assert "DELETE" in answer["headers"]["Access-Control-Allow-Methods"]
        assert "Access-Control-Allow-Credentials" not in answer["headers"]
        assert ALLOWED not in preflight(handler, path, "https://evil.example")["headers"]


@pytest.mark.parametrize(
    ("setting", "origin", "allowed"),
    [
        ("", SITE, False),
        (SITE, SITE, True),
        ("HTTPS://App.Example:443", SITE, True),
        ("https://app.example:8443", SITE, False),
        ("http://app.example:443", SITE, False),
        (SITE, "https://app.example.evil", False),
        (SITE, "http://app.example", False),
        (SITE, "null", False),
        ("*", "https://any.example", True),
        ("*", "a\nb", False),
        (SITE, None, False),
    ],
)
def test_answers_are_for_pages_of_the_sites_that_are_named(
    monkeypatch: pytest.MonkeyPatch, setting: str, origin: str | None, allowed: bool
) -> None:
    monkeypatch.setenv("ALLUVIA_CORS_ORIGINS", setting)
    for handler, path, body, status in (
        (query.handler, "/q", '{"query": "SELECT 1 AS n"}', 200),
        (query.handler, "/q", '{"query": "SELECT"}', 400),
        (ingest.handler, "/v1/events/t", '{"event_id": "1"}', 200),
        (ingest.handler, "/nowhere", "", 404),
    ):
        answer = call(handler, "POST", path, origin, body)
        assert answer["statusCode"] == status
        assert answer["headers"].get(ALLOWED) == (origin if allowed else None)
        # Also where a page may not read the answer: a cache must not give it to one that may.
        varies = answer["headers"].get("Vary", "").split(", ").count("Origin")
        assert varies == (1 if setting else 0)


def test_sources_say_themselves_which_pages_may_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_CORS_ORIGINS", "*")
    for path in ("/v1/webhooks/s", "/v1/track"):
        answer = preflight(ingest.handler, path)
        assert (answer["statusCode"], ALLOWED in answer["headers"]) == (401, False)


def test_what_is_no_site_is_a_fault_of_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_CORS_ORIGINS", "app.example")
    with pytest.raises(Invalid, match=r"ALLUVIA_CORS_ORIGINS: 'app.example' is not an origin"):
        call(query.handler, "POST", "/q", SITE, json.dumps({"query": "SELECT 1"}))
