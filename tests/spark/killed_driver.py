"""A driver that reads a topic of Kafka into a table, as the guide has it, and is killed at a step of a micro-batch.

`python -m tests.spark.killed_driver ADDRESS FOLDER STEP [EVENTS]` first sends a file of events, one a line, to the
topic, if one is given. A step that is none of `STEPS` kills nothing, and the driver ends when all is read.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import alluvia_spark
from alluvia_spark.data_source import AlluviaSource
from alluvia_spark.session import session
from alluvia_spark.streaming.sink import TableSink
from tests.spark.kafka import connector_jars
from tests.spark.streams import FailingSink

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "structured-streaming.md"
TOPIC, EVENTS_A_BATCH = "access_log", 40


def main(address: str, folder: str, step: str, events: str | None = None) -> None:
    """Read what is in the topic, as far as the step lets the driver live."""
    jars = ",".join(map(str, connector_jars()))
    with session("killed driver", cores=2, settings={"spark.jars": jars}) as spark:
        if events is not None:
            kafka = spark.read.text(events).write.format("kafka").option("kafka.bootstrap.servers", address)
            kafka.option("topic", TOPIC).save()
        alluvia_spark.register(spark)
        spark.dataSource.register(_killing(step, spark))
        exec(compile(_block(address, folder), GUIDE.name, "exec"), {"spark": spark})


def _block(address: str, folder: str) -> str:
    """Return the guide's block, with a broker, places and a limit of the test."""
    [found] = re.findall(r"^```python kafka\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    block = str(found)
    given = {
        '"localhost:9092"': repr(address),
        '"lake/': f'"{folder}/lake/',
        '"checkpoints/': f'"{folder}/checkpoints/',
        '"100000"': f'"{EVENTS_A_BATCH}"',
    }
    for there, here in given.items():
        assert there in block
        block = block.replace(there, here)
    return block


def _killing(at: str, spark: SparkSession) -> type[AlluviaSource]:
    """Return a source whose sink kills the driver, its Java process and this one, at a step."""
    java = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    driver = os.getpid()

    class Sink(FailingSink):
        def fail(self, step: str) -> None:
            if step == at:
                os.kill(driver, signal.SIGKILL)
                os.kill(java, signal.SIGKILL)
                signal.pause()

    class Killing(AlluviaSource):
        def streamWriter(self, schema: StructType, overwrite: bool) -> TableSink:  # noqa: N802
            return Sink.of(self._given, schema, overwrite=overwrite)

    return Killing


if __name__ == "__main__":
    main(*sys.argv[1:])
