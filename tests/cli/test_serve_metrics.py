"""`GET /metrics`, scraped over real HTTP and read by the parser of Prometheus' own library."""

from __future__ import annotations

import json
import re
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

import alluvia
from alluvia.cli.command_line import cli
from alluvia.clock import ManualClock
from alluvia.server.metrics import COMMITS, CONFLICTS, CommitCount
from alluvia.server.serve import in_background
from alluvia.store import MemoryStore, PutResult
from alluvia.store.requests import Meter
from tests.package.conftest import ROOT
from tests.s3server import S3Server
from tests.serving import serving

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def send(port: int, method: str, path: str, body: str | None = None, **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def scrape(port: int, accept: str = "*/*", parser: Any = plain_text) -> Samples:
    answer, body = send(port, "GET", "/metrics", Accept=accept)
    assert answer.status == 200, body
    families = parser(body.decode())
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for found in families for each in found.samples}


def of(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"alluvia_{name}", tuple(sorted(labels.items()))]


def test_what_is_counted_and_told(tmp_path: Path) -> None:
    with serving(tmp_path / "lake") as (_, port):
        for body in ('[{"event_id": "1"}, {"event_id": "2"}]', '{"event_id": "2"}', '[{"event_id": "3"}, 7]'):
            assert send(port, "POST", "/v1/events/secret_table", body)[0].status == 200
        path = "/q?query=" + quote("SELECT event_id FROM secret_table")
        first, _ = send(port, "GET", path)
        assert first.status == 200
        assert send(port, "GET", path)[0].headers["Alluvia-Cache"] == "hit"
        assert send(port, "GET", path, If_None_Match=str(first.headers["ETag"]))[0].status == 304
        assert send(port, "GET", "/secret_path")[0].status == 404
        assert send(port, "SECRETMETHOD", "/q")[0].status == 405
        assert send(port, "HEAD", "/metrics")[0].status == 200
        assert send(port, "POST", "/metrics", "")[0].status == 405
        found = scrape(port)
        newer = scrape(port, "application/openmetrics-text; version=1.0.0", open_metrics)
        assert send(port, "GET", "/metrics", Origin="https://elsewhere.example")[0].status == 403
        text = send(port, "GET", "/metrics")[1].decode()
    post = {"route": "/v1/events/{table}", "method": "POST"}
    assert of(found, "http_requests_total", **post, status="200") == 3
    assert of(found, "http_request_duration_seconds_count", **post) == 3
    assert of(found, "http_request_duration_seconds_bucket", **post, le="+Inf") == 3
    assert of(found, "http_requests_total", route="/q", method="GET", status="200") == 2
    assert of(found, "http_requests_total", route="/q", method="GET", status="304") == 1
    assert of(found, "http_requests_total", route="other", method="GET", status="404") == 1
    assert of(found, "http_requests_total", route="/q", method="other", status="405") == 1
    assert {cache: of(found, "query_results_total", cache=cache) for cache in ("miss", "hit", "not_modified")} == {
        "miss": 1,
        "hit": 1,
        "not_modified": 1,
    }
    assert of(found, "query_rows_total") == 6
    assert of(found, "query_files_read_total") == 2
    assert of(found, "query_bytes_read_total") > 0
    outcomes = {"accepted": 4, "stored": 3, "duplicates": 1, "rejected": 1, "conflicting": 0}
    assert {outcome: of(found, "events_total", outcome=outcome) for outcome in outcomes} == outcomes
    # The table, its two posts that stored something, the table of its rejects and the reject.
    assert (of(found, "commits_total"), of(found, "commit_conflicts_total")) == (5, 0)
    assert of(newer, "commits_total") == 5
    assert "secret" not in text.lower()
    assert "_created" not in text
    families = [each for each in plain_text(text) if each.name.startswith("alluvia_")]
    told = {f"{each.name}_total" if each.type == "counter" else each.name for each in families}
    documented = (ROOT / "docs" / "OPERATIONS.md").read_text().partition("\n## Metrics of the server")[2]
    assert told == set(re.findall(r"`(alluvia_\w+)`", documented))


def test_with_tokens_they_are_told_at_an_address_of_their_own(tmp_path: Path) -> None:
    with serving(tmp_path, "--auth", "tokens", "--metrics-address", "127.0.0.1:0", quiet=True) as (process, port):
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"Metrics are at http://127\.0\.0\.1:(\d+)/metrics", line)
        assert match, line
        own = int(match[1])
        assert send(port, "POST", "/q", '{"query": "SELECT 1"}')[0].status == 401
        answer, body = send(port, "GET", "/metrics")
        assert (answer.status, "--metrics-address" in json.loads(body)["error"]) == (404, True)
        assert of(scrape(own), "http_requests_total", route="/q", method="POST", status="401") == 1
        assert send(own, "GET", "/q?query=SELECT+1")[0].status == 404
        assert send(own, "GET", "/metrics", Host="elsewhere.example")[0].status == 403


@pytest.mark.parametrize("address", ["9464", "localhost", "a:b", "h:99999", "u@h:1", "h:1/x", ""])
def test_an_address_that_is_none_is_refused(tmp_path: Path, address: str) -> None:
    words = ["serve", "--lake", str(tmp_path), "--port", "0", "--metrics-address", address]
    result = CliRunner().invoke(cli, words)
    assert (result.exit_code, "--metrics-address" in result.output) == (1, True), result.output


def test_commits_and_lost_races_count() -> None:
    meter = Meter()
    store = CommitCount(MemoryStore("m", ManualClock()), meter)
    for key in (f"t/_delta_log/{0:020}.json", f"t/_rejects/_delta_log/{0:020}.json", "t/_delta_log/other.json"):
        assert [store.put_if_absent(key, b"x") for _ in range(2)] == [PutResult.CREATED, PutResult.EXISTS]
    assert meter.counts() == {COMMITS: 2, CONFLICTS: 2}


def test_requests_to_s3_count_those_of_queries_processes_included(s3_server: S3Server) -> None:
    lake = alluvia.connect(f"s3://{s3_server.new_bucket()}/lake", **s3_server.options)
    lake.create_table("t", {"n": "long"}).append([{"n": 1}])
    with in_background(lake) as port:
        before = scrape(port)
        s3_server.requests()
        assert send(port, "GET", "/q?query=FROM+t")[0].status == 200
        sent, after = s3_server.requests(), scrape(port)
    kinds = {key for key in after if key[0] == "alluvia_store_requests_total"}
    assert sum(after[key] - before.get(key, 0) for key in kinds) == sent.total() > 0
