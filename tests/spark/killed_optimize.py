"""A driver that optimizes the table `t` of a lake, and is killed once it has committed a group: `… LAKE`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from alluvia_spark import upkeep
from alluvia_spark.session import session
from alluvia_spark.upkeep import optimizing, work


def main(lake: str) -> None:
    """Optimize the table, as far as the kill lets it: its Java process goes too, as that of a lost machine."""
    with session("killed optimize", cores=1) as spark:
        java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]

        def results(*arguments: Any) -> Iterator[Any]:
            for at, each in enumerate(work.results(*arguments)):
                if at:
                    os.kill(java, signal.SIGKILL)
                    os.kill(os.getpid(), signal.SIGKILL)
                yield each

        with patch.object(optimizing, "results", results):
            upkeep.optimize(spark, lake, "t")


if __name__ == "__main__":
    main(*sys.argv[1:])
