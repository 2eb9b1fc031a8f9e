"""What `make emr` builds, run by `spark-submit` on a cluster. `python -m tests.spark.clusters` has more of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.s3server import running_server
from tests.spark.clusters import DAY, Cluster

pytestmark = pytest.mark.xdist_group("spark")


def test_a_job_survives_a_lost_executor_and_speculation(tmp_path: Path) -> None:
    with running_server() as server:
        cluster = Cluster(server, tmp_path)
        expected = cluster.put_events("incoming")
        cluster.append("e7")
        cluster.run_with_a_lost_executor("incoming", "one")
        assert cluster.ids() == sorted(expected)
        report = cluster.report("one")
        assert (report["rows"], report["duplicates"], report["already_applied"]) == (len(expected) - 1, 1, False)


@pytest.mark.at_length
def test_the_rows_of_a_rollups_groups_go_from_executor_to_executor(tmp_path: Path) -> None:
    with running_server() as server:
        cluster = Cluster(server, tmp_path)
        lake = cluster.lake
        cluster.table.append([{"event_id": f"e{number}", "ts": DAY, "received_at": DAY} for number in range(2000)])
        query = "SELECT right(event_id, 1) AS k, count(*) AS c, count(DISTINCT event_id) AS ids FROM events GROUP BY 1"
        lake.create_rollup("counted", query, fill=False)
        with cluster.maintaining("pipeline", '{"share_bytes": 1000}', "filled", "counted") as process:
            cluster.ended(process, "filled")
        report = cluster.kept("upkeep/reports/pipeline/counted.json")["report"]
        assert (report["mode"], report["version"], report["rows"]) == ("rebuilt", lake["counted"].version, 10)
        assert report["files_added"] > 1  # several tasks have written
        assert lake.sql("FROM counted ORDER BY k").to_pylist() == lake.sql(f"{query} ORDER BY k").to_pylist()
        assert {each.kind for each in lake["counted"].verify(full=True).findings} <= {"orphan-files"}
