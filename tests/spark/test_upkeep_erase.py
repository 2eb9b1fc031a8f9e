"""Erasure on Spark leaves what the library's leaves, and reports the same, also if an executor dies."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.errors import Invalid
from alluvia.operations.erasure.erase_report import DATA, EraseReport
from alluvia_spark import upkeep
from alluvia_spark.upkeep import erasing, work
from tests import judges
from tests.spark import faults

WHERE = "user_id = 'u3'"


@pytest.fixture
def events(lake: Lake) -> Table:
    """Events with the user in `properties`, then in a column; some were deleted, and some files were removed."""
    table = lake.create_events("events", {"n": "long"}, properties={"delta.enableDeletionVectors": "true"})
    for number in range(2):
        table.ingest([{"event_id": f"{number}-{at}", "user_id": f"u{at}", "n": at} for at in range(6)])
    table.evolve(add={"user_id": "string"})
    table.ingest([{"event_id": f"3-{at}", "user_id": f"u{at}", "n": at} for at in range(6)])
    table.ingest([{"event_id": "odd", "user_id": "u3", "n": "not a number"}])
    table.delete("event_id = '1-3'")
    table.optimize(full=True)
    table.ingest([{"event_id": f"4-{at}", "user_id": f"u{at}", "n": at} for at in range(6)])
    return table


def alike(report: EraseReport) -> tuple[object, ...]:
    """Return what two erasures of equal tables have in common."""
    proof, rejects = report.proof, report.rejects
    assert proof is not None
    assert rejects is not None
    plain = replace(report, version=0, oldest_version=0, proof=None, rejects=None)
    files = [each.objects for each in proof.searched if each.kind == DATA]
    return plain, files, rejects.rows, report.ok


def test_spark_erases_what_the_library_erases(
    spark: SparkSession, lake: Lake, events: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    copy = alluvia.connect(str(tmp_path / "copy"))["events"]
    monkeypatch.setattr(erasing, "results", faults.dying(work.results, str(tmp_path / "died")))
    found = upkeep.erase(spark, lake.uri, "events", where=WHERE, dry_run=True)
    assert (tmp_path / "died").exists()
    assert found.rows == copy.erase(WHERE, dry_run=True).rows == 3
    done = upkeep.erase(spark, lake.uri, "events", where=WHERE, prove=True)
    expected = copy.erase(WHERE, prove=True)
    assert alike(done) == alike(expected)
    assert done.ok
    assert judges.ours(events) == judges.ours(copy)
    assert events.erase(WHERE, dry_run=True).ok


def test_what_the_library_refuses_is_refused(spark: SparkSession, lake: Lake, events: Table) -> None:
    events.tag("kept")
    with pytest.raises(Invalid, match="by tag kept"):
        upkeep.erase(spark, lake.uri, "events", where=WHERE)
    with pytest.raises(Invalid, match="Conversion Error"):
        upkeep.erase(spark, lake.uri, "events", where="CAST(event_id AS integer) = 3")
