"""Pages of other sites, and names of the server: `alluvia serve` answers those that it should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import requests

import alluvia
from alluvia.server.guards import HostNames, is_loopback, refusal
from alluvia.server.serve import Options
from tests.cli.exchanges import exchange, post, served_to_others
from tests.serving import serving


def test_other_names_than_its_own_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "lake", "--allow-host", "lake.example") as (_, port):
        for host in ("127.0.0.1", f"localhost:{port}", f"[::1]:{port}", "lake.example"):
            assert exchange(port, post("/v1/events/app", b"{}", host=host))[0] == 200
        for host in (
            "evil.example",
            f"evil.example:{port}",
            "",
            "127.0.0.1@evil.example",
            "127.0.0.1.evil.example",
            "[",
            "[::1",
            "[abc]",
            "a]",
        ):
            status, headers, body = exchange(port, post("/v1/events/app", b"{}", host=host))
            assert (status, headers["content-type"]) == (403, "application/json")
            assert json.loads(body)["error"].startswith("Host: ")
    assert alluvia.connect(str(tmp_path / "lake")).sql("SELECT count(*) AS n FROM app").to_pylist() == [{"n": 4}]


@pytest.mark.parametrize(
    "header",
    [
        *["Origin: http://evil.example", "Origin: null", "Origin: http://localhost:1", "Sec-Fetch-Site: cross-site"],
        *["Referer: http://evil.example/page", "Origin: http://[", "Referer: http://["],
    ],
)
def test_pages_of_other_sites_are_refused(tmp_path: Path, header: str) -> None:
    simple = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")  # which need no preflight
    with serving(tmp_path / "lake", "--allow-writes") as (_, port):
        for path, kind in [("/v1/events/app", simple[1]), *(("/q", kind) for kind in simple)]:
            status, _, body = exchange(port, post(path, b"CREATE TABLE t (n BIGINT)", header, f"Content-Type: {kind}"))
            assert (status, header.split(":", maxsplit=1)[0] in json.loads(body)["error"]) == (403, True)
        request = f"GET /q?query=SELECT+1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n\r\n"
        assert exchange(port, request.encode())[0] == 403
        own = f"Origin: http://127.0.0.1:{port}"
        assert exchange(port, post("/v1/events/own", b"{}", own, host=f"127.0.0.1:{port}"))[0] == 200
    assert alluvia.connect(str(tmp_path / "lake")).tables() == ["own"]


def test_pages_of_sites_that_are_named_may_use_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_CORS_ORIGINS", "https://app.example")
    with serving(tmp_path / "lake") as (_, port):
        for site, status in (("https://app.example", 200), ("https://evil.example", 403)):
            cross = (f"Origin: {site}", "Sec-Fetch-Site: cross-site")
            found, headers, _ = exchange(port, post("/q", b'{"query": "SELECT 1"}', *cross))
            allowed = site if status == 200 else None
            assert (found, headers.get("access-control-allow-origin")) == (status, allowed)


def test_pages_of_these_sites_upload_files_and_follow_links_to_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, allowed = "https://app.example", "Access-Control-Allow-Origin"
    monkeypatch.setenv("ALLUVIA_CORS_ORIGINS", site)
    monkeypatch.setenv("ALLUVIA_RESULT_LIMIT_BYTES", "1000")
    with serving(tmp_path / "lake") as (_, port):
        url = f"http://127.0.0.1:{port}"
        headers = {"Origin": site, "Sec-Fetch-Site": "cross-site"}
        # The token that a page sends goes on to the link, of the same host: a browser asks about that, too.
        asks = {"Access-Control-Request-Headers": "authorization"}

        def call(method: str, path: str, body: str = "", status: int = 200) -> requests.Response:
            asked = headers | asks | {"Access-Control-Request-Method": method}
            first = requests.options(url + path, headers=asked, timeout=60)
            assert (first.status_code, first.headers[allowed]) == (204, site), path
            assert first.headers["Access-Control-Allow-Headers"] == "authorization"
            found = requests.request(method, url + path, data=body, headers=headers, timeout=60, allow_redirects=False)
            assert (found.status_code, found.headers[allowed]) == (status, site), found.text
            assert found.headers["Vary"].split(", ").count("Origin") == 1
            return found

        begun = call("POST", "/v1/upload/numbers?parts=1&format=csv", status=201).json()
        part = begun["parts"][0]["url"].removeprefix(url)
        assert "ETag" in call("PUT", part, "n\n" + "1\n" * 2000).headers["Access-Control-Expose-Headers"]
        call("POST", begun["complete"].removeprefix(url), "{}")
        link = call("GET", "/q?query=FROM%20numbers&format=csv", status=303).headers["Location"].removeprefix(url)
        assert call("GET", link).text.split() == ["n", *["1"] * 2000]
        refused = requests.get(url + link, headers={"Origin": "https://evil.example"}, timeout=60)
        assert (refused.status_code, refused.headers.get(allowed)) == (403, None)


@pytest.mark.parametrize("allowed", [(), ("Lake.Example",), ("*",)])
def test_pages_cannot_make_their_own_name_one_of_a_server_for_others(
    tmp_path: Path, allowed: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    words = [word for name in allowed for word in ("--allow-host", name)]
    process = served_to_others(request, tmp_path, "--auth", "open", "--metrics-address", "0.0.0.0:0", *words)
    assert process.stdout is not None
    port = int(process.stdout.readline().rpartition(":")[2])
    metrics = int(process.stdout.readline().partition("/metrics")[0].rpartition(":")[2])
    try:
        for host, names in {
            "evil.example": ("*",),
            f"evil.example:{port}": ("*",),
            "127.0.0.1.evil.example": ("*",),
            "lake.example": ("*", "Lake.Example"),
            f"LAKE.example:{port}": ("*", "Lake.Example"),
            "localhost": ("*", "Lake.Example", ""),
            "10.1.2.3": ("*", "Lake.Example", ""),  # an address of the machine: no page can take it for a name
            f"[fd00::1]:{port}": ("*", "Lake.Example", ""),
        }.items():
            status = 200 if (allowed[0] if allowed else "") in names else 403
            assert exchange(port, post("/v1/events/app", b"{}", host=host))[0] == status, host
            asked = f"GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            assert exchange(metrics, asked.encode())[0] == status, host
        assert exchange(port, b"GET /healthz HTTP/1.0\r\n\r\n")[0] == 200  # as some load balancers ask, without a name
    finally:
        process.kill()
        process.communicate()


def test_the_environment_says_whom_it_answers_unless_the_command_does(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    monkeypatch.setenv("ALLUVIA_ALLOW_HOST", "one.example two.example")
    for words, status in (((), 401), (("--auth", "open"), 200)):
        process = served_to_others(request, tmp_path, *words)
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        for host, expected in {
            "127.0.0.1": status,
            "two.example": status,
            "evil.example": 403 if words else 401,
        }.items():
            assert exchange(port, post("/v1/events/app", b"{}", host=host))[0] == expected
        process.kill()
        process.communicate()


def test_it_is_open_to_others_only_if_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.delenv("ALLUVIA_AUTH", raising=False)
    process = served_to_others(request, tmp_path)
    out, error = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert "--host 0.0.0.0 is open to other machines: --auth tokens asks callers for tokens" in error


@pytest.mark.parametrize(
    ("name", "loopback"),
    [
        *[("localhost", True), ("127.8.0.1", True), ("::1", True), ("a.localhost", True)],
        *[("0.0.0.0", False), ("localhost.evil", False), ("10.0.0.1", False), ("", False)],
    ],
)
def test_names_of_loopback(name: str, loopback: bool) -> None:
    assert is_loopback(name) is loopback
    assert (refusal("/", {"host": name}, HostNames()) is None) is (loopback and name != "::1")
    assert Options(host=name).hosts.addresses is not loopback
