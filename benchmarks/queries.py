"""A query that needs few of 1,000 files, over S3: ours, `delta_scan`, and DuckDB on a list of just those files.

Each query begins with a new DuckDB database, as `lake.sql` does for each. The files that no one may need are not there.
"""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa

import alluvia
from alluvia.log.actions import AddFile
from alluvia.table.statistics.written import file_statistics
from benchmarks import duck
from benchmarks.measure import in_turns, medians, milliseconds
from benchmarks.report import Figure
from benchmarks.requests import count, shown
from benchmarks.tables import OPEN
from tests.s3server import S3Server

FILES = 1_000
ROWS = 20_000
MATCHING = range(500, 510)
REPEATS = 15
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
WHERE = f"id BETWEEN {MATCHING.start * ROWS + 7} AND {MATCHING.stop * ROWS - 7}"
QUERY = f"SELECT count(*) AS rows, sum(id) AS ids, max(value) AS highest, min(name) AS name FROM {{}} WHERE {WHERE}"


def figures(server: S3Server, _: Path) -> list[Figure]:
    """Measure requests and time, on a handle that knows the table and on one that does not."""
    bucket = server.new_bucket()
    lake = alluvia.connect(f"s3://{bucket}", **server.options)
    files = make_table(lake)
    listed = [f"s3://{bucket}/t/{file.path}" for file in files]
    uri = f"s3://{bucket}/t"

    def warm() -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in lake.sql(QUERY.format("t")).to_pylist()]

    def cold() -> list[tuple[object, ...]]:
        there = alluvia.connect(f"s3://{bucket}", **server.options)
        return [tuple(row.values()) for row in there.sql(QUERY.format("t")).to_pylist()]

    def scan() -> list[tuple[object, ...]]:
        with duck.connect(server.options, "delta") as connection:
            return connection.execute(QUERY.format(f"delta_scan('{uri}')")).fetchall()

    def by_hand() -> list[tuple[object, ...]]:
        with duck.connect(server.options) as connection:
            return connection.execute(QUERY.format(f"read_parquet({listed})")).fetchall()

    actions = {"warm": warm, "cold": cold, "delta_scan": scan, "by hand": by_hand}
    assert warm() == scan() == by_hand() == cold()
    requests = {name: count(server, action) for name, action in actions.items()}
    seconds = medians(in_turns(actions, REPEATS))
    name = f"Query that needs {len(MATCHING)} of {FILES:,} files over S3"
    found = []
    for side in ("warm", "cold"):
        for peer, bar in (("delta_scan", 1.0), ("by hand", 1.2)):
            if (side, peer) == ("cold", "by hand"):
                continue
            ratio = seconds[side] / seconds[peer]
            asked = requests[side].total() / requests[peer].total()
            title = f"{name}, {side} handle"
            if peer == "delta_scan":
                found.append(
                    Figure(f"{title}: requests", shown(requests[side]), f"{shown(requests[peer])} ({peer})", asked,
                           "fewer", asked < 1)
                )  # fmt: skip
            found.append(
                Figure(f"{title}: time", milliseconds(seconds[side]), f"{milliseconds(seconds[peer])} ({peer})", ratio,
                       f"below {bar:g} times", ratio < bar)
            )  # fmt: skip
    return found


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
        files.append(AddFile(f"part-{number}.parquet", {}, 300_000, 1_700_000_000_000, data_change=True, stats=stats))
    for start in range(0, FILES, 100):
        table.commit_files(files[start : start + 100])
    table.checkpoint()
    return [files[number] for number in MATCHING]
