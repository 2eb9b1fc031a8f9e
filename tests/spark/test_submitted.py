"""What `make emr` builds, run by `spark-submit` on a cluster. `python -m tests.spark.clusters` has more of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.s3server import running_server
from tests.spark.clusters import Cluster

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
