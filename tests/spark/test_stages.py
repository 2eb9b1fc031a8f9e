from __future__ import annotations

from threading import Event

from pyspark import SparkStageInfo

from alluvia.progress import reporting_to
from alluvia_spark.stages import report_stages


class Tracker:
    """Two stages run; one is over before it can be asked for. Then the work ends."""

    def __init__(self, ended: Event) -> None:
        self._ended = ended

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - Spark's name
        self._ended.set()
        return [3, 4]

    def getStageInfo(self, stage: int) -> SparkStageInfo | None:  # noqa: N802 - Spark's name
        return SparkStageInfo(stage, 0, "collect", 40, 2, 10, 0) if stage == 3 else None


def test_the_tasks_of_active_stages_are_reported() -> None:
    told: list[tuple[str, int, int, str]] = []

    def listen(what: str, done: int, total: int, unit: str = "") -> None:
        told.append((what, done, total, unit))

    ended = Event()
    with reporting_to(listen):
        report_stages(Tracker(ended), ended)  # type: ignore[arg-type]
    assert told == [("Spark stage 3", 10, 40, "tasks")]
