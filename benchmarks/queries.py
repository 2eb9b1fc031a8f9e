"""A query that needs few of 1,000 files, over S3: ours, `delta_scan`, and DuckDB on a list of just those files.

Each query begins with a new DuckDB database, as `lake.sql` does for each. A warm handle that has not asked yet has no
copies of the data files. The files that no one may need are not there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import alluvia
from alluvia.delta.log.actions import AddFile
from alluvia.delta.statistics.written import file_statistics
from benchmarks import duck
from benchmarks.measure import in_turns, medians, milliseconds
from benchmarks.report import Figure
from benchmarks.requests import count, shown
from benchmarks.tables import MADE_MS, OPEN
from tests.s3server import S3Server

FILES = 1_000
ROWS = 20_000
MATCHING = range(500, 510)
REPEATS = 15
SLOW_REPEATS = 5
DELAY_SECONDS = 0.03
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
WHERE = f"id BETWEEN {MATCHING.start * ROWS + 7} AND {MATCHING.stop * ROWS - 7}"
QUERY = f"SELECT count(*) AS rows, sum(id) AS ids, max(value) AS highest, min(name) AS name FROM {{}} WHERE {WHERE}"


def figures(server: S3Server, _: Path) -> list[Figure]:
    """Measure requests and time, on a handle that knows the table, with copies of the files and without, and on none.

    Once as the server answers, and once with the time that S3 takes for the data files.
    """
    found = []
    for delay, repeats in ((0.0, REPEATS), (DELAY_SECONDS, SLOW_REPEATS)):
        found += _figures(server, delay, repeats)
    return found


def _figures(server: S3Server, delay: float, repeats: int) -> list[Figure]:
    bucket = server.new_bucket()
    lake = alluvia.connect(f"s3://{bucket}", **server.options)
    files = make_table(lake)
    listed = [f"s3://{bucket}/t/{file.path}" for file in files]
    uri = f"s3://{bucket}/t"
    ready = [_opened(bucket, server) for _ in range(repeats + 2)]
    if delay:
        server.inject(*(delayed(method, delay) for method in ("GET", "HEAD")))

    def ask(there: alluvia.Lake) -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in there.sql(QUERY.format("t")).to_pylist()]

    def scan() -> list[tuple[object, ...]]:
        with duck.connect(server.options, "delta") as connection:
            return connection.execute(QUERY.format(f"delta_scan('{uri}')")).fetchall()

    def by_hand() -> list[tuple[object, ...]]:
        with duck.connect(server.options) as connection:
            return connection.execute(QUERY.format(f"read_parquet({listed})")).fetchall()

    actions: dict[str, Callable[[], list[tuple[object, ...]]]] = {
        "warm handle": lambda: ask(ready.pop()),
        "warm handle, asked again": lambda: ask(lake),
        "cold handle": lambda: ask(alluvia.connect(f"s3://{bucket}", **server.options)),
        "delta_scan": scan,
        "by hand": by_hand,
    }
    answers = [action() for action in actions.values()]
    assert all(answer == answers[0] for answer in answers)
    requests = {name: count(server, action) for name, action in actions.items()}
    seconds = medians(in_turns(actions, repeats))
    server.inject()
    slow = f", {1000 * delay:.0f} ms a request" if delay else ""
    name = f"Query that needs {len(MATCHING)} of {FILES:,} files over S3{slow}"
    found = []
    for side in list(actions)[:3]:
        title, asked = f"{name}, {side}", requests[side].total()
        if not delay:
            scanned = requests["delta_scan"]
            found.append(
                Figure(f"{title}: requests", shown(requests[side]), f"{shown(scanned)} (delta_scan)",
                       asked / scanned.total(), "fewer", asked < scanned.total())
            )  # fmt: skip
        if not delay and side == "warm handle":
            beyond = asked - requests["warm handle, asked again"].total()
            found.append(
                Figure(f"{title}: requests beyond the log", f"{beyond}", f"{requests['by hand'].total()} (by hand)",
                       beyond / len(MATCHING), "1 a file", beyond <= len(MATCHING))
            )  # fmt: skip
        for peer in ("delta_scan", "by hand"):
            if (side, peer) != ("cold handle", "by hand"):
                ratio = seconds[side] / seconds[peer]
                found.append(
                    Figure(f"{title}: time", milliseconds(seconds[side]), f"{milliseconds(seconds[peer])} ({peer})",
                           ratio, "below 1 times", ratio < 1)
                )  # fmt: skip
    return found


def _opened(bucket: str, server: S3Server) -> alluvia.Lake:
    """Return a lake that knows the table, and has no copies of its files."""
    lake = alluvia.connect(f"s3://{bucket}", **server.options)
    lake.table("t").snapshot()
    return lake


def delayed(method: str, seconds: float) -> dict[str, object]:
    """Return what makes a server take longer for each request of a data file."""
    return {"method": method, "match": r"/part-[^/]*\.parquet$", "fault": f"delay:{seconds}", "times": 10**9}


def make_table(lake: alluvia.Lake) -> list[AddFile]:
    """Create the table `t`, with a checkpoint, and return the files of it that exist."""
    table = lake.create_table("t", SCHEMA, properties=OPEN)
    writer = table._handle.writer(table.snapshot())
    chance = random.Random(1)
    values = [chance.random() for _ in range(ROWS)]
    files = []
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        if number in MATCHING:
            names = [f"name {each * 7919 % 1_000_003}" for each in ids]
            columns = [pa.array(ids, pa.int64()), pa.array(names), pa.array(values)]
            (file,) = writer.write(pa.Table.from_arrays(columns, schema=SCHEMA))
            files.append(file)
            continue
        ends = [pa.array([ids[0], ids[-1]], pa.int64()), pa.array(["name 0", "name 999999"]), pa.array([0.0, 1.0])]
        stats = file_statistics(pa.Table.from_arrays(ends, schema=SCHEMA), 32)
        files.append(AddFile(f"part-{number}.parquet", {}, 300_000, MADE_MS, data_change=True, stats=stats))
    for start in range(0, FILES, 100):
        table.commit_files(files[start : start + 100])
    table.checkpoint()
    return [files[number] for number in MATCHING]
