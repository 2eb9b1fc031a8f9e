from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import alluvia
from tests.infra.conftest import policies as policies  # noqa: PLC0414 - a fixture
from tests.infra.policies import LakePolicies
from tests.java import QUICK
from tests.s3server import S3Server

pytestmark = pytest.mark.slow

JOB = Path(__file__).parents[2] / "functions" / "backfill" / "job.py"
NEEDED = ("bash", "sh", "env", "cat", "dirname", "basename", "ps", "rm", "nice")
PROGRAM = """
import json, os, sys
from alluvia_spark.session import session

NAMES = ("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON")
before = [os.environ.get(name) for name in NAMES]
with session(cores=2) as spark:
    context = spark.sparkContext
    found = {
        "master": context.master,
        "python": context.parallelize([0], 1).map(lambda _: __import__("sys").executable).collect(),
        "ui": context.uiWebUrl,
        "zone": spark.conf.get("spark.sql.session.timeZone"),
        "java": context._jvm.System.getProperty("java.version"),
        "host": context.getConf().get("spark.driver.host"),
        "sum": spark.range(10).selectExpr("sum(id)").first()[0],
    }
    with session() as same:
        found["same"] = same is spark
found["restored"] = [os.environ.get(name) for name in NAMES] == before
with session(cores=1) as spark:
    found["again"] = spark.sparkContext.parallelize(range(3), 1).count()
json.dump(found, sys.stdout)
"""


@pytest.fixture
def bare_environment(tmp_path: Path) -> dict[str, str]:
    """An environment without Java, Spark or anything of this machine but a shell's few tools."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in NEEDED:
        found = next(Path(folder, name) for folder in ("/bin", "/usr/bin") if Path(folder, name).exists())
        (tools / name).symlink_to(found)
    (tmp_path / "tmp").mkdir()
    return {
        "PATH": str(tools),
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path / "tmp"),
        "SPARK_CONF_DIR": "/nowhere",
        "JDK_JAVA_OPTIONS": " ".join(QUICK),
    }


def _run(arguments: list[str], environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_spark_starts_without_java_and_leaves_nothing_behind(bare_environment: dict[str, str], tmp_path: Path) -> None:
    done = _run(["-c", PROGRAM], bare_environment, tmp_path / "work")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("java").startswith("17.")
    assert found == {
        "master": "local[2,4]",
        "python": [sys.executable],
        "ui": None,
        "zone": "UTC",
        "host": "127.0.0.1",
        "sum": 45,
        "same": True,
        "restored": True,
        "again": 3,
    }
    assert list((tmp_path / "work").iterdir()) == []
    assert [path.name for path in (tmp_path / "tmp").iterdir() if not path.name.startswith("hsperfdata")] == []


def test_the_files_of_a_driver_that_was_killed_are_deleted_by_the_next(
    bare_environment: dict[str, str], tmp_path: Path
) -> None:
    program = "from alluvia_spark.session import java_variables; home = java_variables()['JAVA_HOME']; "
    dies = _run(
        ["-c", program + "import os; print(home, flush=True); os.kill(os.getpid(), 9)"],
        bare_environment,
        tmp_path / "one",
    )
    assert dies.returncode == -9
    left = Path(dies.stdout.strip())
    assert left.is_relative_to(tmp_path / "tmp")
    assert (left / "bin" / "java").exists()
    assert _run(["-c", program], bare_environment, tmp_path / "two").returncode == 0
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_job_reads_s3a_and_writes_s3(
    bare_environment: dict[str, str], s3_server: S3Server, policies: LakePolicies, tmp_path: Path
) -> None:
    """With the rights of its role in the lake, by the policies of the stack."""
    archive, bucket = s3_server.new_bucket(), s3_server.new_bucket()
    s3_server.judge(bucket, *policies)
    s3_server.denials()
    for day in (1, 2):
        body = b"".join(b'{"id":"%d-%d","ts":"2026-01-0%dT00:00:00Z"}\n' % (day, n, day) for n in range(10))
        s3_server.client.put_object(Bucket=archive, Key=f"logs/2026/{day}.ndjson", Body=body + b"{broken\n")
    s3_server.client.put_object(Bucket=archive, Key="logs/other.ndjson", Body=b'{"id":"other"}\n')
    lake = alluvia.connect(f"s3://{bucket}/lake", clock=None, **s3_server.options)
    table = lake.create_events("requests")
    environment = {
        **bare_environment,
        "AWS_ACCESS_KEY_ID": "Job",
        "AWS_SECRET_ACCESS_KEY": s3_server.options["secret_access_key"],
    }
    arguments = [
        str(JOB),
        *("--lake", f"s3://{bucket}/lake", "--table", "requests", "--source", f"s3a://{archive}/logs/2026/*"),
        *("--endpoint-url", s3_server.endpoint_url, "--region", s3_server.options["region"]),
    ]
    done = _run(arguments, environment, tmp_path / "work")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["rows"], report["rejects"], report["files"], report["version"]) == (20, 2, 2, 2)
    assert len(table.scan().read_all()) == 20
    assert s3_server.denials() == []

    wrong = [*arguments, "--job-id", "a/b"]
    failed = _run(wrong, environment, tmp_path / "again")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("backfill: job_id 'a/b' must be")
    assert failed.stderr.count("\n") == 1
