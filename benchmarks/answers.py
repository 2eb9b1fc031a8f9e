"""A query that is sent again, over S3: a 304, a kept result, and a run, compared with other engines.

The others have no answer to keep: `delta_scan`, and DuckDB on a list of just the files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa

import alluvia
from alluvia.serverless.settings import environment
from alluvia.serverless.warm_lake import using
from benchmarks import duck
from benchmarks.measure import in_turns, medians, milliseconds
from benchmarks.report import Figure
from benchmarks.requests import count, shown
from benchmarks.tables import OPEN
from functions.query.handler import handler
from tests.s3server import S3Server

FILES = 40
ROWS = 20_000
REPEATS = 15
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
QUERY = "SELECT name, count(*) AS n, sum(value) AS total FROM {} GROUP BY name ORDER BY name"
TIMES_FASTER = 10


def figures(server: S3Server, _: Path) -> list[Figure]:
    """Measure requests and time of each, with a process that knows the table."""
    bucket = server.new_bucket()
    lake = alluvia.connect(f"s3://{bucket}", **server.options)
    table = lake.create_table("t", SCHEMA, properties=OPEN)
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        columns = [
            pa.array(ids, pa.int64()),
            pa.array([f"name {each % 100}" for each in ids]),
            pa.array(map(float, ids)),
        ]
        table.append(pa.Table.from_arrays(columns, schema=SCHEMA))
    listed = [f"s3://{bucket}/t/{file.path}" for file in table.snapshot().files]
    logging.getLogger("query").setLevel(logging.WARNING)

    def scan() -> list[tuple[Any, ...]]:
        with duck.connect(server.options, "delta") as connection:
            return connection.execute(QUERY.format(f"delta_scan('s3://{bucket}/t')")).fetchall()

    def by_hand() -> list[tuple[Any, ...]]:
        with duck.connect(server.options) as connection:
            return connection.execute(QUERY.format(f"read_parquet({listed})")).fetchall()

    with environment({"ALLUVIA_RESULT_CACHE": "on"}), using(lake):
        tag = ask(200)["headers"]["ETag"]

        actions: dict[str, Callable[[], object]] = {
            "304": lambda: ask(304, tag),
            "hit": lambda: ask(200, cache="hit"),
            "run": lambda: ask(200, method="POST"),
            "delta_scan": scan,
            "by hand": by_hand,
        }
        assert len(scan()) == len(by_hand()) == int(ask(200)["headers"]["Alluvia-Rows"])
        requests = {name: count(server, action) for name, action in actions.items()}
        seconds = medians(in_turns(actions, REPEATS))
    found = []
    for name, requests_max in (("304", 1), ("hit", 2)):
        title = f"Query of {FILES} files asked again, {'a 304' if name == '304' else 'a kept result'}"
        total = requests[name].total()
        found.append(
            Figure(f"{title}: requests", shown(requests[name]), f"{shown(requests['by hand'])} (by hand)",
                   total / requests["by hand"].total(), f"at most {requests_max}", total <= requests_max)
        )  # fmt: skip
        for peer in ("delta_scan", "by hand"):
            ratio = seconds[name] / seconds[peer]
            found.append(
                Figure(f"{title}: time", milliseconds(seconds[name]), f"{milliseconds(seconds[peer])} ({peer})", ratio,
                       f"below {1 / TIMES_FASTER:g} times", ratio < 1 / TIMES_FASTER)
            )  # fmt: skip
    for peer in ("delta_scan", "by hand"):
        ours, theirs = seconds["run"], seconds[peer]
        title = f"The same query of {FILES} files, run: time"
        found.append(Figure(title, milliseconds(ours), f"{milliseconds(theirs)} ({peer})", ours / theirs))
    return found


def ask(status: int, tag: str = "", cache: str | None = None, method: str = "GET") -> dict[str, Any]:
    """Send the query, and return the answer, which must be this one."""
    search = urlencode({"query": QUERY.format("t")})
    event = {
        "rawPath": "/q",
        "rawQueryString": search,
        "headers": {"if-none-match": tag} if tag else {},
        "requestContext": {
            "authorizer": {"iam": {"userArn": "arn:aws:iam::123456789012:user/ada"}},
            "http": {"method": method},
            "stage": "$default",
        },
    }
    answer: dict[str, Any] = handler(event, None)
    assert answer["statusCode"] == status, answer["body"]
    assert cache is None or answer["headers"]["Alluvia-Cache"] == cache
    return answer
