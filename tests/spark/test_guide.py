"""The guide runs as it is typed, on a session of this process and on Spark Connect."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.java import QUICK

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "spark.md"
FRAMES = Path(sys.prefix) / "frames"
CONNECT = """
import os
from alluvia_spark.session import java_variables
os.environ.update(java_variables())
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
"""


def _blocks(folder: Path) -> list[str]:
    """Return the guide's blocks. Spark itself keeps a stream's checkpoint, and it has started in another folder."""
    found = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == 7
    return [block.replace('"checkpoints/', f'"{folder}/checkpoints/') for block in found]


def test_the_blocks_of_the_guide_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"spark": spark}
    for block in _blocks(tmp_path):
        exec(compile(block, "spark.md", "exec"), names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "lake"]


@pytest.mark.slow
def test_the_blocks_of_the_guide_run_on_spark_connect(tmp_path: Path) -> None:
    """A relative path was one of a temporary folder of the server's, and the write said that it was done."""
    done = subprocess.run(
        [sys.executable, "-c", CONNECT + "".join(_blocks(tmp_path)) + "print('all of it ran')"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{FRAMES}{os.pathsep}{ROOT}", "JDK_JAVA_OPTIONS": " ".join(QUICK)},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["all of it ran"]), done.stderr[-4000:]
    assert {"checkpoints", "lake"} <= {path.name for path in tmp_path.iterdir()}
    assert sorted(path.name for path in (tmp_path / "lake").iterdir()) == ["copy", "sales"]
