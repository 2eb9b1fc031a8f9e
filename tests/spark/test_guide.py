"""The guides run as they are typed, on a session of this process and on Spark Connect."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.sessions import settings

ROOT = Path(__file__).parents[2]
GUIDES = {"spark.md": 6, "structured-streaming.md": 4}
"""The pages, and how many blocks each has."""
FRAMES = Path(sys.prefix) / "frames"
CONNECT = """
import os
from alluvia_spark.session import java_variables
os.environ.update(java_variables())
from pyspark.sql import SparkSession
from tests.spark.quick import SETTINGS
spark = SparkSession.builder.remote("local[2]").getOrCreate()
for setting in SETTINGS.items():
    spark.conf.set(*setting)
"""


def _blocks(guide: str, folder: Path) -> list[str]:
    """Return a guide's blocks. Spark itself opens checkpoints and plain files, and it has started in another folder."""
    text = (ROOT / "docs" / "guides" / guide).read_text()
    found = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(found) == GUIDES[guide]
    return [re.sub('"(checkpoints|inbox)', rf'"{folder}/\1', block) for block in found]


@pytest.mark.parametrize("guide", GUIDES)
def test_the_blocks_of_a_guide_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guide: str
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"spark": spark}
    with settings(spark, {"spark.sql.shuffle.partitions": "2"}):
        for block in _blocks(guide, tmp_path):
            exec(compile(block, guide, "exec"), names)
    assert {path.name for path in tmp_path.iterdir()} <= {"checkpoints", "inbox", "lake"}


@pytest.mark.slow
def test_the_blocks_of_the_guides_run_on_spark_connect(tmp_path: Path) -> None:
    """A relative path was one of a temporary folder of the server's, and the write said that it was done."""
    folders = {guide: tmp_path / guide.removesuffix(".md") for guide in GUIDES}
    text = CONNECT
    for guide, folder in folders.items():
        folder.mkdir()
        blocks = "".join(_blocks(guide, folder)).replace("alluvia_spark.batch_txn(rows, batch)", '("pages", batch)')
        text += f"os.chdir({str(folder)!r})\n{blocks}print({guide!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{FRAMES}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    said = [line for line in done.stdout.splitlines() if line in GUIDES]
    assert (done.returncode, said) == (0, list(GUIDES)), done.stderr[-4000:]
    for folder in folders.values():
        assert {path.name for path in folder.iterdir()} <= {"checkpoints", "inbox", "lake"}
    assert sorted(path.name for path in (folders["spark.md"] / "lake").iterdir()) == ["copy", "sales"]
