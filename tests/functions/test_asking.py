"""The forms that a request may come in, and what is refused of each."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from shutil import copytree
from typing import Any
from urllib.parse import quote, urlencode

import pytest

import alluvia
from functions.query import handler as query
from tests.functions.test_query import Answer, error_of, event

JSON, FORM = "application/json", "application/x-www-form-urlencoded"
SQL = "SELECT name, n FROM totals WHERE n >= $least ORDER BY n"


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = alluvia.connect(tmp_path_factory.mktemp("lake"))
    lake.create_table("totals", {"name": "string", "n": "long"}).append([{"name": "a", "n": 1}, {"name": "é", "n": 2}])
    return lake.uri.removeprefix("file://")


@pytest.fixture(autouse=True)
def lake(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_LAKE", uri)


def post(body: bytes | str, kind: str, search: str = "") -> Answer:
    sent = event(body if isinstance(body, bytes) else body.encode())
    return query.handler(sent | {"headers": {"Content-Type": kind}, "rawQueryString": search}, None)


def get(path: str, method: str = "GET", headers: dict[str, str] | None = None) -> Answer:
    path, _, search = path.partition("?")
    sent = event("", method=method, path=path)
    return query.handler(sent | {"headers": headers or {}, "rawQueryString": search}, None)


def body(answer: Answer) -> str:
    assert answer["statusCode"] == 200, answer["body"]
    return str(answer["body"])


FOUND = '{"name":"é","n":2}\n'


@pytest.mark.parametrize(
    ("text", "kind", "search"),
    [
        (json.dumps({"query": SQL, "parameters": {"least": 2}}), "application/json", ""),
        (json.dumps({"query": SQL, "params": {"least": 2}}), "application/json; charset=utf-8", ""),
        (json.dumps({"query": SQL.replace("$least", "?"), "params": [2]}), "application/json", ""),
        (json.dumps({"query": SQL, "params": {"least": 2}}), FORM, ""),  # what curl -d says of it
        (SQL, "text/plain", "param_least=2"),
        (SQL, "text/plain;charset=UTF-8", "params=" + quote('{"least": 2}')),
        ("  " + SQL, FORM, "param_least=2"),  # what curl --data-binary says of it, as in ClickHouse's documentation
        (urlencode({"query": SQL, "param_least": 2}), FORM, ""),
        (urlencode({"q": SQL, "params": '{"least": 2}'}), FORM, ""),
        ("", FORM, urlencode({"query": SQL, "param_least": 2})),
        ("", "", urlencode({"q": SQL, "param_least": 2})),
    ],
)
def test_a_post_in_each_form(text: str, kind: str, search: str) -> None:
    assert body(post(text, kind, search)) == FOUND


def test_a_get_has_its_query_in_the_query_string_or_a_header() -> None:
    assert body(get("/q?" + urlencode({"query": SQL, "param_least": 2}))) == FOUND
    assert body(get("/q?" + urlencode({"q": SQL, "params": '{"least": 2}', "format": "json"}))) == f"[{FOUND[:-1]}]\n"
    plain = "SELECT 'é' AS x"
    for header in ("Alluvia-Query", "X-Alluvia-Query", "X-Seafowl-Query"):
        assert body(get("/q", headers={header: quote(plain)})) == '{"x":"é"}\n'
    assert get("/q?query=SELECT+1&format=csv")["headers"]["Content-Type"] == "text/csv; charset=utf-8"


def test_a_dry_run_tells_what_would_be_read() -> None:
    asked = {"query": SQL, "params": {"least": 9}, "format": "csv"}
    for answer in (
        post(json.dumps({**asked, "dry_run": True}), JSON),
        get("/q?" + urlencode({"query": SQL, "params": '{"least": 9}', "format": "csv", "dry_run": "true"})),
    ):
        head, first, total, _ = body(answer).split("\r\n")
        assert head == ("table,version,files_total,files_pruned,files_read,bytes_total,bytes_read,requests,dollars")
        assert first.startswith("totals,1,1,1,0,")
        assert first.endswith(",0,0,0.0")
        assert total.startswith(",,1,1,0,")
        told = answer["headers"]
        assert (told["Alluvia-Bytes-Read"], told["Cache-Control"], "ETag" in told) == ("0", "no-store", False)
    assert body(post(json.dumps({**asked, "dry_run": False}), JSON)) == "name,n\r\n"


def test_a_query_that_would_read_more_than_a_limit_reads_nothing(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copytree(uri, tmp_path / "lake")
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path / "lake"))
    [file] = (tmp_path / "lake" / "totals").rglob("*.parquet")
    size = file.stat().st_size
    text = "SELECT sum(n) AS n FROM totals"
    assert body(post(json.dumps({"query": text, "max_bytes": size}), JSON)) == '{"n":3}\n'
    file.unlink()
    by_request = get("/q?" + urlencode({"query": text, "max_bytes": size - 1}))
    monkeypatch.setenv("ALLUVIA_QUERY_BYTES", str(size - 2))
    by_setting = get("/q?" + urlencode({"query": text, "max_bytes": size}))
    for answer, most, of in (
        (by_request, size - 1, "by max_bytes"),
        (by_setting, size - 2, "by the setting ALLUVIA_QUERY_BYTES"),
    ):
        assert answer["statusCode"] == 422
        assert f"would read {size} bytes, more than the {most} bytes allowed {of}:" in error_of(answer)


def test_a_request_limits_its_time_below_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 1"
    for field, setting in ((1, "20"), (20, "1")):
        monkeypatch.setenv("ALLUVIA_QUERY_TIMEOUT_SECONDS", setting)
        answer = post(json.dumps({"query": slow, "max_seconds": field}), JSON)
        assert (answer["statusCode"], "longer than the 1 seconds allowed" in error_of(answer)) == (422, True)


def test_a_get_by_hash() -> None:
    text = "SELECT 'é' AS x"
    digest = sha256(text.encode()).hexdigest()
    assert body(get(f"/q/{digest}", headers={"X-Seafowl-Query": quote(text)})) == '{"x":"é"}\n'
    assert body(get(f"/q/{digest}?query={quote(text)}")) == '{"x":"é"}\n'
    assert body(get(f"/q/{digest}.csv?query={quote(text)}")) == "x\r\né\r\n"
    for other in (digest.upper(), digest[1:], "nothing", sha256(b"SELECT 2").hexdigest()):
        answer = get(f"/q/{other}?query={quote(text)}")
        assert (answer["statusCode"], digest in error_of(answer)) == (400, True)
    assert "format: 'xlsx' must be one of" in error_of(get(f"/q/{digest}.xlsx?query={quote(text)}"))


def test_a_write_by_get_is_a_405(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_ALLOW_WRITES", "true")
    for sql in ("DELETE FROM totals", "SELECT 1; DROP TABLE totals", "VACUUM totals"):
        for method in ("GET", "HEAD"):
            answer = get(f"/q?query={quote(sql)}", method)
            assert (answer["statusCode"], answer["headers"]["Allow"]) == (405, "POST")
    assert body(get("/q?query=" + quote("SELECT 1; SELECT count(*) AS n FROM totals"))) == '{"n":2}\n'


@pytest.mark.parametrize(
    ("text", "kind", "search", "status", "reason"),
    [
        ('{"querry": "SELECT 1"}', JSON, "", 400, "querry is not a field of a request (did you mean query?)"),
        ('{"query": "SELECT 1", "parms": []}', JSON, "", 400, "parms is not a field of a request (did you mean"),
        ('{"query": "SELECT 1", "zzz": []}', JSON, "", 400, "zzz is not a field of a request: send query"),
        ('{"query": "SELECT 1", "format": "excel"}', JSON, "", 400, "format: 'excel' must be one of ndjson"),
        ('{"query": "SELECT 1", "format": 1}', JSON, "", 400, "format: send the name of one"),
        ('{"query": "SELECT 1", "dry_run": "perhaps"}', JSON, "", 400, "dry_run: send true or false"),
        ('{"query": "SELECT 1", "max_bytes": -1}', JSON, "", 400, "max_bytes: send a whole number above 0"),
        ('{"query": "SELECT 1", "max_seconds": true}', JSON, "", 400, "max_seconds: send a whole number above 0"),
        ('{"query": "SELECT 1; SELECT 2", "max_bytes": 1}', JSON, "", 400, "max_bytes: send one SELECT"),
        ('{"query": "SELECT 1; SELECT 2", "dry_run": true}', JSON, "", 400, "dry_run: send one SELECT"),
        ('{"query": "SELECT 1", "params": [], "parameters": []}', JSON, "", 400, "send it once, as parameters"),
        ('{"query": "SELECT 1", "params": "1"}', JSON, "", 400, "parameters: send a list"),
        ('{"query": "SELECT 1"}', JSON, "query=SELECT+2", 400, "query: send it in the body or in the query"),
        ('{"query": "SELECT 1", "params": [1]}', JSON, "param_n=2", 400, "parameters: send them in one place"),
        ("SELECT 1", "application/xml", "", 415, "send application/json"),
        ("SELECT 1", "text/plain", "format=json&format=csv", 400, "format: send it once"),
        ("SELECT $n", "text/plain", "param_n=1&param_n=2", 400, "param_n: send it once"),
        ("SELECT $n", "text/plain", "param_n=1&params={%22n%22:2}", 400, "parameters: send $n once"),
        ("SELECT 1", "text/plain", "params={", 400, "parameters: send JSON"),
        ("SELECT 1", "text/plain", "limit=1", 400, "limit is not a field of a request"),
        ("SELECT 1", "text/plain", "&".join(["a=1"] * 1001), 400, "at most 1000"),
        ("SELECT 1", "text/plain", "query=%ff", 400, "percent-encoded in UTF-8"),
        (b"SELECT '\xff'", "text/plain", "", 400, "must be UTF-8"),
        ("n=1", FORM, "", 400, "n is not a field"),
        ("", "text/plain", "", 400, "the query is empty"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_request_is_named(text: Any, kind: str, search: str, status: int, reason: str) -> None:
    answer = post(text, kind, search)
    assert answer["statusCode"] == status
    assert reason in error_of(answer)


def test_a_get_without_a_query_says_where_to_put_it() -> None:
    assert "GET /q?query=SELECT" in error_of(get("/q"))
    answer = get("/q", headers={"Alluvia-Query": "%ff"})
    assert (answer["statusCode"], "percent-encode" in error_of(answer)) == (400, True)
    assert answer["headers"]["Cache-Control"] == "no-store"


def test_limits_also_come_in_headers(uri: str) -> None:
    text = "SELECT sum(n) AS n FROM totals"
    alluvia.connect(uri).publish_query("total", text + " WHERE n < $max_bytes", {"max_bytes": "long=10"})
    size = int(get("/q?" + urlencode({"query": text}))["headers"]["Alluvia-Bytes-Read"])
    asked = {
        "published": "/v1/queries/total.ndjson?max_bytes=9",
        "read": "/q?" + urlencode({"query": text}),
        "read with a higher limit": "/q?" + urlencode({"query": text, "max_bytes": size}),
    }
    refused = f"more than the {size - 1} bytes allowed by max_bytes"
    for name, path in asked.items():
        assert body(get(path, headers={"Alluvia-Max-Bytes": str(size)})) == '{"n":3}\n', name
        answer = get(path, headers={"Alluvia-Max-Bytes": str(size - 1)})
        assert (answer["statusCode"], refused in error_of(answer)) == (422, True), name
    lower = get("/q?" + urlencode({"query": text, "max_bytes": 1}), headers={"alluvia-max-bytes": str(size)})
    assert "more than the 1 bytes allowed by max_bytes" in error_of(lower)
    wrong = get(asked["published"], headers={"Alluvia-Max-Seconds": "soon"})
    assert (wrong["statusCode"], error_of(wrong)) == (400, "Alluvia-Max-Seconds: send a whole number above 0")
    posted = query.handler(event(text) | {"headers": {"Content-Type": "text/plain", "Alluvia-Max-Bytes": "1"}}, None)
    assert posted["statusCode"] == 422


def test_no_more_of_a_long_name_is_compared_than_a_name_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is near to a name takes time with the square of its length."""
    compared: list[int] = []

    def near(word: str, *_: object) -> list[str]:
        compared.append(len(word))
        return []

    monkeypatch.setattr("difflib.get_close_matches", near)
    for name in ("x" * 9_000_000, "querry"):
        answer = query.handler(event(json.dumps({name: "SELECT 1"})), None)
        assert (answer["statusCode"], "is not a field of a request" in answer["body"]) == (400, True)
    assert compared == [100, 6]
