"""Events of a topic of Kafka, in a table once each, though the driver is killed within a batch."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from alluvia.api.lake import Lake
from tests.examples import TIMES
from tests.samples import EVENTS
from tests.spark.kafka import running_kafka
from tests.spark.killed_driver import EVENTS_A_BATCH, TOPIC
from tests.spark.streams import STEPS

ROOT = Path(__file__).parents[2]
KILLED_AT = ("after commit",) if TIMES == 1 else STEPS
"""Where the driver is killed: in `make deep` at each step, as each costs the start of a Spark."""
SECONDS_MAX = 200


def _lines(folder: Path, name: str, first: int, count: int) -> tuple[Path, list[str]]:
    """Write some of the sample's events to a file, and return it and their ids."""
    with gzip.open(EVENTS / "data" / "access_log.ndjson.gz", "rt") as source:
        lines = list(source)[first : first + count]
    path = folder / name
    path.write_text("".join(lines))
    return path, [json.loads(line)["event_id"] for line in lines]


def _drive(arguments: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.spark.killed_driver", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )


@pytest.mark.slow
def test_events_of_a_topic_are_there_once_though_the_driver_is_killed(lake: Lake, tmp_path: Path) -> None:
    events, ids = _lines(tmp_path, "events", 0, 2 * EVENTS_A_BATCH)
    later, more = _lines(tmp_path, "later", len(ids), 3)
    sent = {KILLED_AT[0]: [events], "never": [later]}
    with running_kafka() as address:
        for step in (*KILLED_AT, "never"):
            files = sent.get(step, [])
            done = _drive([address, tmp_path, step, *files])
            assert done.returncode == (0 if step == "never" else -signal.SIGKILL), done.stderr[-4000:]
    table = lake[TOPIC]
    rows = table.to_arrow().to_pylist()
    assert sorted(row["event_id"] for row in rows) == [*ids, *more]
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows)
    batches = len(list((tmp_path / "checkpoints" / TOPIC / "commits").glob("[0-9]*")))
    assert table.version == batches
