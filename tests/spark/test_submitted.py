"""What `make emr` builds, run by `spark-submit` on a cluster. `python -m tests.spark.clusters` has more of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.s3server import running_server
from tests.spark.clusters import Cluster, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]


def test_a_job_survives_a_lost_executor_and_speculation(tmp_path: Path) -> None:
    with running_server() as server:
        cluster = Cluster(server, tmp_path)
        expected = cluster.put_events("incoming")
        cluster.append("e7")
        cluster.run_with_a_lost_executor("incoming", "one")
        assert cluster.ids() == sorted(expected)
        report = cluster.report("one")
        assert (report["rows"], report["duplicates"], report["already_applied"]) == (len(expected) - 1, 1, False)
        _upkeep_loses_its_driver_and_an_executor(cluster, expected)


def _upkeep_loses_its_driver_and_an_executor(cluster: Cluster, expected: set[str]) -> None:
    """Kill the driver of a job of upkeep once it has committed, and an executor of the next."""
    for name in ("e1", "e2", "e3", "e4"):
        cluster.append(f"late {name}")
    expected = expected | {f"late e{number}" for number in range(1, 5)}
    before = cluster.table.version
    with cluster.maintaining("optimize", '{"full": true}', "killed") as process:
        wait_for(lambda: process.poll() is not None or cluster.table.version > before)
    assert cluster.ids() == sorted(expected)
    for number in range(5, 9):
        cluster.append(f"late e{number}")
        expected.add(f"late e{number}")
    with cluster.maintaining("optimize", '{"full": true}', "lost") as process:
        cluster.ended_with_a_lost_executor(process, "lost")
    assert cluster.kept("upkeep/reports/optimize/events.json")["report"]["version"] == cluster.table.version
    assert cluster.ids() == sorted(expected)
    assert not cluster.table.optimize(dry_run=True, full=True).plan
    assert {each.kind for each in cluster.table.verify(full=True).findings} <= {"orphan-files"}
