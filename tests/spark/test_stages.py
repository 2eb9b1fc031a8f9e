from __future__ import annotations

from threading import Event

from pyspark import SparkStageInfo

from alluvia.progress import reporting_to
from alluvia_spark.frames import report_stages


class Tracker:
    """Three stages run; one is over before it can be asked for. Then the work ends."""

    def __init__(self, ended: Event) -> None:
        self._ended = ended

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - Spark's name
        self._ended.set()
        return [5, 2, 3]

    def getStageInfo(self, stage: int) -> SparkStageInfo | None:  # noqa: N802 - Spark's name
        return SparkStageInfo(stage, 0, "collect", 40, 2, 10, 0) if stage != 2 else None


def test_the_bytes_that_are_read_and_the_tasks_of_other_stages_are_reported() -> None:
    told: list[tuple[str, int, int, str]] = []

    def listen(what: str, done: int, total: int, unit: str = "") -> None:
        told.append((what, done, total, unit))

    ended = Event()
    with reporting_to(listen):
        report_stages(Tracker(ended), ended, 7, 1000)  # type: ignore[arg-type]
    assert told == [("reading 7 files", 250, 1000, "bytes"), ("7 files: Spark stage 5", 10, 40, "tasks")]
