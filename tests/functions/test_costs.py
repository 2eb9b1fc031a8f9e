"""What answers tell of their cost: the requests that an S3 server counts, and their price."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest

import alluvia
from alluvia.query.process import session
from alluvia.query.process.processes import POOL
from functions.query import handler as query
from tests.access import grant, token
from tests.functions.test_query import Answer, event
from tests.s3server import CREDENTIALS, REGION, S3Server

GET, PUT = 0.4e-6, 5e-6
FILES = 12
SUM = "SELECT sum(n) AS n FROM t"


@pytest.fixture(scope="module")
def uri(s3_server: S3Server) -> str:
    lake = alluvia.connect(f"s3://{s3_server.new_bucket()}/lake", **s3_server.options)
    lake.create_table("t", {"n": "long"})
    with lake.transaction() as tx:
        for number in range(FILES):
            tx.table("t").append([{"n": number}])
    return lake.uri


@pytest.fixture(autouse=True)
def server(uri: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setenv("ALLUVIA_LAKE", uri)
    monkeypatch.setenv("ALLUVIA_ENDPOINT_URL", s3_server.endpoint_url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    s3_server.requests()
    yield s3_server
    s3_server.inject()


def get(sql: str, tag: str = "", bearer: str = "") -> Answer:
    headers = {"If-None-Match": tag, "Authorization": f"Bearer {bearer}"}
    return query.handler(
        event("", method="GET") | {"headers": headers, "rawQueryString": urlencode({"query": sql})}, None
    )


def post(sql: str) -> Answer:
    return query.handler(event(json.dumps({"query": sql})), None)


def check(answer: Answer, server: S3Server, status: int = 200) -> Counter[str]:
    """Check that an answer tells the requests that came to the server, and their price; return these."""
    assert answer["statusCode"] == status, answer["body"]
    sent = server.requests()
    price = (sent["GET"] + sent["HEAD"]) * GET + (sent["PUT"] + sent["LIST"]) * PUT
    assert answer["headers"]["Alluvia-Requests"] == str(sent.total())
    assert float(answer["headers"]["Alluvia-Dollars"]) == pytest.approx(price, abs=1e-9)
    return sent


def test_files_that_are_fetched_count_once(server: S3Server) -> None:
    assert check(post(SUM), server)["GET"] >= FILES
    assert check(post(SUM), server) == {"GET": 1}  # a look for a newer commit: copies of the files are there


def test_requests_of_the_querys_own_process_count(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    post(SUM)
    server.requests()
    POOL.close()  # of processes that keep what they have read
    monkeypatch.setenv("ALLUVIA_FILE_CACHE_BYTES", "0")
    monkeypatch.setattr(session, "TAILS_BYTES", 0)  # so that process reads the footers
    assert check(post(SUM), server) == {"GET": 1 + FILES}  # the ends of small files have all of them
    assert check(post(SUM), server) == {"GET": 1}  # by the same process, which has kept what it read


def test_requests_that_are_sent_again_count(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    post(SUM)
    server.requests()
    server.inject({"method": "GET", "match": "_delta_log", "fault": "status:503", "times": 2})
    assert check(post(SUM), server) == {"GET": 3}
    monkeypatch.setenv("ALLUVIA_FILE_CACHE_BYTES", "0")
    monkeypatch.setattr(session, "TAILS_BYTES", 0)
    POOL.close()  # of processes that keep what they have read
    server.inject({"method": "GET", "match": "parquet", "fault": "status:503", "times": 2})
    assert check(post(SUM), server) == {"GET": 1 + FILES + 2}


def test_kept_results_and_304_tell_what_they_cost(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    post(SUM)
    monkeypatch.setenv("ALLUVIA_RESULT_CACHE", "on")
    server.requests()
    first = get(SUM)
    # The look that finds the tag, the result that is not there, the run's look, and one after the result was put.
    assert check(first, server) == {"GET": 4, "PUT": 1}
    assert check(get(SUM), server) == {"GET": 2}
    again = get(SUM, first["headers"]["ETag"])
    assert check(again, server, 304) == {"GET": 1}
    assert again["headers"]["Alluvia-Elapsed-Ms"].isdecimal()


def test_each_of_several_requests_at_once_has_its_own(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_FILE_CACHE_BYTES", "0")
    post(SUM)
    server.requests()
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(post, [SUM, "SELECT 1 AS n", SUM, "SHOW TABLES"]))
    counts = [int(answer["headers"]["Alluvia-Requests"]) for answer in answers]
    assert counts[1] == 0
    assert sum(counts) == server.requests().total()


def test_a_function_also_pays_for_its_memory(monkeypatch: pytest.MonkeyPatch, server: S3Server) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", str(1024 * 10_000))  # so large that time costs much
    headers = post("SELECT sum(range) AS n FROM range(1000000)")["headers"]
    seconds = int(headers["Alluvia-Elapsed-Ms"]) / 1000
    assert seconds > 0
    assert float(headers["Alluvia-Dollars"]) == pytest.approx(10_000 * seconds * 0.0000133334)


def test_who_may_not_see_all_is_not_told(
    uri: str, server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    lake = alluvia.connect(uri, **server.options)
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    everything, part = token(lake, grant("read:t")), token(lake, grant("read:t", where="n > 3"))
    server.requests()
    check(get(SUM, bearer=everything), server)
    headers = get(SUM, bearer=part)["headers"]
    assert "Alluvia-Rows" in headers
    assert not {"Alluvia-Requests", "Alluvia-Dollars"} & set(headers)


def test_a_lake_on_this_machine_costs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    monkeypatch.delenv("ALLUVIA_ENDPOINT_URL")
    headers = post("SELECT 1 AS n")["headers"]
    assert "Alluvia-Elapsed-Ms" in headers
    assert "Alluvia-Dollars" not in headers
