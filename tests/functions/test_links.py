"""Signed links to published queries: what they show, to whom, and what ends them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from click.testing import CliRunner

import alluvia
from alluvia.access import registry
from alluvia.access.claims import read_claims
from alluvia.access.rights import LINK, QUERY, Grant
from alluvia.access.signing import unverified_claims
from alluvia.cli.command_line import cli
from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.query.parameters import LINK_TOKEN
from alluvia.serverless import warm_lake
from alluvia.store import MemoryStore
from functions.query import handler as query
from tests.access import grant, token
from tests.functions.test_query import Answer, error_of, event

OF = "SELECT path, n FROM hits WHERE tenant = $tenant AND n >= $least ORDER BY n"
STALE_SECONDS = 31
WEEK_SECONDS = 7 * 86400


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lake(clock: ManualClock, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[alluvia.Lake]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    monkeypatch.setenv("ALLUVIA_RESULT_CACHE", "on")
    monkeypatch.setenv("ALLUVIA_URL", "https://lake.example/")
    lake = alluvia.Lake(MemoryStore("memory://links", clock), clock)
    table = lake.create_table("hits", {"path": "string", "n": "long", "tenant": "string"})
    table.append([{"path": "/", "n": n, "tenant": tenant} for n, tenant in ((1, "a"), (7, "a"), (9, "b"))])
    lake.publish_query("top", OF, {"tenant": "string", "least": "long=0"})
    lake.publish_query("all_hits", "SELECT * FROM hits")
    with warm_lake.using(lake):
        yield lake


def open_link(url: str, method: str = "GET", headers: dict[str, str] | None = None, **more: str) -> Answer:
    parts = urlsplit(url)
    sent = event("", method=method, path=parts.path)
    fields = "&".join(filter(None, [parts.query, urlencode(more)]))
    return query.handler(sent | {"headers": headers or {}, "rawQueryString": fields}, None)


def status(url: str, **more: str) -> int:
    return int(open_link(url, "GET", None, **more)["statusCode"])


def token_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)[LINK_TOKEN][0]


def test_a_link_shows_the_rows_of_its_query_with_its_parameters(lake: alluvia.Lake) -> None:
    url = lake.link_query("top", {"tenant": "a"})
    assert url.startswith("https://lake.example/v1/links/top.csv?link-token=ey")
    assert len(url) < 800  # Excel's functions take 2,048 characters
    answer = open_link(url)
    assert (answer["statusCode"], answer["body"]) == (200, "path,n\r\n/,1\r\n/,7\r\n")
    assert open_link(url, least="5")["body"] == "path,n\r\n/,7\r\n"
    assert open_link(url, tenant="a")["body"] == answer["body"]
    assert json.loads(open_link(url.replace(".csv", ".json"))["body"]) == [{"path": "/", "n": 1}, {"path": "/", "n": 7}]
    assert open_link(url, "HEAD")["statusCode"] == 200
    part = open_link(url, headers={"Range": "bytes=0-3"})
    assert (part["statusCode"], part["headers"]["Content-Range"]) == (206, "bytes 0-3/18")


@pytest.mark.parametrize("mode", ["open", "tokens", "iam"])
def test_it_is_the_same_however_other_callers_are_told_apart(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("ALLUVIA_AUTH", mode)
    url = lake.link_query("top", {"tenant": "a"})
    other = {"Authorization": "Bearer a.b.c", "Prefer": "respond-async"}  # as a proxy may add them
    assert open_link(url, headers=other)["statusCode"] == 200
    refused = open_link(url, tenant="b")
    assert (refused["statusCode"], error_of(refused)) == (403, "tenant is fixed for this caller: leave it out")
    assert token(lake, grant("query:top")) not in url
    clock.advance(WEEK_SECONDS + 1)
    assert status(url) == 403


def test_it_ends_when_it_expires(lake: alluvia.Lake, clock: ManualClock) -> None:
    url = lake.link_query("top", {"tenant": "a"}, expires="1h")
    clock.advance(3600)
    assert status(url) == 200
    clock.advance(1)
    answer = open_link(url)
    assert (answer["statusCode"], error_of(answer)) == (403, "this link has expired: ask for a new one")


def test_it_ends_when_it_is_revoked_and_with_the_key_that_signed_it(lake: alluvia.Lake, clock: ManualClock) -> None:
    urls = [lake.link_query("top", {"tenant": tenant}) for tenant in "ab"]
    assert [status(url) for url in urls] == [200, 200]
    registry.revoke(lake.store, lake.clock, read_claims(unverified_claims(token_of(urls[0]))))
    clock.advance(STALE_SECONDS)
    assert [status(url) for url in urls] == [403, 200]
    assert error_of(open_link(urls[0])) == "this link has been revoked"
    [key] = registry.key_ids(lake.store)
    registry.remove_key(lake.store, key)
    clock.advance(STALE_SECONDS)
    assert error_of(open_link(urls[1])) == "this link is not valid"


def test_it_opens_nothing_else(lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    url = lake.link_query("top", {"tenant": "a"})
    asked = url.partition("?")[2]
    for name in ("all_hits.csv", "absent.csv", "hits.csv", "top"):
        assert status(f"/v1/links/{name}?{asked}") in (403, 404), name
    text = token_of(url)
    bearer = {"Authorization": f"Bearer {text}"}
    for path in ("/v1/queries/top.csv", "/v1/queries", "/v1/tables", "/q?query=SELECT%201", "/v1/queries/all_hits.csv"):
        answer = open_link(path, headers=bearer)
        assert (answer["statusCode"], text in answer["body"]) == (401, False)
        assert open_link(path + ("&" if "?" in path else "?") + asked)["statusCode"] == 401
    other = alluvia.Lake(MemoryStore("memory://another", clock), clock)
    other.create_table("hits", {"path": "string", "n": "long", "tenant": "string"})
    other.publish_query("top", OF, {"tenant": "string", "least": "long=0"})
    other.link_query("top")  # so that it has the same key, or one of its own
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    with warm_lake.using(other):
        assert status(url) == 403


@pytest.mark.parametrize("change", ["signature", "claims", "none", "twice", "bearer", "empty", "long"])
def test_what_is_not_as_it_was_signed_is_refused(lake: alluvia.Lake, change: str) -> None:
    url = lake.link_query("top", {"tenant": "a"})
    head, claims, signature = token_of(url).split(".")
    other = lake.link_query("top", {"tenant": "b"})
    changed = {
        "signature": f"{head}.{claims}.{signature[:-2]}{'AA' if signature[-2:] != 'AA' else 'BB'}",
        "claims": f"{head}.{token_of(other).split('.')[1]}.{signature}",
        "none": f"eyJhbGciOiJub25lIn0.{claims}.",
        "bearer": token(lake, grant("query:top")),
        "empty": "",
        "long": f"{head}.{claims}.{'A' * 9000}",
        "twice": f"{token_of(url)}&{LINK_TOKEN}={token_of(other)}",
    }[change]
    answer = open_link(url.replace(token_of(url), changed))
    assert answer["statusCode"] == (400 if change == "twice" else 403)
    assert changed[:50] not in answer["body"] or not changed


def test_the_address_does_not_spread(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, capfd: Any, caplog: Any
) -> None:
    monkeypatch.setenv("ALLUVIA_CACHE_CONTROL", "public, max-age=60")
    monkeypatch.setenv("ALLUVIA_CORS_ORIGINS", "*")
    url = lake.link_query("top", {"tenant": "a"})
    answers = [
        open_link(url),
        open_link(url, tenant="b"),
        open_link(url, "HEAD"),
        open_link(url, headers={"Range": "bytes=99-"}),
    ]
    answers.append(open_link(url, headers={"If-None-Match": answers[0]["headers"]["ETag"]}))
    assert [each["statusCode"] for each in answers] == [200, 403, 200, 416, 304]
    for answer in answers:
        assert answer["headers"]["Referrer-Policy"] == "no-referrer"
        assert answer["headers"]["Cache-Control"].split(",")[0] in ("private", "no-store")
        assert not {"Alluvia-Versions", "Alluvia-Files-Read", "Set-Cookie"} & {*answer["headers"]}
        assert token_of(url) not in json.dumps(answer)
    out = capfd.readouterr()
    assert token_of(url)[-40:] not in out.out + out.err + caplog.text
    assert "refused" in caplog.text


def test_it_follows_its_query_or_keeps_to_a_version(lake: alluvia.Lake) -> None:
    runner = CliRunner()
    pinned_url = link_by_command(lake, runner, "--pin", "--param", "tenant=a")
    url = lake.link_query("top", {"tenant": "a"})
    lake.publish_query("top", "SELECT max(n) AS most FROM hits WHERE tenant = $tenant", {"tenant": "string"})
    assert open_link(url)["body"] == "most\r\n7\r\n"
    assert open_link(pinned_url)["body"].startswith("path,n\r\n/,1")
    assert status(url, version="0") == 403
    lake.publish_query("top", "SELECT max(n) AS most FROM hits")
    answer = open_link(url)  # it would show all tenants
    assert (answer["statusCode"], error_of(answer).split(" is ")[0]) == (400, "tenant")
    lake.unpublish_query("top")
    assert (status(url), status(pinned_url)) == (404, 404)


def link_by_command(lake: alluvia.Lake, runner: CliRunner, *words: str) -> str:
    from alluvia.cli.common import Common

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Common, "lake", lambda *_, **__: lake)
        result = runner.invoke(cli, ["link", "top", *words])
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_limits_of_a_link_hold(lake: alluvia.Lake) -> None:
    url = link_by_command(lake, CliRunner(), "--param", "tenant=a", "--limit-requests", "2/m", "--format", "json")
    assert [status(url) for _ in range(3)] == [200, 200, 429]
    small = link_by_command(lake, CliRunner(), "--param", "tenant=a", "--limit-bytes", "10B")
    answer = open_link(small)
    assert (answer["statusCode"], "more time, memory or bytes" in error_of(answer)) == (422, True)


@pytest.mark.parametrize(
    ("name", "given", "reason"),
    [
        ("absent", {}, "no query is published as 'absent'"),
        ("top", {"values": {"tenat": "a"}}, "tenat is not a parameter of top, .*: did you mean tenant?"),
        ("top", {"values": {"least": "x"}}, "least: 'x' is not a value of the type long"),
        ("top", {"expires": "soon"}, "expires: 'soon' is not a duration"),
        ("top", {"expires": "0"}, "expires: a token lives from a second"),
        ("top", {"format": "xlsx"}, "format: 'xlsx' must be one of"),
    ],
)
def test_a_link_that_could_not_work_is_not_made(lake: alluvia.Lake, name: str, given: Any, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        lake.link_query(name, **given)
    assert registry.issued(lake.store, lake.clock) == []


def test_a_link_is_for_one_query() -> None:
    for wrong in (("top*",), ("top", "other")):
        with pytest.raises(Invalid, match="a link is for one published query"):
            Grant(frozenset({LINK}), queries=wrong)
    for operations in ({LINK, QUERY}, {LINK, "read"}):
        with pytest.raises(Invalid, match=r"link|grant"):
            Grant(frozenset(operations), queries=("top",))
    with pytest.raises(Invalid, match="only parameters of published queries"):
        Grant(frozenset({"read"}), ("hits",), values=(("a", "b"),))


def test_a_link_writes_csv_as_its_address_says(lake: alluvia.Lake) -> None:
    lake.publish_query("shares", "SELECT n / 4 AS share, path FROM hits ORDER BY n")
    lake.publish_query("named", "SELECT $bom AS bom", {"bom": "string"})
    url = lake.link_query("shares")
    german = open_link(url, decimal_separator=",", bom="true")
    assert german["body"] == "\ufeffshare;path\r\n0,25;/\r\n1,75;/\r\n2,25;/\r\n"
    plain = open_link(url)
    assert plain["body"].startswith("share,path\r\n0.25,/")
    assert german["headers"]["ETag"] != plain["headers"]["ETag"]
    again = open_link(url, headers={"if-none-match": german["headers"]["ETag"]}, decimal_separator=",", bom="true")
    assert again["statusCode"] == 304
    assert "both are a comma" in open_link(url, decimal_separator=",", delimiter=",")["body"]
    assert "not for json" in open_link(url.replace(".csv", ".json"), bom="true")["body"]
    assert open_link(lake.link_query("named"), bom="x")["body"] == "bom\r\nx\r\n"  # its own parameter
